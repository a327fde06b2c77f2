"""DataFrames that are only read from files: fetched without being kept, or read where needed."""

from __future__ import annotations

import enum
import uuid
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.dataframe import DataFrame as ClassicDataFrame

import stepping_spark as st
from stepping_spark.base.errors import InputError
from stepping_spark.plan.planner import plan_of
from stepping_spark.relations.relation import SparkRelation
from stepping_spark.rows.schema import ZSetType
from stepping_spark.rows.types import row_type
from stepping_spark.spark.session import JobCounter, scanned_bytes, times_planned
from stepping_spark.zsets.from_dataframe import PASSED, guarded_when_read
from tests.cases import constants

pytestmark = pytest.mark.driver

ROWS = 30_000


class Item(st.Data):
    id: int
    kind: int


class Text(st.Data):
    id: int
    text: str


class Kind(st.Data):
    kind: int
    items: int
    ids: int


def kinds(items: st.ZSet[Item]) -> st.ZSet[Kind]:
    return st.aggregate(
        items,
        by=lambda x: x.kind,
        into=Kind,
        items=st.agg.count(),
        ids=st.agg.sum(lambda x: x.id),
    )


def same(items: st.ZSet[Item]) -> st.ZSet[Item]:
    return items


def kept(items: st.ZSet[Item]) -> st.ZSet[Item]:
    return st.distinct(items)


def twice(items: st.ZSet[Item]) -> tuple[st.ZSet[Kind], st.ZSet[int]]:
    return kinds(items), st.map(items, f=lambda x: x.id)


def of_two(items: st.ZSet[Item], others: st.ZSet[Item]) -> st.ZSet[Kind]:
    return kinds(items + others)


def ids_of_kind_4(items: st.ZSet[Item]) -> st.ZSet[int]:
    return st.map(st.filter(items, f=lambda x: x.kind == 4), f=lambda x: x.id)


def joined(items: st.ZSet[Item], others: st.ZSet[Item]) -> st.ZSet[st.Pair[Item, Item]]:
    return st.join(items, others, on_left=lambda x: x.id, on_right=lambda x: x.kind)


def python(items: st.ZSet[Item]) -> st.ZSet[int]:
    return st.map(items, f=st.python(doubled))


def doubled(item: Item) -> int:
    return 2 * item.id


@pytest.fixture(scope="module")
def items(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> DataFrame:
    path = str(tmp_path_factory.mktemp("items") / "items")
    spark.range(ROWS, numPartitions=2).selectExpr("id", "id % 7 AS kind").write.parquet(path)
    return spark.read.parquet(path)


def test_what_files_have_is_estimated_where_rows_are_read_one_by_one(
    spark: SparkSession, items: DataFrame, tmp_path: Path
) -> None:
    size = sum(p.stat().st_size for p in map(Path, (f[7:] for f in items.inputFiles())))
    assert scanned_bytes(items) == size
    assert scanned_bytes(items.where("id > 5").select(F.col("id") + 1, F.uuid())) is not None
    assert scanned_bytes(spark.range(10)) == 80
    objects = spark.createDataFrame([(1, 2)], "a int, b int")
    others = (
        objects,
        items.join(items, "id"),
        items.distinct(),
        items.orderBy("id"),
        items.union(items),
        items.select(F.explode(F.array("id"))),
        items.select(F.udf(lambda x: x, "int")("kind")),
        items.mapInArrow(lambda batches: batches, items.schema),
        items.repartition(3).localCheckpoint(False),
        items.distinct().cache(),
    )
    assert {scanned_bytes(f) for f in others} == {None}


@pytest.mark.parametrize(
    ("limits", "jobs", "in_spark"),
    [
        (st.Limits(), 1, False),
        (st.Limits(fetched_rows=ROWS - 1), 3, True),
        (st.Limits(local_rows=0), 3, True),
        (st.Limits(broadcast_bytes=1_000), 1, True),
    ],
)
def test_few_rows_of_files_are_fetched_and_others_are_counted_before(
    items: DataFrame, limits: st.Limits, jobs: int, in_spark: bool, spark: SparkSession
) -> None:
    z = st.ZSetSpark.from_dataframe(items, Item)
    with JobCounter(spark) as counted:
        held = z.checked(z.type, "input 'items'", limits)
    assert (held.table is None) == in_spark
    assert counted.count is not None
    assert counted.count <= jobs
    assert held.rows == ROWS
    assert z == st.ZSetSpark.from_dataframe(items, Item)


def test_equal_rows_of_files_are_added_up(items: DataFrame, spark: SparkSession) -> None:
    twice = st.ZSetSpark.from_dataframe(items.selectExpr("id DIV 2 AS id", "0L AS kind"), Item)
    with JobCounter(spark) as counted:
        held = twice.checked(twice.type, "input 'items'", st.Limits())
    assert counted.count == 1
    assert held.table is not None
    assert held.rows == ROWS / 2
    assert set(held.table.column("_count_").to_pylist()) == {2}


@pytest.mark.parametrize("partitions", [1, 3])
def test_more_rows_than_such_files_have_in_general_stay_in_spark(
    spark: SparkSession, tmp_path: Path, partitions: int
) -> None:
    path = str(tmp_path / "equal")
    rows = spark.range(30_000, numPartitions=partitions).selectExpr("id DIV 7500 AS id", "0L AS k")
    rows.write.parquet(path)
    frame = spark.read.parquet(path).withColumnRenamed("k", "kind")
    nbytes = scanned_bytes(frame)
    assert nbytes is not None
    assert nbytes < 8 * 10_000
    z = st.ZSetSpark.from_dataframe(frame, Item)
    for most in (10_000, 29_999, 30_000):
        z.forget()
        held = z.checked(z.type, "input 'items'", st.Limits(fetched_rows=most))
        assert (held.table is None) == (most < 30_000)
        assert z.to_python() == st.ZSetPython({Item(id=i, kind=0): 7_500 for i in range(4)})


def test_texts_that_files_have_once_are_counted_before_they_are_fetched(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "texts")
    text = "rpad(CAST(id % 7 AS STRING), 2000, 'x') AS text"
    spark.range(ROWS, numPartitions=2).selectExpr("id", text).write.parquet(path)
    frame = spark.read.parquet(path)
    nbytes = scanned_bytes(frame)
    assert nbytes is not None
    assert nbytes < 1_000_000
    limits = st.Limits(broadcast_bytes=1_000_000)
    z = st.ZSetSpark.from_dataframe(frame, Text)
    with constants(piece_bytes=1_000_000), monkeypatch.context() as patch:
        patch.setattr(SparkRelation, "fetched", lambda *_: pytest.fail("60 MB were fetched"))
        held = z.checked(z.type, "input 'texts'", limits)
    assert held.frame is not None
    assert held.rows == ROWS


@constants(piece_bytes=100_000)
def test_rows_that_differ_at_each_reading_are_not_fetched_in_pieces(items: DataFrame) -> None:
    frame = items.select(
        F.expr("xxhash64(reflect('java.util.UUID', 'randomUUID'))").alias("id"), "kind"
    )
    z = st.ZSetSpark.from_dataframe(frame, Item)
    held = z.checked(z.type, "input 'items'", st.Limits())
    assert held.rows == ROWS
    assert held.fetched().rows == ROWS


def test_what_does_not_fit_in_files_is_an_error_about_the_input(items: DataFrame) -> None:
    graph = st.compile(kinds)
    store = st.StoreMemory.from_graph(graph)
    stepper = st.Stepper(graph, store)
    wrong = items.selectExpr("id", "nullif(kind, 3) AS kind")
    with pytest.raises(InputError, match=r"input 'items', column 'kind': expected int, found NULL"):
        stepper.step((st.ZSetSpark.from_dataframe(wrong, Item),))
    for number in ("concat('x', id)", "'x'"):  # Spark computes the other one when it plans
        failing = items.selectExpr("id", f"CAST({number} AS BIGINT) AS kind")
        with pytest.raises(InputError, match=r"input 'items': the DataFrame cannot be computed"):
            stepper.step((st.ZSetSpark.from_dataframe(failing, Item),))
    assert store.last_step() == 0
    (out,) = stepper.step((st.ZSetSpark.from_dataframe(items, Item),))
    assert out.to_dataframe().count() == 7


@pytest.mark.parametrize(
    ("query", "once"),
    [
        (kinds, {0}),
        (ids_of_kind_4, {0}),
        (of_two, {0, 1}),
        (same, set()),
        (kept, set()),
        (twice, set()),
        (joined, set()),
        (python, set()),
    ],
)
def test_an_input_is_read_where_it_is_needed_if_one_query_reads_it_once(
    query: Any, once: set[int]
) -> None:
    plan = plan_of(st.compile(query))
    assert {i for i, v in enumerate(plan.graph.inputs) if v in plan.read_once} == once


def test_an_input_whose_rows_are_checked_before_the_query_is_not_read_in_it() -> None:
    assert not plan_of(st.compile(ids_of_kind_4, append_only=["items"])).read_once
    assert not plan_of(st.compile(ids_of_kind_4, strict=["items"])).read_once


SMALL = st.Limits(broadcast_bytes=1_000, fetched_rows=1_000)


def stepper_of(query: Any) -> st.Stepper[Any, Any]:
    graph: Any = st.compile(query)
    return st.Stepper(graph, st.StoreMemory.from_graph(graph, limits=SMALL), limits=SMALL)


@pytest.fixture
def kept_columns(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The columns of each DataFrame that Spark keeps."""
    found: list[list[str]] = []
    checkpoint: Any = ClassicDataFrame.localCheckpoint

    def noted(frame: DataFrame, *args: Any) -> DataFrame:
        found.append(frame.columns)
        made: DataFrame = checkpoint(frame, *args)
        return made

    monkeypatch.setattr(ClassicDataFrame, "localCheckpoint", noted)
    return found


COLUMNS = ["id", "kind", "_count_"]
KINDS = {Kind(kind=k, items=len(i := range(k, ROWS, 7)), ids=sum(i)): 1 for k in range(7)}


def test_a_large_input_that_one_query_reads_is_not_kept(
    items: DataFrame, kept_columns: list[list[str]]
) -> None:
    stepper = stepper_of(kinds)
    z = st.ZSetSpark.from_dataframe(items, Item)
    (out,) = stepper.step((z,))
    assert out == st.ZSetPython(KINDS)
    assert COLUMNS not in kept_columns
    metrics = stepper.metrics[-1]
    assert metrics.inputs == {"kinds.items": None}
    assert "read from its files" in str(metrics)
    assert stepper.step((-z,))[0] == -out
    assert z == st.ZSetSpark.from_dataframe(items, Item)


def test_two_large_inputs_are_read_by_one_query(
    items: DataFrame, kept_columns: list[list[str]]
) -> None:
    few = items.where("id < 7")
    first, second = (st.ZSetSpark.from_dataframe(x, Item) for x in (items, few))
    (out,) = stepper_of(of_two).step((first, -second))
    assert COLUMNS not in kept_columns
    (wanted,) = stepper_of(kinds).step((st.ZSetSpark.from_dataframe(items.where("id > 6"), Item),))
    assert out == wanted


def test_one_z_set_for_two_inputs_is_kept(items: DataFrame, kept_columns: list[list[str]]) -> None:
    z = st.ZSetSpark.from_dataframe(items, Item)
    (out,) = stepper_of(of_two).step((z, z))
    assert kept_columns.count(COLUMNS) == 1
    assert out.to_python() == st.ZSetPython(
        {Kind(kind=k.kind, items=2 * k.items, ids=2 * k.ids): 1 for k in KINDS}
    )


def test_rows_that_may_differ_the_next_time_are_kept(
    items: DataFrame, kept_columns: list[list[str]]
) -> None:
    z = st.ZSetSpark.from_dataframe(items.select("id", F.floor(F.rand() * 7).alias("kind")), Item)
    (out,) = stepper_of(kinds).step((z,))
    assert COLUMNS in kept_columns
    assert stepper_of(kinds).step((z,))[0] == out


def test_what_was_checked_before_is_used_as_it_is(items: DataFrame) -> None:
    z = st.ZSetSpark.from_dataframe(items, Item)
    held = z.checked(z.type, "input 'items'", SMALL)
    assert z.checked_when_read(z.type, "input 'items'", SMALL) is held


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Count(st.Data):
    key: int
    n: int


class Thing(st.Data):
    id: int
    kind: int
    colour: Colour
    key: uuid.UUID
    size: int | None


THINGS = {
    "id": "id",
    "kind": "kind",
    "colour": "IF(id % 2 = 0, 'red', 'blue')",
    "key": "'00000000-0000-0000-0000-000000000000'",
    "size": "id",
    "n": "1",
}
WRONG = [
    ("kind", "nullif(id, 3)", r", column 'kind': expected int, found NULL, in the row \{\"id\":3,"),
    ("n", "nullif(id, 3)", r", column '_count_': expected a whole number, found NULL"),
    ("colour", "IF(id = 3, 'green', 'red')", r", column 'colour': expected one of red, blue"),
    ("key", "IF(id = 3, 'x', uuid)", r", column 'key': expected a UUID"),
    ("size", "CAST(IF(id = 3, 'x', '1') AS BIGINT)", ": the DataFrame cannot be computed"),
    ("kind", "CAST(IF(id = 3, 'x', '1') AS BIGINT)", ": the DataFrame cannot be computed"),
    ("size", "CAST('x' AS BIGINT)", ": the DataFrame cannot be computed"),  # when it is planned
]


def of_none(things: st.ZSet[Thing]) -> st.ZSet[int]:
    return st.map(st.filter(things, f=lambda x: False), f=lambda x: x.id)


def counted(things: st.ZSet[Thing]) -> st.ZSet[Count]:
    even = st.filter(things, f=lambda x: x.id % 2 == 0)
    return st.aggregate(even, by=lambda x: x.id % 5, into=Count, n=st.agg.count())


@pytest.mark.turn(3)
@pytest.mark.parametrize(("column", "wrong", "said"), WRONG)
@pytest.mark.parametrize(
    ("query", "nullable"), [(counted, True), (counted, False), (of_none, True)]
)
def test_a_row_that_does_not_fit_is_an_error_though_the_query_needs_neither_it_nor_its_column(
    query: Any,
    nullable: bool,
    column: str,
    wrong: str,
    said: str,
    items: DataFrame,
    spark: SparkSession,
) -> None:
    rows = items if nullable else spark.range(ROWS).selectExpr("id", "id % 7 AS kind")
    rows = rows.withColumn("uuid", F.expr(THINGS["key"]))
    right = [f"{x} AS {n}" for n, x in THINGS.items()]
    bad = [f"{x} AS {n}" for n, x in (THINGS | {column: wrong}).items()]
    stepper = stepper_of(query)
    with pytest.raises(InputError, match=f"input 'things'{said}"):
        stepper.step((st.ZSetSpark.from_dataframe(rows.selectExpr(*bad), Thing, count="n"),))
    assert stepper.store.last_step() == 0
    (out,) = stepper.step((st.ZSetSpark.from_dataframe(rows.selectExpr(*right), Thing, count="n"),))
    assert out.empty() == (query is of_none)


def test_no_filter_of_a_query_is_evaluated_before_the_check_of_rows(items: DataFrame) -> None:
    t = ZSetType(row_type(Item))
    checked = guarded_when_read(items.withColumn("_count_", F.lit(1)), t)
    filtered = checked.where("kind = 4").select("id")
    plan = filtered._jdf.queryExecution().optimizedPlan().toString()
    assert plan.index("(kind#") < plan.index(PASSED)
    assert times_planned(filtered, PASSED) == 1
    assert times_planned(filtered.union(filtered), PASSED) == 2
    assert times_planned(checked.where("false"), PASSED) == 0
