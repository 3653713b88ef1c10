import { Alert, Button, FileInput, Group, Select, Stack, Table, Text, TextInput } from "@mantine/core";
import { useState } from "react";
import { ApiError, api, type EdgeInfo, type Json, type Properties, type TypeInfo } from "../api";
import { formatCount, formatType } from "../format";
import { confirmDone, useShared } from "../state";
import { parseCsv } from "./csv";

const MOST_BYTES = 32 * 2 ** 20;
const PREVIEW = 8;

interface Parsed {
  name: string;
  /** Rows of a table that still need a type; absent for lines that name their own. */
  columns?: string[];
  rows: Properties[];
  lines?: string;
}

/** A file goes to a branch of its own, where its effect is reviewed before it is merged. */
export function LoadFile() {
  const { schema, moment, go, refresh, permissions } = useShared();
  const [file, setFile] = useState<Parsed>();
  const [type, setType] = useState<string | null>(null);
  const [mapping, setMapping] = useState<Record<string, string | null>>({});
  const [branch, setBranch] = useState("");
  const [mode, setMode] = useState<string>("merge");
  const [problem, setProblem] = useState<{ message: string; rejects: string[] }>();
  const [busy, setBusy] = useState(false);

  const choose = async (chosen: File | null) => {
    setProblem(undefined);
    setFile(undefined);
    if (!chosen) return;
    if (chosen.size > MOST_BYTES) {
      setProblem({ message: "The page loads up to 32 MB; use `omnigraph load` for larger files.", rejects: [] });
      return;
    }
    const parsed = parseFile(chosen.name, await chosen.text());
    setFile(parsed);
    setBranch(`load/${chosen.name.toLowerCase().replace(/[^a-z0-9]+/g, "-")}`);
    if (parsed.columns && schema) {
      const guess = guessType([...schema.nodes, ...schema.edges], parsed.columns);
      setType(guess?.name ?? null);
      setMapping(guessMapping(guess, parsed.columns));
    }
  };
  const all: (TypeInfo | EdgeInfo)[] = [...(schema?.nodes ?? []), ...(schema?.edges ?? [])];
  const owner = all.find((one) => one.name === type);
  const load = async () => {
    if (!file) return;
    setBusy(true);
    setProblem(undefined);
    try {
      const lines = file.lines ?? toLines(file, owner, mapping);
      await api.load(lines, branch, moment.branch, mode);
      confirmDone(`${file.name} is on ${branch}.`);
      await refresh();
      go("review", { branch, target: moment.branch });
    } catch (error) {
      setProblem(explain(error));
    } finally {
      setBusy(false);
    }
  };
  if (!permissions?.actions.branch_create) {
    return <div className="card empty">You may not create a branch here, so there is nowhere to load to.</div>;
  }
  return (
    <Stack gap="sm" maw={820}>
      <FileInput label="File" description="CSV with a header, or NDJSON" placeholder="Choose a file" accept=".csv,.ndjson,.jsonl" onChange={choose} size="xs" clearable />
      {file && (
        <>
          <Text size="sm">
            {formatCount(file.rows.length, "row")} in <b>{file.name}</b>
          </Text>
          {file.columns && (
            <Select
              label="Rows are of type"
              data={all.map((one) => one.name)}
              value={type}
              onChange={(name) => {
                setType(name);
                setMapping(guessMapping(all.find((one) => one.name === name), file.columns ?? []));
              }}
              w={240}
            />
          )}
          <div className="card" style={{ overflow: "auto" }} tabIndex={0} role="region" aria-label="Preview of the file">
            <Table fz={12} verticalSpacing={4}>
              <Table.Thead>
                <Table.Tr>
                  {(file.columns ?? ["type", "data"]).map((column) => (
                    <Table.Th key={column}>
                      {column}
                      {file.columns && owner && (
                        <Select
                          aria-label={`Property for ${column}`}
                          placeholder="leave out"
                          data={targetsOf(owner)}
                          value={mapping[column] ?? null}
                          onChange={(name) => setMapping({ ...mapping, [column]: name })}
                          clearable
                          w={150}
                        />
                      )}
                    </Table.Th>
                  ))}
                </Table.Tr>
              </Table.Thead>
              <Table.Tbody>
                {file.rows.slice(0, PREVIEW).map((row, at) => (
                  // biome-ignore lint: rows have no names of their own
                  <Table.Tr key={at}>
                    {(file.columns ?? ["type", "data"]).map((column) => (
                      <Table.Td key={column}>{shown(row[column])}</Table.Td>
                    ))}
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          </div>
          <Group align="end">
            <TextInput label={`New branch from ${moment.branch}`} value={branch} onChange={(event) => setBranch(event.currentTarget.value)} w={260} />
            <Select
              label="Rows that exist already"
              data={[
                { value: "merge", label: "are updated" },
                { value: "append", label: "are an error" },
              ]}
              value={mode}
              onChange={(value) => value && setMode(value)}
              allowDeselect={false}
              w={160}
            />
            <Button loading={busy} disabled={!branch || (file.columns !== undefined && !owner)} onClick={load}>
              Load and review
            </Button>
          </Group>
        </>
      )}
      {problem && (
        <Alert color="red" title={problem.message}>
          {problem.rejects.slice(0, 20).map((one) => (
            <div key={one} className="mono">
              {one}
            </div>
          ))}
        </Alert>
      )}
    </Stack>
  );
}

function parseFile(name: string, text: string): Parsed {
  if (name.toLowerCase().endsWith(".csv")) {
    const [columns = [], ...rows] = parseCsv(text);
    return { name, columns, rows: rows.map((row) => Object.fromEntries(columns.map((column, at) => [column, row[at] ?? ""]))) };
  }
  const rows = text.split("\n").filter((line) => line.trim()).map(parseLine);
  return { name, rows, lines: text };
}

function parseLine(line: string): Properties {
  try {
    const { type, edge, ...rest } = JSON.parse(line);
    return { type: type ?? edge ?? null, data: rest.data ?? rest };
  } catch {
    return { type: "not JSON", data: line };
  }
}

function targetsOf(owner: TypeInfo | EdgeInfo): string[] {
  return [...("from" in owner ? ["from", "to"] : []), ...owner.properties.map((one) => one.name)];
}

function guessType(types: (TypeInfo | EdgeInfo)[], columns: string[]): TypeInfo | EdgeInfo | undefined {
  const score = (type: TypeInfo | EdgeInfo) => columns.filter((column) => targetsOf(type).includes(column.toLowerCase())).length;
  return [...types].sort((a, b) => score(b) - score(a))[0];
}

function guessMapping(type: TypeInfo | EdgeInfo | undefined, columns: string[]): Record<string, string | null> {
  const known = type ? targetsOf(type) : [];
  return Object.fromEntries(columns.map((column) => [column, known.find((name) => name.toLowerCase() === column.trim().toLowerCase()) ?? null]));
}

function toLines(file: Parsed, owner: TypeInfo | EdgeInfo | undefined, mapping: Record<string, string | null>): string {
  if (!owner) return "";
  const types = new Map(owner.properties.map((one) => [one.name, formatType(one.type)]));
  return file.rows
    .map((row) => {
      const mapped = Object.entries(mapping).flatMap(([column, name]) => (name ? [[name, row[column]] as const] : []));
      const ends = "from" in owner ? Object.fromEntries(mapped.filter(([name]) => name === "from" || name === "to")) : {};
      const data = mapped.filter(([name]) => types.has(name)).map(([name, cell]) => [name, toValue(String(cell ?? ""), types.get(name) ?? "")]);
      const head = "from" in owner ? { edge: owner.name, ...ends } : { type: owner.name };
      return JSON.stringify({ ...head, data: Object.fromEntries(data) });
    })
    .join("\n");
}

/** A cell as the type of its property wants it; the server reports what does not fit. */
function toValue(cell: string, type: string): Json {
  if (cell === "") return type.endsWith("?") ? null : "";
  if (/^[IUF]\d/.test(type) && Number.isFinite(Number(cell))) return Number(cell);
  if (type.startsWith("Bool") && /^(true|false)$/i.test(cell)) return cell.toLowerCase() === "true";
  if (type.startsWith("[")) return cell.split(";").map((one) => one.trim());
  return cell;
}

function shown(value: Json | undefined): string {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return text && text.length > 90 ? `${text.slice(0, 90)}…` : (text ?? "");
}

function explain(error: unknown): { message: string; rejects: string[] } {
  if (!(error instanceof ApiError)) return { message: String(error), rejects: [] };
  const found = (error.data as { violations?: { message?: string }[] } | undefined)?.violations ?? [];
  return { message: error.message, rejects: found.map((one) => one.message ?? JSON.stringify(one)) };
}
