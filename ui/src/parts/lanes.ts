// Which lane of the commit graph each commit is in, and which lines pass its row.

import type { Commit } from "../api";

export const LANE_COLORS = ["#4c6ef5", "#12b886", "#f59f00", "#e64980", "#7950f2", "#15aabf", "#fd7e14"];

export interface LaneRow {
  commit: Commit;
  lane: number;
  /** Lanes that pass the row without touching its commit. */
  through: number[];
  /** Whether a line in its own lane comes from above. */
  fromAbove: boolean;
  /** Other lanes from above that end in this commit. */
  joins: number[];
  /** Lanes in which its parents follow below. */
  toBelow: number[];
}

/** Arrange commits, newest first: a lane waits for the parent of the commit above it. */
export function arrangeLanes(commits: Commit[]): LaneRow[] {
  const known = new Set(commits.map((one) => one.graph_commit_id));
  const waiting: (string | undefined)[] = [];
  return commits.map((commit) => {
    const id = commit.graph_commit_id;
    const mine = waiting.flatMap((one, lane) => (one === id ? [lane] : []));
    const lane = mine[0] ?? freeLane(waiting);
    const joins = mine.slice(1);
    for (const one of mine) waiting[one] = undefined;
    const through = waiting.flatMap((one, at) => (one !== undefined ? [at] : []));
    const toBelow: number[] = [];
    const parents = [commit.parent_commit_id, commit.merged_parent_commit_id];
    parents.forEach((parent, place) => {
      if (!parent || !known.has(parent)) return;
      const already = waiting.indexOf(parent);
      const to = already >= 0 && place > 0 ? already : place === 0 ? lane : freeLane(waiting);
      waiting[to] = parent;
      toBelow.push(to);
    });
    return { commit, lane, through, fromAbove: mine.length > 0, joins, toBelow };
  });
}

function freeLane(waiting: (string | undefined)[]): number {
  const free = waiting.indexOf(undefined);
  return free < 0 ? waiting.length : free;
}
