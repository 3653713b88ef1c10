import { NumberInput, Stack, Switch, Text, TextInput } from "@mantine/core";
import type { Json, Parameter, Properties } from "../api";

interface Props {
  parameters: Parameter[];
  values: Properties;
  change: (values: Properties) => void;
}

const INTEGERS = ["int", "integer", "bigint", "i32", "i64", "u32", "u64"];

/** A field for each parameter, by its type. */
export function ParamsForm({ parameters, values, change }: Props) {
  if (!parameters.length) {
    return (
      <Text size="xs" c="dimmed">
        The query takes no parameters.
      </Text>
    );
  }
  const set = (name: string, value: Json) => change({ ...values, [name]: value });
  return (
    <Stack gap="xs">
      {parameters.map((one) => (
        <Field key={one.name} parameter={one} value={values[one.name]} set={(value) => set(one.name, value)} />
      ))}
    </Stack>
  );
}

function Field({ parameter, value, set }: { parameter: Parameter; value: Json | undefined; set: (value: Json) => void }) {
  const { name, kind, nullable } = parameter;
  const shown = `${name} (${describe(parameter)})`;
  if (kind === "bool") {
    return <Switch label={shown} checked={value === true} onChange={(event) => set(event.currentTarget.checked)} />;
  }
  if (INTEGERS.includes(kind) || kind === "float" || kind === "number") {
    return (
      <NumberInput
        label={shown}
        value={typeof value === "number" ? value : ""}
        allowDecimal={!INTEGERS.includes(kind)}
        onChange={(next) => set(next === "" ? null : Number(next))}
        required={!nullable}
        withAsterisk={false}
      />
    );
  }
  if (kind === "list" || kind === "vector") {
    return (
      <TextInput
        label={`${shown}, as JSON`}
        value={value === undefined || value === null ? "" : typeof value === "string" ? value : JSON.stringify(value)}
        placeholder={kind === "list" ? '["a", "b"]' : "[0.1, 0.2]"}
        onChange={(event) => set(parse(event.currentTarget.value))}
      />
    );
  }
  return (
    <TextInput
      label={shown}
      value={typeof value === "string" ? value : ""}
      placeholder={kind === "date" ? "2030-01-31" : kind === "datetime" ? "2030-01-31T12:00:00Z" : undefined}
      onChange={(event) => set(event.currentTarget.value === "" && nullable ? null : event.currentTarget.value)}
    />
  );
}

function describe({ kind, item_kind, vector_dim, nullable }: Parameter): string {
  const named = kind === "list" ? `list of ${item_kind}` : kind === "vector" ? `vector of ${vector_dim}` : kind;
  return nullable ? `${named}, optional` : named;
}

/** JSON as soon as it is complete; until then the text itself. */
function parse(text: string): Json {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
