"""DataFrames that are only read from files: counted and fetched without being kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import stepping_spark as st
from stepping_spark.errors import InputError
from stepping_spark.spark.estimate import scanned_bytes
from stepping_spark.spark.session import count_jobs

pytestmark = pytest.mark.driver

ROWS = 30_000


class Item(st.Data):
    id: int
    kind: int


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
        (st.Limits(), 2, False),
        (st.Limits(fetched_rows=ROWS - 1), 3, True),
        (st.Limits(local_rows=0), 3, True),
        (st.Limits(broadcast_bytes=1_000), 1, True),
    ],
)
def test_few_rows_of_files_are_counted_and_fetched(
    items: DataFrame, limits: st.Limits, jobs: int, in_spark: bool, spark: SparkSession
) -> None:
    z = st.ZSetSpark.from_dataframe(items, Item)
    with count_jobs(spark) as counted:
        held = z.checked(z.type, "input 'items'", limits)
    assert (held.table is None) == in_spark
    assert counted.count is not None
    assert counted.count <= jobs
    assert held.rows == ROWS
    assert z == st.ZSetSpark.from_dataframe(items, Item)


def test_equal_rows_of_files_are_added_up(items: DataFrame, spark: SparkSession) -> None:
    twice = st.ZSetSpark.from_dataframe(items.selectExpr("id DIV 2 AS id", "0L AS kind"), Item)
    with count_jobs(spark) as counted:
        held = twice.checked(twice.type, "input 'items'", st.Limits())
    assert counted.count == 2
    assert held.table is not None
    assert held.rows == ROWS / 2
    assert set(held.table.column("_count_").to_pylist()) == {2}


def test_rows_that_differ_at_each_reading_are_not_fetched_in_pieces(items: DataFrame) -> None:
    frame = items.select(
        F.expr("xxhash64(reflect('java.util.UUID', 'randomUUID'))").alias("id"), "kind"
    )
    z = st.ZSetSpark.from_dataframe(frame, Item)
    held = z.checked(z.type, "input 'items'", st.Limits(piece_bytes=100_000))
    assert held.rows == ROWS
    assert held.fetched(st.Limits(piece_bytes=100_000)).rows == ROWS


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
