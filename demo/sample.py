"""Make the sample of the demo: a social graph and what its people write, the same every time."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from omnigraph.embed.offline import OfflineEmbedder

WORDS = json.loads(Path(__file__).with_name("words.json").read_text(encoding="utf-8"))
TOPICS = [(topic["nouns"], topic["facts"]) for topic in WORDS["topics"].values()]
SEED = 7
DIMENSION = 64
FIRST_DAY, DAYS = np.datetime64("2020-01-01", "D"), 2000
Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many rows each type has; each document has one author."""

    people: int
    follows: int
    documents: int
    likes: int

    @classmethod
    def of(cls, rows: int) -> Sizes:
        """Shares of a total: of a million, 100,000 people and 20,000 documents."""
        people, documents = rows // 10, rows // 50
        likes = rows * 16 // 100
        return cls(people, rows - people - 2 * documents - likes, documents, likes)


def tables(sizes: Sizes) -> Iterator[tuple[str, pa.Table]]:
    """Each type with its rows."""
    random = np.random.default_rng(SEED)
    person = _handles(sizes.people)
    # Who comes early in this order is followed, and liked, by many.
    famous = random.permutation(sizes.people)
    yield "Person", _people(person, random)
    yield "Follows", _follows(person, famous, sizes.follows, random)
    subject = random.integers(len(TOPICS), size=sizes.documents)
    documents = _documents(subject, random)
    yield "Document", documents
    authors = _of_topic(random.integers(sizes.people, size=sizes.documents), subject, sizes.people)
    yield "Wrote", _edges(person.take(pa.array(authors)), documents["slug"])
    fans = random.integers(sizes.people, size=sizes.likes)
    liked = _draw_skewed(sizes.documents, sizes.likes, random)
    yield "Likes", _edges(person.take(pa.array(fans)), documents["slug"].take(pa.array(liked)))


def _handles(people: int) -> pa.Array:
    numbers = np.arange(people)
    first = pa.array([name.lower() for name in WORDS["first_names"]]).take(
        pa.array(numbers % len(WORDS["first_names"]))
    )
    return pc.binary_join_element_wise(first, pa.array(numbers + 1).cast(pa.string()), "-")


def _people(handles: pa.Array, random: np.random.Generator) -> pa.Table:
    count = len(handles)
    first = pa.array(WORDS["first_names"]).take(pa.array(np.arange(count) % len(WORDS["first_names"])))
    last = _draw_texts(WORDS["last_names"], count, random)
    return pa.table(
        {
            "handle": handles,
            "name": pc.binary_join_element_wise(first, last, " "),
            "city": _draw_texts(WORDS["cities"], count, random),
            "joined": _days(count, random),
        }
    )


def _follows(handles: pa.Array, famous: Numbers, count: int, random: np.random.Generator) -> pa.Table:
    """Half of all follows go to somebody with the same interest; no one follows the same person twice."""
    people = len(handles)
    drawn = count * 2
    who = random.integers(people, size=drawn)
    whom = famous[_draw_skewed(people, drawn, random)]
    whom = np.where(random.random(drawn) < 0.5, _of_topic(whom, who % len(TOPICS), people), whom)
    pairs = np.unique((who * people + whom)[who != whom])
    chosen = random.choice(pairs, size=count, replace=False)
    edges = _edges(handles.take(pa.array(chosen // people)), handles.take(pa.array(chosen % people)))
    return edges.append_column("since", _days(count, random))


def _documents(subject: Numbers, random: np.random.Generator) -> pa.Table:
    """Texts put together from sentences about one subject, and what they are about as vectors."""
    count = len(subject)
    nouns = [noun for nouns, _ in TOPICS for noun in nouns]
    noun = subject * _NOUNS + random.integers(_NOUNS, size=count)
    titles = pa.array([_sentence(opening, noun) for noun in nouns for opening in WORDS["openings"]])
    facts = pa.array([_sentence(fact, noun) for nouns, facts in TOPICS for noun in nouns for fact in facts])
    second = subject * _NOUNS + random.integers(_NOUNS, size=count)
    sentences = [
        facts.take(pa.array(noun * _FACTS + random.integers(_FACTS, size=count))),
        _draw_texts(WORDS["remarks"], count, random),
        facts.take(pa.array(second * _FACTS + random.integers(_FACTS, size=count))),
    ]
    bodies = pc.binary_join_element_wise(*sentences, " ")
    numbers = pa.array(np.arange(1, count + 1)).cast(pa.string())
    opening = random.integers(len(WORDS["openings"]), size=count)
    return pa.table(
        {
            "slug": pc.binary_join_element_wise("doc", numbers, "-"),
            "title": titles.take(pa.array(noun * len(WORDS["openings"]) + opening)),
            "body": bodies,
            "published": _days(count, random),
            "about": _vectors(bodies),
        }
    )


# Each topic has as many nouns and facts as the first, so that numbers tell which is whose.
_NOUNS, _FACTS = map(len, TOPICS[0])


def _sentence(pattern: str, noun: str) -> str:
    text = pattern.format(noun)
    return text[0].upper() + text[1:]


def _vectors(texts: pa.Array) -> pa.Array:
    """Many documents share their text, which is embedded once."""
    coded = texts.dictionary_encode()
    vectors = np.stack(OfflineEmbedder().embed(coded.dictionary.to_pylist(), DIMENSION, "document"))
    each = vectors[coded.indices.to_numpy()]
    return pa.FixedSizeListArray.from_arrays(pa.array(each.ravel()), DIMENSION)


def _of_topic(people: Numbers, topic: Numbers, count: int) -> Numbers:
    """The people nearest by number who are interested in a topic: every so-many-th is."""
    moved = people - people % len(TOPICS) + topic
    return np.where(moved < count, moved, moved - len(TOPICS))


def _draw_skewed(count: int, size: int, random: np.random.Generator) -> Numbers:
    """Numbers below `count`, small ones far more often."""
    return (count * random.random(size) ** 2.5).astype(np.int64)


def _draw_texts(texts: Sequence[str], count: int, random: np.random.Generator) -> pa.Array:
    return pa.array(texts).take(pa.array(random.integers(len(texts), size=count)))


def _days(count: int, random: np.random.Generator) -> pa.Array:
    return pa.array(FIRST_DAY + random.integers(DAYS, size=count).astype("timedelta64[D]"))


def _edges(start: pa.Array, end: pa.Array) -> pa.Table:
    return pa.table({"from": start, "to": end})


def main() -> None:
    """Write the files and tell what is in them."""
    options = argparse.ArgumentParser(description="Make the sample of the demo as Parquet files.")
    options.add_argument("folder", type=Path)
    options.add_argument("--rows", type=int, default=1_000_000, help="rows of all types together")
    asked = options.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    contents = []
    for name, table in tables(Sizes.of(asked.rows)):
        pq.write_table(table, asked.folder / f"{name}.parquet", row_group_size=100_000)
        contents.append(f"{table.num_rows:,} {name}")
    size = sum(path.stat().st_size for path in asked.folder.glob("*.parquet"))
    print(f"{', '.join(contents)}: {asked.rows:,} rows, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
