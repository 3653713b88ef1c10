"""Reads of the social network, beside other databases that run in the process of their user.

Answers are compared before they are timed. Peers that are not installed are left out; they are no
dependencies of the project.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bench import social
from bench.made import make_once
from bench.measure import (
    AGED,
    OURS,
    OWN,
    QUICK,
    SHORT,
    WHOLE,
    Figure,
    Result,
    geometric_means,
    rotate,
    same_answers,
)
from bench.social_queries import PARAMETERS, RANKED, TITLES
from bench.worker import ARROW, ROWS, STREAM, Parameters, Peer, Took, Worker, own, worker

OTHERS = (
    Peer("ladybug", "bench.read_peers.ladybug_peer", "ladybug"),
    Peer("kuzu", "bench.read_peers.kuzu_peer", "kuzu"),
    Peer("duckdb", "bench.read_peers.duckdb_peer", "duckdb"),
    Peer("igraph", "bench.read_peers.igraph_peer", "igraph"),
)
ANSWERING = {
    "nine": (*OWN, "ladybug", "kuzu", "duckdb"),
    "hops": (*OWN, "ladybug", "igraph"),
    "points": (*OWN, "ladybug", "duckdb"),
    "first hops": (OURS, AGED, "ladybug"),
}
"""Who answers what."""
COLD, WARM = "first of a process", "warm"
GEOMETRIC_MEAN = "geometric mean"
HOPS = (1, 2, 3)
POINT = "one person by key"
RESULT_SIZE = "the size of the result"
LEAST_ROUNDS = 5


@dataclass(frozen=True, slots=True)
class Plan:
    """How much there is, and how often everything is measured."""

    size: social.Size
    warm: int
    cold: int
    seeds: int
    commits: int
    patience: float
    """The seconds after which a task has been measured often enough."""
    rows: int = 10_000_000
    """About how many a large result has."""
    cold_questions: tuple[str, ...] = tuple(PARAMETERS)
    hops_cold: tuple[int, ...] = HOPS
    cold_peers: tuple[str, ...] = ("ladybug", "kuzu", "duckdb")
    apart: bool = True


PLANS = {
    WHOLE: Plan(social.WHOLE, warm=15, cold=3, seeds=100, commits=200, patience=30),
    QUICK: Plan(social.MIDDLE, 7, 1, 30, 40, patience=3, rows=2_000_000, cold_questions=("q1", "q5", "q8")),
    SHORT: Plan(social.SMALL, 1, 1, 2, 2, 1, 10_000, ("q1",), (2,), cold_peers=(), apart=False),
}


def questions(size: str) -> Result:
    """The nine questions, warm and as the first of a process, and the memory of a large result."""
    plan = PLANS[size]
    network = Network(plan, ANSWERING["nine"])
    found = Result(times={}, facts=network.facts(), absent=network.absent)
    with ExitStack() as stack:
        workers = network.workers(stack, ANSWERING["nine"])
        for question, parameters in PARAMETERS.items():
            compare(workers, question, [parameters], RANKED.get(question))
            _keep(
                found,
                TITLES[question],
                in_turns(workers, question, [parameters] * plan.warm, ROWS, plan.patience),
            )
    for asked in plan.cold_questions:
        each = [PARAMETERS[asked]] * plan.cold
        firsts = network.firsts((OURS, AGED, *plan.cold_peers), asked, each, ROWS)
        found.times[f"{COLD}: {TITLES[asked]}"] = firsts
    means = [
        figure for when in (WARM, COLD) for figure in geometric_means(found, f"{when}: ", GEOMETRIC_MEAN)
    ]
    memory = network.memory()
    return replace(
        found, figures=(*means, *_memory_figures(memory)), facts={**found.facts, "memory of a result": memory}
    )


def hops(size: str) -> Result:
    """Distinct persons within some hops of each of many, as a number and as Arrow, and one person by key."""
    plan = PLANS[size]
    network = Network(plan, (*ANSWERING["hops"], *ANSWERING["points"]))
    found = Result(times={}, facts=network.facts(), absent=network.absent)
    seeds = network.seeds()
    with ExitStack() as stack:
        workers = network.workers(stack, dict.fromkeys((*ANSWERING["hops"], *ANSWERING["points"])))
        answering = _among(workers, ANSWERING["hops"])
        for count in HOPS:
            for what, method in (("count", ROWS), ("ids", ARROW)):
                question = f"{count} hops, {what}"
                compare(answering, question, seeds)
                _keep(
                    found,
                    question,
                    in_turns(answering, question, seeds * 3, method, plan.patience, at_once=20),
                )
        answering = _among(workers, ANSWERING["points"])
        compare(answering, "point", seeds)
        took = in_turns(answering, "point", seeds * 10, ROWS, plan.patience, at_once=len(seeds))
        _keep(found, POINT, took)
    for count in plan.hops_cold:
        question = f"{count} hops, ids"
        firsts = network.firsts(
            ANSWERING["first hops"], question, seeds[: plan.cold * 2 - (not plan.cold_peers)], ARROW
        )
        found.times[f"{COLD}: {question}"] = firsts
    return found


class Network:
    """The databases of all peers that are installed, and processes that have them open."""

    def __init__(self, plan: Plan, names: Iterable[str]) -> None:
        self.plan = plan
        wanted = {
            **own("bench.read_peers.ours", commits=plan.commits, apart=plan.apart),
            **{peer.name: peer for peer in OTHERS if peer.name in set(names)},
        }
        self.peers = {name: peer for name, peer in wanted.items() if peer.installed}
        self.absent = tuple(name for name in wanted if name not in self.peers)
        data = make_once(f"{plan.size.name}/data", lambda place: social.write(plan.size, place))
        self.places = {name: peer.database(plan.size.name, data) for name, peer in self.peers.items()}

    def facts(self) -> dict[str, Any]:
        """What was asked about."""
        size = self.plan.size
        return {"persons": size.persons, "follows": size.follows, "commits of the aged": self.plan.commits}

    def worker(self, name: str) -> Any:
        """One database in a fresh process."""
        return worker(self.peers[name], self.places[name])

    def workers(self, stack: ExitStack, names: Iterable[str]) -> dict[str, Worker]:
        """All of these that are installed."""
        return {name: stack.enter_context(self.worker(name)) for name in names if name in self.places}

    def firsts(
        self, names: Sequence[str], question: str, each: Sequence[Parameters], method: str
    ) -> dict[str, list[float]]:
        """The times of a process's first question; importing and opening are not counted."""
        found: dict[str, list[float]] = {}
        for turn, parameters in enumerate(each):
            for name in rotate([name for name in names if name in self.places], turn):
                with self.worker(name) as one:
                    one.about()
                    found.setdefault(name, []).append(one.ask(question, parameters, method).wall)
        return found

    def memory(self) -> dict[str, dict[str, int]]:
        """What a large result takes, beside its own size."""
        size = self.plan.size
        wanted = min(size.persons, int(self.plan.rows / (size.follows / size.persons) ** 2))
        found = {}
        asked = [(OURS, ARROW), (OURS, STREAM), *((name, ARROW) for name in self.plan.cold_peers[:1])]
        for name, method in asked:
            if name not in self.places:
                continue
            for question in ("paths", "named paths"):
                with self.worker(name) as one:
                    one.ask(question, {"below": 10}, method)
                    how = ", streamed" if method == STREAM else ""
                    found[f"{name}, {question}{how}"] = one.memory_of(question, {"below": wanted}, method)
        return found

    def seeds(self) -> list[Parameters]:
        """The persons to begin at."""
        random = np.random.default_rng(social.SEED)
        chosen = random.choice(self.plan.size.persons, self.plan.seeds, replace=False)
        return [{"number": int(number)} for number in chosen]


def _among(workers: Mapping[str, Worker], names: Iterable[str]) -> dict[str, Worker]:
    return {name: workers[name] for name in names if name in workers}


def compare(
    workers: Mapping[str, Worker], question: str, each: Sequence[Parameters], ranked: int | None = None
) -> None:
    """Fail unless all give the same answers."""
    answers = {name: one.answers(question, each) for name, one in workers.items()}
    for place, parameters in enumerate(each):
        asked = f"{question} of {dict(parameters)}"
        same_answers(asked, {name: rows[place] for name, rows in answers.items()}, ranked)


def _memory_figures(memory: Mapping[str, Mapping[str, int]]) -> Iterator[Figure]:
    for name, taken in memory.items():
        if name.startswith(OURS):
            # The system counts pages with a delay, so that very little may come out as less than nothing.
            grown = max(taken["peak"] - taken["before"], 0)
            yield Figure(f"memory: {name.removeprefix(f'{OURS}, ')}", RESULT_SIZE, grown / taken["result"])


def _keep(found: Result, task: str, took: Mapping[str, Sequence[Took]]) -> None:
    found.times[f"{WARM}: {task}"] = walls(took)
    found.processor[f"{WARM}: {task}"] = processors(took)


def in_turns(
    workers: Mapping[str, Worker],
    question: str | Mapping[str, str],
    each: Sequence[Parameters],
    method: str,
    patience: float,
    *,
    at_once: int = 1,
) -> dict[str, list[Took]]:
    """Every database in every round, each time another one first; a slow task gets fewer rounds.

    Databases may have a question each, by name. Small tasks are asked several `at_once`: a process that was
    idle needs a while to be at its fastest.
    """
    found: dict[str, list[Took]] = {name: [] for name in workers}
    begun = time.perf_counter()
    for turn, start in enumerate(range(0, len(each), at_once)):
        if turn >= LEAST_ROUNDS and time.perf_counter() - begun > patience:
            break
        for name in rotate(workers, turn):
            asked = question if isinstance(question, str) else question[name]
            found[name] += workers[name].ask_each(asked, each[start : start + at_once], method)
    return found


def walls(took: Mapping[str, Sequence[Took]]) -> dict[str, list[float]]:
    """The times that passed, by database."""
    return {name: [one.wall for one in each] for name, each in took.items()}


def processors(took: Mapping[str, Sequence[Took]]) -> dict[str, list[float]]:
    """The times that processors worked, by database."""
    return {name: [one.processor for one in each] for name, each in took.items()}
