import { ActionIcon, Tooltip, useComputedColorScheme } from "@mantine/core";
import { DrawingPinIcon, EnterFullScreenIcon, EyeNoneIcon, MinusIcon, PlusIcon, ShuffleIcon } from "@radix-ui/react-icons";
import Graph from "graphology";
import forceAtlas2 from "graphology-layout-forceatlas2";
import { useEffect, useMemo, useRef } from "react";
import Sigma from "sigma";
import type { EdgeData, NodeData } from "../api";
import { labelOf, nodeKey } from "../format";

export interface PictureNode extends NodeData {
  color: string;
  size?: number;
}

interface Props {
  nodes: PictureNode[];
  edges: EdgeData[];
  selected?: string;
  /** Nodes and edges to emphasise, such as a path. */
  marked?: Set<string>;
  /** Whether edges show their types. */
  edgeLabels?: boolean;
  onSelect: (key: string | undefined) => void;
  onSelectEdge?: (edge: EdgeData) => void;
  onExpand?: (key: string) => void;
  onHide?: (key: string) => void;
}

const LAYOUT_FRAMES = 90;

/** A picture of nodes and edges: drag to pin, click to select, double click to expand. */
export function Picture({ nodes, edges, selected, marked, edgeLabels = false, onSelect, onSelectEdge, onExpand, onHide }: Props) {
  const container = useRef<HTMLDivElement>(null);
  const graph = useMemo(() => new Graph({ multi: true, type: "directed" }), []);
  const sigma = useRef<Sigma>(undefined);
  const layout = useRef<{ frame: number; left: number }>({ frame: 0, left: 0 });
  const handlers = useRef({ onSelect, onExpand, onSelectEdge });
  handlers.current = { onSelect, onExpand, onSelectEdge };
  const dark = useComputedColorScheme("light") === "dark";
  const emphasis = useRef<Emphasis>({ selected, marked, dark });

  useEffect(() => {
    if (!container.current) return;
    const drawn = new Sigma(graph, container.current, {
      labelFont: "Inter, system-ui, sans-serif",
      labelSize: 12,
      stagePadding: 48,
      labelWeight: "500",
      labelDensity: 0.9,
      labelGridCellSize: 80,
      labelRenderedSizeThreshold: 5,
      defaultEdgeType: "arrow",
      edgeLabelSize: 10,
      renderEdgeLabels: edgeLabels,
      enableEdgeEvents: true,
      zIndex: true,
      // While another area is loaded this one is hidden, and has no size.
      allowInvalidContainer: true,
      minCameraRatio: 0.05,
      maxCameraRatio: 6,
      nodeReducer: (key, data) => reduceNode(graph, emphasis.current, key, data),
      edgeReducer: (key, data) => reduceEdge(graph, emphasis.current, key, data),
    });
    sigma.current = drawn;
    let dragged: string | undefined;
    drawn.on("clickNode", ({ node }) => handlers.current.onSelect(node));
    drawn.on("clickEdge", ({ edge }) => handlers.current.onSelectEdge?.(graph.getEdgeAttribute(edge, "data")));
    drawn.on("clickStage", () => handlers.current.onSelect(undefined));
    drawn.on("doubleClickNode", ({ node, preventSigmaDefault }) => {
      preventSigmaDefault();
      handlers.current.onExpand?.(node);
    });
    drawn.on("downNode", ({ node }) => {
      dragged = node;
    });
    drawn.on("moveBody", ({ event }) => {
      if (!dragged) return;
      const position = drawn.viewportToGraph(event);
      graph.mergeNodeAttributes(dragged, { ...position, fixed: true });
      event.preventSigmaDefault();
      event.original.preventDefault();
    });
    drawn.on("upNode", () => {
      dragged = undefined;
    });
    drawn.on("upStage", () => {
      dragged = undefined;
    });
    return () => {
      cancelAnimationFrame(layout.current.frame);
      drawn.kill();
      sigma.current = undefined;
    };
  }, [graph, edgeLabels]);

  /** Move the camera to the selected node; `data-settled` says that nothing moves any more. */
  const center = () => {
    const drawn = sigma.current;
    const { selected: key } = emphasis.current;
    const mark = (settled: boolean) => container.current?.parentElement?.setAttribute("data-settled", String(settled));
    drawn?.refresh();
    const data = drawn && key && graph.hasNode(key) ? drawn.getNodeDisplayData(key) : undefined;
    if (!drawn || !data) return mark(true);
    mark(false);
    void drawn.getCamera().animate({ x: data.x, y: data.y }, { duration: isStill() ? 1 : 300 }).then(() => mark(true));
  };

  // biome-ignore lint: the camera follows what is shown
  useEffect(() => {
    const added = synchronise(graph, nodes, edges);
    if (added > 0) run(graph, layout.current, graph.order > 2000 ? 20 : LAYOUT_FRAMES, center);
    sigma.current?.refresh();
    if (added === 0) center();
  }, [graph, nodes, edges]);

  useEffect(() => {
    sigma.current?.setSetting("labelColor", { color: dark ? "#dee2e6" : "#343a40" });
    sigma.current?.setSetting("edgeLabelColor", { color: dark ? "#a3abb3" : "#5c636a" });
    graph.forEachEdge((edge) => graph.setEdgeAttribute(edge, "color", dark ? "#495057" : "#ced4da"));
  }, [graph, dark, edges]);

  useEffect(() => {
    emphasis.current = { selected, marked, dark };
    sigma.current?.refresh();
    center();
  }, [selected, marked, dark]);

  const camera = () => sigma.current?.getCamera();
  return (
    <div className="picture" data-nodes={nodes.length} data-edges={edges.length}>
      <div
        className="picture-canvas"
        ref={container}
        role="img"
        aria-label={`Picture of ${nodes.length} nodes and ${edges.length} edges; the list beside it has the same nodes`}
      />
      <div className="picture-tools" role="toolbar" aria-label="Picture" aria-orientation="vertical">
        <Tool label="Zoom in" icon={<PlusIcon />} run={() => camera()?.animatedZoom({ duration: 200 })} />
        <Tool label="Zoom out" icon={<MinusIcon />} run={() => camera()?.animatedUnzoom({ duration: 200 })} />
        <Tool label="Show all" icon={<EnterFullScreenIcon />} run={() => camera()?.animatedReset({ duration: 300 })} />
        <Tool label="Arrange again" icon={<ShuffleIcon />} run={() => arrange(graph, layout.current, center)} />
        <Tool
          label="Pin or release the selected node"
          icon={<DrawingPinIcon />}
          disabled={!selected}
          run={() => selected && graph.updateNodeAttribute(selected, "fixed", (fixed) => !fixed)}
        />
        {onHide && (
          <Tool
            label="Hide the selected node"
            icon={<EyeNoneIcon />}
            disabled={!selected}
            run={() => selected && onHide(selected)}
          />
        )}
      </div>
    </div>
  );
}

interface ToolProps {
  label: string;
  icon: React.ReactNode;
  run: () => void;
  disabled?: boolean;
}

function Tool({ label, icon, run, disabled }: ToolProps) {
  return (
    <Tooltip label={label} position="left">
      <ActionIcon aria-label={label} onClick={run} disabled={disabled}>
        {icon}
      </ActionIcon>
    </Tooltip>
  );
}

type Attributes = Record<string, unknown>;
type Emphasis = { selected?: string; marked?: Set<string>; dark: boolean };

function reduceNode(graph: Graph, { selected, marked, dark }: Emphasis, key: string, data: Attributes): Attributes {
  if (marked?.size) {
    return marked.has(key) ? { ...data, zIndex: 2, forceLabel: true } : { ...data, color: fade(data.color, dark), label: "" };
  }
  if (!selected || !graph.hasNode(selected)) return data;
  if (key === selected) return { ...data, highlighted: true, zIndex: 2, forceLabel: true };
  return graph.areNeighbors(key, selected) ? { ...data, zIndex: 1, forceLabel: true } : { ...data, color: fade(data.color, dark), label: "" };
}

function reduceEdge(graph: Graph, { selected, marked }: Emphasis, key: string, data: Attributes): Attributes {
  const [source, target] = graph.extremities(key);
  if (marked?.size) {
    return marked.has(source) && marked.has(target) ? { ...data, size: 3, color: "#f08c00", zIndex: 1 } : data;
  }
  return selected && (source === selected || target === selected)
    ? { ...data, size: 2, color: "#748ffc", zIndex: 1, forceLabel: true }
    : data;
}

/** A colour that steps back: mixed with the ground, because the renderer has no use for transparency. */
function fade(color: unknown, dark: boolean): string {
  const ground = dark ? 36 : 248;
  const parts = [1, 3, 5].map((at) => Number.parseInt(String(color).slice(at, at + 2), 16));
  return `#${parts.map((part) => Math.round(part * 0.28 + ground * 0.72).toString(16).padStart(2, "0")).join("")}`;
}

/** Make the graph of the picture hold exactly these nodes and edges; new ones start beside their neighbours. */
function synchronise(graph: Graph, nodes: PictureNode[], edges: EdgeData[]): number {
  const wanted = new Map(nodes.map((node) => [nodeKey(node.type, node.id), node]));
  for (const key of graph.nodes()) if (!wanted.has(key)) graph.dropNode(key);
  const near = new Map<string, string>();
  for (const edge of edges) {
    const [from, to] = [nodeKey(edge.from_type, edge.from), nodeKey(edge.to_type, edge.to)];
    if (graph.hasNode(from)) near.set(to, from);
    if (graph.hasNode(to)) near.set(from, to);
  }
  let added = 0;
  for (const [key, node] of wanted) {
    const shown = { label: labelOf(node), color: node.color };
    if (graph.hasNode(key)) {
      graph.mergeNodeAttributes(key, shown);
      continue;
    }
    const beside = near.get(key);
    const [x, y] = beside ? [graph.getNodeAttribute(beside, "x"), graph.getNodeAttribute(beside, "y")] : [0, 0];
    const angle = spread(key) * 2 * Math.PI;
    const distance = beside ? 1.5 : 10 * Math.sqrt(spread(`${key}+`));
    graph.addNode(key, { ...shown, size: 5, x: x + distance * Math.cos(angle), y: y + distance * Math.sin(angle) });
    added += 1;
  }
  const kept = new Set(edges.map((edge) => edge.id));
  for (const edge of graph.edges()) if (!kept.has(edge)) graph.dropEdge(edge);
  for (const edge of edges) {
    const [from, to] = [nodeKey(edge.from_type, edge.from), nodeKey(edge.to_type, edge.to)];
    if (!graph.hasEdge(edge.id) && graph.hasNode(from) && graph.hasNode(to)) {
      graph.addDirectedEdgeWithKey(edge.id, from, to, { size: 1, label: edge.type, color: "#ced4da", data: edge });
    }
  }
  for (const [key, node] of wanted) {
    graph.setNodeAttribute(key, "size", node.size ?? Math.min(14, 5 + 1.4 * Math.sqrt(graph.degree(key))));
  }
  return added;
}

/** A number between 0 and 1 that depends on a text alone: the same graph is drawn the same way. */
function spread(text: string): number {
  let hash = 2166136261;
  for (let index = 0; index < text.length; index += 1) {
    hash = Math.imul(hash ^ text.charCodeAt(index), 16777619);
  }
  return ((hash ^ (hash >>> 15)) >>> 0) / 4294967296;
}

/** Whether the person wants no motion. */
function isStill(): boolean {
  return window.matchMedia("(prefers-reduced-motion: reduce)").matches;
}

function arrange(graph: Graph, state: { frame: number; left: number }, done: () => void): void {
  graph.forEachNode((key) => graph.setNodeAttribute(key, "fixed", false));
  run(graph, state, LAYOUT_FRAMES, done);
}

/** Move nodes a little in every frame, until they had time to settle; at once for those who want no motion. */
function run(graph: Graph, state: { frame: number; left: number }, frames: number, done: () => void): void {
  cancelAnimationFrame(state.frame);
  state.left = frames;
  const settings = { ...forceAtlas2.inferSettings(graph), gravity: 0.6, scalingRatio: 6, strongGravityMode: false, adjustSizes: false };
  if (isStill() && graph.order > 1) {
    forceAtlas2.assign(graph, { iterations: graph.order > 2000 ? 30 : 250, settings });
    return done();
  }
  const step = () => {
    if (state.left <= 0 || graph.order < 2) return done();
    state.left -= 1;
    forceAtlas2.assign(graph, { iterations: graph.order > 2000 ? 1 : 4, settings });
    state.frame = requestAnimationFrame(step);
  };
  step();
}
