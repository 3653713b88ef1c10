import { Alert, Badge, Button, Menu, SegmentedControl, Select, Text } from "@mantine/core";
import { useLocalStorage } from "@mantine/hooks";
import { ClockIcon, DownloadIcon, Link2Icon, PlayIcon } from "@radix-ui/react-icons";
import { useEffect, useMemo, useState } from "react";
import { ApiError, api, type Explained, type LintReport, type Properties, type QueryResult, type StoredQuery } from "../api";
import { Editor } from "../editor/Editor";
import { formatCount, formatValue, saveFile } from "../format";
import { DataTable } from "../parts/DataTable";
import { ParamsForm } from "../parts/ParamsForm";
import { PlanTable } from "../parts/PlanTable";
import { ResultChart } from "../parts/ResultChart";
import { ResultPicture } from "../parts/ResultPicture";
import { confirmDone, report, useShared } from "../state";

type View = "table" | "picture" | "chart" | "json" | "plan";
const VIEWS: View[] = ["table", "picture", "chart", "json", "plan"];
const MOST_PAST = 30;

export default function Query() {
  const { schema, moment, params: place, go, permissions, refresh } = useShared();
  const first = schema?.nodes[0];
  const example = first
    ? `query people() {\n  match { $n: ${first.name} }\n  return { ${["$n", ...first.properties.slice(0, 4).map((one) => `$n.${one.name} as ${one.name}`)].join(", ")} }\n  limit 100\n}\n`
    : "";
  const [text, setText] = useState(place.get("q") ?? "");
  const [values, setValues] = useState<Properties>(() => parseValues(place.get("p")));
  const [lint, setLint] = useState<LintReport>();
  const [chosen, setChosen] = useState<string | null>(null);
  const [stored, setStored] = useState<StoredQuery[]>([]);
  const [result, setResult] = useState<QueryResult>();
  const [plan, setPlan] = useState<Explained>();
  const [problem, setProblem] = useState<{ message: string; remedy?: string }>();
  const [view, setView] = useState<View>("table");
  const [busy, setBusy] = useState(false);
  const [milliseconds, setMilliseconds] = useState(0);
  const [past, setPast] = useLocalStorage<string[]>({ key: "omnigraph-queries", defaultValue: [] });

  // Another link in the same tab brings another query.
  const linked = place.get("q");
  const linkedValues = place.get("p");
  useEffect(() => {
    if (linked !== null) setText(linked);
    if (linkedValues !== null) setValues(parseValues(linkedValues));
  }, [linked, linkedValues]);
  useEffect(() => {
    if (!text && example) setText(example);
  }, [example, text]);
  useEffect(() => void api.storedQueries().then((found) => setStored(found.queries), () => setStored([])), []);

  const queries = lint?.queries ?? [];
  const current = queries.find((one) => one.name === chosen) ?? queries[0];
  const used = useMemo(() => pick(values, current), [values, current]);

  const run = async (explains = false) => {
    setBusy(true);
    setProblem(undefined);
    const begun = performance.now();
    try {
      if (explains) {
        setPlan(await api.explain(text, used, moment, current?.name));
        setView("plan");
      } else if (current?.mutation) {
        const done = await api.mutate(text, used, moment.branch, current.name);
        confirmDone(done.commit ? `Committed to ${moment.branch}.` : "Nothing changed.");
        await refresh();
      } else {
        setResult(await api.query(text, used, moment, { name: current?.name }));
        if (view === "plan") setView("table");
      }
      setMilliseconds(performance.now() - begun);
      setPast((old) => [text, ...old.filter((one) => one !== text)].slice(0, MOST_PAST));
    } catch (error) {
      setProblem(describe(error));
    } finally {
      setBusy(false);
    }
  };
  const link = () => {
    const commit = moment.commit ?? result?.graph_commit_id;
    go("query", { q: text, p: JSON.stringify(used), commit });
    setTimeout(() => void navigator.clipboard?.writeText(location.href).catch(() => undefined), 50);
    confirmDone("The address now has the query, its parameters and the commit.");
  };
  const mayRun = !current?.mutation || ((permissions?.actions.change ?? false) && !moment.commit);
  return (
    <div className="query">
      <Editor text={text} schema={schema} change={setText} linted={setLint} run={() => void run()} />
      <section className="params" aria-label="Parameters">
        {queries.length > 1 && (
          <Select label="Query" data={queries.map((one) => one.name)} value={current?.name ?? null} onChange={setChosen} mb="xs" />
        )}
        <div className="section" style={{ marginBottom: 8 }}>
          Parameters
        </div>
        <ParamsForm parameters={current?.params ?? []} values={values} change={setValues} />
        {stored.length > 0 && (
          <>
            <div className="section" style={{ margin: "16px 0 6px" }}>
              Stored queries
            </div>
            {stored.map((one) => (
              <StoredButton key={one.name} query={one} shown={(found) => (setResult(found), setView("table"))} values={values} change={setValues} />
            ))}
          </>
        )}
      </section>
      <div className="bar">
        <Button leftSection={<PlayIcon />} loading={busy} disabled={!mayRun} onClick={() => void run()} title="Ctrl+Enter">
          {current?.mutation ? `Run on ${moment.branch}` : "Run"}
        </Button>
        <Button variant="default" disabled={current?.mutation} onClick={() => void run(true)}>
          Explain
        </Button>
        <LintBadge lint={lint} />
        <div className="spacer" />
        {result && (
          <Text size="xs" c="dimmed">
            {formatCount(result.row_count, "row")} in {Math.round(milliseconds)} ms
          </Text>
        )}
        <SegmentedControl
          aria-label="Show the result as"
          value={view}
          onChange={(value) => setView(value as View)}
          data={VIEWS.map((value) => ({ value, label: value === "json" ? "JSON" : value.charAt(0).toUpperCase() + value.slice(1) }))}
        />
        <Export text={text} values={used} name={current?.name} result={result} />
        <Menu shadow="md" position="bottom-end" width={360}>
          <Menu.Target>
            <Button variant="default" leftSection={<ClockIcon />}>
              Past
            </Button>
          </Menu.Target>
          <Menu.Dropdown mah={320} style={{ overflow: "auto" }}>
            {past.length === 0 && <Menu.Item disabled>Queries you ran appear here</Menu.Item>}
            {past.map((one) => (
              <Menu.Item key={one} onClick={() => setText(one)}>
                <div className="mono ellipsis">{one.replace(/\s+/g, " ")}</div>
              </Menu.Item>
            ))}
          </Menu.Dropdown>
        </Menu>
        <Button variant="default" leftSection={<Link2Icon />} onClick={link}>
          Link
        </Button>
      </div>
      <section className="results" aria-label="Result">
        {problem && (
          <Alert color="red" m="md" title={problem.message}>
            {problem.remedy}
          </Alert>
        )}
        {!problem && view === "plan" && (plan ? <PlanTable plan={plan} /> : <div className="empty">Explain shows the steps of the query with their times.</div>)}
        {!problem && view !== "plan" && !result && <div className="empty">Run the query to see its rows. Ctrl+Enter does it from the editor.</div>}
        {!problem && result && view === "table" && <DataTable columns={result.columns ?? []} rows={result.rows} />}
        {!problem && result && view === "json" && (
          <pre className="mono json" tabIndex={0} aria-label="Result as JSON">
            {JSON.stringify(result.rows.slice(0, 2000), null, 2)}
          </pre>
        )}
        {!problem && result && view === "chart" && <ResultChart result={result} />}
        {!problem && result && view === "picture" && <ResultPicture result={result} />}
      </section>
    </div>
  );
}

function LintBadge({ lint }: { lint: LintReport | undefined }) {
  if (!lint) return null;
  if (lint.errors) return <Badge color="red">{formatCount(lint.errors, "error")}</Badge>;
  return <Badge color={lint.warnings ? "orange" : "teal"}>{lint.warnings ? formatCount(lint.warnings, "warning") : "valid"}</Badge>;
}

interface StoredProps {
  query: StoredQuery;
  values: Properties;
  change: (values: Properties) => void;
  shown: (result: QueryResult) => void;
}

function StoredButton({ query, values, change, shown }: StoredProps) {
  const { moment } = useShared();
  const [opened, setOpened] = useState(false);
  const run = () => api.invoke(query.name, pick(values, query), moment).then(shown, report);
  return (
    <div style={{ marginBottom: 6 }}>
      <Button variant="subtle" size="compact-xs" onClick={() => setOpened(!opened)} aria-expanded={opened} title={query.description}>
        {query.name}
      </Button>
      {opened && (
        <div style={{ padding: "4px 0 6px 8px" }}>
          <ParamsForm parameters={query.params} values={values} change={change} />
          {!query.mutation && (
            <Button variant="light" mt={6} onClick={run}>
              Run {query.name}
            </Button>
          )}
        </div>
      )}
    </div>
  );
}

interface ExportProps {
  text: string;
  values: Properties;
  name: string | undefined;
  result: QueryResult | undefined;
}

function Export({ text, values, name, result }: ExportProps) {
  const { moment } = useShared();
  const file = name ?? "result";
  const csv = () => result && saveFile(`${file}.csv`, toCsv(result), "text/csv");
  const json = () => result && saveFile(`${file}.json`, JSON.stringify(result.rows, null, 1), "application/json");
  const arrow = () => api.queryArrow(text, values, moment, name).then((bytes) => saveFile(`${file}.arrow`, bytes), report);
  return (
    <Menu shadow="md" position="bottom-end">
      <Menu.Target>
        <Button variant="default" leftSection={<DownloadIcon />} disabled={!result}>
          Export
        </Button>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Item onClick={csv}>CSV</Menu.Item>
        <Menu.Item onClick={json}>JSON</Menu.Item>
        <Menu.Item onClick={arrow}>Arrow</Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}

function toCsv(result: QueryResult): string {
  const quote = (text: string) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const line = (cells: string[]) => `${cells.map(quote).join(",")}\r\n`;
  return line(result.columns) + result.rows.map((row) => line(result.columns.map((name) => formatValue(row[name])))).join("");
}

function pick(values: Properties, query: StoredQuery | undefined): Properties {
  const named = (query?.params ?? []).filter((one) => values[one.name] !== undefined);
  return Object.fromEntries(named.map((one) => [one.name, values[one.name]]));
}

function parseValues(text: string | null): Properties {
  try {
    return text ? JSON.parse(text) : {};
  } catch {
    return {};
  }
}

function describe(error: unknown): { message: string; remedy?: string } {
  if (error instanceof ApiError) return { message: error.message, remedy: error.remedy };
  return { message: error instanceof Error ? error.message : String(error) };
}
