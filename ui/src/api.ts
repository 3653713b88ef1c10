// Calls of the server. Every request carries the header by which the server knows its own page.

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
export type Properties = Record<string, Json>;

export interface Moment {
  branch: string;
  /** The graph as this commit left it; absent means now. */
  commit?: string;
}

export interface NodeData {
  type: string;
  id: string;
  properties: Properties;
  blobs: string[];
}

export interface EdgeData {
  type: string;
  id: string;
  from: string;
  from_type: string;
  to: string;
  to_type: string;
  properties: Properties;
}

export interface Subgraph {
  graph_commit_id: string | null;
  nodes: NodeData[];
  edges: EdgeData[];
  complete: boolean;
}

export interface ValueType {
  scalar: string | { Vector: number };
  nullable: boolean;
  list: boolean;
  enum_values: string[] | null;
}

export interface PropertyInfo {
  name: string;
  type: ValueType;
  annotations: { name: string; value?: string }[];
  embed: { source: string; model: string | null } | null;
}

export interface TypeInfo {
  name: string;
  implements?: string[];
  annotations: { name: string; value?: string }[];
  properties: PropertyInfo[];
  constraints: Record<string, Json>[];
}

export interface EdgeInfo extends TypeInfo {
  from: string;
  to: string;
  cardinality: { min: number; max: number | null };
}

export interface Schema {
  graph_commit_id: string | null;
  interfaces: { name: string; properties: PropertyInfo[] }[];
  nodes: TypeInfo[];
  edges: EdgeInfo[];
  rows: Record<string, number>;
}

export interface Permissions {
  graph_id: string;
  actor_id: string | null;
  mode: "open" | "default-deny" | "policy" | "personal";
  can_apply_schema: boolean;
  actions: Record<
    "read" | "export" | "change" | "branch_create" | "branch_delete" | "branch_merge" | "invoke_query",
    boolean
  >;
}

export interface Commit {
  graph_commit_id: string;
  graph_branch: string | null;
  graph_manifest_version: number;
  parent_commit_id: string | null;
  merged_parent_commit_id: string | null;
  actor_id: string | null;
  /** Microseconds since 1970. */
  created_at: number;
}

export interface Image {
  properties: Properties;
  endpoints?: { from: string; to: string };
}

export interface Change {
  kind: "node" | "edge";
  type: { id: string; name: string };
  id: string;
  op: "insert" | "update" | "delete";
  changed?: string[];
  before?: Image;
  after?: Image;
}

export interface Counts {
  inserted: number;
  updated: number;
  deleted: number;
}

export interface Diff {
  from: { graph_branch: string; graph_commit_id: string | null };
  to: { graph_branch: string; graph_commit_id: string | null };
  stats: Record<string, Counts>;
  changes?: Change[];
}

export interface Decision {
  type: string;
  id: string;
  kind: string;
  message: string;
  digest?: string;
  take: Side | null;
  properties?: Record<string, { base: Json; ours: Json; theirs: Json; take?: Side | null; value?: Json }>;
}

export type Side = "ours" | "theirs" | "base";

export interface Resolutions {
  source: string;
  into: string;
  granularity: string | Record<string, string>;
  default: Side | null;
  types: Record<string, Json>;
  conflicts: Decision[];
}

export interface Conflict {
  entity_kind: string;
  type_name: string;
  entity_id: string | null;
  table_key: string;
  kind: string;
  message: string;
  remedy?: string;
}

export interface Preview {
  source: string;
  target: string;
  outcome: "already_up_to_date" | "fast_forward" | "merged";
  resolved: number;
  changes: Record<string, Counts>;
  merge_conflicts: Conflict[];
  met: Conflict[];
  resolutions: Resolutions;
}

export interface QueryResult {
  query_name: string;
  row_count: number;
  columns: string[];
  rows: Properties[];
  graph_commit_id?: string;
}

export interface ExplainStep {
  step: string;
  detail: string;
  how: string;
  rows: number | null;
  milliseconds: number;
  depth: number;
}

export interface Explained {
  query_name: string;
  steps: ExplainStep[];
  rows: number;
  milliseconds: number;
}

export interface Diagnostic {
  message: string;
  line: number;
  column: number;
  span: { start: number; end: number };
  code?: string;
  help?: string;
}

export interface Parameter {
  name: string;
  kind: string;
  nullable: boolean;
  item_kind?: string;
  vector_dim?: number;
}

export interface LintReport {
  status: "ok" | "error";
  errors: number;
  warnings: number;
  results: {
    name: string;
    kind: "read" | "mutation";
    status: "ok" | "error";
    error?: string;
    warnings?: string[];
    diagnostics?: Diagnostic[];
  }[];
  queries: StoredQuery[];
  findings: { severity: string; code: string; message: string; diagnostics?: Diagnostic[] }[];
}

export interface StoredQuery {
  name: string;
  mutation: boolean;
  params: Parameter[];
  description?: string;
}

export interface Doctor {
  ok: boolean;
  findings: { severity: "problem" | "note"; what: string; detail: string; remedy: string | null }[];
  versions: Record<string, number>;
  past_versions: Record<string, number>;
}

/** A failure as the server describes it. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly code: string | undefined,
    readonly remedy: string | undefined,
    readonly data: Json | undefined,
  ) {
    super(message);
  }
}

export const graphId = new URLSearchParams(location.search).get("graph") ?? "default";
const BASE = `/graphs/${encodeURIComponent(graphId)}`;
const PAGE = { "X-Omnigraph-Page": "1" };

type Query = Record<string, string | number | undefined>;

async function send(method: string, path: string, init: RequestInit = {}): Promise<Response> {
  const answer = await fetch(path, {
    ...init,
    method,
    credentials: "same-origin",
    headers: { ...PAGE, ...(init.headers ?? {}) },
  });
  if (!answer.ok) throw await failure(answer);
  return answer;
}

async function failure(answer: Response): Promise<ApiError> {
  const text = await answer.text();
  try {
    const body = JSON.parse(text);
    return new ApiError(answer.status, body.error, body.error_code, body.remedy ?? undefined, body.data);
  } catch {
    return new ApiError(answer.status, text || answer.statusText, undefined, undefined, undefined);
  }
}

function withQuery(path: string, query: Query): string {
  const shown = Object.entries(query).filter(([, value]) => value !== undefined && value !== "");
  const text = new URLSearchParams(shown.map(([name, value]) => [name, String(value)])).toString();
  return text ? `${path}?${text}` : path;
}

async function get<T>(path: string, query: Query = {}): Promise<T> {
  return (await send("GET", withQuery(BASE + path, query))).json();
}

async function post<T>(path: string, body: unknown, signal?: AbortSignal): Promise<T> {
  const init = { body: JSON.stringify(body), headers: { "Content-Type": "application/json" }, signal };
  return (await send("POST", BASE + path, init)).json();
}

/** A commit fixes the moment by itself; a branch means its newest commit. */
export function at(moment: Moment): { branch?: string; commit?: string } {
  return moment.commit ? { commit: moment.commit } : { branch: moment.branch };
}

export const api = {
  signIn: async (token: string): Promise<{ actor_id: string | null }> => {
    const init = { body: JSON.stringify({ token }), headers: { "Content-Type": "application/json" } };
    return (await send("POST", "/ui/session", init)).json();
  },
  signOut: async (): Promise<void> => void (await send("DELETE", "/ui/session")),
  permissions: (branch: string, target?: string) => get<Permissions>("/permissions", { branch, target }),
  schema: (moment: Moment) => get<Schema>("/schema/types", at(moment)),
  schemaSource: () => get<{ schema_source: string }>("/schema"),
  branches: () => get<{ branches: string[] }>("/branches"),
  createBranch: (name: string, from: string) => post("/branches", { name, from }),
  deleteBranch: async (name: string) => void (await send("DELETE", `${BASE}/branches/${encodeURIComponent(name)}`)),
  commits: (branch: string) => get<{ commits: Commit[] }>("/commits", { branch }),
  commitChanges: (id: string, limit = 1000) =>
    get<{ changes: Change[]; next_page_token?: string }>(`/commits/${id}/changes`, { limit }),
  changesOfType: (branch: string, type: string, page_token?: string) =>
    get<{
      blocks: { cause: { graph_commit_id: string; actor_id?: string; authored_at: number }; changes: Change[] }[];
      next_page_token?: string;
    }>("/changes", { branch, type, limit: 8192, ...(page_token ? { page_token } : { start: "beginning" }) }),
  diff: (from: string, to: string, more: { types?: string[]; ops?: string[]; stat?: boolean } = {}) =>
    post<Diff>("/diff", { from, to, ...more }),
  find: (text: string, moment: Moment, type?: string) =>
    get<{ nodes: NodeData[] }>("/find", { text, type, ...at(moment) }),
  subgraph: (nodes: Record<string, string[]>, moment: Moment, hops = 0, limit = 300) =>
    post<Subgraph>("/subgraph", { nodes, hops, limit, ...at(moment) }),
  query: (query: string, params: Properties, moment: Moment, more: { name?: string; max_rows?: number } = {}) =>
    post<QueryResult>("/query", { query, params, ...at(moment), ...more }),
  queryArrow: async (query: string, params: Properties, moment: Moment, name?: string): Promise<Blob> => {
    const init = {
      body: JSON.stringify({ query, params, name, ...at(moment) }),
      headers: { "Content-Type": "application/json", Accept: "application/vnd.apache.arrow.stream" },
    };
    return (await send("POST", `${BASE}/query`, init)).blob();
  },
  explain: (query: string, params: Properties, moment: Moment, name?: string) =>
    post<Explained>("/explain", { query, params, name, ...at(moment) }),
  lint: (query: string, signal?: AbortSignal) => post<LintReport>("/lint", { query }, signal),
  mutate: (query: string, params: Properties, branch: string, name?: string) =>
    post<{ commit?: Commit | null; affected_nodes?: number }>("/mutate", { query, params, branch, name }),
  storedQueries: () => get<{ queries: StoredQuery[] }>("/queries"),
  invoke: (name: string, params: Properties, moment: Moment) =>
    post<QueryResult>(`/queries/${encodeURIComponent(name)}`, {
      params,
      ...(moment.commit ? { snapshot: moment.commit } : { branch: moment.branch }),
    }),
  preview: (source: string, target: string, resolutions: Resolutions | null, granularity: string) =>
    post<Preview>("/branches/merge/preview", { source, target, resolutions, granularity }),
  merge: (source: string, target: string, resolutions: Resolutions | null, granularity: string, remove: boolean) =>
    post<{ outcome: string; commit: Commit | null; branch_deleted?: boolean; branch_delete_error?: string }>(
      "/branches/merge",
      { source, target, resolutions, granularity, delete_branch: remove },
    ),
  load: async (lines: string, branch: string, from: string, mode: string) => {
    const init = { body: lines, headers: { "Content-Type": "application/x-ndjson" } };
    return (await send("POST", withQuery(`${BASE}/load/ndjson`, { branch, from, mode }), init)).json();
  },
  blob: async (kind: "node" | "edge", type: string, id: string, property: string, moment: Moment): Promise<Blob> => {
    const when = moment.commit ? { snapshot: moment.commit } : { branch: moment.branch };
    return (await send("GET", withQuery(`${BASE}/blob`, { entity: kind, type, id, property, ...when }))).blob();
  },
  doctor: () => get<Doctor>("/doctor"),
  health: async (): Promise<{ version: string }> => (await send("GET", "/healthz")).json(),
};

/** Whether a failure is the one a missing session has. */
export function isSignedOut(error: unknown): boolean {
  return error instanceof ApiError && error.status === 401;
}
