"""A social network of the shape of the public graph-benchmark: who follows whom, lives where, likes what."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bench.made import write_lines, write_tables

SEED = 37
_FIRST_NAMES = "Ada Bo Cy Dee Eli Fay Gus Hal Ida Jo Kim Lee Max Nia Ola Pat Quin Ray Sue Tom Uma Val Wes Zoe"
_SYLLABLES = "al ber cor dan el fin gar hol in jor kel lom mar nor os pel quin ros sal tor ul ven wil yor"
_INTERESTS = """
Anime, Archery, Baking, Basketball, Bicycles, Board Games, Bowling, Camping, Card Games, Chess, Climbing,
Coffee, Comics, Cooking, Cricket, Dancing, Drawing, Fine Dining, Fishing, Football, Gardening, Golf, Hiking,
History, Jazz, Knitting, Movies, Museums, Opera, Painting, Photography, Poetry, Pottery, Reading, Running,
Sailing, Skiing, Swimming, Tennis, Theatre, Yoga
"""
FIRST_NAMES, SYLLABLES = _FIRST_NAMES.split(), _SYLLABLES.split()
INTERESTS = [name.strip() for name in _INTERESTS.split(",")]
COUNTRIES = {"United States": 51, "United Kingdom": 209, "Canada": 13}
"""Each country with its number of states."""
LONDON = ("London", "United Kingdom")


@dataclass(frozen=True, slots=True)
class Size:
    """How much of everything there is."""

    persons: int
    cities: int
    follows: int

    @property
    def name(self) -> str:
        return f"social-{SEED}-{self.persons}-{self.cities}-{self.follows}"


WHOLE = Size(persons=100_000, cities=7_117, follows=2_417_738)
MIDDLE = Size(persons=20_000, cities=1_423, follows=483_547)
SMALL = Size(persons=400, cities=60, follows=4_000)

SCHEMA = """
node Person {
  number: I64 @key
  name: String
  gender: String
  birthday: Date
  age: I64
  isMarried: Bool
}
node City {
  number: I64 @key
  city: String
  state: String
  country: String
  lat: F64
  lon: F64
  population: I64
}
node State {
  number: I64 @key
  state: String
  country: String
}
node Country {
  number: I64 @key
  country: String
}
node Interest {
  number: I64 @key
  interest: String
}
edge Follows: Person -> Person
edge LivesIn: Person -> City
edge HasInterest: Person -> Interest
edge CityIn: City -> State
edge StateIn: State -> Country
"""
NODES = ("Person", "City", "State", "Country", "Interest")
EDGES = {
    "Follows": ("Person", "Person"),
    "LivesIn": ("Person", "City"),
    "HasInterest": ("Person", "Interest"),
    "CityIn": ("City", "State"),
    "StateIn": ("State", "Country"),
}


def write(size: Size, folder: Path) -> None:
    """All tables as Parquet, and all records as NDJSON beside them."""
    tables = generate(size)
    write_tables(folder, tables)
    lines = folder / "records.jsonl"
    for name in NODES:
        write_lines(lines, _node_parts(name, tables[name]))
    for name in EDGES:
        table = tables[name]
        write_lines(lines, [f'{{"edge":"{name}","from":"', table["src"], '","to":"', table["dst"], '"}'])


def generate(size: Size) -> dict[str, pa.Table]:
    """All nodes and edges; the same for the same size."""
    random = np.random.default_rng(SEED)
    states = _states()
    cities, state_of = _cities(random, size, states)
    return {
        "Person": _persons(random, size),
        "City": cities,
        "State": states,
        "Country": pa.table({"number": np.arange(len(COUNTRIES)), "country": list(COUNTRIES)}),
        "Interest": pa.table({"number": np.arange(len(INTERESTS)), "interest": INTERESTS}),
        "Follows": _follows(random, size),
        "LivesIn": _lives_in(random, size, cities),
        "HasInterest": _has_interest(random, size),
        "CityIn": _edges(np.arange(size.cities), state_of),
        "StateIn": _edges(
            np.arange(len(states)), np.repeat(np.arange(len(COUNTRIES)), list(COUNTRIES.values()))
        ),
    }


def _persons(random: np.random.Generator, size: Size) -> pa.Table:
    firsts = pa.array(FIRST_NAMES).take(pa.array(random.integers(len(FIRST_NAMES), size=size.persons)))
    surnames = pc.utf8_capitalize(_names(random, size.persons, 3))
    ages = random.integers(20, 76, size=size.persons)
    days = (np.datetime64("2024-01-01") - ages.astype("timedelta64[Y]").astype("timedelta64[D]")).astype(
        "datetime64[D]"
    )
    return pa.table(
        {
            "number": np.arange(size.persons),
            "name": pc.binary_join_element_wise(firsts, surnames, " "),
            "gender": pa.array(["male", "female"]).take(pa.array(random.integers(2, size=size.persons))),
            "birthday": pa.array(days - random.integers(365, size=size.persons).astype("timedelta64[D]")),
            "age": ages,
            "isMarried": random.random(size.persons) < 0.5,
        }
    )


def _states() -> pa.Table:
    countries = [name for name, count in COUNTRIES.items() for _ in range(count)]
    names = [f"{name} {number + 1}" for name, count in COUNTRIES.items() for number in range(count)]
    return pa.table({"number": np.arange(len(names)), "state": names, "country": countries})


def _cities(random: np.random.Generator, size: Size, states: pa.Table) -> tuple[pa.Table, NDArray[np.int64]]:
    # Seven cities in ten are in the first country, as in the public data.
    share = np.repeat([0.7 / 51, 0.2 / 209, 0.1 / 13], list(COUNTRIES.values()))
    state_of = random.choice(len(states), size=size.cities, p=share / share.sum())
    names = pc.utf8_capitalize(_names(random, size.cities, 3)).to_pylist()
    names[0], state_of[0] = LONDON[0], 51
    index = pa.array(state_of)
    table = pa.table(
        {
            "number": np.arange(size.cities),
            "city": names,
            "state": states["state"].take(index),
            "country": states["country"].take(index),
            "lat": random.uniform(25, 60, size.cities).round(4),
            "lon": random.uniform(-120, 2, size.cities).round(4),
            "population": random.integers(1_000, 9_000_000, size.cities),
        }
    )
    return table, state_of


def _lives_in(random: np.random.Generator, size: Size, cities: pa.Table) -> pa.Table:
    # Larger cities have more people; the most populous has a few hundred of 100,000.
    weights = np.sqrt(cities["population"].to_numpy())
    weights[0] = weights.max() * 10
    homes = random.choice(size.cities, size=size.persons, p=weights / weights.sum())
    return _edges(np.arange(size.persons), homes)


def _has_interest(random: np.random.Generator, size: Size) -> pa.Table:
    likes = random.random((size.persons, len(INTERESTS))).argsort(axis=1)[:, :4]
    kept = np.arange(4) < random.integers(1, 5, size=(size.persons, 1))
    persons = np.broadcast_to(np.arange(size.persons)[:, None], likes.shape)
    return _edges(persons[kept], likes[kept])


def _follows(random: np.random.Generator, size: Size) -> pa.Table:
    """Everybody follows about equally many; few are followed by very many (5,000 of 100,000)."""
    weights = (np.arange(size.persons) + 3.0) ** -0.6
    edges = np.cumsum(random.permutation(weights))
    found = np.empty(0, dtype=np.int64)
    while len(found) < size.follows:
        count = int((size.follows - len(found)) * 1.05) + 100
        source = random.integers(size.persons, size=count)
        target = np.searchsorted(edges, random.random(count) * edges[-1], side="right")
        pairs = (source * size.persons + target)[source != target]
        found = np.unique(np.concatenate([found, pairs]))
    chosen = random.permutation(found)[: size.follows]
    return _edges(chosen // size.persons, chosen % size.persons)


def _names(random: np.random.Generator, count: int, length: int) -> pa.Array:
    parts = [
        pa.array(SYLLABLES).take(pa.array(random.integers(len(SYLLABLES), size=count))) for _ in range(length)
    ]
    return pc.binary_join_element_wise(*parts, "")


def _edges(source: NDArray[np.int64], target: NDArray[np.int64]) -> pa.Table:
    return pa.table({"src": source, "dst": target})


def _node_parts(name: str, table: pa.Table) -> list[str | pa.Array | pa.ChunkedArray]:
    parts: list[str | pa.Array | pa.ChunkedArray] = []
    text = f'{{"type":"{name}","data":{{'
    for column, values in zip(table.column_names, table.columns, strict=True):
        quote = "" if values.type in (pa.int64(), pa.float64(), pa.bool_()) else '"'
        parts += [f'{text}"{column}":{quote}', values]
        text = f"{quote},"
    return [*parts, f"{text[:-1]}}}}}"]
