import { useVirtualizer } from "@tanstack/react-virtual";
import { useRef } from "react";
import type { Properties } from "../api";
import { formatValue } from "../format";
import { Value } from "./Value";

const ROW = 30;
const SAMPLE = 200;

/** Rows of a result, of which only what is visible is drawn. */
export function DataTable({ columns, rows }: { columns: string[]; rows: Properties[] }) {
  const box = useRef<HTMLDivElement>(null);
  const shown = useVirtualizer({
    count: rows.length,
    getScrollElement: () => box.current,
    estimateSize: () => ROW,
    overscan: 20,
  });
  const widths = columns.map((name) => {
    const longest = Math.max(name.length, ...rows.slice(0, SAMPLE).map((row) => formatValue(row[name]).length));
    return Math.min(420, Math.max(80, 26 + longest * 7.4));
  });
  const kinds = columns.map((name) => (rows.some((row) => typeof row[name] === "number") ? "cell number" : "cell"));
  return (
    <div className="table" ref={box} role="table" aria-label="Result" aria-rowcount={rows.length + 1} tabIndex={0}>
      <div role="rowgroup" className="table-head">
        <div role="row" style={{ display: "flex" }}>
          {columns.map((name, at) => (
            <div key={name} role="columnheader" className={kinds[at]} style={{ width: widths[at] }}>
              {name}
            </div>
          ))}
        </div>
      </div>
      <div role="rowgroup" style={{ height: shown.getTotalSize(), position: "relative" }}>
        {shown.getVirtualItems().map((item) => (
          <div
            key={item.key}
            role="row"
            aria-rowindex={item.index + 2}
            className="table-row"
            style={{ height: ROW, transform: `translateY(${item.start}px)` }}
          >
            {columns.map((name, at) => (
              <div key={name} role="cell" className={kinds[at]} style={{ width: widths[at] }} title={formatValue(rows[item.index][name])}>
                <Value value={rows[item.index][name]} />
              </div>
            ))}
          </div>
        ))}
      </div>
    </div>
  );
}
