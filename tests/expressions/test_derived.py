"""Expressions that Spark, Arrow and plain Python compute alike."""

from __future__ import annotations

import datetime as dt
import random
import uuid
from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark.circuit.physical import BUCKET
from stepping_spark.execution.spark.buckets import BucketColumn
from stepping_spark.expressions.arrow_evaluator import evaluator, unknown_zone
from stepping_spark.expressions.expr import Expr, Field
from stepping_spark.expressions.hashes import spark_hash, spark_hashes
from stepping_spark.expressions.portable import (
    Mean,
    hashed,
    if_nonzero,
    one_if_known,
)
from stepping_spark.relations.hashing import bucket_numbers
from stepping_spark.relations.transfer import frame_of
from stepping_spark.rows.atoms import INT, Atom, RowType
from stepping_spark.rows.schema import Schema
from stepping_spark.rows.sql_text import literal
from stepping_spark.rows.types import Optional, row_type

NAN = float("nan")
ZONE = dt.timezone(dt.timedelta(hours=5))


class Inner(st.Data):
    x: int | None
    s: str


VALUES: list[tuple[Any, list[Any]]] = [
    (bool, [False, True]),
    (int, [0, 1, -1, 2**63 - 1, -(2**63)]),
    (float, [0.0, 1.5, -1e300, 5e-324, NAN, float("inf"), float("-inf")]),
    (str, ["", "a", "Zoë", "a longer text, of more than thirty-two bytes"]),
    (bytes, [b"", b"\x00\xff", *(bytes(range(200, 200 + n)) for n in range(40))]),
    (Decimal, [Decimal(0), Decimal("-1.5"), Decimal("12345678901234567890.123456789012345678")]),
    (Annotated[Decimal, st.Precision(10, 2)], [Decimal("1.25"), Decimal("-1")]),
    (Annotated[Decimal, st.Precision(38, 0)], [Decimal(10**38 - 1), Decimal(-128), Decimal(255)]),
    (dt.date, [dt.date(1970, 1, 1), dt.date(1, 1, 1), dt.date(2024, 2, 29)]),
    (dt.datetime, [dt.datetime(2024, 1, 1, tzinfo=ZONE), dt.datetime(1960, 1, 1, tzinfo=dt.UTC)]),
    (st.LocalDateTime, [dt.datetime(2024, 1, 1, 1, 1, 1, 5)]),
    (dt.timedelta, [dt.timedelta(days=-1, microseconds=1), dt.timedelta(seconds=5)]),
    (uuid.UUID, [uuid.UUID(int=7)]),
    (list[int | None], [[], [1, None], [None]]),
    (Inner, [Inner(x=None, s="a"), Inner(x=1, s="")]),
    (tuple[int, str | None], [(1, None), (0, "b")]),
    (st.ZSetPython[int], [st.ZSetPython(), st.ZSetPython({1: 2, 3: -1})]),
]


def in_spark(spark: SparkSession, e: Expr, types: Sequence[RowType], rows: list[Any]) -> list[Any]:
    texts = ", ".join(
        f"({i}, {', '.join(literal(v, t) for v, t in zip(row, types, strict=True))})"
        for i, row in enumerate(rows)
    )
    names = ", ".join(f"c{i}" for i in range(len(types)))
    query = f"SELECT {e.sql('t')} AS e FROM VALUES {texts} AS t(i, {names}) ORDER BY i"
    return [row.e for row in spark.sql(query).collect()]


def in_arrow(e: Expr, types: Sequence[RowType], rows: list[Any]) -> list[Any]:
    arrays = [pa.array([row[i] for row in rows], t.arrow) for i, t in enumerate(types)]
    table = pa.Table.from_arrays(arrays, names=[f"c{i}" for i in range(len(types))])
    compute = evaluator(e)
    assert compute is not None
    found: pa.Array[Any] | None = compute(table, unknown_zone)
    assert found is not None
    return found.to_pylist()


@pytest.mark.parametrize(("annotation", "values"), VALUES, ids=lambda v: str(v)[:30])
def test_python_workers_of_spark_compute_the_buckets_of_the_driver(
    spark: SparkSession, annotation: Any, values: list[Any]
) -> None:
    schema = Schema((("a.b", Optional(row_type(annotation))), ("n", INT)), (("_count_", INT),))
    encoded = [schema.columns[0][1].encode(v, "a test") for v in (*values, None)]
    rows = [{"a.b": v, "n": i, "_count_": 1} for i, v in enumerate(encoded)]
    table = pa.Table.from_pylist(rows, schema.arrow)
    column = BucketColumn(schema, ("a.b", "n"), 2**40)
    there = column.beside(frame_of(table, schema, spark)).toArrow()
    numbers = dict(zip(there["n"].to_pylist(), there[BUCKET].to_pylist(), strict=True))
    here = bucket_numbers(table, ("a.b", "n"), 2**40).tolist()
    assert numbers == dict(enumerate(here))
    assert len(set(here)) == len(here)


@pytest.mark.parametrize(("annotation", "values"), VALUES, ids=lambda v: str(v)[:30])
@pytest.mark.parametrize("name", ["hash", "xxhash64"])
def test_a_hash_is_that_of_spark_everywhere(
    spark: SparkSession, name: str, annotation: Any, values: list[Any]
) -> None:
    t = Optional(row_type(annotation))
    parts = [Field(t, ("c0",)), Field(INT, ("c1",)), Field(INT, ("c1",))]
    e = hashed(name, parts, (False, True, False))
    assert (e is None) == (not isinstance(t.inner, Atom))
    if e is None:
        return
    rows = [(t.encode(v, "a test"), i - 1) for i, v in enumerate((*values, None))]
    found = in_spark(spark, e, (t, INT), rows)
    assert found == in_arrow(e, (t, INT), rows)
    decoded = [(t.decode(v), n, n) for v, n in rows]
    assert found == [e.of(*row) for row in decoded]
    assert len(set(found)) == len(found)


def test_texts_of_all_lengths_have_the_hashes_that_spark_s_have(spark: SparkSession) -> None:
    source = random.Random(2)
    texts = ["".join(source.choices("ab\x00\x7fé🙂", k=n % 90)) for n in range(400)]
    table = pa.table({"c0": pa.array([*texts, None])})
    made = spark.createDataFrame(table).coalesce(1).selectExpr("hash(c0) AS h").toArrow()
    e = hashed("hash", [Field(Optional(row_type(str)), ("c0",))], [False])
    assert e is not None
    compute = evaluator(e)
    assert compute is not None
    assert max(len(t.encode()) for t in texts) > 128
    for start in (0, 7):
        found = compute(table.slice(start), unknown_zone)
        assert found.to_pylist() == made.column("h").to_pylist()[start:]


def test_what_is_known_and_given_is_so_everywhere(spark: SparkSession) -> None:
    t = Optional(row_type(str))
    value, n = Field(t, ("c0",)), Field(INT, ("c1",))
    rows: list[Any] = [("a", 0), ("b", 2), (None, 1), ("c", -1)]
    for e, wanted in (
        (one_if_known(value), [1, 1, 0, 1]),
        (if_nonzero(n, value), [None, "b", None, "c"]),
    ):
        assert in_spark(spark, e, (t, INT), rows) == wanted
        assert in_arrow(e, (t, INT), rows) == wanted


@pytest.mark.parametrize(
    ("p", "s"),
    [(20, 2), (38, 18), (10, 0), (5, 5), (38, 0), (38, 10), (30, 26), (36, 36), (38, 37), (38, 38)],
)
def test_the_mean_of_decimals_is_exact_and_rounded_once(
    spark: SparkSession, p: int, s: int
) -> None:
    total = Atom("Decimal", Decimal, min(38, p + 10), s)
    shown = Atom("Decimal", Decimal, min(38, p + 4), min(38, s + 4))
    source = random.Random(p * 100 + s)
    rows: list[Any] = []
    while len(rows) < 40:
        digits = source.randrange(10 ** source.randint(1, total.precision))
        value = Decimal(source.choice((1, -1)) * digits).scaleb(-s)
        n = source.choice((1, 2, 3, 7, 1_000_003, 10**12 + 7, -3, 0))
        if n == 0 or abs(value / n) < Decimal(10) ** (shown.precision - shown.scale) - 1:
            rows.append((value, n))
    e = Mean(Optional(shown), (Field(total, ("c0",)), Field(INT, ("c1",))))
    assert in_spark(spark, e, (total, INT), rows) == in_arrow(e, (total, INT), rows)


@pytest.mark.parametrize(("p", "s"), [(20, 2), (38, 18), (10, 0), (5, 5)])
def test_the_mean_of_decimals_is_that_of_spark(spark: SparkSession, p: int, s: int) -> None:
    source = random.Random(p)
    shown = Atom("Decimal", Decimal, min(38, p + 4), min(38, s + 4))
    total = Atom("Decimal", Decimal, min(38, p + 10), s)
    e = Mean(Optional(shown), (Field(total, ("s",)), Field(INT, ("n",))))
    some = [Decimal(source.randrange(-(10**p), 10**p) // 10**6).scaleb(-s) for _ in range(40)]
    values = ", ".join(f"({i % 9}, CAST('{x:f}' AS DECIMAL({p}, {s})))" for i, x in enumerate(some))
    query = (
        f"SELECT avg(x) AS a, sum(x) AS s, count(x) AS n FROM VALUES {values} t(k, x) GROUP BY k"
    )
    found = spark.sql(query)
    assert dict(found.dtypes)["a"] == f"decimal({shown.precision},{shown.scale})"
    for row in found.collect():
        assert e.of(row.s, row.n) == row.a


@pytest.mark.parametrize(("annotation", "values"), VALUES, ids=lambda v: str(v)[:30])
def test_the_hashes_of_a_column_are_those_of_its_values(annotation: Any, values: list[Any]) -> None:
    t = row_type(annotation)
    if not isinstance(t, Atom):
        pytest.skip("a hash is of atoms")
    encoded = [Optional(t).encode(v, "a test") for v in (None, *values, None, *values)]
    seeds = np.arange(len(encoded) - 1, dtype=np.uint64) * np.uint64(2**59 + 1)
    column = pa.array(encoded, t.arrow).slice(1)
    expected = [spark_hash(v, t, int(s)) for v, s in zip(encoded[1:], seeds, strict=True)]
    assert spark_hashes(column, t, seeds).tolist() == expected
