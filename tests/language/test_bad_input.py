"""Every mistake is one clear error, and loses nothing."""

from __future__ import annotations

import datetime as dt
import functools
import operator
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

import stepping_spark as st
from stepping_spark.execution import arrow_executor
from stepping_spark.language import linear
from stepping_spark.rows.schema import ZSetType
from stepping_spark.rows.types import row_type
from tests.cases import A, B


def total(a: st.ZSet[A], b: st.ZSet[B]) -> st.ZSet[int]:
    return st.reduce(a, zero=int, pick_value=lambda a: a.x)


ONE = st.ZSetPython({A(x=1, name="a"): 1})


def stepper_of(query: Any, **options: Any) -> st.Stepper[Any]:
    graph = st.compile(query)
    return st.Stepper(graph, st.StoreMemory.from_graph(graph), **options)


def refused(inputs: Any, *parts: str) -> None:
    """The step is refused, says all of this, and the store is as it was."""
    stepper = stepper_of(total)
    assert stepper.step((ONE, None)) == (st.ZSetPython({1: 1}),)
    with pytest.raises(st.InputError) as e:
        stepper.step(inputs)
    for part in parts:
        assert part in str(e.value)
    assert stepper.store.last_step() == 1
    assert stepper.step((ONE, None)) == (st.ZSetPython({1: -1, 2: 1}),)


def test_an_input_left_out() -> None:
    refused((ONE,), "2 inputs", "a, b", "found 1")


def test_one_input_too_many() -> None:
    refused((ONE, None, None), "2 inputs", "found 3", "None")


def test_a_change_without_its_tuple() -> None:
    refused(ONE, "takes a tuple", "(change,)")


def test_rows_of_another_class() -> None:
    refused((st.ZSetPython({B(y=1, name="b"): 1}), None), "input 'a'", "expected A", "B(y=1")


def test_a_field_of_another_type() -> None:
    row: Any = A(x="1", name="a")  # type: ignore[arg-type]
    refused((st.ZSetPython({row: 1}), None), "input 'a'", "'x'", "expected int", "'1'")


def test_an_int_beyond_64_bits() -> None:
    refused((st.ZSetPython({A(x=2**63, name="a"): 1}), None), "64 bits", "Decimal")


def test_a_null_in_a_field_that_has_none() -> None:
    with pytest.raises(TypeError, match=r"^A\.x is int, found None"):
        A(x=None, name="a")  # type: ignore[arg-type]
    row = A(x=1, name="a")
    object.__setattr__(row, "x", None)  # as no constructor leaves it
    refused((st.ZSetPython({row: 1}), None), "input 'a'", "'x'", "None")


def test_something_that_is_no_zset() -> None:
    refused(([A(x=1, name="a")], None), "input 'a'", "list", "ZSetPython")


@pytest.mark.parametrize("weight", [None, 0.5, "1", True, Decimal(1)])
def test_a_weight_that_is_no_whole_number(weight: Any) -> None:
    with pytest.raises(st.InputError, match="count"):
        st.ZSetPython({A(x=1, name="a"): weight})


@pytest.mark.parametrize(
    ("sql", "parts"),
    [
        ("SELECT 1L AS x", ["there is no column name"]),
        ("SELECT 1L AS x, 'a' AS name, 2 AS _count_", ["say count='_count_'"]),
        ("SELECT 'one' AS x, 'a' AS name", ["x", "string", "bigint"]),
        ("SELECT 1L AS x, 'a' AS name, 0.5D AS n", ["n", "double"]),
    ],
)
def test_a_dataframe_with_wrong_columns(spark: SparkSession, sql: str, parts: list[str]) -> None:
    frame = spark.sql(sql)
    count = "n" if " AS n" in sql and "AS name, 0.5" in sql else None
    with pytest.raises(st.InputError) as e:
        st.ZSetSpark.from_dataframe(frame, A, count=count)
    for part in parts:
        assert part.lower() in str(e.value).lower()


@pytest.mark.parametrize(
    ("sql", "part"),
    [
        ("SELECT CAST(NULL AS BIGINT) AS x, 'a' AS name, 1 AS n", "'x'"),
        ("SELECT 1L AS x, 'a' AS name, CAST(NULL AS INT) AS n", "n"),
    ],
)
def test_nulls_in_a_dataframe(spark: SparkSession, sql: str, part: str) -> None:
    zset = st.ZSetSpark.from_dataframe(spark.sql(sql), A, count="n")
    refused((zset, None), "input 'a'", part, "NULL")


PANDAS = pd.DataFrame({"x": [1], "name": ["a"]})


def test_a_pandas_dataframe_as_it_is() -> None:
    remedy = r"found pandas DataFrame; give st\.ZSetSpark\.from_arrow\(pa\.Table\.from_pandas\(df\)"
    refused((PANDAS, None), "pandas DataFrame", "pa.Table.from_pandas(df)")
    with pytest.raises(st.InputError, match=remedy):
        st.reference(st.compile(total)).step((PANDAS, None))  # type: ignore[arg-type]
    with pytest.raises(st.InputError, match=remedy):
        st.ZSetSpark.from_dataframe(PANDAS, A)  # type: ignore[arg-type]
    change = st.ZSetSpark.from_arrow(pa.Table.from_pandas(PANDAS), A)  # as the remedy says
    assert list(change.iter()) == [(A(x=1, name="a"), 1)]
    with pytest.raises(st.InputError, match=remedy):
        st.ZSetPython(PANDAS)  # type: ignore[arg-type]


@pytest.mark.parametrize("rows", [A(x=1, name="a"), 1, None, "ab", [A(x=1, name="a")], {"ab"}])
def test_rows_without_their_counts(rows: Any) -> None:
    with pytest.raises(st.InputError, match=r"\{row: 1\}"):
        st.ZSetPython(rows)


ROW = A(x=1, name="a")


@pytest.mark.parametrize("zset", [ONE, st.ZSetSpark.from_parts((), ZSetType(row_type(A)))])
def test_what_is_looked_for_in_a_zset_is_a_set(zset: Any) -> None:
    with pytest.raises(st.InputError, match=r"a set of rows, found A\(.*write \{…\}"):
        list(zset.iter(match=ROW))
    with pytest.raises(st.InputError, match=r"a set of rows, found \(1, 'a'\)"):
        list(zset.iter(match=(1, "a")))
    assert list(ONE.iter(match={ROW})) == [(ROW, 1)]


@pytest.mark.parametrize(
    ("rows", "part"),
    [
        ([ROW], "list"),
        ((ROW, ROW), "tuple"),
        ({ROW}, "set"),
        ({ROW: 1}, "dict"),
        (ONE, "ZSetPython"),
        ((row for row in [ROW]), "generator"),
    ],
)
def test_rows_that_are_inserted_as_one(rows: Any, part: str) -> None:
    graph = st.compile(total)
    users, _ = st.actions(st.StoreMemory.from_graph(graph), graph)
    with pytest.raises(st.InputError, match=rf"'a': .* found {part}; write insert\(\*rows\)"):
        users.insert(rows)
    assert users.insert(ROW) == st.ZSetPython({1: 1})


def test_tuples_and_lists_are_inserted_where_rows_are_such() -> None:
    def query(a: st.ZSet[tuple[int, str]], b: st.ZSet[list[int]]) -> tuple[Any, Any]:
        return a, b

    query.__annotations__.pop("return")
    graph = st.compile(query)
    pairs, lists = st.actions(st.StoreMemory.from_graph(graph), graph)
    assert pairs.insert((1, "a"))[0] == st.ZSetPython({(1, "a"): 1})
    items: Any = (1, 2)
    assert lists.insert([1, 2])[1] == st.ZSetPython({items: 1})


def test_a_dataframe_as_it_is(spark: SparkSession) -> None:
    refused((spark.sql("SELECT 1L AS x, 'a' AS name"), None), "from_dataframe")


# -- functions of rows

Row = Callable[[Any], Any]


class Nested(st.Data):
    inner: A | None = None
    xs: list[int] | None = None


def mapping(f: Row) -> Callable[[st.ZSet[A]], st.ZSet[Any]]:
    def query(a: st.ZSet[A]) -> st.ZSet[Any]:
        return st.map(a, f=f)

    return query


@pytest.mark.parametrize(
    ("f", "parts"),
    [
        (lambda a: 1 if a.x else 2, ["truth", "st.python"]),
        (lambda a: a.x > 1 and a.x < 3, ["truth"]),
        (lambda a: a.x in (1, 2), ["truth"]),
        (lambda a: len(a.name), ["len(name)", "st.python"]),
        (lambda a: a.x is None, ["`is`", ".isNull()"]),
        (lambda a: a.x if a.name is not None else 0, ["`is`"]),
        (lambda a: f"{a.name}!", ["f-string", "name"]),
        (lambda a: str(a.x), ["str(x)"]),
        (lambda a: int(a.x), ["int(x)"]),
        (lambda a: a.name.upper(), ["upper", "F.upper", "st.python"]),
        (lambda a: a.nam, ["no field 'nam'", "x, name"]),
        (lambda a: a.name + "!", ["F.concat"]),
        (lambda a: a.x == None, ["isNull"]),  # noqa: E711
        (lambda a: a.x == "1", ["int and str"]),
        (lambda a: a.x // 2, ["floor division"]),
        (lambda a: {a.x: 1}[a.x], ["hash"]),
        (lambda a: [c for c in a.name], ["iteration"]),  # noqa: C416
        (lambda a: round(a.x), ["round"]),
        (lambda a: 1 / 0, ["ZeroDivisionError"]),
        (lambda a: 2**70, ["64 bits", "write Decimal(1180591620717411303424)"]),
        (lambda a: a.x + 2**70, ["64 bits", "Decimal"]),
        (lambda a: a.x + Decimal("NaN"), ["NaN", "float"]),
        (lambda a: a.x + Decimal(10**39), ["40 digits", "38"]),
        (lambda a: Nested(inner=A(z=a.x, name="")), ["A has the fields x: int, name: str"]),  # type: ignore[call-arg]
        (lambda a: A(name=a.name), ["A has the fields", "'x'", "A(x=…, name=…)"]),  # type: ignore[call-arg]
        (lambda a: A(a.x, a.name), ["positional", "A(x=…, name=…)"]),  # type: ignore[call-arg]
        (lambda a: st.Pair(left=a.x), ["Pair has the fields left: any"]),  # type: ignore[call-arg]
        (lambda a: A(x=a.name, name="a"), ["'x' of A", "expected int, found str"]),
        (lambda a: Nested(inner=A(x=a.name, name="")), ["'inner' of Nested", "'x' of A"]),
        (lambda a: Nested(xs=[1, a.name]), ["'xs' of Nested[1]", "expected int, found str"]),
        (lambda a: a.x > 1 & a.x, ["'&' of int and int", "(a.x > 1) & (a.y < 2)"]),
        (lambda a: (a.name == "n") | a.x == 1, ["'|' of bool and int", "parentheses"]),
        (lambda a: ~a.x == 1, ["'~' of int", "~(a.x == 1)"]),
        (lambda a, b: a.x, ["takes (a, b)", "one argument, the row", "f(*row)"]),
        (st.python(lambda: 1, to=int), ["takes ()", "one argument, the row"]),  # type: ignore[arg-type,misc]
    ],
)
def test_a_function_that_cannot_be_traced(f: Row, parts: list[str]) -> None:
    with pytest.raises(st.CompileError) as e:
        st.compile(mapping(f))
    for part in parts:
        assert part in str(e.value)
    assert re.search(r"test_bad_input\.py:\d+", str(e.value))


@pytest.mark.parametrize(
    ("f", "parts"),
    [
        (lambda a: F.struct(a.x, a.name), ["struct<x: int, name: str>", "a st.Data", "to=T"]),
        (
            lambda a: (a.x, F.struct(a.x)),
            ["tuple[int, struct<x: int>]", "in the place of F.struct"],
        ),
        (lambda a: Nested(inner=F.struct(a.name)), ["'inner' of Nested", "struct<name: str>"]),  # type: ignore[arg-type]
        (lambda a: F.when(a.x > 1, A(x=a.x, name="")), ["Spark's functions take columns"]),
        (lambda a: a.x > 1 & F.length(a.name) < 2, ["each comparison in parentheses"]),
    ],
)
def test_a_column_that_does_not_fit(spark: SparkSession, f: Row, parts: list[str]) -> None:
    with pytest.raises(st.CompileError) as e:
        st.compile(mapping(f))
    for part in parts:
        assert part in str(e.value)
    assert re.search(r"test_bad_input\.py:\d+", str(e.value))


def test_an_array_of_structs_names_no_type(spark: SparkSession) -> None:
    def query(a: st.ZSet[A]) -> st.ZSet[Any]:
        return st.map_many(a, f=lambda a: F.array(F.struct(a.name)))

    with pytest.raises(st.CompileError, match=r"list\[struct<name: str>\]"):
        st.compile(query)


def test_a_key_of_spark_beside_a_python_function(spark: SparkSession) -> None:
    def query(a: st.ZSet[A]) -> st.ZSet[st.Pair[int, str]]:
        pick: Any = st.python(lambda a: 1, to=int)
        by: Any = lambda a: F.upper(a.name)  # noqa: E731
        return st.group_reduce_flatten(a, by=by, zero=int, pick_value=pick)

    with pytest.raises(st.CompileError, match=r"test_bad_input\.py:\d+.*upper.*st\.map the rows"):
        st.compile(query)


def test_a_zero_that_is_not_the_row_that_is_picked() -> None:
    def query(a: st.ZSet[A]) -> st.ZSet[Any]:
        pick: Any = lambda a: st.Pair(left=a.x, right=a.x)  # noqa: E731
        return st.reduce(a, zero=int, pick_value=pick)

    with pytest.raises(st.CompileError, match=r"found 0; write lambda: Pair\(left=0, right=0\)"):
        st.compile(query)


def test_values_that_are_picked_for_a_zset_are_to_be_collected() -> None:
    def query(a: st.ZSet[A]) -> st.ZSet[Any]:
        pick: Any = lambda a: a.name  # noqa: E731
        return st.reduce(a, zero=st.ZSetPython, pick_value=pick)

    with pytest.raises(st.CompileError, match=r"pick_value str, from name; .*st\.agg\.collect"):
        st.compile(query)


def test_a_sum_of_what_cannot_be_added() -> None:
    def query(a: st.ZSet[A]) -> Any:
        return st.make_scalar(a, lambda a: a.name)

    query.__annotations__.pop("return")
    with pytest.raises(st.CompileError, match="the sum of name: str cannot be added up"):
        st.compile(query)


def helper(value: Any) -> Any:
    return value is None


def test_an_is_inside_a_helper_is_seen() -> None:
    def query(a: st.ZSet[A]) -> st.ZSet[Any]:
        return st.filter(a, f=lambda a: helper(a.x))

    with pytest.raises(st.CompileError, match="`is`"):
        st.compile(query)


def test_a_column_that_spark_refuses(spark: SparkSession) -> None:
    def query(a: st.ZSet[A]) -> st.ZSet[Any]:
        return st.map(a, f=lambda a: F.upper(F.col("nowhere")))

    with pytest.raises(st.CompileError, match="nowhere"):
        st.compile(query)


@pytest.mark.parametrize(
    ("f", "part"),
    [
        (lambda a: F.max(a.x), r"use st\.aggregate for sums"),
        (lambda a: F.row_number().over(Window.orderBy("x")), "window"),
        (lambda a: F.rand() + a.x, "random"),
        (lambda a: F.monotonically_increasing_id(), "not a function of one row"),
        (lambda a: F.explode(F.split(a.name, " ")), "map_many"),
        (lambda a: F.to_date(a.name) == F.current_date(), "from step to step"),
    ],
)
def test_a_column_that_is_no_function_of_its_row(spark: SparkSession, f: Row, part: str) -> None:
    with pytest.raises(st.CompileError, match=part):
        st.compile(mapping(f))


def test_a_column_name_in_the_place_of_a_function() -> None:
    def query(a: st.ZSet[A]) -> st.ZSet[Any]:
        return st.distinct(st.map(a, f="name"))  # type: ignore[arg-type]

    with pytest.raises(st.CompileError, match=r"found 'name'; write lambda row: row\.name"):
        st.compile(query)


def test_a_graph_in_the_place_of_a_store() -> None:
    graph = st.compile(total)
    store = st.StoreMemory.from_graph(graph)
    with pytest.raises(st.CompileError, match=r"st\.Stepper\(graph, store\)"):
        st.iteration(graph, store, (ONE, None))  # type: ignore[call-overload]


def test_a_string_in_the_place_of_a_set_of_keys() -> None:
    with pytest.raises(st.InputError, match="expected a set of keys, found 'a'"):
        list(ONE.iter_by_index(lambda a: a.name, "a"))  # type: ignore[arg-type]


@pytest.mark.parametrize("local_rows", [st.Limits.local_rows, 0])
def test_a_sum_beyond_64_bits_names_its_vertex_also_without_ansi(
    spark: SparkSession, local_rows: int
) -> None:
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        stepper = stepper_of(total, local_rows=local_rows)
        with pytest.raises(st.StepError, match=r"total\.reduce.*beyond"):
            stepper.step((st.ZSetPython({A(x=2**62, name="a"): 2}), None))
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


def test_settings_that_change_between_steps(spark: SparkSession) -> None:
    stepper = stepper_of(total, local_rows=0)
    stepper.step((ONE, None))
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        with pytest.raises(st.StepError, match=r"timeZone.*set it back"):
            stepper.step((ONE, None))
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    stepper.step((ONE, None))


def test_settings_that_change_between_processes(spark: SparkSession, tmp_path: Path) -> None:
    hour: Callable[[Any], Any] = F.hour

    def hours(a: st.ZSet[dt.datetime]) -> st.ZSet[int]:
        return st.distinct(st.map(a, f=hour, to=int))

    graph, noon = st.compile(hours), dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)
    with st.StoreParquet.from_graph(graph, tmp_path / "state", create=True) as store:
        assert st.iteration(store, graph, (st.ZSetPython({noon: 1}),)) == (st.ZSetPython({12: 1}),)
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        with (
            st.StoreParquet.from_graph(graph, tmp_path / "state") as store,
            pytest.raises(st.StepError, match=r"'America/New_York'.*'UTC'.*set it back"),
        ):
            st.iteration(store, graph, (st.ZSetPython({noon: -1}),))
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    with st.StoreParquet.from_graph(graph, tmp_path / "state") as store:
        assert st.iteration(store, graph, (st.ZSetPython({noon: -1}),)) == (
            st.ZSetPython({12: -1}),
        )


def test_a_type_that_no_column_can_hold() -> None:
    with pytest.raises(TypeError, match=r"Bad\.f.*complex.*can"):

        class Bad(st.Data):
            f: complex


def test_a_python_function_without_a_type() -> None:
    def query(a: st.ZSet[A]) -> st.ZSet[Any]:
        return st.map(a, f=st.python(lambda a: a.x))

    with pytest.raises(st.CompileError, match=r"annotation.*to=T"):
        st.compile(query)


@pytest.mark.driver
def test_a_python_function_that_fails_in_a_worker_of_spark_says_the_same(
    spark: SparkSession,
) -> None:
    def invert(a: A) -> float:
        return 1 / a.x

    def query(a: st.ZSet[A]) -> st.ZSet[float]:
        return st.distinct(st.map(st.distinct(a), f=st.python(invert)))

    stepper = stepper_of(query, local_rows=4)
    frame = spark.range(150_000).selectExpr("149999 - id AS x", "'a' AS name")
    with pytest.raises(st.StepError, match=r"map.*invert.*ZeroDivisionError.*A\(x=0, name='a'\)"):
        stepper.step((st.ZSetSpark.from_dataframe(frame, A),))
    assert stepper.store.last_step() == 0


def test_workers_of_another_python_are_told_of() -> None:
    said = "Traceback (most recent call last):\n  File x\nModuleNotFoundError: No module named 'y'"
    error = arrow_executor.of_worker(PySparkException(said), "query.map (q.py:3)")
    assert re.search(r"query\.map.*No module named 'y'.*PYSPARK_PYTHON", str(error))


def test_a_python_function_that_fails_names_the_row_and_loses_nothing() -> None:
    def invert(a: A) -> float:
        return 1 / a.x

    def query(a: st.ZSet[A]) -> st.ZSet[float]:
        return st.distinct(st.map(a, f=st.python(invert)))

    stepper = stepper_of(query)
    stepper.step((ONE,))
    with pytest.raises(st.StepError, match=r"invert.*ZeroDivisionError.*A\(x=0, name='zero'\)"):
        stepper.step((st.ZSetPython({A(x=0, name="zero"): 1}),))
    assert stepper.store.last_step() == 1
    assert stepper.step((ONE,)) == (st.ZSetPython(),)


@pytest.mark.parametrize("local_rows", [st.Limits.local_rows, 0])
def test_a_column_that_fails_names_its_vertex(spark: SparkSession, local_rows: int) -> None:
    def query(a: st.ZSet[A]) -> st.ZSet[int]:
        doubled = st.map(a, f=lambda a: a.x * 2)
        parsed = st.map(a, f=lambda a: F.col("name").cast("bigint"), to=int)
        return st.add(doubled, parsed)

    stepper = stepper_of(query, local_rows=local_rows)
    stepper.step((st.ZSetPython({A(x=1, name="7"): 1}),))
    with pytest.raises(st.StepError) as e:
        stepper.step((ONE,))
    assert "test_bad_input.py" in str(e.value)
    assert stepper.store.last_step() == 1
    stepper.step((st.ZSetPython({A(x=1, name="8"): 1}),))


# -- circuits


def test_join_keys_of_different_types() -> None:
    def query(a: st.ZSet[A], b: st.ZSet[B]) -> st.ZSet[st.Pair[A, B]]:
        return st.join(a, b, on_left=lambda a: a.x, on_right=lambda b: b.name)

    with pytest.raises(st.CompileError, match=r"x of type int.*name of type str"):
        st.compile(query)


def test_an_index_of_another_row() -> None:
    def query(a: st.ZSet[A], b: st.ZSet[B]) -> st.ZSet[st.Pair[A, B]]:
        by_name = st.Index.pick(B, lambda b: b.name)
        return linear.join(a, b, on_left=by_name, on_right=by_name)  # type: ignore[arg-type]

    with pytest.raises(st.CompileError, match="index is of B, the stream is of A"):
        st.compile(query)


def test_a_loop_without_a_delay_shows_its_cycle() -> None:
    def query(a: st.ZSet[int]) -> st.ZSet[int]:
        with st.feedback(st.ZSet[int]) as y:
            z = st.add(a, y)
            w = st.map(z, f=lambda x: x + 1)
            y.connect(w)
        return z

    with pytest.raises(st.CompileError) as e:
        st.compile(query)
    for part in ("without a delay", "query.z", "query.w", "query.y", "st.delay"):
        assert part in str(e.value)


def test_a_feedback_that_is_not_connected() -> None:
    def query(a: st.ZSet[int]) -> st.ZSet[int]:
        with st.feedback(st.ZSet[int]) as y:
            z = st.add(a, y)
        return z

    with pytest.raises(st.CompileError, match="not connected"):
        st.compile(query)


def test_a_feedback_that_nothing_uses() -> None:
    def query(a: st.ZSet[int]) -> st.ZSet[int]:
        with st.feedback(st.ZSet[int]) as y:
            y.connect(st.delay(a))
        return a

    with pytest.raises(st.CompileError, match="use it, or remove it"):
        st.compile(query)


def test_two_vertices_with_one_name() -> None:
    def query(a: st.ZSet[int]) -> st.ZSet[int]:
        b = st.map(a, f=lambda x: x + 1, name="same")
        c = st.map(a, f=lambda x: x + 2, name="same")
        return st.add(b, c)

    with pytest.raises(st.CompileError, match=r"query\.same is taken"):
        st.compile(query)


def test_two_caches_with_one_name() -> None:
    first, second = st.Cache[int](name="numbers"), st.Cache[int](name="numbers")

    def query(a: st.ZSet[int]) -> st.ZSet[int]:
        _ = first[a](lambda a: st.integrate(a))
        _ = second[a](lambda a: st.integrate(a))
        return a

    with pytest.raises(st.CompileError, match="'numbers'"):
        st.compile(query)


def test_a_cache_that_is_not_told_what_to_keep() -> None:
    cache = st.Cache[int](name="numbers")

    def query(a: st.ZSet[int]) -> st.ZSet[int]:
        _ = cache[a]
        return a

    with pytest.raises(st.CompileError, match=r"bad_input\.py:\d+.*'numbers'.*_ = cache\[a\]\("):
        st.compile(query)

    def query_none(a: st.ZSet[int]) -> st.ZSet[int]:
        _ = cache[a](None)  # type: ignore[arg-type]
        return a

    with pytest.raises(st.CompileError, match="takes a function of the stream, found None"):
        st.compile(query_none)


def test_a_cache_is_read_from_a_store_and_nothing_else() -> None:
    with pytest.raises(st.InputError, match=r"found Graph; write cache\.zset\(store\)"):
        st.Cache[int](name="numbers").zset(st.compile(total))  # type: ignore[arg-type]


@pytest.mark.parametrize("write", [st.write_png, st.write_svg, st.write_dot])
def test_a_path_in_the_place_of_a_graph(write: Any, tmp_path: Path) -> None:
    with pytest.raises(st.CompileError, match=r"found str; the order is st\.write_png\(graph,"):
        write(str(tmp_path / "x.png"), st.compile(total))


def test_a_query_in_the_place_of_its_graph() -> None:
    with pytest.raises(st.CompileError, match=r"a Graph from st\.compile\(query\)"):
        st.reference(total)  # type: ignore[arg-type]


def test_a_cache_that_the_store_does_not_have() -> None:
    elsewhere = st.Cache[int](name="elsewhere")
    stepper = stepper_of(total)
    with pytest.raises(st.StoreMismatch, match="no cache 'elsewhere'"):
        elsewhere.zset(stepper.store)


@pytest.mark.parametrize(
    ("body", "part"),
    [
        (lambda a: a if a else a, "truth"),  # noqa: RUF034
        (lambda a: len(a), "len()"),
        (lambda a: [row for row in a], "iteration"),  # noqa: C416
        (lambda a: a.x, "field of the rows"),
        (lambda a: a.filter(lambda row: True), "operators are functions, not methods"),
        (lambda a: a * 2, "* of a stream"),
        (lambda a: 2 * a, "* of a stream"),
        (lambda a: a + 1, "and 1 (int)"),
        (lambda a: a - None, "and None"),
        (lambda a: sum([a, a]), "functools.reduce(st.add, streams)"),
        (lambda a: a > 1, "st.filter to compare"),
        (lambda a: a if a == a else a, "== of a stream"),  # noqa: RUF034
        (lambda a: a[0], "an item"),
        (lambda a: a(), "a call"),
        (lambda a: next(a), "next()"),
        (lambda a: setattr(a, "x", 1), "a stream has no fields of its own"),
        (lambda a: operator.setitem(a, 0, 1), "a change of an item"),
        (lambda a: st.Cache[A](name="kept")(a), "write _ = cache[a](lambda a: st.integrate(a))"),
        (lambda a: None, "return"),
        (lambda a: st.ZSetPython({1: 1}), "should be a stream"),
        (lambda a: st.map(st.ZSetPython({1: 1}), f=lambda x: x), "takes streams"),
        (lambda a: st.map(lambda row: row.x, a), "the stream comes first: st.map(stream, f)"),  # type: ignore[arg-type]
        (
            lambda a: st.map(a),  # type: ignore[call-arg]
            "map() missing 1 required positional argument: 'f'; it takes map(a, ",
        ),
        (
            lambda a: st.join(a, a, on_left=lambda a: a.x),  # type: ignore[call-arg]
            "argument: 'on_right'; it takes join(l, r, *, on_left, on_right, where=",
        ),
        (lambda a: st.join(a, a, on="x"), "unexpected keyword argument 'on'; it takes join("),  # type: ignore[call-arg]
        (lambda a: st.add(a, st.feedback(st.ZSet[A])), "with st.feedback(T) as y"),
    ],
)
def test_a_query_that_treats_a_stream_as_a_value(body: Any, part: str) -> None:
    def query(a: st.ZSet[A]) -> Any:
        return body(a)

    query.__annotations__.pop("return")
    with pytest.raises(st.CompileError) as e:
        st.compile(query)
    assert part in str(e.value)
    assert re.search(r"test_bad_input\.py:\d+", str(e.value))


class Calling:
    def __call__(self, a: st.ZSet[A]) -> st.ZSet[A]:
        return a


@pytest.mark.parametrize(
    ("query", "parts"),
    [
        (functools.partial(total, b=None), ["partial", "write a function that calls it"]),  # type: ignore[arg-type]
        (Calling(), ["Calling", "write a function that calls it"]),
        (len, ["built-in", "write a function that calls it"]),
        (st.incrementalize(Calling()), ["Calling", "write a function that calls it"]),
        (3, ["found 3 (int)", "def query("]),
        (st.compile(total), ["found a Graph", "compiled already"]),
    ],
)
def test_what_is_no_query(query: Any, parts: list[str]) -> None:
    with pytest.raises(st.CompileError, match=r"test_bad_input\.py:\d+") as e:
        st.compile(query)
    for part in parts:
        assert part in str(e.value)


def test_a_method_is_a_query_too() -> None:
    class Queries:
        def names(self, a: st.ZSet[A]) -> st.ZSet[str]:
            return st.map(a, f=lambda a: a.name)

    (out,) = st.reference(st.compile(Queries().names)).step((ONE,))
    assert out == st.ZSetPython({"a": 1})


@pytest.mark.parametrize(
    ("annotation", "part"),
    [
        (A, r"found A; for a stream of such rows write st\.ZSet\[A\]"),
        (str, r"found str; for a stream of such rows write st\.ZSet\[str\]"),
        (st.ZSet, r"say which rows: st\.ZSet\[T\]"),
        ("ZSet[A]", "without quotes"),
        (complex, "streams are of Z-sets or of numbers"),
    ],
)
def test_a_feedback_of_what_is_no_stream(annotation: Any, part: str) -> None:
    def query(a: st.ZSet[A]) -> st.ZSet[A]:
        with st.feedback(annotation) as y:
            y.connect(st.delay(a))
        return a

    with pytest.raises(st.CompileError, match=rf"test_bad_input\.py:\d+.*{part}"):
        st.compile(query)


def test_operators_outside_a_query() -> None:
    with pytest.raises(st.CompileError, match=r"st\.compile"):
        st.distinct(st.ZSetPython({1: 1}))


def test_a_parameter_without_an_annotation() -> None:
    def query(a):  # type: ignore[no-untyped-def]
        return a

    with pytest.raises(st.CompileError, match="'a' of query has no annotation"):
        st.compile(query)


@pytest.mark.parametrize("rows", ["many", -5, 2.5, True])
def test_local_rows_that_are_no_number_of_rows(rows: Any) -> None:
    graph = st.compile(total)
    with pytest.raises(st.InputError, match="expected a number of rows, 0 or more"):
        st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=rows)


def test_a_query_that_is_to_be_explained() -> None:
    with pytest.raises(st.CompileError, match=r"write st\.explain\(st\.compile\(query\)\)"):
        st.explain(total)  # type: ignore[arg-type]


def test_a_udf_that_fails_is_told_with_its_own_words(spark: SparkSession) -> None:
    number = F.udf(lambda text: int(text), "long")

    def query(a: st.ZSet[str]) -> st.ZSet[int]:
        return st.map(a, f=lambda text: number(text), to=int)

    graph = st.compile(query)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    with pytest.raises(st.StepError, match=r"map failed: .*ValueError: invalid literal for int"):
        stepper.step((st.ZSetPython({"a": 1}),))


def test_a_part_of_a_key_and_an_aggregate_of_one_name() -> None:
    def query(a: st.ZSet[A]) -> Any:
        return st.aggregate(a, by=lambda r: r.name, name=st.agg.count())

    with pytest.raises(
        st.CompileError, match="a part of the key and an aggregate are both called name"
    ):
        st.compile(query)


def test_as_many_outputs_as_a_return_annotation_leaves_open() -> None:
    def query(a: st.ZSet[A]) -> tuple[st.ZSet[A], ...]:
        return a, -a, a

    assert len(st.compile(query).outputs) == 3


def test_a_return_annotation_that_is_not_true() -> None:
    def query(a: st.ZSet[A]) -> st.ZSet[B]:
        return a  # type: ignore[return-value]

    with pytest.raises(st.CompileError, match=r"annotated ZSet\[B\], and is ZSet\[A\]"):
        st.compile(query)


# -- steps


def test_a_gap_in_step_numbers_and_a_step_again() -> None:
    stepper = stepper_of(total)
    with pytest.raises(st.StoreError, match=r"step 2 .* next is 1"):
        stepper.step((ONE, None), step=2)
    first = stepper.step((ONE, None), step=1)
    assert stepper.step((None, None), step=1) == first
    stepper.step((ONE, None), step=2)
    with pytest.raises(st.StoreError, match="were not kept"):
        stepper.step((ONE, None), step=1)


def test_now_never_goes_back() -> None:
    stepper = stepper_of(total)
    stepper.step((ONE, None), now=10)
    with pytest.raises(st.InputError, match="never goes back"):
        stepper.step((ONE, None), now=9)
    stepper.step((ONE, None), now=10)


def test_state_of_another_circuit() -> None:
    def other(a: st.ZSet[A]) -> st.ZSet[A]:
        return st.distinct(a)

    store = st.StoreMemory.from_graph(st.compile(total))
    with pytest.raises(st.StoreMismatch, match="other"):
        st.Stepper(st.compile(other), store)


@pytest.mark.parametrize("deep", [400, 3_000])
@pytest.mark.parametrize("use", [st.map, st.filter])
def test_an_expression_of_too_many_parts_within_parts(use: Any, deep: int) -> None:
    def f(a: Any) -> Any:
        found = a
        for _ in range(deep):
            found = found + 1
        return found > 0

    def query(a: st.ZSet[int]) -> Any:
        return use(a, f=f)

    said = r"test_bad_input\.py:\d+, in .*query: (map|filter): .*too many parts within parts"
    with pytest.raises(st.CompileError, match=said) as e:
        st.compile(query)
    assert e.value.__cause__ is None
