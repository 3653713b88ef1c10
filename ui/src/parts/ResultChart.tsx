import { Group, Select } from "@mantine/core";
import { useState } from "react";
import type { QueryResult } from "../api";
import { formatValue } from "../format";

const MOST_BARS = 60;

/** One number of each row as bars. */
export function ResultChart({ result }: { result: QueryResult }) {
  const columns = result.columns ?? [];
  const numbers = columns.filter((name) => result.rows.some((row) => typeof row[name] === "number"));
  const [label, setLabel] = useState<string | null>(columns.find((name) => !numbers.includes(name)) ?? null);
  const [value, setValue] = useState<string | null>(numbers[0] ?? null);
  if (!numbers.length) return <div className="empty">A chart needs a column of numbers.</div>;
  const rows = result.rows.slice(0, MOST_BARS);
  const read = (at: number) => Number(rows[at][value ?? ""] ?? 0);
  const largest = Math.max(...rows.map((_, at) => Math.abs(read(at))), 1e-9);
  return (
    <div className="scroll" style={{ padding: 14 }} tabIndex={0} role="region" aria-label="Chart">
      <Group mb="sm">
        <Select aria-label="Label" data={columns} value={label} onChange={setLabel} />
        <Select aria-label="Number" data={numbers} value={value} onChange={setValue} />
      </Group>
      <table className="chart">
        <tbody>
          {rows.map((row, at) => (
            // biome-ignore lint: rows have no names of their own
            <tr key={at}>
              <th scope="row">{label ? formatValue(row[label]) : at + 1}</th>
              <td>
                <div className="bar-fill" style={{ width: `${(100 * Math.abs(read(at))) / largest}%` }} />
              </td>
              <td className="num">{formatValue(row[value ?? ""])}</td>
            </tr>
          ))}
        </tbody>
      </table>
      {result.rows.length > MOST_BARS && <div className="empty">The first {MOST_BARS} rows.</div>}
    </div>
  );
}
