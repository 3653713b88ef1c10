"""A process that works on a graph on command: one JSON command per line, one JSON answer per line.

A command can make it stand still, or die, at a storage call or at a failpoint; it says so before it does.
Its clocks are its own: a waiter may see much time pass whenever it waits, so that no test has
to wait for a lease to expire, and a process that stood still may find afterwards that it was for long.
"""

from __future__ import annotations

import json
import os
import random
import re
import socket
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

from omnigraph import failpoints
from omnigraph.engine.branches.manage import create_branch, delete_branch
from omnigraph.engine.commit.recovery.sweep import sweep
from omnigraph.engine.graph.open_graph import AtBranch, OpenGraph
from omnigraph.engine.graph.publish import ManifestChanges, NewCommit, publish
from omnigraph.engine.graph.root import Root
from omnigraph.engine.graph.snapshot import Snapshot
from omnigraph.engine.graph.snapshot_tables import read_rows
from omnigraph.engine.maintenance.cleanup.policy import CleanupPolicy
from omnigraph.engine.maintenance.cleanup.run_cleanup import cleanup
from omnigraph.engine.maintenance.optimize import optimize
from omnigraph.engine.merge.merge import MergeRequest, merge
from omnigraph.engine.schema_apply.apply import SchemaRequest, apply_schema
from omnigraph.engine.write.transaction import Author
from omnigraph.errors import OmnigraphError
from omnigraph.lang.query.compile import CompiledMutation
from omnigraph.lang.schema.catalog import Catalog
from omnigraph.lang.source import Source
from omnigraph.storage.location import Location
from omnigraph.storage.locks import BranchLocks, monotonic_seconds
from tests.engine.crash.turns import turns
from tests.engine.mutations import compile_statements, run_mutation

Answer = Mapping[str, Any]
Tell = Callable[[Answer], None]

ALWAYS = ExitStack()

AN_AGE = 1_000_000.0
"""Seconds; longer than any lease here."""


class Clock:
    """Elapsed time that a test can let jump."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def __call__(self) -> float:
        return monotonic_seconds() + self._ahead

    def jump(self) -> None:
        self._ahead += AN_AGE


class Trap:
    """What happens to this process on its way: places, one after the other, and an action at each."""

    def __init__(self, clock: Clock, tell: Tell) -> None:
        self._clock = clock
        self._tell = tell
        self._lock = threading.Lock()
        self._steps: list[tuple[re.Pattern[str], str]] = []
        self._seen: list[str] = []
        self._turns = ExitStack()

    def arm(self, steps: list[tuple[str, str]]) -> None:
        self._turns.close()
        if steps:
            # Where it stands still, or dies, is certain only if it does one thing after another.
            self._turns.enter_context(turns(reverse=False))
        with self._lock:
            self._steps = [(re.compile(pattern), action) for pattern, action in steps]
            self._seen = []

    def seen(self) -> list[str]:
        """The places this process came to since it was last armed."""
        return list(self._seen)

    def reach(self, place: str) -> None:
        with self._lock:
            self._seen.append(place)
            if not self._steps or not self._steps[0][0].search(place):
                return
            _, action = self._steps.pop(0)
        match action:
            case "stop":
                self.stop(place)
            case "stop-long":
                self.stop(place)
                self._clock.jump()
            case "die":
                self.die(place)
            case "fork":
                self.fork(place)

    def stop(self, place: str) -> None:
        self._tell({"stopped": place})
        failpoints.stop_process()

    def die(self, place: str) -> None:
        self._tell({"died": place})
        failpoints.end_process()

    def fork(self, place: str) -> None:
        """A child that lives until the test ends; then stand still."""
        child = os.fork()
        if child == 0:
            os.read(int(os.environ["CHILD_LIFE"]), 1)
            os._exit(0)
        self._tell({"stopped": place, "child": child})
        failpoints.stop_process()


class Writer:
    """The graph this process works on, and how."""

    def __init__(self, tell: Tell) -> None:
        self.clock = Clock()
        self.trap = Trap(self.clock, tell)
        self.graph: OpenGraph
        self.pinned: Snapshot
        self._compiled: dict[tuple[str, str], CompiledMutation] = {}
        for name in failpoints.NAMES:
            # For as long as this process lives.
            ALWAYS.enter_context(failpoints.arm(name, partial(self.trap.reach, name)))

    def use(
        self,
        uri: str,
        environment: dict[str, str],
        ttl: float = 300.0,
        impatient: bool = False,
        wait: float = 60.0,
        wall: str = "true",
    ) -> Answer:
        os.environ.update(environment, OMNIGRAPH_LOCK_WAIT=str(1e12 if impatient else wait))
        self.trap.arm([])
        self._compiled.clear()
        at = Location.parse(uri)
        root = Root.at(at, self.heard)
        pause = (lambda _: self.clock.jump()) if impatient else time.sleep
        locks = BranchLocks(root.objects, at, clock=self.clock, pause=pause, ttl=ttl)
        self.graph = OpenGraph.open(replace(root, locks=locks, **_wall(wall)))
        return {"done": True}

    def heard(self, op: str, uri: str) -> None:
        self.trap.reach(f"{op} {uri.removeprefix(self.uri)}")

    @property
    def uri(self) -> str:
        return f"{self.graph.root.uri}/" if hasattr(self, "graph") else ""

    def arm(self, steps: list[tuple[str, str]]) -> Answer:
        self.trap.arm(steps)
        return {"done": True}

    def seen(self) -> Answer:
        return {"seen": self.trap.seen()}

    def mutate(self, text: str, branch: str = "main", actor: str | None = None, retry: int = 0) -> Answer:
        author = Author(branch, actor, retry=retry)
        done = run_mutation(self.graph, text, author, self._mutation)
        commit = done.commit.id if done.commit else None
        return {"commit": commit, "nodes": done.affected_nodes, "edges": done.affected_edges}

    def _mutation(self, text: str, catalog: Catalog) -> CompiledMutation:
        known = (text, catalog.fingerprint)
        if known not in self._compiled:
            self._compiled[known] = compile_statements(text, catalog)
        return self._compiled[known]

    def mutations(self, texts: list[str], branch: str = "main", retry: int = 0) -> Answer:
        every = [{"do": "mutate", "text": text, "branch": branch, "retry": retry} for text in texts]
        return {"answers": [self.answer(one) for one in every]}

    def merge(self, source: str, into: str = "main") -> Answer:
        done = merge(self.graph, MergeRequest(source), Author(into))
        return {"commit": done.commit.id if done.commit else None, "outcome": done.outcome.value}

    def take_in(self, source: str, texts: list[str]) -> Answer:
        """Write to a branch and merge it into main, again and again."""
        answers = []
        for text in texts:
            answers.append(self.answer({"do": "mutate", "text": text, "branch": source}))
            answers.append(self.answer({"do": "merge", "source": source}))
        return {"answers": answers}

    def apply_schema(self, schema: str) -> Answer:
        done = apply_schema(self.graph, SchemaRequest(Source(schema)))
        return {"commit": done.commit.id if done.commit else None, "applied": done.applied}

    def apply_schemas(self, schemas: list[str]) -> Answer:
        """One schema after the other."""
        return {"answers": [self.answer({"do": "apply_schema", "schema": schema}) for schema in schemas]}

    def read(self) -> Answer:
        """The properties and the keys of all persons, as a reader sees them who keeps the graph open."""
        now = self.graph.snapshot(AtBranch())
        properties = self.graph.catalog_at(now).nodes["Person"].properties
        found = read_rows(self.graph, now, "Person", list(properties), None)
        return {"properties": list(properties), "names": sorted(found.column("name").to_pylist())}

    def optimize(self, times: int, branch: str = "main") -> Answer:
        """Upkeep, again and again."""
        return {"answers": [self.answer({"do": "optimize_once", "branch": branch}) for _ in range(times)]}

    def optimize_once(self, branch: str) -> Answer:
        done = optimize(self.graph, Author(branch))
        return {"commit": done.commit.id if done.commit else None}

    def cleanup(self, times: int, keep: int = 1, age: float = 0.0) -> Answer:
        """Remove what is past, again and again."""
        return {
            "answers": [self.answer({"do": "cleanup_once", "keep": keep, "age": age}) for _ in range(times)]
        }

    def cleanup_once(self, keep: int, age: float) -> Answer:
        done = cleanup(self.graph, CleanupPolicy.of(keep, None, age))
        assert done.ok, done
        return {"removed": sum(one.versions_removed for one in done.tables)}

    def pin(self) -> Answer:
        """Keep in mind what main is now."""
        self.pinned = self.graph.snapshot(AtBranch())
        return {"version": self.pinned.version}

    def read_pinned(self) -> Answer:
        """The persons of what was kept in mind."""
        found = read_rows(self.graph, self.pinned, "Person", ["name"], None)
        return {"names": sorted(found.column("name").to_pylist())}

    def sweep(self) -> Answer:
        """What opening a graph for writing does about interrupted writes."""
        return {"found": [report.status.value for report in sweep(self.graph, only_forward=False)]}

    def publish(self, commit: str, rival: str) -> Answer:
        """One of two outcomes, by the swap alone."""
        done = publish(self.graph.coordinator("main"), ManifestChanges(), NewCommit(commit, rival=rival))
        return {"commit": done.commit.id}

    def create_branch(self, name: str) -> Answer:
        return {"name": create_branch(self.graph, name).name}

    def delete_branch(self, name: str) -> Answer:
        delete_branch(self.graph, name)
        return {"done": True}

    def remake_branch(self, name: str, times: int) -> Answer:
        """Delete and make a branch again and again."""
        answers = []
        for _ in range(times):
            answers.append(self.answer({"do": "delete_branch", "name": name}))
            answers.append(self.answer({"do": "create_branch", "name": name}))
        return {"answers": answers}

    def answer(self, command: dict[str, Any]) -> Answer:
        action: Callable[..., Answer] = getattr(self, command.pop("do"))
        try:
            return action(**command)
        except OmnigraphError as error:
            return {"error": error.code, "message": error.message, "cause": type(error.__cause__).__name__}


def _wall(kind: str) -> dict[str, Any]:
    """Wall clocks that cannot be trusted; ids are made with them, too."""
    if kind == "true":
        return {}
    moment = 1_700_000_000_000_000
    chance = random.Random(os.getpid())

    def clock() -> int:
        return moment if kind == "frozen" else moment + chance.randrange(-(10**14), 10**14)

    def new_id() -> str:
        from ulid import ULID

        return str(ULID.from_timestamp(clock() / 1e6))

    return {"clock": clock, "new_id": new_id}


def serve(channel: socket.socket) -> NoReturn:
    """Carry out commands until there are no more, then end this process."""
    status = 1
    try:
        with channel.makefile("r") as commands:

            def tell(answer: Answer) -> None:
                channel.sendall(json.dumps(answer).encode() + b"\n")

            writer = Writer(tell)
            for line in commands:
                tell(writer.answer(json.loads(line)))
        status = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        os._exit(status)
