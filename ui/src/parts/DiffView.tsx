import { Badge, Group, Loader, Select, Text } from "@mantine/core";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef, useState } from "react";
import { api, type Change, type Counts } from "../api";
import { formatCount } from "../format";
import { report } from "../state";
import { ChangeCard } from "./ChangeCard";
import { StatTable } from "./StatTable";

const MOST_CHANGES = 20_000;

/** What leads from one moment to another: counts first, then the entities, as far as a page can hold them. */
export function DiffView({ from, to }: { from: string; to: string }) {
  const [stats, setStats] = useState<Record<string, Counts>>();
  const [type, setType] = useState<string | null>(null);
  const [changes, setChanges] = useState<Change[]>();
  useEffect(() => {
    setStats(undefined);
    setType(null);
    api.diff(from, to, { stat: true }).then((found) => setStats(found.stats), report);
  }, [from, to]);
  const counts = Object.entries(stats ?? {}).map(([key, one]) => [key, one.inserted + one.updated + one.deleted] as const);
  const chosen = counts.filter(([key]) => !type || key === type).reduce((sum, [, count]) => sum + count, 0);
  const fits = stats !== undefined && chosen <= MOST_CHANGES;
  useEffect(() => {
    setChanges(undefined);
    if (!fits) return;
    let current = true;
    api.diff(from, to, type ? { types: [type] } : {}).then((found) => current && setChanges(found.changes ?? []), report);
    return () => {
      current = false;
    };
  }, [from, to, type, fits]);
  if (!stats) return <Loader aria-label="Loading" />;
  if (!counts.some(([, count]) => count)) return <div className="card empty">Both are the same.</div>;
  return (
    <>
      <div className="card" style={{ marginBottom: 14 }}>
        <StatTable stats={stats} empty="Both are the same." />
      </div>
      <Group mb={10} gap="sm">
        <Select
          aria-label="Only this type"
          placeholder="All types"
          data={counts.filter(([, count]) => count).map(([key]) => ({ value: key, label: key.replace(":", " ") }))}
          value={type}
          onChange={setType}
          clearable
          w={200}
        />
        <Badge color="gray">{formatCount(chosen, "entity", "entities")}</Badge>
      </Group>
      {!fits && <Text c="dimmed">More than {MOST_CHANGES.toLocaleString("en")} entities differ: choose a type, or use `omnigraph diff`.</Text>}
      {fits && !changes && <Loader aria-label="Loading" />}
      {changes && <ChangeList changes={changes} />}
    </>
  );
}

function ChangeList({ changes }: { changes: Change[] }) {
  const box = useRef<HTMLDivElement>(null);
  const shown = useVirtualizer({
    count: changes.length,
    getScrollElement: () => box.current?.closest<HTMLElement>(".page, .scroll-box") ?? null,
    estimateSize: (index) => 50 + 28 * ((changes[index].changed?.length ?? 5) || 1),
    overscan: 6,
    scrollMargin: box.current?.offsetTop ?? 0,
    initialRect: { width: 800, height: 900 },
  });
  return (
    <div ref={box} style={{ height: shown.getTotalSize(), position: "relative" }} aria-label="Entities that differ">
      {shown.getVirtualItems().map((item) => (
        <div
          key={item.key}
          data-index={item.index}
          ref={shown.measureElement}
          style={{ position: "absolute", top: item.start - shown.options.scrollMargin, left: 0, right: 0 }}
        >
          <ChangeCard change={changes[item.index]} />
        </div>
      ))}
    </div>
  );
}
