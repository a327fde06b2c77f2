"""Relations: the same operations on the driver and in Spark, and what is known of results."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from stepping_spark.base.errors import StepError
from stepping_spark.base.limits import DEFAULT, Limits
from stepping_spark.relations.relation import (
    DriverRelation,
    Relation,
    SparkRelation,
    fetch_if_few,
    plus,
    settle,
)
from stepping_spark.rows.atoms import FLOAT, INT, STR, RowType
from stepping_spark.rows.schema import COUNT, Schema
from stepping_spark.rows.types import Optional

WORDS = Schema((("word", Optional(STR)), ("n", INT)), ((COUNT, INT),))
KEYS = Schema((("word", Optional(STR)),), ())
ROWS = [("a", 1, 1), ("a", 1, 2), ("b", 2, 1), ("b", 2, -1), (None, 3, 1)]
Hold = Callable[[DriverRelation], Relation]


def of(schema: Schema, rows: Iterable[tuple[Any, ...]]) -> DriverRelation:
    listed = [dict(zip(schema.arrow.names, row, strict=True)) for row in rows]
    return DriverRelation(pa.Table.from_pylist(listed, schema.arrow), schema)


def rows_of(relation: Relation) -> list[tuple[Any, ...]]:
    table = relation.fetched().table
    assert table.schema.names == [n for n, _ in relation.schema.all]
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


@pytest.fixture(params=["driver", "spark"])
def hold(request: pytest.FixtureRequest, spark: SparkSession) -> Hold:
    return lambda r: r if request.param == "driver" else r.in_spark(lambda: spark)


def test_each_holds_its_rows_in_one_place(hold: Hold, spark: SparkSession) -> None:
    relation = hold(of(WORDS, ROWS))
    assert (relation.table is None) != (relation.frame is None)
    assert rows_of(relation) == rows_of(relation.in_spark(lambda: spark)) == sorted(ROWS, key=repr)
    assert not relation.is_empty
    assert DriverRelation.empty(WORDS).is_empty


def test_columns_are_selected_and_renamed(hold: Hold) -> None:
    relation = hold(of(WORDS, ROWS))
    keys = relation.select(KEYS)
    assert rows_of(keys) == [("a",), ("a",), ("b",), ("b",), (None,)]
    assert not keys.consolidated
    assert rows_of(keys.distinct(nulls=True)) == [("a",), ("b",), (None,)]
    assert rows_of(keys.distinct(nulls=False)) == [("a",), ("b",)]
    renamed = keys.renamed(["x"]).distinct(nulls=False)
    assert renamed.schema.arrow.names == ["x"]
    assert renamed.consolidated
    assert relation.select(WORDS) is relation


@pytest.mark.parametrize("keys_in_spark", [False, True], ids=["keys here", "keys in Spark"])
def test_rows_are_found_by_their_keys(hold: Hold, spark: SparkSession, keys_in_spark: bool) -> None:
    keys: Relation = of(KEYS, [("a",), (None,), ("x",)])
    keys = keys.in_spark(lambda: spark) if keys_in_spark else keys
    relation = hold(of(WORDS, ROWS))
    assert rows_of(relation.having(keys)) == [("a", 1, 1), ("a", 1, 2), (None, 3, 1)]
    assert rows_of(relation.having(keys, among=False)) == [("b", 2, -1), ("b", 2, 1)]


def test_the_sum_of_relations_has_all_their_rows(hold: Hold) -> None:
    a, b = of(WORDS, ROWS[:2]), hold(of(WORDS, ROWS[2:]))
    assert rows_of(plus([a, b], WORDS)) == sorted(ROWS, key=repr)
    assert plus([], WORDS).is_empty
    assert plus([b], WORDS) is b


def test_equal_rows_become_one_and_that_is_known() -> None:
    once = of(WORDS, ROWS).added_up()
    assert rows_of(once) == [("a", 1, 3), (None, 3, 1)]
    assert once.consolidated
    assert once.added_up() is once
    assert not once.select(KEYS).consolidated
    with pytest.raises(StepError, match="BIGINT"):
        of(WORDS, [("a", 1, 2**62), ("a", 1, 2**62)]).added_up()


@pytest.mark.spark
@pytest.mark.parametrize(("t", "by"), [(INT, 1), (Optional(INT), 2)], ids=["int", "int | None"])
def test_a_key_that_is_never_null_is_looked_up_by_one_column(
    t: RowType, by: int, spark: SparkSession
) -> None:
    schema = Schema((("n", t),), ())
    keys = of(schema, [(1,), (3,), (None,)][: by + 1])
    held = Schema((("word", STR), ("n", t)), ((COUNT, INT),))
    rows = [("a", 1, 1), ("b", 2, 1), ("c", None, 1)][: by + 1]
    relation = of(held, rows).in_spark(lambda: spark)
    assert rows_of(relation.having(keys)) == [rows[0], *rows[2:]]
    assert rows_of(relation.having(keys, among=False)) == [rows[1]]
    plan = relation.having(keys).frame._jdf.queryExecution().executedPlan().toString()
    (join,) = (line for line in plan.splitlines() if "HashJoin" in line)
    assert join.count("isnull") == (by - 1) * 2


@pytest.mark.spark
def test_what_spark_has_computed_knows_its_rows_and_comes_to_the_driver_as_it_is(
    spark: SparkSession,
) -> None:
    settled = settle(of(WORDS, ROWS).in_spark(lambda: spark), ("word",), "words")
    assert (settled.rows, settled.consolidated, settled.partitioned_by) == (2, True, ("word",))
    assert settled.nbytes
    assert settled.is_settled(WORDS, ("word",))
    assert not settled.is_settled(WORDS, ("n",))
    assert not settled.select(KEYS).consolidated
    few = fetch_if_few(settled, DEFAULT)
    assert few is not None
    assert few.consolidated
    assert rows_of(few) == [("a", 1, 3), (None, 3, 1)]
    assert fetch_if_few(settled, Limits(fetched_rows=1)) is None
    assert fetch_if_few(settled, Limits(fetched_bytes=1)) is None


@pytest.mark.spark
def test_what_is_not_counted_is_counted_to_see_whether_it_is_few(spark: SparkSession) -> None:
    many = SparkRelation(of(WORDS, ROWS).in_spark(lambda: spark).frame, WORDS)
    assert many.rows is None
    few = fetch_if_few(many, DEFAULT)
    assert few is not None
    assert rows_of(few) == [("a", 1, 3), (None, 3, 1)]
    assert fetch_if_few(many, Limits(fetched_rows=4)) is None


@pytest.mark.spark
def test_zeros_and_nans_are_one_also_where_spark_has_added_up(spark: SparkSession) -> None:
    floats = Schema((("x", FLOAT),), ((COUNT, INT),))
    nan = float("nan")
    given = of(floats, [(0.0, 1), (-0.0, 1), (nan, 1), (nan, 1)])
    here = given.added_up()
    there = settle(given.in_spark(lambda: spark), (), "floats").fetched()
    assert there.consolidated
    assert repr(rows_of(here)) == repr(rows_of(there)) == "[(0.0, 2), (nan, 2)]"
