import {
  ActionIcon,
  Alert,
  Badge,
  Button,
  Group,
  Menu,
  Select,
  Text,
  Tooltip,
  UnstyledButton,
  useComputedColorScheme,
  useMantineColorScheme,
} from "@mantine/core";
import { useHotkeys } from "@mantine/hooks";
import {
  CodeIcon,
  CounterClockwiseClockIcon,
  CubeIcon,
  ExitIcon,
  LayersIcon,
  MagnifyingGlassIcon,
  MixIcon,
  MoonIcon,
  PersonIcon,
  PlusIcon,
  SunIcon,
} from "@radix-ui/react-icons";
import { type ComponentType, type ReactNode, useState } from "react";
import { api, graphId } from "../api";
import { shortId } from "../format";
import { type Area, report, useShared } from "../state";
import { NewBranch } from "./NewBranch";

const ITEMS: { area: Area; label: string; icon: ComponentType; key: string }[] = [
  { area: "explore", label: "Explore", icon: MagnifyingGlassIcon, key: "1" },
  { area: "schema", label: "Schema", icon: CubeIcon, key: "2" },
  { area: "query", label: "Query", icon: CodeIcon, key: "3" },
  { area: "history", label: "History", icon: CounterClockwiseClockIcon, key: "4" },
  { area: "review", label: "Review", icon: MixIcon, key: "5" },
  { area: "data", label: "Data", icon: LayersIcon, key: "6" },
];

export function Shell({ children }: { children: ReactNode }) {
  const { area, go, moment, setMoment } = useShared();
  useHotkeys([
    ...ITEMS.map(({ area: to, key }): [string, () => void] => [`alt+${key}`, () => go(to)]),
    ["/", () => (area === "explore" ? document.getElementById("search")?.focus() : go("explore"))],
  ]);
  return (
    <div className="shell">
      <a className="skip" href="#main" onClick={(event) => skipTo(event)}>
        Skip to content
      </a>
      <nav className="rail" aria-label="Areas">
        <div className="brand">
          <img src="/ui/icon.svg" alt="" width={22} height={22} />
          <span>omnigraph</span>
        </div>
        {ITEMS.map(({ area: to, label, icon: Icon, key }) => (
          <UnstyledButton
            key={to}
            className="rail-item"
            aria-current={area === to ? "page" : undefined}
            title={`${label} (Alt+${key})`}
            onClick={() => go(to)}
          >
            <Icon />
            <span>{label}</span>
          </UnstyledButton>
        ))}
        <RailFoot />
      </nav>
      <header className="topbar">
        <BranchPicker />
        {moment.commit && (
          <Badge color="orange" variant="light" size="lg">
            as of {shortId(moment.commit)}
          </Badge>
        )}
        <div className="spacer" />
        <ActorMenu />
        <SchemeToggle />
      </header>
      <main id="main" className="main" tabIndex={-1}>
        {moment.commit && (
          <Alert color="orange" p="xs" radius={0} role="status" className="past">
            <Group gap="sm">
              <Text size="sm">
                You look at the graph as commit <code>{shortId(moment.commit)}</code> left it. Nothing can be changed
                here.
              </Text>
              <Button variant="white" color="orange.9" onClick={() => setMoment({ branch: moment.branch })}>
                Back to now
              </Button>
            </Group>
          </Alert>
        )}
        {children}
      </main>
    </div>
  );
}

function skipTo(event: { preventDefault: () => void }) {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

function BranchPicker() {
  const { branches, moment, setMoment, permissions } = useShared();
  const [creating, setCreating] = useState(false);
  return (
    <Group gap={6} wrap="nowrap">
      <Text size="sm" c="dimmed" className="wide-only">
        {graphId === "default" ? "Branch" : graphId}
      </Text>
      <Select
        aria-label="Branch"
        data={branches.includes(moment.branch) ? branches : [...branches, moment.branch]}
        value={moment.branch}
        onChange={(branch) => branch && setMoment({ branch })}
        searchable
        allowDeselect={false}
        w={190}
        styles={{ input: { fontFamily: "var(--mantine-font-family-monospace)", fontWeight: 600 } }}
      />
      {permissions?.actions.branch_create && !moment.commit && (
        <Tooltip label="New branch from here">
          <ActionIcon aria-label="New branch" onClick={() => setCreating(true)}>
            <PlusIcon />
          </ActionIcon>
        </Tooltip>
      )}
      <NewBranch opened={creating} close={() => setCreating(false)} />
    </Group>
  );
}

function ActorMenu() {
  const { permissions } = useShared();
  if (!permissions) return null;
  const { actor_id: actor, mode, actions } = permissions;
  const name = actor ?? (mode === "personal" ? "you" : "anyone");
  const rights = actions.change ? "can edit" : "can read";
  const leave = () => api.signOut().then(() => location.reload(), report);
  return (
    <Menu position="bottom-end" shadow="md">
      <Menu.Target>
        <Button variant="subtle" color="gray" leftSection={<PersonIcon />} aria-label={`Signed in as ${name}`}>
          <span className="wide-only">{name}</span>
        </Button>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Label>
          {name} {rights} on this branch
        </Menu.Label>
        {mode !== "open" && (
          <Menu.Item leftSection={<ExitIcon />} onClick={leave}>
            Sign out
          </Menu.Item>
        )}
        {mode === "open" && <Menu.Item disabled>The server asks for no token</Menu.Item>}
      </Menu.Dropdown>
    </Menu>
  );
}

function SchemeToggle() {
  const { setColorScheme } = useMantineColorScheme();
  const shown = useComputedColorScheme("light");
  const next = shown === "dark" ? "light" : "dark";
  return (
    <Tooltip label={`Use the ${next} colours`}>
      <ActionIcon aria-label={`Use the ${next} colours`} onClick={() => setColorScheme(next)}>
        {shown === "dark" ? <SunIcon /> : <MoonIcon />}
      </ActionIcon>
    </Tooltip>
  );
}

function RailFoot() {
  const { permissions } = useShared();
  const modes = {
    open: "Open server",
    personal: "On this machine",
    policy: "Policy decides",
    "default-deny": "Read only",
  };
  return <div className="rail-foot">{permissions ? modes[permissions.mode] : ""}</div>;
}
