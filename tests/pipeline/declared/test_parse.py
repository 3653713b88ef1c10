"""Pipeline files: what is in them, and every mistake with its code and line."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from omnigraph.errors import BadRequest, PipelineInvalid, SourceSecretMissing
from omnigraph.pipeline.declared.declaration import FileSource, GraphSource, JdbcSource, Place
from omnigraph.pipeline.declared.parse import read_pipeline, read_pipelines
from omnigraph.pipeline.declared.secrets import Secrets
from omnigraph.pipeline.declared.sql import NotOneQuery, list_parameters, plain_cast, require_query

CASES = (Path(__file__).parent / "cases/wrong.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("case", CASES.split("\n== ")[1:], ids=lambda case: case.partition("\n")[0])
def test_every_mistake_is_reported_with_its_code_and_line(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, _, expected = case.partition("\n")[2].partition("----\n")
    monkeypatch.chdir(tmp_path)
    Path("crm.yaml").write_text(text)
    with pytest.raises(PipelineInvalid) as caught:
        read_pipelines("crm.yaml")
    problems = caught.value.violations or (caught.value,)
    report = "\n".join(f"{one.code} {one.message}" for one in problems)
    assert report.replace(str(tmp_path), "{folder}") == expected.strip()


WHOLE = """
version: 1
providers:
  source:
    lake: {kind: files, root: "s3a://lake/raw/", options: {mergeSchema: "true"}}
    crm: {kind: jdbc, url: "jdbc:postgresql://db/crm", user: "${CRM_USER}", password: "${CRM_PASSWORD}"}
pipelines:
  one:
    spark: {master: "local[2]", conf: {spark.sql.shuffle.partitions: "8"}, packages: ["org:driver:1"]}
    params: {least: 0.5}
    sources:
      people: {provider: crm, table: public.people, watermark: {column: at, type: timestamp}}
      firms: {provider: provider.source.lake, path: firms/, format: parquet}
      before: {graph: ../old, types: [Person, "edge:Knows"], branch: draft}
    transforms: [{view: clean, query: "select * from people where score > :least"}]
    into:
      - graph: team
        map: {nodes: [{type: Person, view: clean, where: ok, properties: {email: mail}}]}
        on_conflict: keep_branch
    checkpoint: watermark
  two:
    source: {format: csv, path: people.csv}
    into: [{graph: s3://lake/team, mode: overwrite, map: {nodes: [{type: Person, view: source}]}}]
"""


def test_a_file_becomes_declarations(tmp_path: Path) -> None:
    (tmp_path / "crm.yaml").write_text(WHOLE)
    found = read_pipelines(tmp_path / "crm.yaml")
    people, firms, before = found["one"].sources
    assert people == JdbcSource(
        "people",
        "jdbc:postgresql://db/crm",
        "public.people",
        options=(("password", "${CRM_PASSWORD}"), ("user", "${CRM_USER}")),
        watermark=people.watermark,
    )
    assert firms == FileSource("firms", "parquet", "s3a://lake/raw/firms/", (("mergeSchema", "true"),))
    assert isinstance(before, GraphSource)
    assert before.list_views() == {"before_Person": "Person", "before_edge_Knows": "edge:Knows"}
    assert found["one"].list_views() == ["people", "firms", "before_Person", "before_edge_Knows", "clean"]
    assert found["one"].spark.list_settings()["spark.jars.packages"] == "org:driver:1"
    assert (found["two"].home, found["two"].into[0].name) == ("s3://lake/team", "graph.s3://lake/team")
    with pytest.raises(BadRequest, match="has several pipelines"):
        read_pipeline(tmp_path / "crm.yaml")
    with pytest.raises(BadRequest, match="has no pipeline 'three'"):
        read_pipeline(tmp_path / "crm.yaml", "three")


def test_a_digest_changes_with_what_is_said_and_not_with_how_it_is_written(tmp_path: Path) -> None:
    (tmp_path / "crm.yaml").write_text(WHOLE)
    one = read_pipeline(tmp_path / "crm.yaml", "one")
    (tmp_path / "crm.yaml").write_text(f"# a remark\n{WHOLE}".replace("{least: 0.5}", "{'least':   0.5}"))
    assert read_pipeline(tmp_path / "crm.yaml", "one").digest == one.digest
    assert replace(one, document=one.document.replace("0.5", "0.6")).digest != one.digest
    (tmp_path / "crm.yaml").write_text(WHOLE.replace("email: mail", "email: lower(mail)"))
    assert read_pipeline(tmp_path / "crm.yaml", "one").digest != one.digest


def test_references_become_values_and_values_references_again() -> None:
    secrets = Secrets({"USER": "ann", "WORD": "annabel"})
    place = Place("crm.yaml", 3)
    assert secrets.resolve("${USER}:${WORD}", place) == "ann:annabel"
    assert secrets.redact("no annabel, no ann") == "no ${WORD}, no ${USER}"
    with pytest.raises(SourceSecretMissing, match=re.escape("crm.yaml:3: 'GONE' is not set")):
        secrets.resolve("${GONE}", place)


@pytest.mark.parametrize(
    "sql",
    [
        "select 1",
        "SELECT ';' -- ; \n from t;",
        "(select 1) union (select 2)",
        "with a as (select 1), b (x) as (select ')' from a) select * from b",
        "/* drop /* nested */ ; */ select delete from t",
        "select `in;sert` from t",
    ],
)
def test_one_query_is_a_query(sql: str) -> None:
    require_query(sql)


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "-- nothing",
        "insert into t select 1",
        "with a as (select 1) insert into t select * from a",
        "from t insert into u select *",
        "set x = 1",
        "select 1; select 2",
        "/* select 1",
        "cache table t",
    ],
)
def test_anything_else_is_refused(sql: str) -> None:
    with pytest.raises(NotOneQuery):
        require_query(sql)


def test_parameters_are_those_outside_of_texts() -> None:
    assert list_parameters("select ':a', x::int, :b, \":c\" /* :d */ from t where :e = :b -- :f") == [
        "b",
        "e",
    ]


def test_a_plain_cast_tells_its_type() -> None:
    assert plain_cast("cast(age as INT)") == "int"
    assert plain_cast("try_cast( f(x) as decimal(10, 2) )") == "decimal(10, 2)"
    assert plain_cast("cast(a as int) + cast(b as int)") is None
    assert plain_cast("upper(a)") is None
