import type { Json } from "../api";
import { formatValue } from "../format";

const SAFE_LINK = /^https?:\/\/[^\s]+$/;

/** A value as text; only plain web addresses become links, and nothing from data becomes HTML. */
export function Value({ value }: { value: Json | undefined }) {
  if (value === null || value === undefined) return <span className="null">null</span>;
  if (typeof value === "string" && SAFE_LINK.test(value)) {
    return (
      <a href={value} target="_blank" rel="noopener noreferrer nofollow">
        {value}
      </a>
    );
  }
  return <>{formatValue(value)}</>;
}
