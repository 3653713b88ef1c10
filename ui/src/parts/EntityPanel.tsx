import { ActionIcon, Button, Group, Loader, Menu, Tabs, Text } from "@mantine/core";
import { DotsHorizontalIcon, DownloadIcon, Pencil1Icon, Share1Icon, TrashIcon } from "@radix-ui/react-icons";
import { useEffect, useState } from "react";
import { api, type Change, type NodeData } from "../api";
import { formatAge, formatType, keyOf, labelOf, nodeTypeOf, saveFile, shortId } from "../format";
import { report, useShared } from "../state";
import { ChangeCard } from "./ChangeCard";
import { EditNode } from "./EditNode";
import { Value } from "./Value";

interface Props {
  node: NodeData;
  expand: () => void;
  startPath: () => void;
  changed: () => void;
}

export function EntityPanel({ node, expand, startPath, changed }: Props) {
  const { schema, moment, colorOf } = useShared();
  const [editing, setEditing] = useState<"edit" | "delete">();
  const type = nodeTypeOf(schema, node.type);
  const editable = !moment.commit && keyOf(type).length === 1;
  return (
    <div className="panel">
      <Group gap={8} wrap="nowrap" align="center">
        <span className="dot" style={{ background: colorOf(node.type) }} />
        <Text size="xs" c="dimmed" fw={600}>
          {node.type}
        </Text>
        <div className="spacer" />
        <Menu position="bottom-end" shadow="md">
          <Menu.Target>
            <ActionIcon aria-label="More about this node">
              <DotsHorizontalIcon />
            </ActionIcon>
          </Menu.Target>
          <Menu.Dropdown>
            <Menu.Item onClick={startPath}>Shortest path to another node</Menu.Item>
            <Menu.Item onClick={() => void navigator.clipboard?.writeText(location.href)}>Copy link</Menu.Item>
            {editable && (
              <Menu.Item color="red" leftSection={<TrashIcon />} onClick={() => setEditing("delete")}>
                Delete…
              </Menu.Item>
            )}
          </Menu.Dropdown>
        </Menu>
      </Group>
      <h2>{labelOf(node)}</h2>
      <Text size="xs" c="dimmed" className="mono">
        {node.id}
      </Text>
      <Group gap={6} my={10}>
        <Button variant="light" leftSection={<Share1Icon />} onClick={expand}>
          Expand
        </Button>
        {editable && (
          <Button variant="default" leftSection={<Pencil1Icon />} onClick={() => setEditing("edit")}>
            Edit
          </Button>
        )}
      </Group>
      <Tabs defaultValue="properties">
        <Tabs.List>
          <Tabs.Tab value="properties">Properties</Tabs.Tab>
          <Tabs.Tab value="history">History</Tabs.Tab>
        </Tabs.List>
        <Tabs.Panel value="properties" pt={6}>
          <table className="props">
            <tbody>
              {Object.entries(node.properties).map(([name, value]) => (
                <tr key={name}>
                  <th scope="row" title={typeOf(type?.properties.find((one) => one.name === name))}>
                    {name}
                  </th>
                  <td>
                    <Value value={value} />
                  </td>
                </tr>
              ))}
              {node.blobs.map((name) => (
                <tr key={name}>
                  <th scope="row">{name}</th>
                  <td>
                    <BlobButton node={node} name={name} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </Tabs.Panel>
        <Tabs.Panel value="history" pt={10}>
          <EntityHistory node={node} />
        </Tabs.Panel>
      </Tabs>
      {editing && (
        <EditNode node={node} removes={editing === "delete"} close={() => setEditing(undefined)} done={changed} />
      )}
    </div>
  );
}

function typeOf(property: Parameters<typeof formatType>[0] extends infer T ? { type: T } | undefined : never): string {
  return property ? formatType(property.type) : "";
}

function BlobButton({ node, name }: { node: NodeData; name: string }) {
  const { moment } = useShared();
  const save = () =>
    api.blob("node", node.type, node.id, name, moment).then((bytes) => saveFile(`${node.id}-${name}`, bytes), report);
  return (
    <Button variant="subtle" size="compact-xs" leftSection={<DownloadIcon />} onClick={save}>
      Download
    </Button>
  );
}

interface Moved {
  commit: string;
  actor?: string;
  at: number;
  change: Change;
}

const MOST_PAGES = 5;

function EntityHistory({ node }: { node: NodeData }) {
  const { moment, setMoment } = useShared();
  const [found, setFound] = useState<Moved[]>();
  useEffect(() => {
    let current = true;
    readHistory(node, moment.branch).then((moved) => current && setFound(moved), report);
    return () => {
      current = false;
    };
  }, [node, moment.branch]);
  if (!found) return <Loader size="sm" aria-label="Loading" />;
  if (!found.length) return <div className="empty">No commit of this branch changed it.</div>;
  return found.map(({ commit, actor, at, change }) => (
    <div key={commit}>
      <Group gap={6} mb={4}>
        <Button variant="subtle" size="compact-xs" className="mono" onClick={() => setMoment({ ...moment, commit })}>
          {shortId(commit)}
        </Button>
        <Text size="xs" c="dimmed">
          {actor ?? "no actor"}, {formatAge(at)}
        </Text>
      </Group>
      <ChangeCard change={change} compact />
    </div>
  ));
}

async function readHistory(node: NodeData, branch: string): Promise<Moved[]> {
  const moved: Moved[] = [];
  let token: string | undefined;
  for (let page = 0; page < MOST_PAGES; page += 1) {
    const answer = await api.changesOfType(branch, node.type, token);
    for (const { cause, changes } of answer.blocks) {
      for (const change of changes) {
        if (change.id === node.id) {
          moved.push({ commit: cause.graph_commit_id, actor: cause.actor_id, at: cause.authored_at, change });
        }
      }
    }
    token = answer.next_page_token;
    if (!token) break;
  }
  return moved.reverse();
}
