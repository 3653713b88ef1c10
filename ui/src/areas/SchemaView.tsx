import { Badge, Group, SegmentedControl, Text } from "@mantine/core";
import { useEffect, useMemo, useState } from "react";
import { api, type EdgeData, type EdgeInfo, type TypeInfo } from "../api";
import { formatCount, formatType, keyOf, nodeKey } from "../format";
import { Picture } from "../picture/Picture";
import { report, useShared } from "../state";

export default function SchemaView() {
  const { schema, colorOf } = useShared();
  const [view, setView] = useState("types");
  const [chosen, setChosen] = useState<string>();
  const nodes = useMemo(
    () =>
      (schema?.nodes ?? []).map((type) => ({
        type: "type",
        id: type.name,
        properties: {},
        blobs: [],
        color: colorOf(type.name),
        size: 9 + Math.min(14, 2 * Math.log10(1 + (schema?.rows[`node:${type.name}`] ?? 0))),
      })),
    [schema, colorOf],
  );
  const edges = useMemo<EdgeData[]>(
    () =>
      (schema?.edges ?? []).map((edge) => ({
        type: edge.name,
        id: edge.name,
        from: edge.from,
        from_type: "type",
        to: edge.to,
        to_type: "type",
        properties: {},
      })),
    [schema],
  );
  if (!schema) return null;
  const all: (TypeInfo | EdgeInfo)[] = [...schema.nodes, ...schema.edges];
  const shown = chosen ? all.filter((one) => one.name === chosen || touches(one, chosen)) : all;
  return (
    <div className="schema">
      <div className="schema-picture">
        <Picture
          nodes={nodes}
          edges={edges}
          selected={chosen ? nodeKey("type", chosen) : undefined}
          edgeLabels
          onSelect={(key) => setChosen(key?.split(" ")[1])}
        />
      </div>
      <div className="page">
        <div className="page-head">
          <h1>Schema</h1>
          <Text c="dimmed">
            {formatCount(schema.nodes.length, "node type")}, {formatCount(schema.edges.length, "edge type")}
          </Text>
          <div className="spacer" />
          <SegmentedControl
            aria-label="Show the schema as"
            value={view}
            onChange={setView}
            data={[
              { value: "types", label: "Types" },
              { value: "source", label: "Source" },
            ]}
          />
        </div>
        {view === "source" ? <SchemaSource /> : shown.map((type) => <TypeCard key={type.name} type={type} />)}
      </div>
    </div>
  );
}

function touches(type: TypeInfo | EdgeInfo, name: string): boolean {
  return "from" in type && (type.from === name || type.to === name);
}

function TypeCard({ type }: { type: TypeInfo | EdgeInfo }) {
  const { schema, colorOf, go } = useShared();
  const isEdge = "from" in type;
  const rows = schema?.rows[`${isEdge ? "edge" : "node"}:${type.name}`] ?? 0;
  const key = keyOf(type);
  const description = type.annotations.find((one) => one.name === "description")?.value;
  const indexes = columnsOf(type, "Index");
  const uniques = columnsOf(type, "Unique");
  return (
    <section className="card type-card" aria-label={`${isEdge ? "Edge" : "Node"} type ${type.name}`}>
      <Group gap={8} mb={4}>
        {!isEdge && <span className="dot" style={{ background: colorOf(type.name) }} />}
        <strong>{type.name}</strong>
        {isEdge && (
          <Text size="sm" c="dimmed">
            {type.from} → {type.to} {cardinality(type)}
          </Text>
        )}
        <div className="spacer" />
        <button
          type="button"
          className="link"
          onClick={() => go("query", { q: isEdge ? edgeQuery(type) : nodeQuery(type) })}
        >
          {formatCount(rows, "row")}
        </button>
      </Group>
      {description && (
        <Text size="xs" c="dimmed" mb={4}>
          {unquote(description)}
        </Text>
      )}
      <table className="props">
        <tbody>
          {type.properties.map((one) => (
            <tr key={one.name}>
              <th scope="row">{one.name}</th>
              <td>
                <code>{formatType(one.type)}</code>{" "}
                {key.includes(one.name) && <Badge size="xs" color="indigo">key</Badge>}{" "}
                {indexes.has(one.name) && <Badge size="xs" color="teal">index</Badge>}{" "}
                {uniques.has(one.name) && <Badge size="xs" color="grape">unique</Badge>}{" "}
                {one.embed && <Badge size="xs" color="cyan">embeds {one.embed.source}</Badge>}
                {rulesOf(type, one.name).map((rule) => (
                  <Badge key={rule} size="xs" color="orange" ml={4}>
                    {rule}
                  </Badge>
                ))}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function columnsOf(type: TypeInfo, kind: string): Set<string> {
  return new Set(type.constraints.flatMap((one) => (kind in one ? (one[kind] as string[]) : [])));
}

function rulesOf(type: TypeInfo, column: string): string[] {
  return type.constraints.flatMap((one) => {
    const range = one.Range as { column: string; min: number | null; max: number | null } | undefined;
    const check = one.Check as { column: string; pattern: string } | undefined;
    if (range?.column === column) return [`${range.min ?? ""}..${range.max ?? ""}`];
    return check?.column === column ? [`matches ${check.pattern}`] : [];
  });
}

function cardinality({ cardinality: { min, max } }: EdgeInfo): string {
  return min === 0 && max === null ? "" : `· ${min}..${max ?? "*"} per ${"source"}`;
}

function unquote(text: string): string {
  return text.replace(/^"|"$/g, "");
}

function nodeQuery(type: TypeInfo): string {
  const plain = type.properties.filter((one) => one.type.scalar !== "Blob" && typeof one.type.scalar === "string");
  const columns = ["$n", ...plain.map((one) => `$n.${one.name} as ${one.name}`)];
  return `query all() {\n  match { $n: ${type.name} }\n  return { ${columns.join(", ")} }\n  limit 500\n}\n`;
}

function edgeQuery(type: EdgeInfo): string {
  const name = type.name.charAt(0).toLowerCase() + type.name.slice(1);
  const columns = ["$a", "$b", ...type.properties.map((one) => `$e.${one.name} as ${one.name}`)];
  return `query all() {\n  match { $a: ${type.from}  $a $e:${name} $b }\n  return { ${columns.join(", ")} }\n  limit 500\n}\n`;
}

function SchemaSource() {
  const [source, setSource] = useState("");
  useEffect(() => void api.schemaSource().then((found) => setSource(found.schema_source), report), []);
  return (
    <pre className="card mono json" tabIndex={0} aria-label="Source of the schema">
      {source}
    </pre>
  );
}
