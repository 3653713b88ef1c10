import type { EdgeData } from "../api";
import { nodeKey } from "../format";

/** The nodes on a shortest path over the edges that are shown, in either direction; empty if there is none. */
export function shortestPath(edges: EdgeData[], from: string, to: string): Set<string> {
  const near = new Map<string, string[]>();
  const join = (a: string, b: string) => near.set(a, [...(near.get(a) ?? []), b]);
  for (const edge of edges) {
    const [a, b] = [nodeKey(edge.from_type, edge.from), nodeKey(edge.to_type, edge.to)];
    join(a, b);
    join(b, a);
  }
  const before = new Map<string, string | undefined>([[from, undefined]]);
  const queue = [from];
  for (let at = 0; at < queue.length && !before.has(to); at += 1) {
    for (const next of near.get(queue[at]) ?? []) {
      if (!before.has(next)) {
        before.set(next, queue[at]);
        queue.push(next);
      }
    }
  }
  const path = new Set<string>();
  if (!before.has(to)) return path;
  for (let key: string | undefined = to; key !== undefined; key = before.get(key)) path.add(key);
  return path;
}
