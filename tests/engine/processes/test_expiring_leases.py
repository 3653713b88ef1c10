"""A lease that is lost in every gap between two storage calls of a write, known to its holder or not."""

from __future__ import annotations

import pytest

from omnigraph.storage.location import Location
from tests.engine.processes.conftest import Start, Worker
from tests.engine.processes.people import TORTURE, both, commits, people, require_sound, teams

pytestmark = [
    pytest.mark.crash,
    pytest.mark.s3,
    pytest.mark.parametrize("shared_root", ["s3"], indirect=True),
]

STRIDE = 1 if TORTURE else 10
"""Of every so many gaps one is tried here, and all by `make torture`."""


def gaps(owner: Worker) -> list[int]:
    """The storage calls a write makes from taking the lease to giving it back, by number."""
    owner.arm("nowhere")
    owner.commits(both("warm"))
    calls = owner.do("seen")["seen"]
    locks = [number for number, place in enumerate(calls) if "__locks/" in place]
    return list(range(locks[0] + 1, locks[-1] + 1))


@pytest.mark.parametrize("long", [False, True], ids=["unaware", "aware"])
def test_a_lease_lost_in_any_gap_loses_no_write_and_doubles_none(
    people_graph: Location, writer: Start, long: bool
) -> None:
    owner, other = writer(), writer(impatient=True)
    tried = gaps(owner)[3 if long else 0 :: STRIDE]
    made = commits(people_graph)
    ages: dict[str, int | None] = {"eve": 0, "warm": 1}
    sizes: dict[str, int | None] = {"base": 0, "warm": 1}
    for number in tried:
        owner.arm(*["pass "] * number, "", action="stop-long" if long else "stop")
        owner.send("mutate", text=both(f"g{number}"))
        place = owner.stands_still()["stopped"]
        made.append(other.commits(f'insert Person {{ name: "o{number}", age: 2 }}'))
        ages[f"o{number}"] = 2
        answer = owner.goes_on()
        made.append(other.commits(f'insert Team {{ name: "o{number}", size: 2 }}'))
        sizes[f"o{number}"] = 2
        if "commit" in answer:
            made.append(answer["commit"])
        else:
            assert answer["error"] == "recovery_required", (place, answer)
        # After `recovery_required` the write may turn out finished, or undone: all of it.
        if "commit" in answer or f"g{number}" in people(people_graph):
            ages[f"g{number}"] = sizes[f"g{number}"] = 1
        assert (people(people_graph), teams(people_graph)) == (ages, sizes), (place, answer)
        require_sound(people_graph, made)
        owner.arm("nowhere")
    print(f"{len(tried)} gaps")
