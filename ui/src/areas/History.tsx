import { Badge, Button, Group, Loader, SegmentedControl, Text, UnstyledButton } from "@mantine/core";
import { useEffect, useMemo, useState } from "react";
import { api, type Commit } from "../api";
import { formatAge, formatTime, shortId } from "../format";
import { DiffView } from "../parts/DiffView";
import { arrangeLanes, LANE_COLORS, type LaneRow } from "../parts/lanes";
import { report, useShared } from "../state";

const ROW = 44;
const LANE = 16;

/** The commits of all branches, with lanes; pick one to travel there, two to compare them. */
export default function History() {
  const { branches, params, go, moment, setMoment } = useShared();
  const [commits, setCommits] = useState<Commit[]>();
  const [heads, setHeads] = useState<Map<string, string[]>>(new Map());
  const [mode, setMode] = useState<"changes" | "compare">("changes");
  const chosen = params.get("at") ?? undefined;
  const against = params.get("with") ?? undefined;

  useEffect(() => {
    let current = true;
    readAll(branches).then((found) => {
      if (!current) return;
      setCommits(found.commits);
      setHeads(found.heads);
    }, report);
    return () => {
      current = false;
    };
  }, [branches]);
  const rows = useMemo(() => arrangeLanes(commits ?? []), [commits]);
  const width = LANE * (1 + Math.max(0, ...rows.map((row) => row.lane)));
  if (!commits) return <Loader m="xl" aria-label="Loading" />;
  const commit = commits.find((one) => one.graph_commit_id === chosen);
  const pick = (id: string) =>
    mode === "compare" && chosen ? go("history", { at: chosen, with: id }) : go("history", { at: id });
  return (
    <div className="history">
      <section aria-label="Commits">
        {rows.map((row) => (
          <UnstyledButton
            key={row.commit.graph_commit_id}
            className="commit"
            aria-current={[chosen, against].includes(row.commit.graph_commit_id)}
            onClick={() => pick(row.commit.graph_commit_id)}
          >
            <Lanes row={row} width={width} />
            <span className="ellipsis">
              <code>{shortId(row.commit.graph_commit_id)}</code>{" "}
              {heads.get(row.commit.graph_commit_id)?.map((name) => (
                <Badge key={name} size="sm" ml={4} color="indigo">
                  {name}
                </Badge>
              ))}
              <Text size="xs" c="dimmed" className="ellipsis">
                {row.commit.actor_id ?? "no actor"} on {row.commit.graph_branch ?? "main"}
                {row.commit.merged_parent_commit_id ? " · merge" : ""}
              </Text>
            </span>
            <Text size="xs" c="dimmed" title={formatTime(row.commit.created_at)}>
              {formatAge(row.commit.created_at)}
            </Text>
          </UnstyledButton>
        ))}
      </section>
      <section className="scroll-box page" aria-label="Commit">
        {!commit && (
          <div className="empty">
            Choose a commit to see what it changed, to look at the graph as it was, or to compare it with another.
          </div>
        )}
        {commit && (
          <>
            <div className="page-head">
              <h1>
                <code>{shortId(commit.graph_commit_id)}</code>
                {against ? (
                  <>
                    {" "}
                    → <code>{shortId(against)}</code>
                  </>
                ) : null}
              </h1>
              <Text c="dimmed">
                {commit.actor_id ?? "no actor"}, {formatTime(commit.created_at)}
              </Text>
              <div className="spacer" />
              <Button
                variant="light"
                disabled={moment.commit === commit.graph_commit_id}
                onClick={() => setMoment({ branch: moment.branch, commit: commit.graph_commit_id })}
              >
                Look at this moment
              </Button>
            </div>
            <Group mb="md" gap="sm">
              <SegmentedControl
                aria-label="What to show"
                value={mode}
                onChange={(value) => {
                  setMode(value as "changes" | "compare");
                  if (value === "changes") go("history", { at: chosen });
                }}
                data={[
                  { value: "changes", label: "What it changed" },
                  { value: "compare", label: "Compare with…" },
                ]}
              />
              {mode === "compare" && !against && <Text size="sm">Choose the other commit in the list.</Text>}
              <Text size="xs" c="dimmed" className="mono">
                {commit.graph_commit_id}
              </Text>
            </Group>
            <Comparison commit={commit} against={mode === "compare" || against ? against : undefined} waits={mode === "compare" && !against} />
          </>
        )}
      </section>
    </div>
  );
}

function Comparison({ commit, against, waits }: { commit: Commit; against?: string; waits: boolean }) {
  if (waits) return null;
  if (against) return <DiffView from={commit.graph_commit_id} to={against} />;
  if (!commit.parent_commit_id) return <div className="card empty">The first commit of the graph.</div>;
  return <DiffView from={commit.parent_commit_id} to={commit.graph_commit_id} />;
}

async function readAll(branches: string[]) {
  const answers = await Promise.all(branches.map((name) => api.commits(name)));
  const all = new Map<string, Commit>();
  const heads = new Map<string, string[]>();
  answers.forEach(({ commits }, index) => {
    for (const one of commits) all.set(one.graph_commit_id, one);
    const head = commits[0]?.graph_commit_id;
    if (head) heads.set(head, [...(heads.get(head) ?? []), branches[index]]);
  });
  const commits = [...all.values()].sort((a, b) => b.created_at - a.created_at);
  return { commits, heads };
}

function Lanes({ row, width }: { row: LaneRow; width: number }) {
  const x = (lane: number) => LANE / 2 + lane * LANE;
  const middle = ROW / 2;
  return (
    <svg width={width} height={ROW} aria-hidden="true">
      {row.through.map((lane) => (
        <line key={`t${lane}`} x1={x(lane)} y1={0} x2={x(lane)} y2={ROW} stroke={color(lane)} strokeWidth={1.6} />
      ))}
      {row.fromAbove && <line x1={x(row.lane)} y1={0} x2={x(row.lane)} y2={middle} stroke={color(row.lane)} strokeWidth={1.6} />}
      {row.joins.map((lane) => (
        <path key={`j${lane}`} d={`M${x(lane)} 0 C ${x(lane)} ${middle}, ${x(row.lane)} 4, ${x(row.lane)} ${middle}`} stroke={color(lane)} strokeWidth={1.6} fill="none" />
      ))}
      {row.toBelow.map((lane) => (
        <path
          key={`b${lane}`}
          d={lane === row.lane ? `M${x(lane)} ${middle} V ${ROW}` : `M${x(row.lane)} ${middle} C ${x(row.lane)} ${ROW}, ${x(lane)} ${middle}, ${x(lane)} ${ROW}`}
          stroke={color(lane)}
          strokeWidth={1.6}
          fill="none"
        />
      ))}
      <circle cx={x(row.lane)} cy={middle} r={4.5} fill={color(row.lane)} />
    </svg>
  );
}

function color(lane: number): string {
  return LANE_COLORS[lane % LANE_COLORS.length];
}
