"""What goes to Spark is what the user wrote: its operators, and its functions by its own examples.

Each text is read by `st.sql`, and what becomes of it is compared with Spark's answer to the text
itself, in value and in type. Many texts are one question to Spark.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NoReturn

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from sqlglot import TokenType, exp

import stepping_spark as st
from stepping_spark.base.errors import CompileError
from stepping_spark.expressions.symbolic import trace_row
from stepping_spark.rows.types import row_type
from stepping_spark.spark.column_made import in_running_session
from stepping_spark.sql.aggregate_calls import (
    AGGREGATES,
    GENERATORS,
    REFUSED_AGGREGATES,
    WINDOW_ONLY,
)
from stepping_spark.sql.parse import query_of, tokens_of
from stepping_spark.sql.places import failure
from stepping_spark.sql.scalars import scalar
from stepping_spark.sql.values import SqlValue, column_of
from tests.sql.corpus import FAILED, Maintained, plain_rows, same


class Row(st.Data):
    k: int


@dataclass
class NoColumns:
    """What surrounds a constant."""

    text: str

    def column(self, node: exp.Column) -> SqlValue:
        raise failure(self.text, node, f"there is no column {node.name}")

    def fail(self, node: exp.Expr, reason: str, remedy: str = "") -> NoReturn:
        raise failure(self.text, node, reason, remedy)


@dataclass(frozen=True)
class Sent:
    """A constant expression: the text of the user, and what becomes of it."""

    text: str
    column: Column
    kind: str


@pytest.fixture
def unfolded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Constants are sent as they are: to compute each would be a question of its own."""
    module = sys.modules["stepping_spark.sql.scalars"]
    monkeypatch.setattr(module, "folded_in_spark", lambda value: value)


def sent(texts: Sequence[str]) -> tuple[list[Sent], dict[str, str]]:
    """What becomes of each text, and the errors of those that are refused."""
    made: list[Sent] = []
    refused: dict[str, str] = {}

    def traced(row: Any) -> Any:
        for text in texts:
            whole = f"SELECT {text}"
            try:
                (node,) = query_of(whole, whole).expressions
                value = scalar(node, NoColumns(whole))
                column = in_running_session(column_of(value))
            except CompileError as e:
                refused[text] = str(e)
            else:
                made.append(Sent(text, column, value.kind))
        return 1

    trace_row(traced, row_type(Row), "a test")
    return made, refused


def different(spark: SparkSession, texts: Sequence[Sent]) -> list[str]:
    """The texts that mean something else to Spark than what becomes of them."""
    if not texts:
        return []
    columns = [c for s in texts for c in (F.expr(s.text), s.column)]
    try:
        asked = spark.range(1).select(*[c.alias(f"c{i}") for i, c in enumerate(columns)])
        kinds = [f.dataType.simpleString() for f in asked.schema.fields]
        shown = [F.col(f"c{i}") for i in range(len(kinds))]
        as_text = [
            c.cast("string") if "interval" in k else c for c, k in zip(shown, kinds, strict=True)
        ]
        (row,) = asked.select(*as_text).collect()
    except FAILED:
        if len(texts) == 1:
            return _failing_once(spark, texts[0])
        half = len(texts) // 2
        return different(spark, texts[:half]) + different(spark, texts[half:])
    return [
        f"{s.text}: Spark's is {theirs} {row[i]!r}, ours {ours} (as {s.kind}) {row[i + 1]!r}"
        for i, (s, theirs, ours) in enumerate(zip(texts, kinds[::2], kinds[1::2], strict=True))
        for i in [2 * i]
        if ("string" if theirs == "void" else theirs) != ours
        or repr(row[i]) != repr(row[i + 1])
        or s.kind not in ("", theirs)
    ]


def _failing_once(spark: SparkSession, one: Sent) -> list[str]:
    """The text, if only one of the two is an error."""
    failed = []
    for column in (F.expr(one.text), one.column):
        try:
            spark.range(1).select(column).collect()
        except FAILED as e:
            failed.append(str(e))
    return [] if len(failed) == 2 else [f"{one.text}: {failed}"]


# -- operators

NUMBERS = ("+", "-", "*", "/", "%", "DIV", "&", "|", "^", "<<", ">>", ">>>", "||")
SIGNS = ("-", "~", "")
COMPARED = ("=", "==", "<", "<>", "!=", "<=>", ">=")
CHAINS = [
    *(f"13 {a} 5 {b} 3" for a, b in product(NUMBERS, NUMBERS)),
    *(f"13 {a} 5 {b} 3" for a, b in product(NUMBERS, COMPARED)),
    *(f"13 {b} 5 {a} 3" for a, b in product(NUMBERS, COMPARED)),
    *(f"TRUE {a} FALSE {b} TRUE" for a, b in product(COMPARED, COMPARED)),
    *(f"TRUE {a} FALSE {b} FALSE" for a, b in product(("AND", "OR"), (*COMPARED, "AND", "OR"))),
    *(f"FALSE {b} FALSE {a} TRUE" for a, b in product(("AND", "OR"), COMPARED)),
    *(f"{sign} 13 {a} {other} 5" for a, sign, other in product(NUMBERS, SIGNS, SIGNS)),
    *(f"13 {a} 5 BETWEEN 1 AND 9 {a} 9" for a in NUMBERS),
    *(f"13 {a} 5 IN (8, 18, 3)" for a in NUMBERS),
    *(f"13 {a} 5 IS NULL" for a in NUMBERS),
    *(f"TRUE {a} TRUE IN (TRUE)" for a in COMPARED),
    *(f"NOT TRUE {a} TRUE IN (TRUE)" for a in COMPARED),
    *(f"TRUE {a} NULL IS NOT NULL" for a in COMPARED),
    *(f"TRUE {a} FALSE BETWEEN FALSE AND TRUE" for a in COMPARED),
    *(f"TRUE {a} TRUE IS DISTINCT FROM FALSE" for a in COMPARED),
    *(f"'a' {a} 'b' LIKE 'f%'" for a in COMPARED),
    *(f"NOT TRUE {a} FALSE" for a in (*COMPARED, "AND", "OR")),
    "! TRUE = FALSE", "NOT TRUE IS NULL", "NOT 1 BETWEEN 2 AND 3", "NOT 1 IN (2)", "- - 2",
    "-2::STRING", "1 + 2::STRING", "'2' + 1", "2L - '1'", "'1.5' * 2", "-array(1, 2)[1]",
    "CASE WHEN 1 = 1 THEN 2 END + 1", "'a' || 'b' LIKE 'ab'", "'a' LIKE 'a' || ''", "X '1F'",
]  # fmt: skip


@pytest.mark.turn(3, number=2)
@pytest.mark.spark
@pytest.mark.usefixtures("unfolded")
def test_operators_bind_as_they_do_in_spark(spark: SparkSession) -> None:
    made, refused = sent(CHAINS)
    found = different(spark, made)
    assert not found, "\n".join(found)
    for text in refused:  # bits of a DOUBLE
        with pytest.raises(PySparkException):
            _ = spark.range(1).select(F.expr(text)).schema


# -- functions

WITHOUT_EXAMPLE = {
    **{f"{t}('1')": t for t in ("bigint", "decimal", "double", "float", "int", "smallint")},
    "tinyint('1')": "tinyint",
    "boolean('true')": "boolean",
    "binary('a')": "binary",
    "date('2024-02-29')": "date",
    "string(1.50)": "string",
    "timestamp('2024-02-29 10:30:00')": "timestamp",
    "time('10:30:00')": "time",
    "13 % 5": "%",
    "13 << 1": "<<",
    "13 >>> 1": ">>>",
    "shiftright(13, 1)": "shiftright",
    "length(randstr(3, 0))": "randstr",
    "uniform(10, 20, 0) > 0": "uniform",
    "1 != 2": "!=",
    "1 <> 2": "<>",
    "'a' || 1": "||",
    "CASE 1 WHEN 1 THEN 'a' END": "case",
}

REASONS = {
    "returns another value each time": "not determined",
    "calls any code of Java": "not determined",
    "differs from step to step": "the clock",
    "depends on the session": "the session",
    "is an aggregate, and stands where": "an aggregate",
    "the aggregate .* is not supported": "an aggregate that is not maintained",
    "no window function": "an aggregate that is not maintained",
    "makes rows": "a generator",
    "there is no table function": "a generator",
    "is not supported; ": "a generator",
    "rows cannot hold": "a type that rows cannot hold",
    "a row cannot hold": "a type that rows cannot hold",
    "collations are not supported": "a type that rows cannot hold",
    "Spark refuses this": "Spark refuses its own example",
    "no column": "Spark refuses its own example",
    "takes numbers, and this is": "an aggregate of another type",
    "takes 2 arguments, found 3": "a list of the first ones",
    "has to be a constant": "a list of percentiles",
    "leave out DESC": "the greatest of equally frequent ones",
    "length of a window of time": "a gap that depends on the row",
    "two columns of the result": "two columns of one name",
    "needs OVER": "a window function",
    "have no names here": "arguments with names",
}
"""Why an example is refused, by what its error says."""


UNDETERMINED = {"any_value", "array_agg", "collect_list", "first", "first_value", "last"} | {
    *("last_value", "mode"),
}
"""Functions whose answer depends on the order of the rows, which there is none of."""


@dataclass(frozen=True)
class Example:
    """An example of Spark's documentation: a statement."""

    function: str
    text: str

    @property
    def items(self) -> list[str]:
        """The expressions of a SELECT of constants; none of other statements."""
        tokens = tokens_of(self.text, self.text)
        words = {t.text.upper() for t in tokens}
        if ("FROM" in words and "EXTRACT" not in words) or "WITH" in words:
            return []
        depth, begun, found = 0, tokens[0].end + 1, []
        for t in tokens:
            depth += (t.text in ("(", "[")) - (t.text in (")", "]"))
            if t.token_type is TokenType.COMMA and not depth:
                found.append(self.text[begun : t.start].strip())
                begun = t.end + 1
        return [*found, self.text[begun:].strip()]


def examples(spark: SparkSession) -> Iterator[Example]:
    """The examples of all functions of Spark, in its documentation."""
    jvm: Any = spark._jvm
    for info in jvm.org.apache.spark.sql.api.python.PythonSQLUtils.listBuiltinFunctionInfos():
        for text in re.findall(r"> (SELECT .*?);\n", info.getExamples(), re.DOTALL | re.IGNORECASE):
            yield Example(info.getName(), text)


def reason_of(error: str) -> str:
    """The reason that an error gives; it shows its place."""
    assert error.splitlines()[-1].endswith("^"), error
    found = [reason for said, reason in REASONS.items() if re.search(said, error)]
    assert found, error
    return found[0]


def constants(spark: SparkSession) -> dict[str, str]:
    """The expressions of the examples that are constants, with their functions."""
    found = {item: e.function for e in examples(spark) for item in e.items}
    return {t: f for t, f in found.items() if _is_constant(t)} | WITHOUT_EXAMPLE


def _is_constant(text: str) -> bool:
    """Whether a text is the value of one row, without an alias."""
    called = {t.lower() for t in re.findall(r"\w+(?=\()", text)}
    of_rows = called & (AGGREGATES | REFUSED_AGGREGATES | GENERATORS | WINDOW_ONLY)
    return not of_rows and not re.search(r"(?i) AS \w+$|\bS (i?like|rlike)\b", text)


@pytest.mark.spark
@pytest.mark.turn(6, number=4)
@pytest.mark.usefixtures("unfolded")
def test_each_function_of_spark_is_sent_as_it_is_written(
    spark: SparkSession,
) -> None:
    texts = constants(spark)
    made, refused = sent([*texts])
    assert len(made) > 800
    found = different(spark, made)
    assert not found, "\n".join(found)
    for error in refused.values():
        reason_of(error)


@pytest.mark.spark
def test_every_function_of_spark_is_known(spark: SparkSession) -> None:
    constant = constants(spark)
    whole = {e.function for e in examples(spark) if not any(map(_is_constant, e.items))}
    names = {row[0] for row in spark.sql("SHOW FUNCTIONS").collect()}
    assert names - {*constant.values()} - whole == set()


@pytest.mark.long
@pytest.mark.spark
def test_each_example_of_rows_is_answered_or_refused(spark: SparkSession) -> None:
    wrong = []
    for e in examples(spark):
        if e.function in UNDETERMINED or any(map(_is_constant, e.items)):
            continue
        try:
            theirs = plain_rows(spark.sql(e.text))
        except FAILED:
            continue  # it reads a table that is not there, or asks for a setting
        try:
            view = Maintained(e.text, {})
        except CompileError as error:
            reason_of(str(error))
            continue
        view.step({})
        if not same(view.left, theirs):
            wrong.append(f"{e.text}: ours {view.left}, Spark's {theirs}")
    assert not wrong, "\n".join(wrong)
