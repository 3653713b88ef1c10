import { Badge, Group, Text, TextInput, UnstyledButton } from "@mantine/core";
import type { Decision, Json, Side } from "../api";
import { Value } from "./Value";

interface Props {
  decision: Decision;
  source: string;
  target: string;
  change: (next: Decision) => void;
}

const KINDS: Record<string, string> = {
  divergent_insert: "added on both sides",
  divergent_update: "changed on both sides",
  delete_vs_update: "deleted on one side, changed on the other",
  orphan_edge: "an edge to a node that is gone",
  unique_violation: "two entities with one unique value",
  cardinality_violation: "too many or too few edges",
  value_constraint_violation: "a value breaks a rule",
};

export function isDecided(decision: Decision): boolean {
  if (decision.take) return true;
  const properties = Object.values(decision.properties ?? {});
  return properties.length > 0 && properties.every((one) => one.take || one.value !== undefined);
}

/** One conflict: both values and the base, to choose from for the entity or property by property. */
export function ConflictCard({ decision, source, target, change }: Props) {
  const [kind, name] = decision.type.split(":");
  const sides: { side: Side; label: string }[] = [
    { side: "ours", label: `${target} (ours)` },
    { side: "theirs", label: `${source} (theirs)` },
    { side: "base", label: "before both (base)" },
  ];
  const properties = Object.entries(decision.properties ?? {});
  const setProperty = (property: string, next: { take?: Side; value?: Json }) => {
    const { base, ours, theirs } = decision.properties![property];
    change({
      ...decision,
      take: null,
      properties: { ...decision.properties, [property]: { base, ours, theirs, ...next } },
    });
  };
  return (
    <section className="conflict" data-resolved={isDecided(decision)} aria-label={`Conflict about ${name} ${decision.id}`}>
      <Group gap={8} mb={4}>
        <Badge color="gray">
          {kind} {name}
        </Badge>
        <strong>{decision.id}</strong>
        <Badge color="orange">{KINDS[decision.kind] ?? decision.kind}</Badge>
      </Group>
      <Text size="xs" c="dimmed" mb={8}>
        {decision.message}
      </Text>
      {properties.map(([property, values]) => (
        <div key={property} style={{ marginBottom: 10 }}>
          <Text size="sm" fw={600} mb={4}>
            {property}
          </Text>
          <div className="sides" role="radiogroup" aria-label={`Value of ${property}`}>
            {sides.map(({ side, label }) => (
              <UnstyledButton
                key={side}
                className="side-choice"
                role="radio"
                aria-checked={values.take === side || (decision.take === side && values.value === undefined)}
                onClick={() => setProperty(property, { take: side })}
              >
                <span className="section">{label}</span>
                <div className="value">
                  <Value value={values[side]} />
                </div>
              </UnstyledButton>
            ))}
          </div>
          <TextInput
            mt={6}
            aria-label={`Another value of ${property}`}
            placeholder="or another value"
            value={values.value === undefined ? "" : String(values.value)}
            onChange={(event) => setProperty(property, typed(event.currentTarget.value, values.ours ?? values.theirs))}
          />
        </div>
      ))}
      <Group gap={6}>
        <Text size="xs" c="dimmed">
          Whole entity:
        </Text>
        {sides.map(({ side, label }) => (
          <UnstyledButton
            key={side}
            className="chip"
            aria-pressed={decision.take === side}
            data-chosen={decision.take === side}
            onClick={() => change(takeWhole(decision, side))}
          >
            {label}
          </UnstyledButton>
        ))}
      </Group>
    </section>
  );
}

function takeWhole(decision: Decision, side: Side): Decision {
  const cleared = Object.entries(decision.properties ?? {}).map(([name, { base, ours, theirs }]) => [name, { base, ours, theirs }]);
  return { ...decision, take: side, properties: decision.properties && Object.fromEntries(cleared) };
}

/** What was typed, as a number or truth value where the sides have one. */
function typed(text: string, like: Json): { value?: Json } {
  if (text === "") return {};
  if (typeof like === "number" && Number.isFinite(Number(text))) return { value: Number(text) };
  if (typeof like === "boolean" && /^(true|false)$/.test(text)) return { value: text === "true" };
  return { value: text };
}
