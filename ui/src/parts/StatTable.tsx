import type { Counts } from "../api";

/** How many entities of each type were added, changed and removed. */
export function StatTable({ stats, empty }: { stats: Record<string, Counts>; empty: string }) {
  const rows = Object.entries(stats).filter(([, one]) => one.inserted + one.updated + one.deleted > 0);
  if (!rows.length) return <div className="empty">{empty}</div>;
  return (
    <table className="grid-table">
      <thead>
        <tr>
          <th scope="col">Type</th>
          <th scope="col" className="num">Added</th>
          <th scope="col" className="num">Changed</th>
          <th scope="col" className="num">Removed</th>
        </tr>
      </thead>
      <tbody>
        {rows.map(([key, one]) => (
          <tr key={key}>
            <td>{key.replace(":", " ")}</td>
            <td className="num op-insert">{one.inserted ? `+${one.inserted.toLocaleString("en")}` : ""}</td>
            <td className="num op-update">{one.updated ? `~${one.updated.toLocaleString("en")}` : ""}</td>
            <td className="num op-delete">{one.deleted ? `−${one.deleted.toLocaleString("en")}` : ""}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
