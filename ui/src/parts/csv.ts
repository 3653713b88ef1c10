/** The rows of a CSV text, with quotes as RFC 4180 has them; the first is the header. */
export function parseCsv(text: string): string[][] {
  const rows: string[][] = [];
  let row: string[] = [];
  let cell = "";
  let quoted = false;
  for (let at = 0; at < text.length; at += 1) {
    const sign = text[at];
    if (quoted) {
      if (sign !== '"') cell += sign;
      else if (text[at + 1] === '"') {
        cell += '"';
        at += 1;
      } else quoted = false;
    } else if (sign === '"') quoted = true;
    else if (sign === ",") {
      row.push(cell);
      cell = "";
    } else if (sign === "\n") {
      rows.push([...row, cell.replace(/\r$/, "")]);
      row = [];
      cell = "";
    } else cell += sign;
  }
  if (cell || row.length) rows.push([...row, cell.replace(/\r$/, "")]);
  return rows.filter((one) => one.some((value) => value !== ""));
}
