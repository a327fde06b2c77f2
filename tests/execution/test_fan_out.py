"""Changes of few rows that give many: they do not go through the driver."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.dataframe import DataFrame

import stepping_spark as st
from stepping_spark.relations.relation import Relation
from tests.cases import Z, constants
from tests.every_store import MakeStore

pytestmark = pytest.mark.driver

GIVEN = 1_000


class Two(st.Data):
    key: int
    n: int


class Listed(st.Data):
    key: int
    ns: list[int]


Pairs = st.Pair[Two, Two]


def joined(a: st.ZSet[Two], b: st.ZSet[Two]) -> st.ZSet[Pairs]:
    return st.join(a, b, on_left=lambda x: x.key, on_right=lambda x: x.key)


def looked_up(a: st.ZSet[Two], b: st.ZSet[Two]) -> st.ZSet[tuple[Two, Two, Two]]:
    """One row meets a few, and each of them many."""
    table = st.Lookup(b, on=lambda row: row[0].key, key=lambda x: x.key)
    return st.delta_join(a, table, st.Lookup(b, on=lambda row: row[1].key, key=lambda x: x.key))


def listed(a: st.ZSet[Listed]) -> st.ZSet[int]:
    return st.map_many(a, f=lambda x: x.ns)


def counted(a: st.ZSet[Two]) -> st.ZSet[int]:
    """The list is Spark's to make."""
    return st.map_many(a, f=lambda x: F.sequence(F.lit(1), column(x.n)))


def counted_twice(a: st.ZSet[Two]) -> st.ZSet[int]:
    """Two functions that Spark evaluates, asked at once."""
    ns = st.map_many(a, f=lambda x: F.sequence(F.lit(1), column(x.n)), to=int)
    return st.map(ns, f=lambda n: F.abs(F.lit(3) - n), to=int)


def ranged(a: st.ZSet[Two]) -> st.ZSet[int]:
    """The list is Python's to make."""
    return st.map_many(a, f=st.python(lambda x: list(range(x.n)), to=list[int]))


def column(x: Any) -> Any:
    """The column that a field is in a row function."""
    return x


def twos(n: int) -> st.ZSetPython[Two]:
    return Z({Two(key=0, n=i): 1 for i in range(n)})


CASES: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
    (joined, (twos(40), twos(40))),
    (looked_up, (twos(1), twos(40))),
    (listed, (Z({Listed(key=i, ns=list(range(i * 100, i * 100 + 100))): 1 for i in range(20)}),)),
    (counted, (Z({Two(key=0, n=2_000): 1}),)),
    (counted_twice, (Z({Two(key=0, n=2_000): 1}),)),
    (ranged, (Z({Two(key=0, n=2_000): 1}),)),
]


@pytest.fixture
def fetched(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of each relation that Spark has sent to the driver."""
    rows: list[int] = []
    to_arrow = DataFrame.toArrow

    def noted(frame: DataFrame) -> pa.Table:
        table = to_arrow(frame)
        rows.append(table.num_rows)
        return table

    monkeypatch.setattr(DataFrame, "toArrow", noted)
    return rows


@pytest.mark.turn(2)
@pytest.mark.parametrize("local_rows", [GIVEN, 0])
@pytest.mark.parametrize(("query", "inputs"), CASES, ids=lambda x: getattr(x, "__name__", ""))
@constants(sampled_rows=GIVEN)
def test_what_fans_out_stays_in_spark(
    query: Callable[..., Any],
    inputs: tuple[Any, ...],
    local_rows: int,
    spark: SparkSession,
    fetched: list[int],
) -> None:
    graph = st.compile(query)
    (expected,) = st.iteration(st.StoreMemory.from_graph(graph), graph, inputs)
    fetched.clear()
    limits = st.Limits(local_rows=local_rows, given_rows=GIVEN)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), limits=limits)
    (out,) = stepper.step(inputs)
    assert max(fetched, default=0) <= GIVEN + 1
    ran = stepper.metrics[-1].vertices.values()
    in_spark = [v for v in ran if v.rows_out is None and v.within is None]
    assert in_spark
    assert {v.how for v in in_spark} == {"python" if query is ranged else "spark"}
    reason = "more than 1,000" if local_rows or query is ranged else "local_rows=0"
    assert any(reason in v.why for v in in_spark)
    assert out == expected


@pytest.mark.turn(2)
@pytest.mark.usefixtures("by_queries")
@pytest.mark.parametrize("make_store", ["parquet", "postgres"], indirect=True)
@pytest.mark.parametrize("local_rows", [GIVEN, 0])
@constants(sampled_rows=GIVEN)
def test_a_key_of_many_rows_stays_in_spark_where_the_state_is_not_on_the_driver(
    local_rows: int,
    make_store: MakeStore,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = st.Limits(local_rows=local_rows, given_rows=GIVEN)
    graph = st.compile(joined)
    store = make_store(graph, limits=limits)
    stepper = st.Stepper(graph, store, limits=limits)
    stepper.step((None, twos(3 * GIVEN) + Z({Two(key=i, n=0): 1 for i in range(1, 9)})))
    read = store.read
    kept: list[tuple[Relation, ...]] = []

    def noted(register: str, keys: Relation | None = None) -> tuple[Relation, ...]:
        kept.append(read(register, keys))
        return kept[-1]

    monkeypatch.setattr(store, "read", noted)
    came = Z({Two(key=0, n=-1): 1, Two(key=2, n=-1): 1})
    (out,) = stepper.step((came, None))
    on_driver = [p.rows or 0 for parts in kept for p in parts if p.table is not None]
    assert max(on_driver, default=0) <= GIVEN
    assert {v.how for v in stepper.metrics[-1].vertices.values() if v.rows_out is None} == {"spark"}
    pairs = {st.Pair(left=Two(key=0, n=-1), right=Two(key=0, n=i)): 1 for i in range(3 * GIVEN)}
    assert out == Z({**pairs, st.Pair(left=Two(key=2, n=-1), right=Two(key=2, n=0)): 1})
    (few_rows,) = stepper.step((Z({Two(key=3, n=-1): 1}), None))
    assert few_rows == Z({st.Pair(left=Two(key=3, n=-1), right=Two(key=3, n=0)): 1})
    assert kept[-1][0].table is not None


class Wide(st.Data):
    key: int
    text: str


def wide_pairs(a: st.ZSet[Wide], b: st.ZSet[Wide]) -> st.ZSet[st.Pair[Wide, Wide]]:
    return st.join(a, b, on_left=lambda x: x.key, on_right=lambda x: x.key)


class Numbered(st.Data):
    key: int
    text: str
    n: int


def numbered(a: st.ZSet[Wide]) -> st.ZSet[Numbered]:
    return st.window(
        a, by=lambda x: x.key, order=lambda x: x.text, into=Numbered, n=st.win.row_number()
    )


@pytest.mark.parametrize(
    ("query", "inputs"),
    [
        (wide_pairs, [Z({Wide(key=0, text=f"{i:01000}"): 1 for i in range(20)})] * 2),
        (numbered, [Z({Wide(key=0, text=f"{i:01000}"): 20 for i in range(20)})]),
    ],
)
def test_few_rows_of_many_bytes_are_for_spark(
    query: Callable[..., Any], inputs: list[Any], spark: SparkSession
) -> None:
    """400 rows of 1,000 or 2,000 bytes."""
    graph = st.compile(query)
    (expected,) = st.reference(graph).step(tuple(inputs))
    for given_bytes, hows in ((200_000, {"spark"}), (2_000_000, {"driver"})):
        limits = st.Limits(given_bytes=given_bytes)
        stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), limits=limits)
        (out,) = stepper.step(tuple(inputs))
        ran = stepper.metrics[-1].vertices.values()
        assert {v.how for v in ran if v.rows_out != 0 and v.within is None} == hows
        assert out == expected


def in_binary(a: st.ZSet[Two]) -> st.ZSet[str]:
    return st.map(a, f=lambda x: F.conv(column(x.n).cast("string"), 10, 2), to=str)


def test_many_rows_with_a_function_that_only_spark_knows_are_for_spark(
    spark: SparkSession, fetched: list[int]
) -> None:
    """The driver would send them all, and fetch a column of as many rows."""
    graph = st.compile(in_binary)
    expected = Z({f"{i:b}": 1 for i in range(300)})
    for fetched_rows, how in ((299, "spark"), (300, "driver")):
        limits = st.Limits(fetched_rows=fetched_rows)
        stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), limits=limits)
        fetched.clear()
        (out,) = stepper.step((twos(300),))
        (ran,) = (v for v in stepper.metrics[-1].vertices.values() if v.within is None)
        assert ran.how == how
        assert max(fetched, default=0) <= fetched_rows
        assert ("has 300 rows, more than fetched_rows=299" in ran.why) is (how == "spark")
        assert out == expected


def test_few_rows_of_a_join_stay_on_the_driver(fetched: list[int]) -> None:
    graph = st.compile(joined)
    limits = st.Limits(given_rows=GIVEN)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), limits=limits)
    (out,) = stepper.step((twos(31), twos(31)))
    assert len(list(out.iter())) == 961
    assert {v.how for v in stepper.metrics[-1].vertices.values()} == {"driver"}
    assert not fetched


def test_memory_for_a_long_list_grows_with_its_length() -> None:
    graph = st.compile(listed)
    pools = []
    for n in (2_000, 8_000):
        stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
        change = Z({Listed(key=0, ns=list(range(n))): 1})
        usual = pa.default_memory_pool()
        pools.append(pa.proxy_memory_pool(usual))
        # A buffer that outlives its pool crashes the process when it is freed, and caches of the
        # process may keep some that this step makes. So the pools live as long as the process.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(pools[-1]))
        pa.set_memory_pool(pools[-1])
        try:
            stepper.step((change,))
        finally:
            pa.set_memory_pool(usual)
    few_items, many_items = (pool.max_memory() or 0 for pool in pools)
    assert many_items < 8 * few_items
