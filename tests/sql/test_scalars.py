"""Scalars of SQL against Spark's own answer to the same text, in value and in type."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NoReturn

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from sqlglot import exp

import stepping_spark as st
from stepping_spark.base.errors import CompileError
from stepping_spark.expressions.arrow_kernels import is_known
from stepping_spark.expressions.columns import ExprColumn
from stepping_spark.expressions.expr import Literal
from stepping_spark.expressions.spark_functions import FORMS
from stepping_spark.expressions.symbolic import trace_row
from stepping_spark.rows.schema import columns_of
from stepping_spark.rows.types import canonical, row_type
from stepping_spark.sql.kinds import row_type_of
from stepping_spark.sql.parse import query_of
from stepping_spark.sql.places import failure
from stepping_spark.sql.scalars import scalar
from stepping_spark.sql.values import SqlValue
from tests.sql.scalar_cases import CASES, KINDS, ROWS, Row


@dataclass
class Rows:
    """The columns of a traced row, for one text."""

    row: Any
    text: str

    def column(self, node: exp.Column) -> SqlValue:
        return SqlValue(getattr(self.row, node.name), KINDS[node.name])

    def fail(self, node: exp.Expr, reason: str, remedy: str = "") -> NoReturn:
        raise failure(self.text, node, reason, remedy)


def value_of(text: str, row: Any) -> SqlValue:
    query = f"SELECT {text}"
    (node,) = query_of(query, query).expressions
    return scalar(node, Rows(row, query))


@functools.cache
def read_by_the_driver() -> list[str]:
    """The texts that the driver computes by itself."""
    found = []

    def traced(row: Any) -> Any:
        for text in CASES:
            v = value_of(text, row)
            if isinstance(v.column, ExprColumn) and is_known(v.column.__expr__):
                found.append(text)
        return 1

    trace_row(traced, row_type(Row), "a test")
    return found


def frame(spark: SparkSession) -> Any:
    """The rows with Spark's own types."""
    t = row_type(Row)
    ddl = ", ".join(f"{n} {f.ddl}" for n, f in columns_of(t))
    data = [tuple(f.encode(getattr(r, n), "a test") for n, f in columns_of(t)) for r in ROWS]
    made = spark.createDataFrame(data, ddl)
    return made.select(
        *[F.col(n).cast(kind).alias(n) for n, kind in KINDS.items()]
    ).localCheckpoint()


def answers(spark: SparkSession, texts: Sequence[str]) -> tuple[list[str], list[list[Any]]]:
    """Spark's types, and its values by row, in the order of the rows."""
    rows = frame(spark)
    asked = rows.select("k", *[F.expr(t).alias(f"c{i}") for i, t in enumerate(texts)])
    kinds = [f.dataType.simpleString() for f in asked.schema.fields[1:]]
    types = [row_type_of("string" if k == "void" else k, True) for k in kinds]
    cast = asked.select("k", *[F.col(f"c{i}").cast(t.ddl) for i, t in enumerate(types)])
    found = sorted(zip(*(c.to_pylist() for c in cast.toArrow().columns), strict=True))
    return kinds, [
        [canonical(t.decode(v)) for t, v in zip(types, r[1:], strict=True)] for r in found
    ]


def computed(texts: Sequence[str]) -> tuple[list[str], list[list[Any]]]:
    """The same, by a step of a circuit."""
    kinds: list[str] = []

    def values(row: Any) -> Any:
        made = [value_of(text, row) for text in texts]
        kinds[:] = [v.kind for v in made]
        return (row.k, *[v.column for v in made])

    def query(rows: st.ZSet[Row]) -> Any:
        return st.map(rows, f=values)

    graph: Any = st.compile(query)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    (out,) = stepper.step((st.ZSetPython((row, 1) for row in ROWS),))
    found = sorted((row for row, _ in out.iter()), key=lambda row: row[0])
    return kinds, [[*row[1:]] for row in found]


SIZE = 60


@pytest.mark.turn(2)
@pytest.mark.parametrize("start", range(0, len(CASES), SIZE))
def test_a_scalar_has_spark_s_value_and_type(spark: SparkSession, start: int) -> None:
    texts = CASES[start : start + SIZE]
    wanted_kinds, wanted = answers(spark, texts)
    kinds, found = computed(texts)
    assert dict(zip(texts, kinds, strict=True)) == dict(zip(texts, wanted_kinds, strict=True))
    for row, mine, spark_s in zip(ROWS, found, wanted, strict=True):
        for text, a, b in zip(texts, mine, spark_s, strict=True):
            assert repr(a) == repr(b), f"{text} of {row}"


def test_most_scalars_are_computed_by_the_driver(spark: SparkSession) -> None:
    assert len(CASES) >= 740
    assert len(read_by_the_driver()) >= 620


def traced(*texts: str) -> list[SqlValue]:
    """The values of texts, over a row."""
    found: list[SqlValue] = []

    def of(row: Any) -> int:
        found.extend(value_of(text, row) for text in texts)
        return 1

    trace_row(of, row_type(Row), "a test")
    return found


def constant_of(text: str) -> Any:
    (v,) = traced(text)
    e = v.column.__expr__
    assert isinstance(e, Literal), f"{text} is {e}"
    return e.constant


def test_simple_scalars_need_no_spark() -> None:
    texts = [
        *("i + 1", "p * (1 - q)", "p / 3", "s LIKE 'a%' AND b", "day < '2024-01-01'"),
        *("CASE WHEN i > 0 THEN 'x' ELSE s END", "coalesce(i, l)", "year(day) * 100", "l IN (1)"),
        *("date '1998-12-01' - interval '90' day", "CAST(i AS STRING) || s", "if(b, p, 0)"),
    ]
    assert [v.kind for v in traced(*texts)][:2] == ["int", "decimal(16,5)"]


def test_what_has_no_column_is_a_constant() -> None:
    assert constant_of("date '1998-12-01' - interval '90' day") == dt.date(1998, 9, 2)
    assert constant_of("1 + 1.5") == Decimal("2.5")
    assert constant_of("upper('a') || 1") == "A1"


def test_spark_computes_constants_that_the_driver_cannot(spark: SparkSession) -> None:
    assert not {"format_number", "aggregate"} & FORMS.keys()
    assert constant_of("format_number(1234.5, 1)") == "1,234.5"
    assert constant_of("to_date('05/2024', 'MM/yyyy')") == dt.date(2024, 5, 1)
    assert constant_of("aggregate(sequence(1, 4), 0, (a, x) -> a + x)") == 10


FAILING = [
    "ti + ti",
    "k + 2147483647",
    "-(k - 2147483647 - 1)",
    "CAST(si AS TINYINT)",
    "CAST(1e300 * k AS INT)",
    "p / 0",
    "i % 0",
    "1 / 0",
    "CAST(s AS INT)",
    "CAST(p * 100 AS INT)",
    "ints[5]",
    "l * l * l * l * l * l",
    "CASE WHEN k > 3 THEN 1 / (k - 10) END",
]


@pytest.mark.turn(2)
@pytest.mark.parametrize("text", FAILING)
def test_what_fails_in_spark_fails(spark: SparkSession, text: str) -> None:
    with pytest.raises(Exception, match=r"\[[A-Z_.]+\]"):
        answers(spark, [text])
    with pytest.raises(st.StepError):
        computed([text])


def test_the_part_that_is_not_chosen_may_fail(spark: SparkSession) -> None:
    kinds, found = computed(["CASE WHEN k <> 1 THEN 6 / (k - 1) END", "if(true, 1, 1 / 0)"])
    assert kinds == ["double", "double"]
    assert found[:3] == [[-6.0, 1.0], [None, 1.0], [6.0, 1.0]]


REFUSED = {
    "i + current_date": "current_date differs from step to step",
    "ts < now()": "now differs from step to step",
    "current_timestamp()": "differs from step to step",
    "rand() < 0.5": "another value each time",
    "uuid()": "another value each time",
    "input_file_name()": "not on its values",
    "nonsense(i)": "UNRESOLVED_ROUTINE",
    "ints -> 1": "no function around it",
    "upper(x -> x)": "upper takes no lambda",
    "i + ints": "DATATYPE_MISMATCH",
    "INTERVAL i DAY": "a constant in Spark",
    "12345678901234567890123456789012345678901": "has 41 digits",
}


@pytest.mark.parametrize("text", REFUSED)
def test_a_refusal_shows_the_place_and_the_reason(spark: SparkSession, text: str) -> None:
    with pytest.raises(CompileError) as raised:
        traced(text)
    message, line, caret = str(raised.value).split("\n")
    assert REFUSED[text] in message
    assert line == f"  SELECT {text}"
    assert caret.strip() == "^"
    assert caret.index("^") >= len("  SELECT ")
