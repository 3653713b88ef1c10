import { Badge, Button, Code, Group, Loader, Tabs, Text } from "@mantine/core";
import { useEffect, useState } from "react";
import { api, type Doctor } from "../api";
import { LoadFile } from "../parts/LoadFile";
import { report, useShared } from "../state";

/** Loading files, and the state of the graph. */
export default function DataArea() {
  return (
    <div className="page">
      <div className="page-head">
        <h1>Data</h1>
        <Text c="dimmed">Load a file on a branch, and see whether the graph is in order.</Text>
      </div>
      <Tabs defaultValue="state">
        <Tabs.List mb="md">
          <Tabs.Tab value="state">State</Tabs.Tab>
          <Tabs.Tab value="load">Load a file</Tabs.Tab>
        </Tabs.List>
        <Tabs.Panel value="state">
          <State />
        </Tabs.Panel>
        <Tabs.Panel value="load">
          <LoadFile />
        </Tabs.Panel>
      </Tabs>
    </div>
  );
}

function State() {
  const { schema } = useShared();
  const [found, setFound] = useState<Doctor>();
  const [round, setRound] = useState(0);
  // biome-ignore lint: another round looks again
  useEffect(() => {
    setFound(undefined);
    api.doctor().then(setFound, report);
  }, [round]);
  return (
    <>
      <div className="card" style={{ padding: 14, marginBottom: 14 }}>
        <Group mb={found?.findings.length ? 8 : 0}>
          <strong>Doctor</strong>
          {found ? <Badge color={found.ok ? "teal" : "red"}>{found.ok ? "all in order" : "something is out of order"}</Badge> : <Loader size="xs" aria-label="Loading" />}
          <div className="spacer" />
          <Button variant="default" onClick={() => setRound(round + 1)}>
            Look again
          </Button>
        </Group>
        {found?.findings.map((one) => (
          <Group key={`${one.what} ${one.detail}`} gap={8} py={4}>
            <Badge color={one.severity === "problem" ? "red" : "gray"}>{one.what}</Badge>
            <Text size="sm">{one.detail}</Text>
            {one.remedy && (
              <Text size="sm" c="dimmed">
                {one.remedy}
              </Text>
            )}
          </Group>
        ))}
      </div>
      <div className="card">
        <table className="grid-table">
          <thead>
            <tr>
              <th scope="col">Table</th>
              <th scope="col" className="num">Entities</th>
              <th scope="col" className="num">Stored versions</th>
              <th scope="col" className="num">Only for the past</th>
            </tr>
          </thead>
          <tbody>
            {Object.entries(schema?.rows ?? {}).map(([key, rows]) => (
              <tr key={key}>
                <td>{key.replace(":", " ")}</td>
                <td className="num">{rows.toLocaleString("en")}</td>
                <td className="num">{found?.versions[key]?.toLocaleString("en") ?? ""}</td>
                <td className="num">{found?.past_versions[key]?.toLocaleString("en") ?? ""}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <Text size="xs" c="dimmed" mt="sm">
        The page changes nothing here. Maintenance is a command: <Code>omnigraph optimize</Code>, <Code>omnigraph cleanup</Code>,{" "}
        <Code>omnigraph doctor --deep</Code>.
      </Text>
    </>
  );
}
