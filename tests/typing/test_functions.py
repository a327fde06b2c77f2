"""The types of `stepping_spark.functions` are true of PySpark's functions."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as spark_functions
from pyspark.sql import types as T

import stepping_spark as st
from stepping_spark import functions as F
from tests.cases import ROOT

STUB = ast.parse((ROOT / "stepping_spark" / "functions.pyi").read_text(encoding="utf-8"))
OURS = ("col", "not_")
TYPED = [
    node
    for node in STUB.body
    if isinstance(node, ast.FunctionDef) and node.name not in OURS and not node.decorator_list
]

# A column of each type, and what a constant of Python's is where any would do.
COLUMNS = {
    "_Text": "t",
    "_Text | bytes": "t",
    "_Int | _Text | bytes": "t",
    "_Text | _Day": "at",
    "bytes | None": "b",
    "_Int": "i",
    "_Number": "f",
    "float | None": "f",
    "_N | None": "i",
    "_Day": "day",
    "_Time": "at",
    "_V": "t",
    "_V | None": "t",
    "list[_V] | None": "ts",
    "list[str] | None": "ts",
    "list[_W] | None": "ts",
    "list[list[_V]] | None": "tss",
    "Sequence[object] | None": "ts",
    "object": "t",
}
CONSTANTS: dict[str, Any] = {"str": "UTF-8", "int": 2, "bool": True, "float": 1.0}
SPECIAL: dict[tuple[str, str], Any] = {  # what not any constant would do for
    ("collate", "collation"): "UTF8_LCASE",
    ("conv", "fromBase"): 10,
    ("date_add", "days"): 1,
    ("date_sub", "days"): 1,
    ("dateadd", "days"): 1,
    ("sha2", "numBits"): 256,
    ("timestamp_add", "unit"): "DAY",
    ("timestamp_diff", "unit"): "DAY",
}
AS_SQL = {  # a column of another kind
    ("to_char", "format"): "'999'",
    ("to_varchar", "format"): "'999'",
    ("to_csv", "col"): "struct(t)",
    ("to_json", "col"): "struct(t)",
    ("try_element_at", "extraction"): "1",
}
SCHEMA = "t string, i bigint, f double, day date, at timestamp, b binary, ts array<string>, "
GIVES = {
    "int": (T.ByteType, T.ShortType, T.IntegerType, T.LongType),
    "float": (T.DoubleType, T.FloatType),
    "str": (T.StringType,),
    "bool": (T.BooleanType,),
    "bytes": (T.BinaryType,),
    "dt.date": (T.DateType,),
    "dt.datetime": (T.TimestampType,),
    "dt.timedelta": (T.DayTimeIntervalType,),
    "list[str]": (T.ArrayType,),
    "list[list[str]]": (T.ArrayType,),
    "list[_V]": (T.ArrayType,),
    "_V": (T.StringType, T.ArrayType),
    "_N": (T.LongType,),
}


def arguments(node: ast.FunctionDef) -> dict[str, Any] | None:
    """A column or a constant for each parameter that must be given; None where it is a function."""
    given: dict[str, Any] = {}
    must = len(node.args.args) - len(node.args.defaults)
    for arg in node.args.args[:must]:
        text = ast.unparse(arg.annotation) if arg.annotation else ""
        place = (node.name, arg.arg)
        if place in SPECIAL:
            given[arg.arg] = SPECIAL[place]
        elif place in AS_SQL:
            given[arg.arg] = spark_functions.expr(AS_SQL[place])
        elif text in COLUMNS:
            given[arg.arg] = spark_functions.col(COLUMNS[text])
        elif text in CONSTANTS:
            given[arg.arg] = CONSTANTS[text]
        else:
            return None
    return given


def called(node: ast.FunctionDef) -> Column | None:
    """The function, called with what its types say that it takes."""
    given = arguments(node)
    if given is None:
        return None
    function = getattr(spark_functions, node.name)
    if node.args.vararg is None:
        column: Column = function(**given)
        return column
    annotation = node.args.vararg.annotation
    name = COLUMNS[ast.unparse(annotation)] if annotation else "t"
    many: Column = function(*given.values(), *[spark_functions.col(name)] * 2)
    return many


def test_the_parameters_are_pyspark_s() -> None:
    for node in (n for n in STUB.body if isinstance(n, ast.FunctionDef) and n.name not in OURS):
        function = getattr(spark_functions, node.name)
        assert getattr(F, node.name) is function
        parameters = inspect.signature(function).parameters.values()
        own = [a.arg for a in (*node.args.args, *filter(None, [node.args.vararg]))]
        assert (node.name, own) == (node.name, [p.name for p in parameters])
        may = [p.name for p in parameters if p.default is not inspect.Parameter.empty]
        optional = own[len(node.args.args) - len(node.args.defaults) : len(node.args.args)]
        assert (node.name, optional) == (node.name, may) or node.decorator_list


@pytest.mark.spark
def test_the_types_are_those_that_spark_s_analyzer_gives(spark: SparkSession) -> None:
    rows = spark.createDataFrame([], SCHEMA + "tss array<array<string>>")
    typed = {n.name: ast.unparse(n.returns) for n in TYPED if n.returns is not None}
    columns = {n.name: called(n) for n in TYPED if typed[n.name] in GIVES}
    made = {name: column.alias(name) for name, column in columns.items() if column is not None}
    given = rows.select(*made.values()).schema
    wrong = [
        f"{field.name} is {typed[field.name]} here, and {field.dataType.simpleString()} to Spark"
        for field in given
        if not isinstance(field.dataType, GIVES[typed[field.name]])
    ]
    assert not wrong, "\n".join(wrong)
    assert len(made) > 200


def refused(f: Callable[[Any], Any]) -> str:
    def query(a: st.ZSet[int]) -> st.ZSet[int]:
        return st.map(a, f=f)

    with pytest.raises(st.CompileError) as e:
        st.compile(query)
    return str(e.value)


def test_the_name_of_a_column_is_refused_with_the_remedy() -> None:
    assert "found 'x'; write F.col(row.x)" in refused(lambda a: F.col("x"))
    assert "found 3; write F.lit(…) for a constant" in refused(lambda a: F.col(3))
    assert "test_functions.py" in refused(lambda a: F.col("x"))
