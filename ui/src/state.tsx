// What the whole page shares: the moment that is shown, the schema, the rights of the actor, and the place in the page.

import { notifications } from "@mantine/notifications";
import { createContext, type ReactNode, useCallback, useContext, useEffect, useMemo, useState } from "react";
import { ApiError, api, type Moment, type Permissions, type Schema } from "./api";
import { TYPE_COLORS } from "./theme";

export const AREAS = ["explore", "schema", "query", "history", "review", "data"] as const;
export type Area = (typeof AREAS)[number];

interface Place {
  area: Area;
  params: URLSearchParams;
}

interface Shared {
  area: Area;
  params: URLSearchParams;
  moment: Moment;
  schema: Schema | undefined;
  branches: string[];
  permissions: Permissions | undefined;
  go: (area: Area, params?: Record<string, string | undefined>) => void;
  setMoment: (moment: Moment) => void;
  refresh: () => Promise<void>;
  colorOf: (type: string) => string;
}

const Context = createContext<Shared | undefined>(undefined);

function parsePlace(): Place {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const area = AREAS.find((one) => one === path) ?? "explore";
  return { area, params: new URLSearchParams(query ?? "") };
}

export function SharedState({ children }: { children: ReactNode }) {
  const [place, setPlace] = useState(parsePlace);
  const [schema, setSchema] = useState<Schema>();
  const [branches, setBranches] = useState<string[]>(["main"]);
  const [permissions, setPermissions] = useState<Permissions>();
  const branch = place.params.get("branch") ?? "main";
  const commit = place.params.get("commit") ?? undefined;
  const moment = useMemo<Moment>(() => ({ branch, commit }), [branch, commit]);

  useEffect(() => {
    const follow = () => setPlace(parsePlace());
    window.addEventListener("hashchange", follow);
    return () => window.removeEventListener("hashchange", follow);
  }, []);

  const go = useCallback(
    (area: Area, params: Record<string, string | undefined> = {}) => {
      const next = new URLSearchParams();
      if (branch !== "main") next.set("branch", branch);
      if (commit) next.set("commit", commit);
      for (const [name, value] of Object.entries(params)) {
        if (value === undefined || value === "") next.delete(name);
        else next.set(name, value);
      }
      if (next.get("branch") === "main") next.delete("branch");
      const text = next.toString();
      location.hash = `#/${area}${text ? `?${text}` : ""}`;
    },
    [branch, commit],
  );

  const setMoment = useCallback(
    (next: Moment) => go(place.area, { branch: next.branch, commit: next.commit }),
    [go, place.area],
  );

  const refresh = useCallback(async () => {
    try {
      const [types, names, rights] = await Promise.all([
        api.schema(moment),
        api.branches(),
        api.permissions(moment.branch),
      ]);
      setSchema(types);
      setBranches(["main", ...names.branches.filter((name) => name !== "main")]);
      setPermissions(rights);
    } catch (error) {
      report(error);
      if (error instanceof ApiError && error.code === "branch_not_found") location.hash = `#/${place.area}`;
    }
  }, [moment, place.area]);

  // biome-ignore lint: the area does not matter for what is read
  useEffect(() => void refresh(), [moment]);

  const colorOf = useCallback(
    (type: string) => {
      const position = schema?.nodes.findIndex((one) => one.name === type) ?? -1;
      return TYPE_COLORS[(position < 0 ? TYPE_COLORS.length - 1 : position) % TYPE_COLORS.length];
    },
    [schema],
  );

  const shared: Shared = {
    area: place.area,
    params: place.params,
    moment,
    schema,
    branches,
    permissions,
    go,
    setMoment,
    refresh,
    colorOf,
  };
  return <Context.Provider value={shared}>{children}</Context.Provider>;
}

export function useShared(): Shared {
  const shared = useContext(Context);
  if (!shared) throw new Error("there is no shared state here");
  return shared;
}

/** Show a failure in the words of the server, with what to do about it. */
export function report(error: unknown): void {
  if (error instanceof DOMException && error.name === "AbortError") return;
  const remedy = error instanceof ApiError && error.remedy ? ` ${sentence(error.remedy)}` : "";
  notifications.show({
    color: "red",
    title: error instanceof ApiError && error.status === 403 ? "Not allowed" : "That did not work",
    message: sentence(error instanceof Error ? error.message : String(error)) + remedy,
    autoClose: 8000,
  });
}

export function confirmDone(message: string): void {
  notifications.show({ color: "teal", message, autoClose: 4000 });
}

function sentence(text: string): string {
  const shown = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(shown) ? shown : `${shown}.`;
}
