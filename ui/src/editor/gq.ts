// The query language for the editor: colours, completion from the schema, and findings of the server's lint.

import { type Completion, type CompletionContext, type CompletionResult } from "@codemirror/autocomplete";
import { LanguageSupport, StreamLanguage } from "@codemirror/language";
import { type Diagnostic as Mark, linter } from "@codemirror/lint";
import { api, type LintReport, type Schema } from "../api";
import { formatType } from "../format";

const KEYWORDS = [
  "query", "match", "return", "having", "order", "limit", "offset", "distinct", "not", "and", "or", "optional", "insert", "upsert", "create", "update", "delete",
  "set", "where", "as", "asc", "desc", "in", "is", "null",
  "contains", "starts_with", "ends_with", "like", "ilike", "matches", "case", "when", "then", "else", "end",
  "true", "false", "from", "to", "shortest",
];
const FUNCTIONS = [
  "count", "sum", "avg", "min", "max", "collect", "now", "date", "datetime", "lower", "upper", "search", "match_text", "fuzzy",
  "coalesce", "year", "quarter", "month", "week", "day", "weekday", "hour", "minute", "second", "years", "months",
  "weeks", "days", "hours", "minutes", "seconds",
  "bm25", "nearest", "rrf", "length", "nodes", "edges",
];
const SCALARS = ["String", "Bool", "I32", "I64", "U32", "U64", "F32", "F64", "Date", "DateTime", "Blob", "Vector"];

interface State {
  comment: boolean;
}

export const gqLanguage = new LanguageSupport(
  StreamLanguage.define<State>({
    name: "gq",
    startState: () => ({ comment: false }),
    token(stream, state) {
      if (state.comment) {
        if (stream.skipTo("*/")) {
          stream.match("*/");
          state.comment = false;
        } else stream.skipToEnd();
        return "comment";
      }
      if (stream.eatSpace()) return null;
      if (stream.match("//")) {
        stream.skipToEnd();
        return "comment";
      }
      if (stream.match("/*")) {
        state.comment = true;
        return "comment";
      }
      if (stream.match(/^"(?:[^"\\]|\\.)*"?/)) return "string";
      if (stream.match(/^\$[A-Za-z_]\w*/)) return "variableName";
      if (stream.match(/^@\w+/)) return "keyword";
      if (stream.match(/^-?\d+(\.\d+)?/)) return "number";
      if (stream.match(/^[A-Z]\w*/)) return "typeName";
      const word = stream.match(/^[a-z_]\w*/) as RegExpMatchArray | null;
      if (word) return KEYWORDS.includes(word[0]) ? "keyword" : null;
      if (stream.match(/^[<>=!]+|^[-+*/]/)) return "operator";
      stream.next();
      return null;
    },
    languageData: { commentTokens: { line: "//", block: { open: "/*", close: "*/" } } },
  }),
);

/** Completes types, properties of a variable whose type is written somewhere, edges and words. */
export function completeFrom(schema: () => Schema | undefined) {
  return (context: CompletionContext): CompletionResult | null => {
    const types = schema();
    const dotted = context.matchBefore(/\$\w+\.\w*/);
    if (dotted && types) {
      const variable = dotted.text.slice(1).split(".")[0];
      return { from: dotted.from + variable.length + 2, options: propertiesOf(context.state.doc.toString(), variable, types) };
    }
    const word = context.matchBefore(/\w+/);
    if (!word && !context.explicit) return null;
    return { from: word?.from ?? context.pos, options: wordsOf(types), validFor: /^\w*$/ };
  };
}

function propertiesOf(text: string, variable: string, schema: Schema): Completion[] {
  const bound = new RegExp(`\\$${variable}\\s*:\\s*([A-Z]\\w*)`).exec(text)?.[1];
  const edge = new RegExp(`\\$${variable}\\s*:\\s*([a-z]\\w*)`).exec(text)?.[1];
  const owners = bound
    ? schema.nodes.filter((one) => one.name === bound)
    : edge
      ? schema.edges.filter((one) => one.name.toLowerCase() === edge.toLowerCase())
      : schema.nodes;
  const found = owners.flatMap((owner) => owner.properties.map((one) => ({ owner: owner.name, one })));
  return [...new Map(found.map(({ owner, one }) => [one.name, { label: one.name, type: "property", detail: formatType(one.type), info: owner }])).values()];
}

function wordsOf(schema: Schema | undefined): Completion[] {
  return [
    ...(schema?.nodes ?? []).map((one) => ({ label: one.name, type: "class", detail: "node" })),
    ...(schema?.edges ?? []).map((one) => ({
      label: one.name.charAt(0).toLowerCase() + one.name.slice(1),
      type: "interface",
      detail: `${one.from} → ${one.to}`,
    })),
    ...KEYWORDS.map((label) => ({ label, type: "keyword" })),
    ...FUNCTIONS.map((label) => ({ label, type: "function" })),
    ...SCALARS.map((label) => ({ label, type: "type" })),
  ];
}

/** Underlines what the server finds, and hands the whole report on. */
export function lintWith(done: (found: LintReport) => void) {
  return linter(
    async (view) => {
      const text = view.state.doc.toString();
      if (!text.trim()) return [];
      try {
        const found = await api.lint(text);
        done(found);
        return marks(text, found);
      } catch {
        return []; // a failure of the call is no finding; running the query reports it
      }
    },
    { delay: 350 },
  );
}

function marks(text: string, found: LintReport): Mark[] {
  const bytes = new TextEncoder().encode(text);
  const place = (byte: number) => new TextDecoder().decode(bytes.subarray(0, byte)).length;
  const wrong = [...found.findings, ...found.results].flatMap((one) => one.diagnostics ?? []);
  return wrong.map((one) => ({
    from: place(one.span.start),
    to: Math.max(place(one.span.end), place(one.span.start)),
    severity: "error",
    message: one.help ? `${one.message}\n${one.help}` : one.message,
    source: one.code,
  }));
}
