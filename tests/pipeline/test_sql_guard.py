"""Statements and expressions reach rows and relations of their pipeline, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import omnigraph as og
from omnigraph.errors import BadRequest, PipelineExpressionRefused
from omnigraph.pipeline.declared.extraction import SparkExtract
from omnigraph.pipeline.declared.parse import read_pipeline
from omnigraph.pipeline.sql_guard import NotPermitted, SqlGuard, sql_guard
from omnigraph.pipeline.sql_guard.permitted import FUNCTIONS
from omnigraph.pipeline.sql_guard.text_guard import TextGuard
from tests.pipeline.declared.world import graph_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READS_ENVIRONMENT = "java_method('java.lang.System', 'getenv', 'PATH')"

REFUSED = {
    f"select {READS_ENVIRONMENT} from people": "function 'java_method'",
    "select reflect('java.lang.System', 'getenv', 'PATH') from people": "function 'reflect'",
    "select `reflect` ('java.lang.System', 'getenv') from people": "function 'reflect'",
    "select try_reflect('java.lang.System', 'getenv', 'PATH') from people": "function 'try_reflect'",
    "select id from people where reflect/**/('java.lang.System', 'getenv') = 'x'": "function 'reflect'",
    "select id from people order by reflect('a', 'b')": "function 'reflect'",
    "select (select max(reflect('a', 'b')) from people)": "function 'reflect'",
    "with t as (select reflect('a', 'b') x) select * from t": "function 'reflect'",
    "select transform(array(1), x -> reflect('a', 'b'))": "function 'reflect'",
    "select sum(id) filter (where reflect('a', 'b') = 'x') from people": "function 'reflect'",
    "select * from people lateral view explode(array(reflect('a', 'b'))) t as x": "function 'reflect'",
    # Analysis evaluates these, and would tell the value in its message.
    f"select * from identifier({READS_ENVIRONMENT})": "",
    f"select identifier({READS_ENVIRONMENT}) from people": "",
    f"select from_json('1', {READS_ENVIRONMENT})": "function 'java_method'",
    f"select id from people limit {READS_ENVIRONMENT}": "function 'java_method'",
    "select system.builtin.reflect('a', 'b')": "reflect'",
    "select default.mine(1)": "mine'",
    # Spark replaces this before it parses the text.
    "select '${env:PATH}'": "`${...}`",
    "select current_user() from people": "'current_user'",
    "select current_user from people": "'current_user'",
    "select session_user from people": "_user'",
    "select version()": "function 'version'",
    "select input_file_name() from people": "function 'input_file_name'",
    "select current_catalog(), current_database()": "function 'current_",
    "select spark_partition_id() from people": "function 'spark_partition_id'",
    "select from_xml('<a/>', 'a int', map('rowValidationXSDPath', '/x'))": "function 'from_xml'",
    "select transform(id) using 'cat' as (x string) from people": "USING",
    "select * from parquet.`/etc/passwd`": "'parquet./etc/passwd'",
    "select * from csv.`/etc/passwd`, people": "'csv./etc/passwd'",
    "select * from people where id in (select id from other.secrets)": "'other.secrets'",
    "select * from people natural join global_temp.theirs": "'global_temp.theirs'",
    "select * from kept": "'",
    "select * from (select * from kept) people": "'",
    "select * from sql_keywords()": "function 'sql_keywords'",
    "select * from read_files('/etc')": "function 'read_files'",
}

ACCEPTED = """
with t as (select upper(name) u, id from people) select u, (select max(id) from people) m from t limit 3;
select id, row_number() over (partition by name order by id) r
    from people lateral view explode(array(1)) e as v;
select p.* from people p join people q using (id) left anti join people r on p.id = r.id;
select * from people p, lateral (select p.id + 1 as y) z;
select name, count(*) c from people group by grouping sets ((name), ()) having count(*) > 0 order by 2 desc;
select distinct id from people union all select 1 intersect select 2 except select 3;
select * from people pivot (max(id) for name in ('0', '1'));
select * from (select id, id a, id b from people) unpivot (v for k in (a, b));
select sum(id) filter (where id > 1) over w from people window w as (order by id rows 1 preceding);
select struct(id, name).id, map('a', 1)['a'], cast(id as decimal(3, 1)), id::string from people;
select date'2020-01-01' + interval '1' day, current_date, current_timestamp() from people;
with recursive t(n) as (select 1 union all select n + 1 from t where n < 3) select * from t;
select x, y from values (1, 'a'), (2, 'b') as t(x, y);
select transform(array(1), (x, i) -> x + i), aggregate(array(1), 0, (a, x) -> a + x),
    filter(array(1), x -> x > 0);
select extract(year from current_date), trim(both 'a' from name), substring(name from 1 for 2) from people;
select case name when 'a' then 1 else 2 end, -id, id % 2, id div 2, id || 'x', name like 'a%' from people;
select first(name), percentile_cont(0.5) within group (order by id), max_by(name, id), mode(name)
    from people;
select to_json(struct(*)), from_json('{}', 'a int').a, nvl(name, 'reflect('), ceil(id),
    date_trunc('day', now()) from people;
select /* reflect( */ id -- java_method(
from people where name in ('a', 'b') and id between 1 and 2;
select * from range(3)
"""


@pytest.fixture(scope="module")
def people(spark: SparkSession) -> SparkSession:
    """A session with a view `people` of the pipeline, and relations that do not belong to it."""
    made = spark.newSession()
    rows = made.range(3).selectExpr("id", "cast(id as string) as name")
    rows.createOrReplaceTempView("people")
    rows.createOrReplaceTempView("kept")
    rows.createOrReplaceGlobalTempView("theirs")
    return made


def check(guard: SqlGuard, spark: SparkSession, query: str) -> None:
    """What a pipeline does with a transform; analysis that fails is no refusal."""
    guard.check_frame(spark.sql(guard.check_query(query, ["people"])), ["people"])


@pytest.mark.parametrize(("query", "reason"), REFUSED.items())
def test_what_reaches_outside_rows_is_refused_by_the_plan(
    people: SparkSession, query: str, reason: str
) -> None:
    with pytest.raises(NotPermitted) as refused:
        check(sql_guard(people), people, query)
    assert reason in str(refused.value)


@pytest.mark.parametrize(("query", "reason"), REFUSED.items())
def test_what_reaches_outside_rows_is_refused_by_the_text(query: str, reason: str) -> None:
    with pytest.raises(NotPermitted) as refused:
        TextGuard().check_query(query, ["people"])
    assert reason.rpartition(".")[2] in str(refused.value)


def test_statements_over_rows_are_accepted_by_both(people: SparkSession) -> None:
    guard = sql_guard(people)
    for query in ACCEPTED.split(";"):
        check(guard, people, query)
        check(TextGuard(), people, query)


@pytest.mark.parametrize(
    "text",
    [
        # Where the comment ends for one reader and not for the other.
        "select 1 -- \\\n ' \n, reflect('a', 'b') -- '",
        "select 1 -- x\r, reflect('a', 'b')",
        "select r'\\', reflect('a', 'b'), r'\\'",
        "select 1 {# reflect('a') #}",
        "select $$x$$",
        "select id from people where (a, b), other.secrets",
        "select `user`",
        "select 1reflect('a')",
    ],
)
def test_texts_that_can_be_read_in_two_ways_do_not_reach_the_server(text: str) -> None:
    try:
        sent = TextGuard().check_query(text, ["people"])
    except NotPermitted:
        return
    assert "reflect" not in sent


def test_the_list_names_only_functions_that_spark_has(spark: SparkSession) -> None:
    known = {row.function for row in spark.sql("show system functions").collect()}
    words = {name for name in FUNCTIONS if name.isidentifier()}
    assert words - known == set()


PIPELINE = """
pipelines:
  crm:
    sources: {people: {format: csv, path: people.csv, options: {header: "true"}}}
    transforms: [{view: clean, query: "select email, age from people where %(query)s"}]
    into:
      - graph: team
        map: {nodes: [{type: Person, view: clean, where: "%(where)s", properties: {email: "%(value)s"}}]}
"""
PLAIN = {"query": "true", "where": "true", "value": "email"}


@pytest.mark.parametrize("part", PLAIN)
def test_transforms_filters_and_maps_of_a_pipeline_cannot_read_the_environment(
    spark: SparkSession, tmp_path: Path, part: str
) -> None:
    graph_at(tmp_path / "team")
    (tmp_path / "people.csv").write_text("email,age\na@x,1\n")
    parts = {**PLAIN, part: READS_ENVIRONMENT if part == "value" else f"{READS_ENVIRONMENT} = 'x'"}
    (tmp_path / "crm.yaml").write_text(PIPELINE % parts)
    pipeline = read_pipeline(tmp_path / "crm.yaml")
    extract = SparkExtract(pipeline, spark)
    with og.open(tmp_path / "team") as team, pytest.raises(PipelineExpressionRefused) as refused:
        extract.build_frames(pipeline.into[0], team.schema, extract.find_bounds({}, ()))
    assert "function 'java_method' is not permitted" in refused.value.message
    assert (refused.value.file or "").endswith("crm.yaml")
    assert refused.value.line is not None


def test_the_settings_of_a_pipeline_do_not_open_files_to_its_statements(
    spark: SparkSession, tmp_path: Path
) -> None:
    graph_at(tmp_path / "team")
    (tmp_path / "people.csv").write_text("email,age\na@x,1\n")
    conf = "    spark: {conf: {spark.sql.runSQLOnFiles: 'true'}}\n"
    (tmp_path / "crm.yaml").write_text(PIPELINE % PLAIN + conf)
    pipeline = read_pipeline(tmp_path / "crm.yaml")
    extract = SparkExtract(pipeline, spark)
    assert extract._spark.conf.get("spark.sql.runSQLOnFiles") == "false"


def test_expressions_of_a_mapping_cannot_read_the_environment(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "people.csv").write_text("email,age\na@x,1\n")
    graph_at(tmp_path / "team")
    spark.range(1).createOrReplaceTempView("kept")
    for value, reason in (
        (READS_ENVIRONMENT, "function 'java_method' is not permitted"),
        ("(select max(id) from kept)", "'kept' is no source"),
        ("'${env:PATH}'", r"`\$\{...\}` is not permitted"),
    ):
        mapping = {
            "inputs": [{"files": "*.csv", "type": "Person", "expressions": {"email": f"'' || {value}"}}]
        }
        with og.open(tmp_path / "team") as team, pytest.raises(BadRequest, match=reason) as refused:
            team.load(tmp_path / "people.csv", mode="append", mapping=mapping)
        assert refused.value.code == "pipeline_expression_refused"
