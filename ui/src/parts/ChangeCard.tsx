import { Badge } from "@mantine/core";
import type { Change, Image } from "../api";
import { labelOf } from "../format";
import { Value } from "./Value";

const WORDS = { insert: "added", update: "changed", delete: "removed" };

/** One entity that differs, property by property. */
export function ChangeCard({ change, compact = false }: { change: Change; compact?: boolean }) {
  const image = change.after ?? change.before;
  const names = namesOf(change);
  return (
    <article className="change" aria-label={`${change.type.name} ${change.id} ${WORDS[change.op]}`}>
      <div className="change-head">
        <strong className={`op-${change.op}`}>{WORDS[change.op]}</strong>
        {!compact && (
          <>
            <Badge color="gray">{change.type.name}</Badge>
            <span className="ellipsis">{image && change.kind === "node" ? labelOf({ id: change.id, ...image }) : ends(image)}</span>
            <span className="spacer" />
            <span className="mono soft ellipsis">{change.id}</span>
          </>
        )}
      </div>
      <table>
        <tbody>
          {names.map((name) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              {change.op !== "insert" && (
                <td className="was">
                  <Value value={read(change.before, name)} />
                </td>
              )}
              {change.op !== "delete" && (
                <td className="is">
                  <Value value={read(change.after, name)} />
                </td>
              )}
            </tr>
          ))}
        </tbody>
      </table>
    </article>
  );
}

function namesOf(change: Change): string[] {
  if (change.op === "update") return change.changed ?? [];
  const image = change.after ?? change.before;
  const all = Object.entries(image?.properties ?? {}).filter(([, value]) => value !== null);
  return [...(image?.endpoints ? ["src", "dst"] : []), ...all.map(([name]) => name)];
}

function read(image: Image | undefined, name: string) {
  if (name === "src") return image?.endpoints?.from;
  if (name === "dst") return image?.endpoints?.to;
  return image?.properties[name];
}

function ends(image: Image | undefined): string {
  return image?.endpoints ? `${image.endpoints.from} → ${image.endpoints.to}` : "";
}
