"""Searches of documents by vector and by text, fused, with a hop; recall is against a look at everything."""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench import documents
from bench.documents import BEST, Exact, Question
from bench.made import make_once
from bench.measure import OWN, QUICK, SHORT, WHOLE, Figure, Result, Times
from bench.reads_social import in_turns, processors, walls
from bench.worker import ROWS, Parameters, Peer, Worker, own, worker

LANCEDB = "lancedb"
OTHERS = (
    Peer(LANCEDB, "bench.read_peers.lancedb_peer", "lancedb"),
    Peer("usearch", "bench.read_peers.usearch_peer", "usearch"),
    Peer("tantivy", "bench.read_peers.tantivy_peer", "tantivy"),
)
HOP = "both, fused, one hop"
ANSWERS = {
    "vector": (*OWN, LANCEDB, "usearch"),
    "text": (*OWN, LANCEDB, "tantivy"),
    "both": (*OWN, LANCEDB),
    "both, fused": (*OWN, LANCEDB),
    HOP: (*OWN, LANCEDB),
}
"""Who answers what."""
WHOLE_TASK = "ours: both, fused, one hop; theirs: both searches only"
RECALL = 0.98
"""What every index of vectors is set to reach, so that times can be compared."""
RECALL_OF, EXACT = "recall of the best ten", "a look at everything"
PROBES = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True, slots=True)
class Plan:
    """How much there is, and how often everything is measured."""

    size: documents.Size
    questions: int
    commits: int
    patience: float
    """The seconds after which a search has been measured often enough."""
    apart: bool = True


PLANS = {
    WHOLE: Plan(documents.WHOLE, 100, commits=200, patience=6),
    QUICK: Plan(documents.MIDDLE, 50, commits=40, patience=3),
    SHORT: Plan(documents.SMALL, 4, commits=2, patience=1, apart=False),
}


def run(size: str) -> Result:
    """Recall first, then times."""
    plan = PLANS[size]
    data = make_once(f"{plan.size.name}/data", lambda place: documents.write(plan.size, place))
    wanted = {
        **own("bench.read_peers.ours_documents", commits=plan.commits, apart=plan.apart),
        **{peer.name: peer for peer in OTHERS},
    }
    peers = {name: peer for name, peer in wanted.items() if peer.installed}
    searches = Searches(documents.questions(plan.size, plan.questions), Exact(data))
    with ExitStack() as stack:
        workers = {
            name: stack.enter_context(worker(peer, peer.database(plan.size.name, data)))
            for name, peer in peers.items()
        }
        probes = searches.probes(workers[LANCEDB]) if LANCEDB in workers else None
        each = searches.parameters(probes)
        recalls = {what: searches.recalls(workers, what, each) for what in ("vector", "text")}
        times, processor = _times(workers, each, plan.patience)
    return Result(
        times=times,
        processor=processor,
        figures=tuple(
            Figure(f"{RECALL_OF}, {what}, {name}", EXACT, share)
            for what, by_name in recalls.items()
            for name, share in by_name.items()
            if name in OWN
        ),
        facts={
            "documents": plan.size.documents,
            "commits of the aged": plan.commits,
            f"{LANCEDB} probes": probes,
            "recall": recalls,
        },
        absent=tuple(name for name in wanted if name not in peers),
    )


def _times(workers: Mapping[str, Worker], each: Sequence[Parameters], patience: float) -> tuple[Times, Times]:
    wall: Times = {}
    processor: Times = {}
    for task, asked in _tasks().items():
        answering = {name: workers[name] for name in asked if name in workers}
        for name, one in answering.items():
            one.ask(asked[name], each[0])
        took = in_turns(answering, asked, each, ROWS, patience, at_once=10)
        wall[task], processor[task] = walls(took), processors(took)
    return wall, processor


def _tasks() -> dict[str, dict[str, str]]:
    """What is asked of whom; all that answer a task are measured in turns."""
    same = {question: dict.fromkeys(names, question) for question, names in ANSWERS.items()}
    return {**same, WHOLE_TASK: {**dict.fromkeys(OWN, HOP), LANCEDB: "both"}}


@dataclass(frozen=True, slots=True)
class Searches:
    """What is searched for, and the right answers."""

    asked: Sequence[Question]
    exact: Exact

    def parameters(self, probes: int | None) -> list[Parameters]:
        """As the databases take them."""
        return [{"vector": list(one.vector), "text": one.text, "probes": probes} for one in self.asked]

    def probes(self, lancedb: Worker) -> int:
        """The fewest partitions that its vector index has to look into to find enough.

        It never finds less in more of them, so that half of the choices are settled by each trial.
        """

        def finds_enough(probes: int) -> bool:
            found = self.recalls({LANCEDB: lancedb}, "vector", self.parameters(probes))
            return found[LANCEDB] >= RECALL

        return PROBES[min(bisect_left(PROBES, True, key=finds_enough), len(PROBES) - 1)]

    def recalls(
        self, workers: Mapping[str, Worker], question: str, each: Sequence[Parameters]
    ) -> dict[str, float]:
        """The share of the best that each database finds."""
        found = {}
        for name in ANSWERS[question]:
            if name in workers:
                answers = workers[name].answers(question, each)
                shares = map(self._share, [question] * len(each), self.asked, answers)
                found[name] = statistics.fmean(shares)
        return found

    def _share(self, question: str, asked: Question, rows: Sequence[tuple[Any, ...]]) -> float:
        """How many of the best were found; a document as relevant as the last of them is one of them."""
        numbers = [row[0] for row in rows]
        if question == "vector":
            return len(set(numbers) & self.exact.nearest(asked.vector)) / BEST
        relevance = self.exact.relevance(asked)
        least = max(np.partition(relevance, -BEST)[-BEST], 1e-9)
        # Stored lengths and sums in 32 bits differ in the last places.
        return int((relevance[numbers] >= least * (1 - 1e-3)).sum()) / BEST
