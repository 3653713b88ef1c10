import { Button, Group, Loader, Select, Text, TextInput, UnstyledButton } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { MagnifyingGlassIcon } from "@radix-ui/react-icons";
import { useCallback, useEffect, useMemo, useState } from "react";
import { api, type EdgeData, type Moment, type NodeData, type Schema, type Subgraph } from "../api";
import { formatCount, labelOf, nodeKey, subtitleOf } from "../format";
import { EdgePanel } from "../parts/EdgePanel";
import { EntityPanel } from "../parts/EntityPanel";
import { RowList } from "../parts/RowList";
import { Picture, type PictureNode } from "../picture/Picture";
import { shortestPath } from "../picture/path";
import { colorsBy, sizesBy } from "../picture/scales";
import { report, useShared } from "../state";

const FIRST_EDGES = 40;

export function Explore() {
  const { schema, moment, params, go, colorOf } = useShared();
  const shown = useShownGraph(schema, moment);
  const [hiddenTypes, setHiddenTypes] = useState<ReadonlySet<string>>(new Set());
  const [edge, setEdge] = useState<EdgeData>();
  const [colorBy, setColorBy] = useState<string | null>(null);
  const [sizeBy, setSizeBy] = useState<string | null>(null);
  const [path, setPath] = useState<{ from: string; keys?: Set<string> }>();
  const selected = params.get("node") ?? undefined;

  const select = useCallback(
    (key: string | undefined) => {
      setEdge(undefined);
      go("explore", { node: key });
    },
    [go],
  );
  const open = async (node: NodeData) => {
    await shown.add({ [node.type]: [node.id] }, 1);
    select(nodeKey(node.type, node.id));
  };
  const expand = (key: string) => {
    const node = shown.nodes.get(key);
    if (node) void shown.add({ [node.type]: [node.id] }, 1);
  };

  // A link can name a node that is not shown yet.
  // biome-ignore lint: only the link matters
  useEffect(() => {
    const [type, ...id] = (selected ?? "").split(" ");
    if (selected && shown.ready && !shown.nodes.has(selected)) void shown.add({ [type]: [id.join(" ")] }, 1);
  }, [selected, shown.ready]);

  const nodes = useMemo(
    () => [...shown.nodes.values()].filter((node) => !hiddenTypes.has(node.type)),
    [shown.nodes, hiddenTypes],
  );
  const drawn = useMemo<PictureNode[]>(() => {
    const colors = colorsBy(nodes, colorBy);
    const sizes = sizesBy(nodes, sizeBy);
    return nodes.map((node) => {
      const key = nodeKey(node.type, node.id);
      return { ...node, color: colors?.get(key) ?? colorOf(node.type), size: sizes?.get(key) };
    });
  }, [nodes, colorOf, colorBy, sizeBy]);
  const edges = useMemo(() => [...shown.edges.values()], [shown.edges]);
  const properties = useMemo(() => propertyNames(schema), [schema]);

  const choose = (key: string | undefined) => {
    if (path && !path.keys && key) setPath({ ...path, keys: shortestPath(edges, path.from, key) });
    else select(key);
  };
  const node = selected ? shown.nodes.get(selected) : undefined;
  return (
    <div className="split">
      <section className="side" aria-label="Search and nodes">
        <Search open={open} />
        <div className="side-head">
          <Group justify="space-between">
            <span className="section">Shown</span>
            <Text size="xs" c="dimmed">
              {formatCount(nodes.length, "node")}, {formatCount(edges.length, "edge")}
            </Text>
          </Group>
        </div>
        <RowList
          label="Nodes that are shown"
          rows={nodes}
          keyOf={(one) => nodeKey(one.type, one.id)}
          render={(one) => (
            <UnstyledButton
              className="row"
              aria-current={nodeKey(one.type, one.id) === selected}
              onClick={() => choose(nodeKey(one.type, one.id))}
            >
              <span className="dot" style={{ background: colorOf(one.type) }} />
              <span className="label">{labelOf(one)}</span>
              <span className="more">{one.type}</span>
            </UnstyledButton>
          )}
        />
        <div className="side-head">
          <Group gap={6} grow>
            <Select
              aria-label="Colour by"
              placeholder="Colour by type"
              data={properties}
              value={colorBy}
              onChange={setColorBy}
              clearable
            />
            <Select
              aria-label="Size by"
              placeholder="Size by degree"
              data={properties}
              value={sizeBy}
              onChange={setSizeBy}
              clearable
            />
          </Group>
          <Group gap={6} mt={6}>
            <Button variant="default" onClick={() => shown.clear()}>
              Clear
            </Button>
            <Button variant="default" onClick={() => void shown.sample()}>
              Sample
            </Button>
          </Group>
        </div>
      </section>
      <div style={{ position: "relative" }}>
        {shown.ready ? (
          <Picture
            nodes={drawn}
            edges={edges}
            selected={selected}
            marked={path?.keys}
            onSelect={choose}
            onSelectEdge={setEdge}
            onExpand={expand}
            onHide={(key) => {
              shown.hide(key);
              select(undefined);
            }}
          />
        ) : (
          <Loader m="xl" aria-label="Loading" />
        )}
        <div className="picture-hint">
          {path && !path.keys ? "Choose the node where the path ends" : "Double click a node to expand it"}
          {shown.complete ? "" : " · there are more neighbours than shown"}
        </div>
        <div className="picture-legend" role="group" aria-label="Types that are shown">
          {schema?.nodes.map((type) => (
            <UnstyledButton
              key={type.name}
              className="chip"
              aria-pressed={!hiddenTypes.has(type.name)}
              onClick={() => setHiddenTypes(toggle(hiddenTypes, type.name))}
            >
              <span className="dot" style={{ background: colorOf(type.name) }} />
              {type.name}
            </UnstyledButton>
          ))}
          {path && (
            <Button variant="default" radius="xl" onClick={() => setPath(undefined)}>
              {path.keys?.size === 0 ? "No path among the shown nodes" : "End path"}
            </Button>
          )}
        </div>
      </div>
      <aside className="side right" aria-label="Details">
        {edge ? (
          <EdgePanel edge={edge} select={select} />
        ) : node ? (
          <EntityPanel
            key={selected}
            node={node}
            expand={() => selected && expand(selected)}
            startPath={() => selected && setPath({ from: selected })}
            changed={() => void shown.reload()}
          />
        ) : (
          <Welcome />
        )}
      </aside>
    </div>
  );
}

function Welcome() {
  const { schema } = useShared();
  const total = Object.values(schema?.rows ?? {}).reduce((sum, rows) => sum + rows, 0);
  return (
    <div className="panel">
      <h2>Explore the graph</h2>
      <Text size="sm" c="dimmed" mt={6}>
        {schema ? `${formatCount(total, "entity", "entities")} of ${schema.nodes.length + schema.edges.length} types.` : ""}{" "}
        Search for a node, or click one in the picture. Double click shows its neighbours.
      </Text>
      <table className="props" style={{ marginTop: 14 }}>
        <tbody>
          {Object.entries(schema?.rows ?? {})
            .sort(([a], [b]) => (a.startsWith("node") === b.startsWith("node") ? a.localeCompare(b) : a < b ? 1 : -1))
            .map(([key, rows]) => (
              <tr key={key}>
                <th scope="row">{key.replace(":", " ")}</th>
                <td className="num">{rows.toLocaleString("en")}</td>
              </tr>
            ))}
        </tbody>
      </table>
    </div>
  );
}

function Search({ open }: { open: (node: NodeData) => void }) {
  const { moment, colorOf } = useShared();
  const [text, setText] = useState("");
  const [wanted] = useDebouncedValue(text.trim(), 180);
  const [found, setFound] = useState<NodeData[]>();
  useEffect(() => {
    let current = true;
    setFound(undefined);
    if (wanted) {
      api.find(wanted, moment).then((answer) => current && setFound(answer.nodes), report);
    }
    return () => {
      current = false;
    };
  }, [wanted, moment]);
  return (
    <>
      <div className="side-head">
        <TextInput
          id="search"
          type="search"
          aria-label="Search nodes"
          placeholder="Search by key or text ( / )"
          leftSection={<MagnifyingGlassIcon />}
          value={text}
          onChange={(event) => setText(event.currentTarget.value)}
          onKeyDown={(event) => event.key === "Enter" && found?.[0] && open(found[0])}
        />
      </div>
      {wanted && (
        <div style={{ maxHeight: "38%", overflow: "auto", flex: "none" }} role="region" aria-label="Found nodes" tabIndex={0}>
          {found?.map((node) => (
            <UnstyledButton key={nodeKey(node.type, node.id)} className="row" onClick={() => open(node)}>
              <span className="dot" style={{ background: colorOf(node.type) }} />
              <span className="label">{labelOf(node)}</span>
              <span className="more">{subtitleOf(node)}</span>
            </UnstyledButton>
          ))}
          {found?.length === 0 && <div className="empty">Nothing has “{wanted}”.</div>}
        </div>
      )}
    </>
  );
}

/** The part of the graph that is shown, at the moment of the page. */
function useShownGraph(schema: Schema | undefined, moment: Moment) {
  const [nodes, setNodes] = useState<ReadonlyMap<string, NodeData>>(new Map());
  const [edges, setEdges] = useState<ReadonlyMap<string, EdgeData>>(new Map());
  const [ready, setReady] = useState(false);
  const [complete, setComplete] = useState(true);

  const merge = useCallback((part: Subgraph, replaces: boolean) => {
    setNodes((old) => new Map([...(replaces ? [] : old), ...part.nodes.map((one) => [nodeKey(one.type, one.id), one] as const)]));
    setEdges((old) => new Map([...(replaces ? [] : old), ...part.edges.map((one) => [one.id, one] as const)]));
    setComplete(part.complete);
  }, []);

  /** Add nodes, and the edges between all that are shown then. */
  const add = useCallback(
    async (wanted: Record<string, string[]>, hops: number) => {
      try {
        const near = await api.subgraph(wanted, moment, hops);
        const all = groupIds([...nodes.values(), ...near.nodes]);
        const count = nodes.size + near.nodes.length;
        const whole = await api.subgraph(all, moment, 0, Math.min(5000, Math.max(300, count)));
        merge({ ...whole, complete: near.complete }, true);
      } catch (error) {
        report(error);
      }
    },
    [moment, nodes, merge],
  );

  const sample = useCallback(async () => {
    if (!schema) return;
    try {
      const answers = await Promise.all(schema.edges.slice(0, 8).map((edge) => sampleEdges(edge.from, edge.name, edge.to, moment)));
      const wanted: Record<string, string[]> = {};
      for (const { type, id } of answers.flat()) wanted[type] = [...new Set([...(wanted[type] ?? []), id])];
      if (!schema.edges.length && schema.nodes[0]) wanted[schema.nodes[0].name] = [];
      merge(await api.subgraph(wanted, moment), true);
    } catch (error) {
      report(error);
    }
    setReady(true);
  }, [schema, moment, merge]);

  const reload = useCallback(async () => {
    try {
      merge(await api.subgraph(groupIds([...nodes.values()]), moment, 0, Math.max(300, nodes.size)), true);
    } catch (error) {
      report(error);
    }
  }, [nodes, moment, merge]);

  // biome-ignore lint: another moment shows the same nodes as they were then
  useEffect(() => {
    if (!schema) return;
    if (nodes.size === 0) void sample();
    else void reload();
  }, [schema]);

  const hide = (key: string) => {
    setNodes((old) => new Map([...old].filter(([one]) => one !== key)));
    setEdges(
      (old) =>
        new Map([...old].filter(([, one]) => nodeKey(one.from_type, one.from) !== key && nodeKey(one.to_type, one.to) !== key)),
    );
  };
  const clear = () => {
    setNodes(new Map());
    setEdges(new Map());
  };
  return { nodes, edges, ready, complete, add, sample, reload, hide, clear };
}

async function sampleEdges(from: string, edge: string, to: string, moment: Moment) {
  const name = edge.charAt(0).toLowerCase() + edge.slice(1);
  const text = `query q() { match { $a: ${from}  $a $e:${name} $b } return { $a as a, $b as b } limit ${FIRST_EDGES} }`;
  const { rows } = await api.query(text, {}, moment);
  return rows.flatMap((row) => [
    { type: from, id: String(row.a) },
    { type: to, id: String(row.b) },
  ]);
}

function groupIds(nodes: NodeData[]): Record<string, string[]> {
  const grouped: Record<string, Set<string>> = {};
  for (const node of nodes) (grouped[node.type] ??= new Set()).add(node.id);
  return Object.fromEntries(Object.entries(grouped).map(([type, ids]) => [type, [...ids]]));
}

function toggle(set: ReadonlySet<string>, value: string): ReadonlySet<string> {
  const next = new Set(set);
  if (!next.delete(value)) next.add(value);
  return next;
}

function propertyNames(schema: Schema | undefined): string[] {
  const names = schema?.nodes.flatMap((type) => type.properties.filter((one) => typeof one.type.scalar === "string").map((one) => one.name));
  return [...new Set(names ?? [])].sort();
}
