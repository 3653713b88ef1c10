import { useVirtualizer } from "@tanstack/react-virtual";
import { type ReactNode, useRef } from "react";

interface Props<T> {
  label: string;
  rows: T[];
  keyOf: (row: T) => string;
  render: (row: T) => ReactNode;
  height?: number;
}

/** A list of any length of which only what is visible is drawn. */
export function RowList<T>({ label, rows, keyOf, render, height = 30 }: Props<T>) {
  const box = useRef<HTMLDivElement>(null);
  const shown = useVirtualizer({
    count: rows.length,
    getScrollElement: () => box.current,
    estimateSize: () => height,
    overscan: 12,
    getItemKey: (index) => keyOf(rows[index]),
  });
  return (
    <div className="scroll" ref={box} role="region" aria-label={label} tabIndex={0}>
      <div style={{ height: shown.getTotalSize(), position: "relative" }}>
        {shown.getVirtualItems().map((item) => (
          <div
            key={item.key}
            style={{ position: "absolute", top: item.start, left: 0, right: 0, height }}
          >
            {render(rows[item.index])}
          </div>
        ))}
      </div>
    </div>
  );
}
