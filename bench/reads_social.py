"""Reads of the social network: the nine questions, hops, points, and the memory of a large result."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bench import social
from bench.comparison import AGAIN, OURS, Section, same_answers
from bench.made import made
from bench.read_peers.worker import ARROW, ROWS, STREAM, Parameters, Peer, Took, Worker, worker
from bench.social_queries import PARAMETERS, RANKED, TITLES

PEERS = {
    peer.name: peer
    for peer in (
        Peer(OURS, "bench.read_peers.ours", "omnigraph"),
        Peer("ladybug", "bench.read_peers.ladybug_peer", "ladybug"),
        Peer("kuzu", "bench.read_peers.kuzu_peer", "kuzu"),
        Peer("duckdb", "bench.read_peers.duckdb_peer", "duckdb"),
        Peer("igraph", "bench.read_peers.igraph_peer", "igraph"),
    )
}
HOPS = (1, 2, 3)
MILLIONS = 10_000_000
LEAST_ROUNDS = 5
PATIENCE = 30.0
"""The seconds after which a task has been measured often enough."""

Times = dict[str, dict[str, list[float]]]


@dataclass(frozen=True, slots=True)
class Rounds:
    """How often everything is measured."""

    warm: int
    cold: int
    seeds: int
    cold_questions: tuple[str, ...] = tuple(PARAMETERS)


@dataclass(slots=True)
class Measured:
    """Sections of a report, and facts beside them."""

    sections: list[Section] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)


class Social:
    """The databases of all peers that are installed, and processes that have them open."""

    def __init__(self, *, short: bool) -> None:
        self.size = social.SHORT if short else social.WHOLE
        self.rounds = Rounds(3, 1, 10, ("q1", "q5")) if short else Rounds(15, 3, 100)
        data = made(f"{self.size.name}/data", lambda place: social.write(self.size, place))
        self.peers = {name: peer for name, peer in PEERS.items() if peer.installed}
        self.places = {name: peer.database(self.size.name, data) for name, peer in self.peers.items()}

    def measure(self) -> Measured:
        """All of it."""
        found = Measured(facts={"persons": self.size.persons, "follows": self.size.follows})
        found.sections += self.nine_warm()
        found.sections.append(self.nine_cold())
        found.sections += self.hops_warm()
        found.sections.append(self.hops_cold())
        found.sections.append(self.points())
        found.facts["memory"] = self.memory()
        found.facts["absent"] = [name for name in PEERS if name not in self.peers]
        return found

    # --- the nine questions ------------------------------------------------------------------------

    def nine_warm(self) -> list[Section]:
        """Question by question, one database after the other in every round."""
        wall: Times = {}
        processor: Times = {}
        with ExitStack() as stack:
            workers = self._workers(stack, (OURS, "ladybug", "kuzu", "duckdb"))
            workers[AGAIN] = stack.enter_context(self._worker(OURS))
            for question, parameters in PARAMETERS.items():
                answers = {
                    name: one.ask(question, parameters, keep=True).rows for name, one in workers.items()
                }
                same_answers(question, answers, RANKED.get(question))
                took = in_turns(workers, question, [parameters] * self.rounds.warm, ROWS)
                wall[TITLES[question]] = walls(took)
                processor[TITLES[question]] = processors(took)
        return [
            Section("nine questions, warm", wall),
            Section("nine questions, warm, processor time of all threads", processor),
        ]

    def nine_cold(self) -> Section:
        """Each question as the first one of a fresh process."""
        names = (OURS, "ladybug", "kuzu", "duckdb")
        return Section(
            "nine questions, first of a fresh process (opening not counted)",
            {
                TITLES[asked]: self._firsts(names, asked, [PARAMETERS[asked]] * self.rounds.cold, ROWS)
                for asked in self.rounds.cold_questions
            },
        )

    # --- hops --------------------------------------------------------------------------------------

    def hops_warm(self) -> list[Section]:
        """Distinct persons within some hops of each of many, as a number and as Arrow."""
        wall: Times = {}
        processor: Times = {}
        with ExitStack() as stack:
            workers = self._workers(stack, (OURS, "ladybug", "igraph"))
            workers[AGAIN] = stack.enter_context(self._worker(OURS))
            for hops in HOPS:
                for what, method in (("count", ROWS), ("ids", ARROW)):
                    question = f"{hops} hops, {what}"
                    for seed in self._seeds():
                        answers = {
                            name: one.ask(question, seed, keep=True).rows for name, one in workers.items()
                        }
                        same_answers(f"{question} of {seed}", answers)
                    took = in_turns(workers, question, self._seeds() * 3, method, at_once=20)
                    wall[question] = walls(took)
                    processor[question] = processors(took)
        return [
            Section("hops from one person, warm", wall),
            Section("hops from one person, warm, processor time of all threads", processor),
        ]

    def hops_cold(self) -> Section:
        """The same as the first question of a fresh process."""
        seeds = self._seeds()[: self.rounds.cold * 2]
        return Section(
            "hops from one person, first of a fresh process (opening not counted)",
            {
                f"{hops} hops, ids": self._firsts((OURS, "ladybug"), f"{hops} hops, ids", seeds, ARROW)
                for hops in HOPS
            },
        )

    def points(self) -> Section:
        """One person by key."""
        with ExitStack() as stack:
            workers = self._workers(stack, (OURS, "ladybug", "duckdb"))
            workers[AGAIN] = stack.enter_context(self._worker(OURS))
            for seed in self._seeds():
                answers = {name: one.ask("point", seed, keep=True).rows for name, one in workers.items()}
                same_answers("point", answers)
            took = in_turns(workers, "point", self._seeds() * 10, ROWS, at_once=len(self._seeds()))
        return Section("one person by key, a hundred in a row, warm", {"point": walls(took)})

    # --- memory ------------------------------------------------------------------------------------

    def memory(self) -> dict[str, dict[str, int]]:
        """What a result of ten million rows takes, beside its own size."""
        rows_each = self.size.follows**2 / self.size.persons**2
        wanted = min(self.size.persons, int(MILLIONS / rows_each))
        found = {}
        for name, method in ((OURS, ARROW), (OURS, STREAM), ("ladybug", ARROW)):
            if name not in self.places:
                continue
            for question in ("paths", "named paths"):
                with self._worker(name) as one:
                    one.ask(question, {"below": 10}, method)
                    how = ", streamed" if method == STREAM else ""
                    found[f"{name}, {question}{how}"] = one.memory_of(question, {"below": wanted}, method)
        return found

    # --- processes ---------------------------------------------------------------------------------

    def _worker(self, name: str) -> Any:
        return worker(self.peers[name], self.places[name])

    def _workers(self, stack: ExitStack, names: Iterable[str]) -> dict[str, Worker]:
        return {name: stack.enter_context(self._worker(name)) for name in names if name in self.places}

    def _firsts(
        self, names: Sequence[str], question: str, each: Sequence[Parameters], method: str
    ) -> dict[str, list[float]]:
        found: dict[str, list[float]] = defaultdict(list)
        for parameters in each:
            for name in names:
                if name not in self.places:
                    continue
                with self._worker(name) as one:
                    one.about()
                    found[name].append(one.ask(question, parameters, method).wall)
        return found

    def _seeds(self) -> list[Parameters]:
        random = np.random.default_rng(social.SEED)
        chosen = random.choice(self.size.persons, self.rounds.seeds, replace=False)
        return [{"number": int(number)} for number in chosen]


def in_turns(
    workers: Mapping[str, Worker],
    question: str | Mapping[str, str],
    each: Sequence[Parameters],
    method: str,
    *,
    at_once: int = 1,
    patience: float = PATIENCE,
) -> dict[str, list[Took]]:
    """Every database in every round, each time another one first; a slow task gets fewer rounds.

    Databases may have a question each, by name. Small tasks are asked several `at_once`: a process that was
    idle needs a while to be at its fastest.
    """
    found: dict[str, list[Took]] = {name: [] for name in workers}
    names = list(workers)
    begun = time.perf_counter()
    for turn, start in enumerate(range(0, len(each), at_once)):
        if turn >= LEAST_ROUNDS and time.perf_counter() - begun > patience:
            break
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            asked = question if isinstance(question, str) else question[name]
            found[name] += workers[name].ask_each(asked, each[start : start + at_once], method)
    return found


def walls(took: Mapping[str, Sequence[Took]]) -> dict[str, list[float]]:
    """The times that passed, by database."""
    return {name: [one.wall for one in each] for name, each in took.items()}


def processors(took: Mapping[str, Sequence[Took]]) -> dict[str, list[float]]:
    """The times that processors worked, by database."""
    return {name: [one.processor for one in each] for name, each in took.items()}
