import type { NodeData } from "../api";
import { formatValue, nodeKey } from "../format";
import { TYPE_COLORS } from "../theme";

/** A colour for each value of a property: the most frequent values get colours of their own. */
export function colorsBy(nodes: NodeData[], property: string | null): Map<string, string> | undefined {
  if (!property) return undefined;
  const counts = new Map<string, number>();
  for (const node of nodes) {
    const value = node.properties[property];
    if (value !== undefined && value !== null) counts.set(formatValue(value), (counts.get(formatValue(value)) ?? 0) + 1);
  }
  const frequent = [...counts].sort((a, b) => b[1] - a[1]).map(([value]) => value);
  const last = TYPE_COLORS.length - 1;
  const colors = new Map(frequent.map((value, index) => [value, TYPE_COLORS[Math.min(index, last)]]));
  return new Map(
    nodes.map((node) => [
      nodeKey(node.type, node.id),
      colors.get(formatValue(node.properties[property] ?? null)) ?? TYPE_COLORS[last],
    ]),
  );
}

/** A size for each number of a property, between the smallest and the largest. */
export function sizesBy(nodes: NodeData[], property: string | null): Map<string, number> | undefined {
  if (!property) return undefined;
  const numbers = nodes.map((node) => Number(node.properties[property] ?? Number.NaN));
  const known = numbers.filter(Number.isFinite);
  if (!known.length) return undefined;
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const size = (value: number) => (Number.isFinite(value) ? 4 + (12 * (value - low)) / (high - low || 1) : 3);
  return new Map(nodes.map((node, index) => [nodeKey(node.type, node.id), size(numbers[index])]));
}
