"""A state is known by what it sums, its keys and its columns, not by the names of variables."""

from __future__ import annotations

import ast
import random
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import circuits.graphs
import circuits.groups
import circuits.joins
import stepping_spark as st
from tests.every_store import MakeStore

pytestmark = pytest.mark.usefixtures("spark")


class Order(st.Data):
    user: int
    amount: int


class Total(st.Data):
    user: int
    n: int
    most: int


SOURCE = """
def totals(orders: st.ZSet[Order], users: st.ZSet[int]) -> Any:
    large = st.filter(orders, f=lambda o: o.amount > LEAST)
    pairs = st.join(large, users, on_left=lambda o: o.user, on_right=lambda u: u)
    known = st.map(pairs, f=lambda p: p.left)
    summed = st.aggregate(known, by=lambda o: o.user, into=Total,
                          n=st.agg.count(), most=st.agg.max(lambda o: o.amount))
    missing = st.outer_join(users, orders, on_left=lambda u: u, on_right=lambda o: o.user)
    first = st.first_n(orders, lambda o: o.amount, 2, by=lambda o: o.user)
    edges = st.map(orders, f=lambda o: st.Pair(left=o.user, right=o.amount))
    paths = st.transitive_closure(edges)
    last = st.delay(known)
    return summed, missing, first, paths, last, st.distinct(known), st.count(last)
"""


class Renamed(ast.NodeTransformer):
    """Other names for all variables that functions assign, and for the functions of a query."""

    def __init__(self, *, functions: bool) -> None:
        self._functions = functions
        self._local: set[str] = set()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        before = self._local
        stored = {
            n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
        }
        self._local = before | stored
        self.generic_visit(node)
        self._local = before
        if self._functions:
            node.name = f"{node.name}_anew"
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        if node.id in self._local:
            node.id = f"{node.id}_anew"
        return node


def query_of(source: str, *, renamed: bool, least: int = 2) -> Callable[..., Any]:
    tree = ast.parse(source)
    if renamed:
        tree = ast.fix_missing_locations(Renamed(functions=True).visit(tree))
    names: dict[str, Any] = {"st": st, "Order": Order, "Total": Total, "Any": Any, "LEAST": least}
    exec(compile(tree, "query_of_a_user.py", "exec"), names)
    found: Callable[..., Any] = names["totals_anew" if renamed else "totals"]
    return found


def rename_locals_of_circuits(monkeypatch: pytest.MonkeyPatch) -> int:
    changed = 0
    for module in (circuits.groups, circuits.joins, circuits.graphs):
        file = str(module.__file__)
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
        tree = ast.fix_missing_locations(Renamed(functions=False).visit(tree))
        anew: dict[str, Any] = dict(vars(module))
        exec(compile(tree, file, "exec"), anew)
        for name, function in vars(module).items():
            if isinstance(function, types.FunctionType) and function.__code__.co_filename == file:
                changed += function.__code__.co_varnames != anew[name].__code__.co_varnames
                monkeypatch.setattr(function, "__code__", anew[name].__code__)
    return changed


def steps(seed: int, n: int) -> Iterator[tuple[st.ZSetPython[Order], st.ZSetPython[int]]]:
    source = random.Random(seed)
    there: list[Order] = []
    for _ in range(n):
        orders: dict[Order, int] = {}
        for _ in range(4):
            if there and source.random() < 0.4:
                gone = there.pop(source.randrange(len(there)))
                orders[gone] = orders.get(gone, 0) - 1
            else:
                come = Order(user=source.randrange(4), amount=source.randrange(6))
                there.append(come)
                orders[come] = orders.get(come, 0) + 1
        yield st.ZSetPython(orders), st.ZSetPython({source.randrange(4): 1})


def test_a_state_goes_on_when_all_variables_have_other_names(
    make_store: MakeStore, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    before = st.compile(query_of(SOURCE, renamed=False))
    every = list(steps(1, 8))
    store = make_store(before)
    stepper = st.Stepper(before, store)
    oracle = st.reference(before)
    for step in every[:4]:
        assert stepper.step(step) == oracle.step(step)
    assert rename_locals_of_circuits(monkeypatch) > 5
    after = st.compile(query_of(SOURCE, renamed=True))
    assert set(map(str, before.paths.values())).isdisjoint(map(str, after.paths.values()))
    again = make_store.reopen(store, after)
    stepper = st.Stepper(after, again)
    assert again.last_step() == 4
    for step in every[4:]:
        assert stepper.step(step) == oracle.step(step)
    other = st.compile(query_of(SOURCE, renamed=True, least=3))

    def go_on() -> None:
        st.Stepper(other, make_store.reopen(again, other))

    with pytest.raises(st.StoreMismatch, match="belongs to another circuit"):
        go_on()
