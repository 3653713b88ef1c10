import { Loader } from "@mantine/core";
import { useEffect, useMemo, useState } from "react";
import { api, type QueryResult, type Schema, type Subgraph } from "../api";
import { nodeKey } from "../format";
import { Picture } from "../picture/Picture";
import { report, useShared } from "../state";

const MOST_ROWS = 1000;

/** The nodes that a result returns, with the edges between them. */
export function ResultPicture({ result }: { result: QueryResult }) {
  const { schema, moment, colorOf, go } = useShared();
  const [part, setPart] = useState<Subgraph>();
  useEffect(() => {
    let current = true;
    if (schema) readNodes(result, schema, moment).then((found) => current && setPart(found), report);
    return () => {
      current = false;
    };
  }, [result, schema, moment]);
  const nodes = useMemo(() => part?.nodes.map((one) => ({ ...one, color: colorOf(one.type) })) ?? [], [part, colorOf]);
  if (!part) return <Loader m="md" aria-label="Loading" />;
  if (!nodes.length) return <div className="empty">Return nodes, as in “return {"{ $n }"}”, to see them as a picture.</div>;
  return (
    <Picture
      nodes={nodes}
      edges={part.edges}
      onSelect={(key) => key && go("explore", { node: key })}
      onExpand={(key) => go("explore", { node: key })}
    />
  );
}

/** A column with ids of nodes has a text in every row; which type it is, the nodes themselves say. */
async function readNodes(result: QueryResult, schema: Schema, moment: { branch: string; commit?: string }): Promise<Subgraph> {
  const rows = result.rows.slice(0, MOST_ROWS);
  const columns = (result.columns ?? []).filter((name) => rows.every((row) => row[name] === null || typeof row[name] === "string"));
  const ids = [...new Set(columns.flatMap((name) => rows.map((row) => row[name]).filter((id): id is string => typeof id === "string")))];
  if (!ids.length) return { graph_commit_id: null, nodes: [], edges: [], complete: true };
  const wanted = Object.fromEntries(schema.nodes.map((type) => [type.name, ids]));
  const found = await api.subgraph(wanted, moment, 0, 5000);
  const known = new Set(found.nodes.map((one) => nodeKey(one.type, one.id)));
  return { ...found, edges: found.edges.filter((one) => known.has(nodeKey(one.from_type, one.from))) };
}
