import { Alert, Badge, Button, Checkbox, Group, Loader, Select, Switch, Tabs, Text } from "@mantine/core";
import { ArrowRightIcon, CheckCircledIcon, TrashIcon } from "@radix-ui/react-icons";
import { useCallback, useEffect, useState } from "react";
import { api, ApiError, type Decision, type Permissions, type Preview, type Resolutions } from "../api";
import { formatCount } from "../format";
import { ConflictCard, isDecided } from "../parts/ConflictCard";
import { DiffView } from "../parts/DiffView";
import { StatTable } from "../parts/StatTable";
import { confirmDone, report, useShared } from "../state";

const OUTCOMES = {
  already_up_to_date: "nothing to merge",
  fast_forward: "fast forward",
  merged: "both sides changed",
};

/** A branch against its target, like a pull request. */
export default function Review() {
  const { branches, moment, params, go } = useShared();
  const others = branches.filter((name) => name !== "main");
  const source = moment.branch !== "main" ? moment.branch : undefined;
  const target = params.get("target") ?? "main";
  if (!source) {
    return (
      <div className="page">
        <div className="page-head">
          <h1>Review</h1>
          <Text c="dimmed">Choose a branch to compare with main.</Text>
        </div>
        {others.length === 0 && <div className="card empty">There is no branch beside main. Editing a node makes one.</div>}
        <div className="card">
          {others.map((name) => (
            <button key={name} type="button" className="row plain" onClick={() => go("review", { branch: name, commit: undefined })}>
              <code className="label">{name}</code>
              <span className="more">
                compare with main <ArrowRightIcon />
              </span>
            </button>
          ))}
        </div>
      </div>
    );
  }
  return (
    <BranchReview
      key={`${source} ${target}`}
      source={source}
      target={target}
      retarget={(name) => go("review", { branch: source, target: name })}
      targets={branches.filter((name) => name !== source)}
      left={() => go("review", { branch: "main" })}
    />
  );
}

interface Props {
  source: string;
  target: string;
  targets: string[];
  retarget: (name: string) => void;
  left: () => void;
}

function BranchReview({ source, target, targets, retarget, left }: Props) {
  const [byProperty, setByProperty] = useState(true);
  const [preview, setPreview] = useState<Preview>();
  const [decisions, setDecisions] = useState<Decision[]>([]);
  const [removes, setRemoves] = useState(true);
  const [problem, setProblem] = useState<string>();
  const [busy, setBusy] = useState(false);
  const [rights, setRights] = useState<Permissions>();
  const granularity = byProperty ? "property" : "row";

  const look = useCallback(async () => {
    setPreview(undefined);
    setProblem(undefined);
    try {
      const found = await api.preview(source, target, null, granularity);
      setPreview(found);
      setDecisions(found.resolutions.conflicts);
    } catch (error) {
      setProblem(error instanceof Error ? error.message : String(error));
    }
  }, [source, target, granularity]);
  useEffect(() => void look(), [look]);
  useEffect(() => void api.permissions(source, target).then(setRights, report), [source, target]);

  const open = decisions.filter((one) => !isDecided(one)).length;
  const resolutions = (): Resolutions | null =>
    preview && decisions.length ? { ...preview.resolutions, conflicts: decisions } : null;

  const check = async () => {
    try {
      const found = await api.preview(source, target, resolutions(), granularity);
      setDecisions(found.resolutions.conflicts);
      setProblem(undefined);
      confirmDone(
        found.merge_conflicts.length
          ? `${formatCount(found.merge_conflicts.length, "conflict")} left.`
          : "Every conflict is resolved; the merge can be done.",
      );
    } catch (error) {
      report(error);
    }
  };
  const merge = async () => {
    setBusy(true);
    try {
      const done = await api.merge(source, target, resolutions(), granularity, removes);
      confirmDone(`Merged ${source} into ${target}.`);
      if (done.branch_delete_error) report(new Error(done.branch_delete_error));
      if (done.branch_deleted) left();
      else await look();
    } catch (error) {
      report(error);
      if (error instanceof ApiError && error.code === "stale_resolutions") await look();
    } finally {
      setBusy(false);
    }
  };
  const discard = async () => {
    try {
      await api.deleteBranch(source);
      confirmDone(`Branch ${source} is deleted.`);
      left();
    } catch (error) {
      report(error);
    }
  };
  const mayMerge = rights?.actions.branch_merge ?? false;
  const mayDelete = rights?.actions.branch_delete ?? false;
  const isEmpty = preview?.outcome === "already_up_to_date";
  return (
    <div className="page">
      <div className="page-head">
        <h1>
          <code>{source}</code>
        </h1>
        <ArrowRightIcon />
        <Select aria-label="Merge into" data={targets} value={target} onChange={(name) => name && retarget(name)} allowDeselect={false} w={170} />
        {preview && (
          <Badge color={isEmpty ? "gray" : open ? "orange" : "teal"} size="lg">
            {open ? formatCount(open, "open conflict") : OUTCOMES[preview.outcome]}
          </Badge>
        )}
        <div className="spacer" />
        {mayDelete && (
          <Button variant="subtle" color="red" leftSection={<TrashIcon />} onClick={discard}>
            Delete branch
          </Button>
        )}
      </div>
      {problem && (
        <Alert color="red" mb="md" title="The branches cannot be compared">
          {problem}
        </Alert>
      )}
      {!preview && !problem && <Loader aria-label="Loading" />}
      {preview && (
        <div className="review">
          <div>
            <Tabs defaultValue={decisions.length ? "conflicts" : "changes"}>
              <Tabs.List mb="md">
                <Tabs.Tab value="changes">Changes</Tabs.Tab>
                <Tabs.Tab value="conflicts" rightSection={decisions.length ? <Badge size="xs" color={open ? "orange" : "teal"}>{decisions.length}</Badge> : undefined}>
                  Conflicts
                </Tabs.Tab>
              </Tabs.List>
              <Tabs.Panel value="changes">
                <BranchDiff source={source} target={target} />
              </Tabs.Panel>
              <Tabs.Panel value="conflicts">
                {decisions.length === 0 && <div className="card empty">Both branches agree. There is nothing to resolve.</div>}
                {decisions.map((decision, index) => (
                  <ConflictCard
                    key={`${decision.type} ${decision.id} ${decision.kind}`}
                    decision={decision}
                    source={source}
                    target={target}
                    change={(next) => setDecisions(decisions.map((one, at) => (at === index ? next : one)))}
                  />
                ))}
              </Tabs.Panel>
            </Tabs>
          </div>
          <aside className="card review-side" aria-label="Merge">
            <span className="section">What the merge does to {target}</span>
            <StatTable stats={preview.changes} empty="Nothing: it has everything already." />
            <Switch
              label="Combine changes of different properties"
              checked={byProperty}
              onChange={(event) => setByProperty(event.currentTarget.checked)}
              mt="sm"
            />
            {mayDelete && (
              <Checkbox
                label="Delete the branch afterwards"
                checked={removes}
                onChange={(event) => setRemoves(event.currentTarget.checked)}
                mt="xs"
              />
            )}
            {decisions.length > 0 && (
              <Button variant="default" fullWidth mt="md" onClick={check}>
                Check my choices
              </Button>
            )}
            {mayMerge ? (
              <Button fullWidth mt="xs" color="teal.8" loading={busy} leftSection={<CheckCircledIcon />} disabled={open > 0 || isEmpty} onClick={merge}>
                Merge into {target}
              </Button>
            ) : (
              <Alert color="gray" p="xs" mt="md">
                You may read both branches. Policy does not let you merge into {target}.
              </Alert>
            )}
            {open > 0 && mayMerge && (
              <Text size="xs" c="dimmed" mt={6}>
                Resolve {formatCount(open, "conflict")} first.
              </Text>
            )}
            <Group mt="sm" />
          </aside>
        </div>
      )}
    </div>
  );
}

/** What the branch itself changed: against the commit where it left the target. */
function BranchDiff({ source, target }: { source: string; target: string }) {
  const [base, setBase] = useState<string | null>();
  useEffect(() => {
    findBase(source, target).then(setBase, report);
  }, [source, target]);
  if (base === undefined) return <Loader aria-label="Loading" />;
  return <DiffView from={base ?? target} to={source} />;
}

/** The newest commit that both branches have, or null; merges count as having what they took in. */
async function findBase(source: string, target: string): Promise<string | null> {
  const [ours, theirs] = await Promise.all([api.commits(target), api.commits(source)]);
  const known = new Set(ours.commits.flatMap((one) => [one.graph_commit_id, one.merged_parent_commit_id]));
  return theirs.commits.find((one) => known.has(one.graph_commit_id))?.graph_commit_id ?? null;
}
