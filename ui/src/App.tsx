import { Loader } from "@mantine/core";
import { lazy, Suspense, useEffect, useState } from "react";
import { api, ApiError, isSignedOut } from "./api";
import { Explore } from "./areas/Explore";
import { Shell } from "./parts/Shell";
import { SignIn } from "./parts/SignIn";
import { report, SharedState, useShared } from "./state";

const SchemaView = lazy(() => import("./areas/SchemaView"));
const Query = lazy(() => import("./areas/Query"));
const History = lazy(() => import("./areas/History"));
const Review = lazy(() => import("./areas/Review"));
const DataArea = lazy(() => import("./areas/DataArea"));

type Access = "unknown" | "in" | "out";

/** Exchange the token of the link, if there is one, and take it out of the address. */
async function redeemLink(): Promise<void> {
  const found = /^#token=([\w-]+)$/.exec(location.hash);
  if (!found) return;
  history.replaceState(null, "", `${location.pathname}${location.search}`);
  try {
    await api.signIn(found[1]);
  } catch (error) {
    // A link that was used before is fine as long as its cookie is there: the next call decides.
    if (!isSignedOut(error)) throw error;
  }
}

export function App() {
  const [access, setAccess] = useState<Access>("unknown");
  useEffect(() => {
    redeemLink()
      .then(() => api.permissions("main"))
      .then(() => setAccess("in"))
      .catch((error: unknown) => {
        if (!(error instanceof ApiError)) report(error);
        setAccess(isSignedOut(error) ? "out" : "in");
      });
  }, []);
  if (access === "unknown") return <Loader m="xl" aria-label="Loading" />;
  if (access === "out") return <SignIn done={() => setAccess("in")} />;
  return (
    <SharedState>
      <Shell>
        <Suspense fallback={<Loader m="xl" aria-label="Loading" />}>
          <CurrentArea />
        </Suspense>
      </Shell>
    </SharedState>
  );
}

function CurrentArea() {
  const { area } = useShared();
  switch (area) {
    case "explore":
      return <Explore />;
    case "schema":
      return <SchemaView />;
    case "query":
      return <Query />;
    case "history":
      return <History />;
    case "review":
      return <Review />;
    case "data":
      return <DataArea />;
  }
}
