"""A graph whose every published state is distinct from any other, and cannot be mixed up with it.

Money only moves between accounts, and each round writes one `Round` and one `Owes` with its number in the
same commit: a reader that sees two states at once sees a wrong sum, or rounds without their debts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import omnigraph as og
from omnigraph.errors import HistoricalVersionReclaimed
from omnigraph.graph import Graph
from omnigraph.storage.upkeep import collect_versions

SCHEMA = """
node Account { name: String @key  balance: I64  note: String? @index }
node Round { number: I64 @key }
edge Owes: Account -> Account { round: I64 }
"""
ACCOUNTS = 40
TOTAL = 100 * ACCOUNTS
SUMS = """query sums() {
  match { $a: Account }
  return { sum($a.balance) as total, count($a) as accounts, min($a.balance) as least }
}"""
LINKS = """query links() {
  match { $r: Round  optional { $a: Account  $a $e:owes $b  $e.round = $r.number } }
  return { count(distinct $r) as rounds, count($b) as debts, max($r.number) as last }
}"""
LAST = """query last($n: I64) {
  match { $r: Round { number: $n }  $a: Account  $a $e:owes $b  $e.round = $r.number }
  return { $a.note as payer, $b.note as payee }
}"""


def look(graph: Graph, branch: str | None = None) -> tuple[str, dict[str, Any]]:
    """The commit that one query saw, and what it saw; a second query's state may be another one."""
    links = graph.query(LINKS, branch=branch)
    sums = graph.query(SUMS, branch=branch)
    assert sums.one()["total"] == TOTAL
    assert sums.one()["accounts"] == ACCOUNTS
    commit = links.graph_commit_id
    assert commit is not None
    return commit, links.one()


def look_again(graph: Graph) -> tuple[str, dict[str, Any]]:
    """The same beside a process that removes old versions: a reader that was too slow retries."""
    while True:
        try:
            return look(graph)
        except HistoricalVersionReclaimed:
            continue


@dataclass
class Ledger:
    """Writes rounds, and remembers what each commit published."""

    graph: Graph
    balances: dict[str, int] = field(default_factory=lambda: {f"a{n}": 100 for n in range(ACCOUNTS)})
    round: int = 0
    published: dict[str, int] = field(default_factory=dict)
    """The round that each commit shows."""

    def play(self, branch: str = "main") -> str:
        """One round: money moves, and all that tells of it is written in the same commit."""
        self.round += 1
        payer, payee = Random(self.round).sample(sorted(self.balances), 2)
        self.balances[payer] -= self.round
        self.balances[payee] += self.round
        made = self.graph.mutate(
            """query play($payer: String, $payee: String, $out: I64, $in: I64, $n: I64, $note: String) {
                 update Account set { balance: $out, note: $note } where name = $payer
                 update Account set { balance: $in, note: $note } where name = $payee
                 insert Round { number: $n }
                 insert Owes { from: $payer, to: $payee, round: $n }
               }""",
            {
                "payer": payer,
                "payee": payee,
                "out": self.balances[payer],
                "in": self.balances[payee],
                "n": self.round,
                "note": f"round {self.round}",
            },
            branch=branch,
        )
        assert made.commit is not None
        self.published[made.commit.id] = self.round
        return made.commit.id

    def optimize(self) -> None:
        made = self.graph.optimize()
        if made.commit is not None:
            self.published[made.commit.id] = self.round

    def clean_up(self) -> int:
        """Remove every version of a table that main does not show now; how many there were."""
        opened = self.graph._opened
        removed = 0
        for found in self.graph.snapshot().tables.values():
            tip = opened.root.tables.tip(opened.root.layout.table(found.path))
            old = [version for version in tip.versions() if version != found.version]
            removed += collect_versions(tip, old).versions
        opened.root.tables.forget()
        return removed

    def require_published(self, commit: str, seen: dict[str, Any]) -> None:
        number = self.published[commit]
        assert seen == {"rounds": number, "debts": number, "last": number or None}


def new_ledger(folder: Path) -> Ledger:
    file = folder / "accounts.jsonl"
    file.write_text(
        "\n".join(
            json.dumps({"type": "Account", "data": {"name": f"a{number}", "balance": 100}})
            for number in range(ACCOUNTS)
        )
    )
    graph = og.init(folder / "g", schema=SCHEMA)
    made = graph.load(file, mode="append")
    ledger = Ledger(graph)
    assert made.commit is not None
    ledger.published[made.commit.id] = 0
    return ledger
