"""Row functions with Spark's own functions, and with rows that may be missing."""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, Generic, TypeVar

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import stepping_spark as st
from stepping_spark.base.signature import Signature
from stepping_spark.expressions.fingerprint import digest_of
from stepping_spark.expressions.functions import row_expr
from stepping_spark.plan.planner import plan_of
from stepping_spark.rows.schema import columns_of
from stepping_spark.rows.types import row_type, unwrap
from tests.cases import Z

K = TypeVar("K")


class Inner(st.Data):
    a: int


class Outer(st.Data):
    name: str
    inner: Inner | None


class Row(st.Data):
    x: int
    name: str


def query(
    a: st.ZSet[Row],
) -> tuple[st.ZSet[Outer], st.ZSet[int], st.ZSet[st.Pair[st.ZSetPython[str], int]]]:
    outer = st.map(a, f=lambda r: Outer(name=r.name, inner=Inner(a=r.x)))
    large: Any = lambda r: F.when(r.x > 1, r.x)  # noqa: E731 - NULL for the others
    upper: Any = st.agg.collect(lambda r: F.upper(r.name), to=str)
    by_parity = st.group_reduce_flatten(a, by=lambda r: r.x % 2, zero=Z, pick_value=upper)
    return st.distinct(outer), st.reduce(a, zero=int, pick_value=large), by_parity


@pytest.mark.parametrize("error", [AssertionError("no"), ValueError("no")])
def test_a_function_of_rows_is_called_once_also_when_it_fails(error: Exception) -> None:
    calls: list[object] = []

    def failing(x: int) -> int:
        calls.append(x)
        raise error

    def mapped(a: st.ZSet[int]) -> st.ZSet[int]:
        return st.map(a, f=failing)

    with pytest.raises(st.CompileError, match="raised"):
        st.compile(mapped)
    assert len(calls) == 1


@pytest.mark.long
def test_a_function_that_needs_a_session_has_one_when_it_is_called() -> None:
    program = """
import functools
import pyspark.sql.functions
import stepping_spark as st
from pyspark.sql import functions as F
from pyspark.sql.functions import lit
calls = []
def helper(): return F.lit(1)
def partial(n, x): calls.append(n); return helper() + x
class Called:
    def __call__(self, x): calls.append(3); return (lambda: pyspark.sql.functions.lit(1))() + x
def plain(x): calls.append(1); return lit(1) + x
f = {}
def query(a: st.ZSet[int]) -> st.ZSet[int]: return st.map(a, f=f["f"])
import sys
f["f"] = {"plain": plain, "partial": functools.partial(partial, 2), "object": Called()}[sys.argv[1]]
st.compile(query)
print("calls:", len(calls))
"""
    for kind in ("plain", "partial", "object"):
        run = subprocess.run(
            [sys.executable, "-c", program, kind], capture_output=True, text=True, check=False
        )
        assert "calls: 1" in run.stdout, run.stderr


class Maybe(st.Data):
    x: int | None
    name: str | None


class Listed(st.Data):
    items: list[int]
    inner: Inner | None
    pair: st.Pair[float, str] | None


def listed(r: Any) -> Listed:
    pair: Any = st.Pair(left=r.x, right=r.name)
    return Listed(items=[r.x, 2, r.x + 1], inner=Inner(a=r.x), pair=pair)


def shifted(x: int, name: str) -> tuple[int, str]:
    return x + 1, name


def unpacked(row: tuple[int, str]) -> tuple[int, str]:
    x, name = row
    return x + 1, name


def upper_or_none(r: Any) -> str | None:
    return F.when(r.x > 1, F.upper(r.name))  # type: ignore[return-value]


FORMS = (
    (tuple[int, str], (1, "a"), lambda row: shifted(*row), (2, "a")),
    (tuple[int, str], (1, "a"), unpacked, (2, "a")),
    (
        Row,
        Row(x=1, name="a"),
        listed,
        Listed(items=[1, 2, 2], inner=Inner(a=1), pair=st.Pair(left=1.0, right="a")),
    ),
    (
        Row,
        Row(x=1, name="a"),
        lambda r: Listed(items=[], inner=None, pair=None),
        Listed(items=[], inner=None, pair=None),
    ),
    (Row, Row(x=1, name="a"), lambda r: r["name"], "a"),
    (Row, Row(x=1, name="a"), lambda r: r.x + Decimal(2**70), Decimal(2**70 + 1)),
    (
        tuple[dt.date, int],
        (dt.date(2024, 2, 28), 2),
        lambda row: (row[0] + row[1], row[0] - row[1], row[0] + dt.timedelta(days=2)),
        (dt.date(2024, 3, 1), dt.date(2024, 2, 26), dt.date(2024, 3, 1)),
    ),
    (Row, Row(x=1, name="a"), lambda r: Maybe(x=1, name="b"), Maybe(x=1, name="b")),
)


@pytest.mark.parametrize(("t", "row", "f", "expected"), FORMS)
@pytest.mark.parametrize(
    "local_rows", [st.Limits.local_rows, 0, None], ids=["driver", "spark", "reference"]
)
def test_a_row_function_may_be_written_in_these_forms(
    spark: SparkSession, t: Any, row: Any, f: Any, expected: Any, local_rows: int | None
) -> None:
    def mapped(a: Any) -> Any:
        return st.map(a, f=f)

    mapped.__annotations__ = {"a": st.ZSet[t]}
    graph = st.compile(mapped)
    stepper: Any = st.reference(graph)
    if local_rows is not None:
        store = st.StoreMemory.from_graph(graph)
        stepper = st.Stepper(graph, store, local_rows=local_rows)
    (out,) = stepper.step((Z({row: 1}),))
    assert out == Z({expected: 1})


@pytest.mark.parametrize("local_rows", [st.Limits.local_rows, 0])
def test_a_function_annotated_as_optional_may_give_null(
    spark: SparkSession, local_rows: int
) -> None:
    def mapped(a: st.ZSet[Row]) -> st.ZSet[str | None]:
        return st.map(a, f=upper_or_none)

    graph = st.compile(mapped)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
    (out,) = stepper.step((Z({Row(x=1, name="a"): 1, Row(x=2, name="b"): 1}),))
    assert out == Z({None: 1, "B": 1})


@pytest.mark.parametrize("local_rows", [st.Limits.local_rows, 0])
def test_columns_of_spark_stand_wherever_a_row_function_may(
    spark: SparkSession, local_rows: int
) -> None:
    graph = st.compile(query)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
    outer, large, upper = stepper.step((Z({Row(x=1, name="a"): 1, Row(x=3, name="b"): 2}),))
    assert outer == Z({Outer(name="a", inner=Inner(a=1)): 1, Outer(name="b", inner=Inner(a=3)): 1})
    assert large == Z({6: 1})
    assert upper == Z({st.Pair(left=Z({"A": 1, "B": 2}), right=1): 1})


def test_a_join_with_several_readers_is_computed_once() -> None:
    def several(a: st.ZSet[Row]) -> tuple[st.ZSet[int], st.ZSet[st.Pair[int, str]]]:
        joined = st.join(a, a, on_left=lambda r: r.x, on_right=lambda r: r.x)
        by_name = st.group_reduce_flatten(
            joined, by=lambda p: p.left.name, zero=int, pick_value=lambda p: p.right.x
        )
        return st.count(joined), by_name

    assert str(plan_of(st.compile(several))).count("join(") == 2


def test_a_cache_of_a_change_keeps_the_last_one_and_explain_says_so() -> None:
    last, all_ = st.Cache[int](name="last"), st.Cache[int](name="all")

    def cached(a: st.ZSet[int]) -> st.ZSet[int]:
        _ = last[a](lambda a: a)
        _ = all_[a](lambda a: st.integrate(a))
        return a

    graph = st.compile(cached)
    (hint,) = st.explain(graph).hints
    assert "'last' keeps the last change only, as cached.a is not an integral" in hint
    store = st.StoreMemory.from_graph(graph)
    stepper = st.Stepper(graph, store)
    reference = st.reference(graph)
    for change, so_far in ((Z({1: 1}), Z({1: 1})), (Z({2: 1}), Z({1: 1, 2: 1}))):
        stepper.step((change,))
        reference.step((change,))
        assert last.zset(store) == reference.caches["last"] == change
        assert all_.zset(store) == reference.caches["all"] == so_far


@pytest.mark.parametrize("driver_bytes", [None, 0], ids=["driver", "spark"])
def test_a_cache_with_a_computed_key_shows_rows_without_the_key(
    spark: SparkSession, driver_bytes: int | None
) -> None:
    cache = st.Cache[st.Pair[Row, int]](name="keyed")

    def cached(a: st.ZSet[st.Pair[Row, int]]) -> st.ZSet[st.Pair[Row, int]]:
        _ = cache[a](lambda p: st.integrate_indexed(p, indexes=(lambda p: p.left.name,)))
        return a

    change: st.ZSetPython[Any] = Z({st.Pair(left=Row(x=1, name="a"), right=3): 2})
    graph = st.compile(cached)
    store = st.StoreMemory.from_graph(graph, driver_bytes=driver_bytes)
    for _ in range(2):
        st.iteration(store, graph, (change,))
    assert cache.zset(store) == change * 2


def test_the_index_of_a_cache_below_a_join_is_kept() -> None:
    cache = st.Cache[st.Pair[Row, Row]](name="pairs")

    def cached(a: st.ZSet[Row]) -> st.ZSet[st.Pair[Row, Row]]:
        joined = st.join(a, a, on_left=lambda r: r.x, on_right=lambda r: r.x)
        by_name = (lambda p: p.left.name,)
        _ = cache[joined](lambda p: st.integrate_indexed(p, indexes=by_name))
        return joined

    arranged = dict(st.explain(st.compile(cached)).arrangements)
    assert arranged["cache.pairs"] == ("_key_1_",)


def test_a_class_made_of_a_generic_one_has_the_types_in_its_head() -> None:
    class Named(st.Pair[int, str]):
        name: str | None = None

    class Counted(st.Pair[int, K]):
        pass

    assert str(row_type(Named)) == "Named"
    assert [str(t) for _, t in columns_of(row_type(Named))] == ["int", "str", "str | None"]
    assert [str(t) for _, t in columns_of(row_type(Counted[bytes]))] == ["int", "bytes"]

    def query(a: st.ZSet[int]) -> tuple[st.ZSet[Named], st.ZSet[Counted[int]]]:
        return st.map(a, f=_named), st.map(a, f=_counted)

    def _named(x: int) -> Named:
        return Named(left=x, right="a")

    def _counted(x: int) -> Counted[int]:
        return Counted(left=x, right=x)

    named, counted = st.reference(st.compile(query)).step((st.ZSetPython({1: 1}),))
    assert named == st.ZSetPython({Named(left=1, right="a"): 1})
    assert counted == st.ZSetPython({Counted(left=1, right=1): 1})


def test_a_list_with_an_item_that_may_be_null_has_items_that_may_be(spark: SparkSession) -> None:
    def query(a: st.ZSet[Row]) -> st.ZSet[st.Pair[st.ZSetPython[list[int | None]], str]]:
        items: Any = lambda r: [r.x, F.nullif(r.x, F.lit(1))]  # noqa: E731
        collected: Any = st.agg.collect(items)
        return st.group_reduce_flatten(a, by=lambda r: r.name, zero=Z, pick_value=collected)

    graph = st.compile(query)
    rows = Z({Row(x=1, name="a"): 1})
    lists: Any = st.Pair(left=Z([((1, None), 1)]), right="a")
    for local_rows in (st.Limits.local_rows, 0):
        stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
        (given,) = stepper.step((rows,))
        assert given == Z({lists: 1})


class Tagged(st.Data, Generic[K]):
    value: K
    more: list[K] = ()  # type: ignore[assignment]
    last: K | None = None


def test_a_generic_row_may_have_its_type_inside_of_others() -> None:
    tagged = row_type(Tagged[int])
    assert [str(t) for _, t in columns_of(tagged)] == ["int", "list[int]", "int | None"]

    def copied(a: st.ZSet[Tagged[int]]) -> st.ZSet[Tagged[int]]:
        return st.map(a, f=lambda t: Tagged(value=t.value, more=t.more, last=t.value))

    rows = st.ZSetPython({Tagged(value=1, more=[2]): 1})
    (given,) = st.reference(st.compile(copied)).step((rows,))
    assert given == st.ZSetPython({Tagged(value=1, more=[2], last=1): 1})

    def python(a: st.ZSet[int]) -> st.ZSet[Tagged[int]]:
        return st.map(a, f=st.python(lambda x: Tagged(value=x, more=[x]), to=Tagged[int]))

    (given,) = st.reference(st.compile(python)).step((st.ZSetPython({1: 1}),))
    assert given == st.ZSetPython({Tagged(value=1, more=[1]): 1})


FACTOR = 2


def times(n: int, x: int) -> int:
    return n * x


def scaled(x: int) -> int:
    return times(FACTOR, x)


class Times:
    def __init__(self, n: int) -> None:
        self.n = n

    def __call__(self, x: int) -> int:
        return self.n * x


def multiplied(n: int) -> Callable[[int], int]:
    return lambda x: n * x


def state_of(f: Callable[[int], int]) -> tuple[Signature, str]:
    """What a store is told of the state of a circuit with a Python function, and its text."""

    def query(a: st.ZSet[int]) -> st.ZSet[int]:
        return st.distinct(st.map(a, f=st.python(f, to=int)))

    graph = st.compile(query)
    (register,) = plan_of(graph).registers
    return register.sums, str(graph)


def test_a_state_is_told_apart_by_what_its_python_functions_compute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    more, less = (lambda x: x + 1), (lambda x: x - 1)
    again = lambda x: x  +  1  # noqa: E731  # fmt: skip
    assert state_of(more)[0] == state_of(again)[0] != state_of(less)[0]
    assert state_of(multiplied(2))[0] == state_of(multiplied(2))[0] != state_of(multiplied(3))[0]
    assert state_of(Times(2))[0] == state_of(Times(2))[0] != state_of(Times(3))[0]
    partial = functools.partial
    assert state_of(partial(times, 2))[0] == state_of(partial(times, 2))[0]
    assert state_of(partial(times, 2))[0] != state_of(partial(times, 3))[0]
    before = digest_of(scaled)
    monkeypatch.setitem(globals(), "FACTOR", 3)
    changed = digest_of(scaled)
    monkeypatch.setitem(globals(), "times", multiplied(2))
    assert len({before, changed, digest_of(scaled)}) == 3


def test_no_name_of_a_python_function_has_an_address() -> None:
    for f, name in ((functools.partial(times, 2), "times"), (Times(2), "Times")):
        assert f"[python:{name}]" in state_of(f)[1]
        assert not [told for told in state_of(f) if "0x" in str(told)]


def test_functions_of_columns_are_compared_without_asking_spark_again(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mapped(f: Any) -> Any:
        def query(a: st.ZSet[Row]) -> st.ZSet[str]:
            return st.map(a, f=lambda r: f(r.name), to=str)

        return st.compile(query).outputs[0].operator

    upper, again, lower = mapped(F.upper), mapped(F.upper), mapped(F.lower)

    def asked(*_: object) -> bool:
        raise AssertionError("garbage may be collected while a call of the JVM is under way")

    monkeypatch.setattr(type(spark.range(0)), "sameSemantics", asked)
    monkeypatch.setattr(DataFrame, "sameSemantics", asked)
    assert dataclasses.replace(upper) == again
    assert dataclasses.replace(upper.f) == again.f
    assert upper != lower


class Priced(st.Data):
    n: int
    price: Annotated[Decimal, st.Precision(10, 2)]
    large: Annotated[Decimal, st.Precision(38, 10)]


@pytest.mark.parametrize("column", ["price", "large"])
@pytest.mark.parametrize("op", ["+", "-", "*", "/", "%"])
@pytest.mark.parametrize("other", ["0", "7", "-100", "10**18", "Decimal('2.50')", "r.n"])
def test_a_decimal_and_another_number_make_the_type_that_spark_gives_them(
    spark: SparkSession, column: str, op: str, other: str
) -> None:
    columns = "n BIGINT, price DECIMAL(10, 2), large DECIMAL(38, 10)"
    rows = spark.createDataFrame([], columns)
    for text in (f"r.{column} {op} {other}", f"{other} {op} r.{column}"):
        of: Any = eval(f"lambda r: {text}", {"Decimal": Decimal})
        found = unwrap(row_expr(of, row_type(Priced)).type).ddl.replace(" ", "").lower()
        assert found == rows.select(of(rows)).schema[0].dataType.simpleString(), text
