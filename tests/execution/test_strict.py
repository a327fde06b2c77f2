"""Strict inputs: a row that is taken away and is not there is an error, and changes nothing."""

from __future__ import annotations

import math
import random
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark.plan.planner import plan_of
from tests.every_store import MakeStore


class Order(st.Data):
    id: int
    price: float | None


class Line(st.Data):
    order: int


ROWS = [Order(id=i, price=p) for i in (1, 2) for p in (None, 0.5, math.nan, 0.0)]
REFUSED = "removes rows that are not there"


def query(orders: st.ZSet[Order], lines: st.ZSet[Line], rate: int) -> Any:
    both = st.join(orders, lines, on_left=lambda o: o.id, on_right=lambda n: n.order)
    return orders, st.distinct(lines), both, rate


def of(*pairs: tuple[Any, int]) -> st.ZSetPython[Any]:
    return st.ZSetPython(pairs)


@pytest.mark.parametrize(
    ("local_rows", "optimize"),
    [
        (2_000_000, True),
        (2_000_000, False),
        (0, True),
        pytest.param(0, False, marks=pytest.mark.long),
    ],
)
def test_a_step_is_refused_exactly_where_a_row_would_be_there_less_often_than_never(
    spark: SparkSession, make_store: MakeStore, local_rows: int, optimize: bool
) -> None:
    graph = st.compile(query, strict=("orders",), optimize=optimize)
    store = make_store(graph)
    again, there = st.reference(graph), Counter[int]()
    refused, taken = 0, 0
    dice = random.Random(7)
    for _ in range(10 if local_rows else 4):
        changes = Counter[int]()
        for _ in range(3):
            changes[dice.randrange(len(ROWS))] += dice.choice((2, 1, -1))
        inputs = (of(*((ROWS[i], n) for i, n in changes.items())), of((Line(order=1), -1)), 1)
        stepper = st.Stepper(graph, store, local_rows=local_rows, strict=["orders"])
        if all(there[i] + n >= 0 for i, n in changes.items()):
            taken += 1
            there.update(changes)
            assert stepper.step(inputs) == again.step(inputs)
        else:
            refused += 1
            for step in (stepper.step, again.step):
                with pytest.raises(st.InputError, match=rf"^input 'orders': strict.*{REFUSED}"):
                    step(inputs)
        assert store.last_step() == taken
        store = make_store.reopen(store, graph)
    assert taken
    assert refused


def test_what_counts_is_the_change_as_a_whole(spark: SparkSession, make_store: MakeStore) -> None:
    graph = st.compile(query, strict=True)
    store = make_store(graph)
    stepper = st.Stepper(graph, store)
    row = Order(id=1, price=-0.0)
    twice = spark.createDataFrame([(1, 0.0, -1), (1, 0.0, 1)], "id bigint, price double, n bigint")
    for given in (of((row, -1), (row, 1)), st.ZSetSpark.from_dataframe(twice, Order, count="n")):
        stepper.step((given, None, None))
    with pytest.raises(st.InputError, match=REFUSED):
        stepper.step((st.ZSetSpark.from_dataframe(twice.limit(1), Order, count="n"), None, None))
    stepper.step((of((row, 2)), None, None))
    (out, *_) = stepper.step((of((Order(id=1, price=0.0), -2)), None, None))
    assert out == of((row, -2))
    with pytest.raises(st.InputError, match=REFUSED):
        stepper.step((of((row, -1)), None, None))


@pytest.mark.driver
def test_the_error_shows_the_first_rows_and_the_input(spark: SparkSession) -> None:
    graph = st.compile(query, strict=True)
    orders, lines, _ = st.actions(st.StoreMemory.from_graph(graph), graph)
    lines.insert(Line(order=7))
    with pytest.raises(st.InputError) as caught:
        lines.remove(*(Line(order=i) for i in range(4, 10)))
    said = str(caught.value)
    assert said.startswith("input 'lines': ")
    assert f"{Line(order=4)!r}, {Line(order=5)!r}, {Line(order=6)!r}, …" in said
    with pytest.raises(
        st.InputError, match=r"input 'orders'.*they are there: Order\(id=1, price=0.5\)\."
    ):
        orders.replace(Order(id=1, price=0.5), Order(id=1, price=0.6))


def test_only_the_inputs_that_are_named_are_strict(spark: SparkSession) -> None:
    graph = st.compile(query, strict="lines")
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), strict="lines")
    stepper.step((of((ROWS[0], -1)), None, None))
    with pytest.raises(st.InputError, match="input 'lines'"):
        stepper.step((None, of((Line(order=1), -1)), None))


def test_a_strict_input_shares_what_the_query_keeps_of_it() -> None:
    def distinct(lines: st.ZSet[Line]) -> st.ZSet[Line]:
        return st.distinct(lines)

    plain, strict = st.compile(distinct), st.compile(distinct, strict=True)
    assert plan_of(plain).registers == plan_of(strict).registers
    grows = st.compile(distinct, strict=True, append_only="lines")
    assert grows == st.compile(distinct, append_only="lines")


def test_a_stepper_asks_for_a_graph_that_is_strict(spark: SparkSession) -> None:
    graph = st.compile(query, strict="lines", append_only=["orders"])
    store = st.StoreMemory.from_graph(graph)
    st.Stepper(graph, store, strict=True)
    loose = st.compile(query, strict="lines")
    store = st.StoreMemory.from_graph(loose)
    with pytest.raises(st.InputError, match=r"rows of input 'orders'.*st\.compile\(query, strict="):
        st.Stepper(loose, store, strict=True)
    with pytest.raises(st.InputError, match=r"no input 'rate'.*orders, lines"):
        st.Stepper(loose, store, strict=["rate"])


def test_compile_refuses_to_be_strict_of_what_is_no_z_set() -> None:
    with pytest.raises(st.CompileError, match=r"strict=\['rate'\] of query.*orders, lines"):
        st.compile(query, strict=["rate"])


def test_a_state_that_was_made_without_it_is_refused_with_the_remedy(tmp_path: Path) -> None:
    loose, strict = st.compile(query), st.compile(query, strict="orders")
    st.StoreParquet.from_graph(loose, tmp_path / "s", create=True).close()
    with pytest.raises(st.StoreMismatch, match=r"input 'orders', because it is strict") as caught:
        st.StoreParquet.from_graph(strict, tmp_path / "s")
    assert "compiling without strict" in str(caught.value)
    with st.StoreParquet.from_graph(loose, tmp_path / "s") as store:
        assert store.last_step() == 0


def test_rows_of_many_types_are_found_again(spark: SparkSession) -> None:
    def decimals(a: st.ZSet[tuple[Decimal, str | None, bytes]]) -> Any:
        return st.count(a)

    graph = st.compile(decimals, strict=True)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    stepper.step((of(((Decimal("1.50"), None, b"\0"), 1)),))
    stepper.step((of(((Decimal("1.5"), None, b"\0"), -1)),))
    with pytest.raises(st.InputError, match=REFUSED):
        stepper.step((of(((Decimal("1.5"), "", b"\0"), -1)),))


def kept_around(lines: st.ZSet[Line]) -> Any:
    """A loop: what came, and every second step what was left out of it."""
    with st.feedback(st.ZSet[Line]) as y:
        fewer = st.add(lines, st.neg(y))
        y.connect(st.delay(fewer))
    with st.feedback(st.ZSet[Line]) as z:
        whole = st.add(lines, z)
        z.connect(st.delay(whole))
    return fewer, whole


def by_group(lines: st.ZSet[Line]) -> Any:
    groups: Any = st.group(lines, by=lambda n: n.order % 2)
    return st.flatten(st.per_group[groups](lambda s: st.distinct(s))), st.count(lines)


def reached(lines: st.ZSet[Line]) -> Any:
    def next_(a: Any, y: Any) -> Any:
        more = st.map(y, f=lambda n: Line(order=n.order + 1))
        return st.add(a, st.filter(more, f=lambda n: n.order < 6))

    return st.fixpoint(st.distinct(lines), next_)


@pytest.mark.parametrize(
    ("local_rows", "optimize"),
    [
        (2_000_000, True),
        (2_000_000, False),
        (0, True),
        pytest.param(0, False, marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("of_lines", [kept_around, by_group, reached])
def test_loops_groups_and_recursions_of_a_strict_input_give_what_they_give_of_another(
    spark: SparkSession, of_lines: Any, local_rows: int, optimize: bool
) -> None:
    strict = st.compile(of_lines, strict=True, optimize=optimize)
    stepper: Any = st.Stepper(
        strict, st.StoreMemory.from_graph(strict), local_rows=local_rows, strict=True
    )
    plain, again = st.reference(st.compile(of_lines)), st.reference(strict)
    there, dice, refused = Counter[int](), random.Random(3), 0
    for _ in range(12 if local_rows else 4):
        changes = Counter({dice.randrange(4): dice.choice((2, 1, -1)) for _ in range(2)})
        change = of(*((Line(order=i), n) for i, n in changes.items()))
        if all(there[i] + n >= 0 for i, n in changes.items()):
            there.update(changes)
            wanted = plain.step((change,))
            assert stepper.step((change,)) == wanted
            assert again.step((change,)) == wanted
        else:
            refused += 1
            for step in (stepper.step, again.step):
                with pytest.raises(st.InputError, match=rf"^input 'lines': strict.*{REFUSED}"):
                    step((change,))
    assert refused
    assert stepper.store.last_step()


@pytest.mark.parametrize("local_rows", [2_000_000, 0])
def test_an_input_that_only_grows_is_strict_without_a_state_of_its_own(
    spark: SparkSession, local_rows: int
) -> None:
    graph = st.compile(query, strict=True, append_only="orders")
    assert set(graph.strict) == {"lines"}
    stepper: Any = st.Stepper(
        graph, st.StoreMemory.from_graph(graph), local_rows=local_rows, strict=True
    )
    stepper.step((of((ROWS[1], 1)), of((Line(order=1), 1)), 1))
    with pytest.raises(st.InputError, match=r"orders.*append_only"):
        stepper.step((of((ROWS[1], -1)), None, None))
    with pytest.raises(st.InputError, match=rf"^input 'lines': strict.*{REFUSED}"):
        stepper.step((of((ROWS[2], 1)), of((Line(order=2), -1)), None))
    (out, gone, pairs, _) = stepper.step((of((ROWS[1], 1)), of((Line(order=1), -1)), None))
    assert out == of((ROWS[1], 1))
    assert gone == of((Line(order=1), -1))
    assert pairs == of((st.Pair(left=ROWS[1], right=Line(order=1)), -1))
    assert stepper.store.last_step() == 2
