"""Searches of documents by vector and by text, fused, with a hop; recall is against a look at everything."""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from bench import documents
from bench.comparison import AGAIN, OURS, Section
from bench.documents import BEST, Exact, Question
from bench.made import made
from bench.read_peers.worker import ROWS, Parameters, Peer, Worker, worker
from bench.reads_social import Measured, in_turns, processors, walls

LANCEDB = "lancedb"
PEERS = {
    peer.name: peer
    for peer in (
        Peer(OURS, "bench.read_peers.ours_documents", "omnigraph"),
        Peer(LANCEDB, "bench.read_peers.lancedb_peer", "lancedb"),
        Peer("usearch", "bench.read_peers.usearch_peer", "usearch"),
        Peer("tantivy", "bench.read_peers.tantivy_peer", "tantivy"),
    )
}
ANSWERS = {
    "vector": (OURS, LANCEDB, "usearch"),
    "text": (OURS, LANCEDB, "tantivy"),
    "both": (OURS, LANCEDB),
    "both, fused": (OURS, LANCEDB),
    "both, fused, one hop": (OURS, LANCEDB),
}
"""Who answers what."""
RECALL = 0.98
PATIENCE = 6.0
"""The seconds after which a search has been measured often enough."""
PROBES = (1, 2, 4, 8, 16, 32, 64, 128)
WHOLE_TASK = "ours: both, fused, one hop; theirs: both searches only"


class Documents:
    """The databases of all peers that are installed, and processes that have them open."""

    def __init__(self, *, short: bool) -> None:
        self.size = documents.SHORT if short else documents.WHOLE
        self.asked = documents.questions(self.size, 10 if short else 100)
        data = made(f"{self.size.name}/data", lambda place: documents.write(self.size, place))
        self.exact = Exact(data)
        self.peers = {name: peer for name, peer in PEERS.items() if peer.installed}
        self.places = {name: peer.database(self.size.name, data) for name, peer in self.peers.items()}

    def measure(self) -> Measured:
        """Recall first, then times."""
        with ExitStack() as stack:
            workers = {
                name: stack.enter_context(worker(peer, self.places[name]))
                for name, peer in self.peers.items()
            }
            workers[AGAIN] = stack.enter_context(worker(self.peers[OURS], self.places[OURS]))
            probes = self._probes(workers[LANCEDB]) if LANCEDB in workers else None
            each = [_parameters(question, probes) for question in self.asked]
            facts = {
                "documents": self.size.documents,
                f"{LANCEDB} probes": probes,
                "recall of vectors": self._recalls(workers, "vector", each),
                "recall of texts": self._recalls(workers, "text", each),
                "documents absent": [name for name in PEERS if name not in self.peers],
            }
            return Measured(self._times(workers, each), facts)

    def _times(self, workers: dict[str, Worker], each: Sequence[Parameters]) -> list[Section]:
        wall: dict[str, dict[str, list[float]]] = {}
        processor: dict[str, dict[str, list[float]]] = {}
        for task, asked in self._tasks().items():
            answering = {name: workers[name] for name in asked if name in workers}
            for name, one in answering.items():
                one.ask(asked[name], each[0])
            took = in_turns(answering, asked, each, ROWS, at_once=10, patience=PATIENCE)
            wall[task], processor[task] = walls(took), processors(took)
        return [
            Section("documents, warm", wall),
            Section("documents, warm, processor time of all threads", processor),
        ]

    def _tasks(self) -> dict[str, dict[str, str]]:
        """What is asked of whom; all that answer a task are measured in turns."""
        same = {question: dict.fromkeys((*names, AGAIN), question) for question, names in ANSWERS.items()}
        return {**same, WHOLE_TASK: {OURS: "both, fused, one hop", LANCEDB: "both"}}

    def _probes(self, lancedb: Worker) -> int:
        """The fewest partitions that its vector index has to look into to find enough.

        It never finds less in more of them, so that half of the choices are settled by each trial.
        """

        def finds_enough(probes: int) -> bool:
            each = [_parameters(question, probes) for question in self.asked]
            return self._recalls({LANCEDB: lancedb}, "vector", each)[LANCEDB] >= RECALL

        return PROBES[min(bisect_left(PROBES, True, key=finds_enough), len(PROBES) - 1)]

    def _recalls(
        self, workers: dict[str, Worker], question: str, each: Sequence[Parameters]
    ) -> dict[str, float]:
        found = {}
        for name in ANSWERS[question]:
            if name in workers:
                answers = workers[name].answers(question, each)
                shares = [
                    self._share(question, asked, rows)
                    for asked, rows in zip(self.asked, answers, strict=True)
                ]
                found[name] = round(statistics.fmean(shares), 4)
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


def _parameters(question: Question, probes: int | None) -> Parameters:
    return {"vector": list(question.vector), "text": question.text, "probes": probes}
