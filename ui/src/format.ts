// Values, times and names as people read them.

import type { Json, NodeData, Properties, PropertyInfo, Schema, TypeInfo, ValueType } from "./api";

export function formatValue(value: Json | undefined): string {
  if (value === undefined) return "";
  if (value === null) return "null";
  if (typeof value === "string") {
    return value.startsWith("base64:") ? `${formatBytes((value.length - 7) * 0.75)} of bytes` : value;
  }
  if (Array.isArray(value) && value.length > 8 && value.every((one) => typeof one === "number")) {
    return `vector of ${value.length}`;
  }
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

export function formatBytes(bytes: number): string {
  const units = ["bytes", "kB", "MB", "GB"];
  let size = bytes;
  let unit = 0;
  while (size >= 1000 && unit < units.length - 1) {
    size /= 1000;
    unit += 1;
  }
  return `${unit ? size.toFixed(1) : Math.round(size)} ${units[unit]}`;
}

export function formatCount(count: number, word: string, plural = `${word}s`): string {
  return `${count.toLocaleString("en")} ${count === 1 ? word : plural}`;
}

export function formatTime(micros: number): string {
  return new Date(micros / 1000).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
}

export function formatAge(micros: number): string {
  const seconds = Math.max(0, (Date.now() - micros / 1000) / 1000);
  const steps: [number, string][] = [[86400, "d"], [3600, "h"], [60, "min"]];
  for (const [size, unit] of steps) if (seconds >= size) return `${Math.floor(seconds / size)} ${unit} ago`;
  return "just now";
}

export function shortId(id: string | null | undefined): string {
  return id ? id.slice(-8) : "none";
}

export function formatType(type: ValueType): string {
  const scalar = typeof type.scalar === "object" ? `Vector(${type.scalar.Vector})` : type.scalar;
  const named = type.enum_values ? `enum(${type.enum_values.join(", ")})` : scalar;
  return `${type.list ? `[${named}]` : named}${type.nullable ? "?" : ""}`;
}

export function keyOf(type: TypeInfo | undefined): string[] {
  const found = type?.constraints.find((one) => "Key" in one);
  return (found?.Key as string[] | undefined) ?? [];
}

const LABELS = ["name", "title", "label", "subject"];

/** The text at a node: a name or title if it has one, else its id. */
export function labelOf(node: { id: string; properties: Properties }): string {
  for (const name of LABELS) {
    const value = node.properties[name];
    if (typeof value === "string" && value) return value;
  }
  return node.id;
}

export function nodeKey(type: string, id: string): string {
  return `${type} ${id}`;
}

export function nodeTypeOf(schema: Schema | undefined, name: string): TypeInfo | undefined {
  return schema?.nodes.find((one) => one.name === name);
}

export function isPlain(property: PropertyInfo): boolean {
  return property.type.scalar !== "Blob" && typeof property.type.scalar === "string";
}

export function subtitleOf(node: NodeData): string {
  const label = labelOf(node);
  return label === node.id ? node.type : `${node.type} · ${node.id}`;
}

/** Save bytes that were made here as a file. */
export function saveFile(name: string, content: Blob | string, media = "text/plain"): void {
  const blob = typeof content === "string" ? new Blob([content], { type: media }) : content;
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
