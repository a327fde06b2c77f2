"""How functions of PySpark are traced: as trees, with the texts that classic Columns have."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F

import stepping_spark as st
from stepping_spark.spark.column_made import in_running_session
from stepping_spark.spark.column_tree import as_trees, ask_what_is_traced, is_tree, key_of, text_of

COLUMNS: list[Callable[[], Column]] = [
    lambda: F.upper(F.expr("s")),
    lambda: (F.expr("a") > 1) & (F.col("b") <= 2.5) | ~F.col("c"),
    lambda: -(F.expr("a") + 1) * 2 - F.col("b") / F.col("c") % 3,
    lambda: 1 - F.col("b"),
    lambda: F.col("a") != F.col("b"),
    lambda: F.col("a").isNull() & F.col("b").isNotNull() & F.col("c").eqNullSafe(F.lit(None)),
    lambda: F.col("a").isin(1, 2, "x"),
    lambda: F.col("a").cast("long"),
    lambda: F.col("a").cast("Decimal(10, 2)").try_cast("int"),
    lambda: F.when(F.col("a") > 1, "x").when(F.col("b"), F.lit(None)).otherwise(1.5),
    lambda: F.array(F.lit(True), F.lit(2**40), F.lit("it's"), F.lit(Decimal("1.50"))),
    lambda: F.array(F.lit(dt.date(2024, 1, 2)), F.lit(dt.timedelta(hours=1, seconds=2.5))),
    lambda: F.array(*map(F.lit, (float("inf"), float("nan"), 1e-9, 123456789.0, 0.1, -0.0, 1e22))),
    lambda: F.array(*map(F.lit, (1.5, 1e7, 9999999.0, 0.001, 0.0009, 1e300, 1e-300))),
    lambda: F.transform(F.col("a"), lambda x, i: F.struct(x.alias("v"), i.alias("i"))),
    lambda: F.aggregate("a", F.lit(0), lambda acc, x: acc + x, lambda acc: acc * 2),
    lambda: F.transform("a", lambda x: F.filter("b", lambda y: y > x)),
    lambda: F.col("a")[0] + F.col("a")["k"] + F.col("a")[F.col("i")],
    lambda: F.col("a").withField("x", F.lit(1)).dropFields("y"),
    lambda: F.col("a").substr(1, 2).like("%x_"),
    lambda: F.col("a").bitwiseAND(F.col("b")).bitwiseXOR(1),
    lambda: F.from_json("a", "x int, y string"),
    lambda: F.array_sort("a", lambda x, y: x - y),
    lambda: F.timestamp_diff("DAY", F.col("a"), F.col("b")),
    lambda: F.date_format(F.col("`a b`"), "yyyy"),
]


@pytest.mark.parametrize("made", COLUMNS)
def test_a_tree_has_the_text_of_the_column_that_it_is(
    spark: SparkSession, made: Callable[[], Column]
) -> None:
    classic = made()
    ask_what_is_traced()
    with as_trees():
        tree, again = made(), made()
    assert is_tree(tree)
    assert not is_tree(classic)
    assert text_of(tree) == text_of(classic)
    assert text_of(in_running_session(tree)) == text_of(classic)
    assert key_of(tree) == key_of(again)


def test_a_constant_and_a_column_of_one_text_differ(spark: SparkSession) -> None:
    ask_what_is_traced()
    with as_trees():
        keys = {key_of(c) for c in (F.upper(F.lit("1")), F.upper(F.lit(1)), F.upper(F.col("1")))}
    assert len(keys) == 3


def test_other_threads_have_columns_of_their_session_meanwhile(spark: SparkSession) -> None:
    found: list[Column] = []
    ask_what_is_traced()
    with as_trees():
        thread = threading.Thread(target=lambda: found.append(F.col("a") + F.lit(1)))
        thread.start()
        thread.join()
        assert is_tree(F.lit(1))
    assert not is_tree(found[0])
    assert not is_tree(F.lit(1))


class Word(st.Data):
    word: str


def test_udfs_and_columns_made_before_go_with_other_functions(spark: SparkSession) -> None:
    last, mark = F.udf(lambda s: s[-1:], "string"), F.lit("!")

    def of(w: Any) -> Any:
        first = F.udf(lambda s: s[:1], "string")
        return F.concat(F.upper(last(w.word)), first(w.word), mark)

    def query(words: st.ZSet[Word]) -> st.ZSet[str]:
        return st.map(words, f=of, to=str)

    graph = st.compile(query)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    (out,) = stepper.step((st.ZSetPython({Word(word="tea"): 1}),))
    assert dict(out.to_python().iter()) == {"At!": 1}
