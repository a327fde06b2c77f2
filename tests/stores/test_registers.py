"""Which register of a state serves which one of a circuit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stepping_spark as st
from stepping_spark.base.errors import CompileError
from stepping_spark.plan.difference import described, matched
from stepping_spark.plan.planner import registers_of
from stepping_spark.relations.store import Register
from stepping_spark.rows.atoms import INT, RowType
from stepping_spark.rows.schema import MOST_LEVELS, Schema
from stepping_spark.rows.types import ListOf
from stores.parquet.store import StoreParquet

Edge = st.Pair[int, int]
Query = Callable[..., Any]


def names(before: Query, after: Query) -> dict[str, str]:
    """By the names of the circuit after, those that the state of the one before has."""
    kept = described(registers_of(st.compile(before)))
    return matched(kept, registers_of(st.compile(after)))


def test_a_renamed_variable_leaves_a_register_what_it_is() -> None:
    def view(a: st.ZSet[int]) -> st.ZSet[int]:
        large = st.filter(a, f=lambda x: x > 3)
        return st.distinct(large)

    def renamed(b: st.ZSet[int]) -> st.ZSet[int]:
        big = st.filter(b, f=lambda x: x > 3)
        return st.distinct(big)

    def changed(a: st.ZSet[int]) -> st.ZSet[int]:
        large = st.filter(a, f=lambda x: x > 4)
        return st.distinct(large)

    assert names(view, renamed) == {"renamed.big by row": "view.large by row"}
    with pytest.raises(st.StoreMismatch):
        names(view, changed)


def test_two_equal_recursions_are_told_apart_by_what_they_are_given() -> None:
    def view(a: st.ZSet[Edge], b: st.ZSet[Edge]) -> Any:
        return st.transitive_closure(a), st.transitive_closure(b)

    def anew(a: st.ZSet[Edge], b: st.ZSet[Edge]) -> Any:
        second = st.transitive_closure(b)
        return st.transitive_closure(a), second

    kept = {register.name: register.sums for register in registers_of(st.compile(view))}
    assert len(set(kept.values())) == len(kept) == 8
    found = names(view, anew)
    for register in registers_of(st.compile(anew)):
        assert kept[found[register.name]] == register.sums


def test_inputs_that_change_places_are_refused() -> None:
    def view(sales: st.ZSet[int], returns: st.ZSet[int]) -> Any:
        return st.distinct(sales), st.distinct(returns)

    def swapped(returns: st.ZSet[int], sales: st.ZSet[int]) -> Any:
        return st.distinct(sales), st.distinct(returns)

    swapped.__name__ = swapped.__qualname__ = "view"
    with pytest.raises(st.StoreMismatch):
        names(view, swapped)


@pytest.mark.parametrize(("one", "two"), [("three", "two"), ("two", "one")])
def test_a_cache_is_known_by_its_name(one: str, two: str) -> None:
    def with_caches(first: str, second: str) -> Query:
        caches = [st.Cache[int](name=name) for name in (first, second)]

        def view(a: st.ZSet[int], b: st.ZSet[int]) -> st.ZSet[int]:
            _ = caches[0][a](lambda a: st.integrate(a))
            _ = caches[1][b](lambda b: st.integrate(b))
            return st.neg(a)

        return view

    with pytest.raises(st.StoreMismatch, match=r"cache\."):
        names(with_caches("one", "two"), with_caches(one, two))


def test_values_that_are_nested_too_deep_to_be_read_again_are_not_kept(tmp_path: Path) -> None:
    def nested(levels: int) -> Register:
        t: RowType = INT
        for _ in range(levels):
            t = ListOf(t)
        return Register("deep", Schema((("a", t),)))

    with StoreParquet(tmp_path / "one", [nested(MOST_LEVELS - 1)], create=True) as store:
        assert store.last_step() == 0
    with pytest.raises(CompileError, match=r"nested more than 64 levels deep.*fewer lists"):
        StoreParquet(tmp_path / "other", [nested(MOST_LEVELS)], create=True)
    assert not (tmp_path / "other" / "registers.json").exists()


@pytest.mark.parametrize("edited", [{}, {"sums": None}, {"sums": 7, "key": 3}])
def test_a_description_that_was_edited_belongs_to_another_circuit(edited: dict[str, Any]) -> None:
    def view(a: st.ZSet[int]) -> st.ZSet[int]:
        return st.distinct(a)

    wanted = registers_of(st.compile(view))
    with pytest.raises(st.StoreMismatch):
        matched({wanted[0].name: edited}, wanted)


def of_bids(order: Any, function: Any) -> tuple[Register, ...]:
    class Shown(st.Data):
        at: int
        found: float | None

    def view(bids: st.ZSet[tuple[int, int]]) -> st.ZSet[Shown]:
        return st.window(bids, order=order, into=Shown, at=lambda b: b[0], found=function)

    return registers_of(st.compile(view))


def test_a_register_that_a_window_reads_in_an_order_is_told_from_one_in_another() -> None:
    lag: Any = st.win.lag(lambda b: b[1] * 1.0)
    share = st.win.cume_dist()
    first, second = (lambda b: b[0]), (lambda b: b[1])
    kept = described(of_bids(first, lag))
    assert matched(kept, of_bids(first, st.win.lag(lambda b: b[1] * 2.0)))
    with pytest.raises(st.StoreMismatch, match="the state has the order ascending by _1, NULL fir"):
        matched(kept, of_bids(second, lag))
    with pytest.raises(st.StoreMismatch, match="by _1, NULL first, the circuit no order"):
        matched(kept, of_bids(first, share))
    (register,) = of_bids(first, lag)
    assert Register.described(register.name, register.describe()) == register
    with pytest.raises(ValueError, match="its order is not a column of it"):
        Register.described("r", {**register.describe(), "order": ["no", True, True]})
