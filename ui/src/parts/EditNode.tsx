import { Alert, Button, Checkbox, Modal, NumberInput, Radio, Select, Stack, Text, Textarea, TextInput } from "@mantine/core";
import { type FormEvent, useEffect, useState } from "react";
import { api, type Json, type NodeData, type Permissions, type PropertyInfo } from "../api";
import { isPlain, keyOf, labelOf, nodeTypeOf } from "../format";
import { confirmDone, report, useShared } from "../state";

interface Props {
  node: NodeData;
  removes: boolean;
  close: () => void;
  done: () => void;
}

/** Change or delete a node: on a branch of its own unless the actor asks for the one that is shown. */
export function EditNode({ node, removes, close, done }: Props) {
  const { schema, moment, go, refresh } = useShared();
  const type = nodeTypeOf(schema, node.type);
  const key = keyOf(type)[0];
  const keyProperty = type?.properties.find((one) => one.name === key);
  const rights = useRights(moment.branch);
  const editable = (type?.properties ?? []).filter((one) => isPlain(one) && !one.type.list && one.name !== key);
  const [values, setValues] = useState<Record<string, Json>>({});
  const [onNew, setOnNew] = useState(moment.branch === "main");
  const [name, setName] = useState(`edit/${slug(node.id)}`);
  const changed = editable.filter((one) => one.name in values && values[one.name] !== node.properties[one.name]);
  const mayHere = rights?.actions.change ?? false;
  const target = onNew || !mayHere ? name.trim() : moment.branch;

  const submit = async (event: FormEvent) => {
    event.preventDefault();
    try {
      if (target !== moment.branch) await api.createBranch(target, moment.branch);
      const { text, params } = removes
        ? removal(node, keyProperty)
        : assignment(node, keyProperty, changed, values);
      await api.mutate(text, params, target);
      confirmDone(`${labelOf(node)} was ${removes ? "deleted" : "changed"} on ${target}.`);
      close();
      if (target === moment.branch) {
        await refresh();
        done();
      } else {
        go("review", { branch: target, target: moment.branch });
      }
    } catch (error) {
      report(error);
    }
  };
  return (
    <Modal opened onClose={close} title={`${removes ? "Delete" : "Edit"} ${labelOf(node)}`} size="md">
      <form onSubmit={submit}>
        <Stack gap="xs">
          {removes ? (
            <Alert color="red" p="xs">
              The node and all its edges are removed.
            </Alert>
          ) : (
            editable.map((property) => (
              <Field
                key={property.name}
                property={property}
                value={property.name in values ? values[property.name] : node.properties[property.name]}
                change={(value) => setValues({ ...values, [property.name]: value })}
              />
            ))
          )}
          <Radio.Group
            label="Where to write it"
            value={onNew || !mayHere ? "new" : "here"}
            onChange={(value) => setOnNew(value === "new")}
            mt="xs"
          >
            <Stack gap={6} mt={4}>
              <Radio size="xs" value="new" label="On a new branch, to review and merge" />
              <Radio
                size="xs"
                value="here"
                disabled={!mayHere}
                label={mayHere ? `Directly on ${moment.branch}` : `Directly on ${moment.branch}: policy does not allow it`}
              />
            </Stack>
          </Radio.Group>
          {(onNew || !mayHere) && (
            <TextInput label="New branch" value={name} onChange={(event) => setName(event.currentTarget.value)} required withAsterisk={false} />
          )}
          <Text size="xs" c="dimmed">
            {removes ? "" : `${changed.length} of ${editable.length} properties differ. `}It becomes one commit.
          </Text>
          <Button type="submit" color={removes ? "red" : undefined} disabled={!removes && changed.length === 0}>
            {removes ? "Delete" : "Save"} on {target}
          </Button>
        </Stack>
      </form>
    </Modal>
  );
}

function useRights(branch: string): Permissions | undefined {
  const [rights, setRights] = useState<Permissions>();
  useEffect(() => void api.permissions(branch).then(setRights, report), [branch]);
  return rights;
}

interface FieldProps {
  property: PropertyInfo;
  value: Json | undefined;
  change: (value: Json) => void;
}

function Field({ property, value, change }: FieldProps) {
  const { type, name } = property;
  const label = name;
  const empty = type.nullable ? null : "";
  if (type.enum_values) {
    return (
      <Select label={label} data={type.enum_values} value={value as string | null} onChange={change} clearable={type.nullable} />
    );
  }
  if (type.scalar === "Bool") {
    return <Checkbox label={label} checked={value === true} onChange={(event) => change(event.currentTarget.checked)} />;
  }
  if (/^[IUF]\d/.test(String(type.scalar))) {
    return (
      <NumberInput
        label={label}
        value={(value as number | null) ?? ""}
        allowDecimal={String(type.scalar).startsWith("F")}
        onChange={(next) => change(next === "" ? empty : Number(next))}
      />
    );
  }
  const Input = typeof value === "string" && value.length > 50 ? Textarea : TextInput;
  return (
    <Input
      label={label}
      value={(value as string | null) ?? ""}
      placeholder={value === null ? "null" : undefined}
      onChange={(event: { currentTarget: { value: string } }) => change(event.currentTarget.value || empty)}
    />
  );
}

function assignment(node: NodeData, key: PropertyInfo | undefined, changed: PropertyInfo[], values: Record<string, Json>) {
  const declared = changed.map((one) => `$${one.name}: ${scalarOf(one)}?`);
  const set = changed.map((one) => `${one.name}: $${one.name}`).join(", ");
  const text = `query edit($the_key: ${scalarOf(key)}, ${declared.join(", ")}) { update ${node.type} set { ${set} } where ${key?.name} = $the_key }`;
  const params = Object.fromEntries(changed.map((one) => [one.name, values[one.name]]));
  return { text, params: { ...params, the_key: node.properties[key?.name ?? ""] } };
}

function removal(node: NodeData, key: PropertyInfo | undefined) {
  const text = `query remove($the_key: ${scalarOf(key)}) { delete ${node.type} where ${key?.name} = $the_key }`;
  return { text, params: { the_key: node.properties[key?.name ?? ""] } };
}

function scalarOf(property: PropertyInfo | undefined): string {
  return !property || property.type.enum_values ? "String" : String(property.type.scalar);
}

function slug(text: string): string {
  return text.toLowerCase().replace(/[^a-z0-9]+/g, "-").slice(0, 40) || "node";
}
