import { Anchor, Badge, Text } from "@mantine/core";
import type { EdgeData } from "../api";
import { nodeKey } from "../format";
import { Value } from "./Value";

export function EdgePanel({ edge, select }: { edge: EdgeData; select: (key: string) => void }) {
  const ends = [
    ["from", edge.from_type, edge.from],
    ["to", edge.to_type, edge.to],
  ];
  return (
    <div className="panel">
      <Badge color="gray">edge</Badge>
      <h2>{edge.type}</h2>
      <Text size="xs" c="dimmed" className="mono">
        {edge.id}
      </Text>
      <table className="props" style={{ marginTop: 12 }}>
        <tbody>
          {ends.map(([name, type, id]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td>
                <Anchor component="button" size="sm" onClick={() => select(nodeKey(type, id))}>
                  {type} {id}
                </Anchor>
              </td>
            </tr>
          ))}
          {Object.entries(edge.properties).map(([name, value]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td>
                <Value value={value} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
