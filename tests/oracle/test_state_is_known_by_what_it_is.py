"""A state is known by what it sums, its keys and its columns, not by the names of variables."""

from __future__ import annotations

import ast
import linecache
import random
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import circuits.graphs
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
        given = {n.arg for n in ast.walk(node.args) if isinstance(n, ast.arg)}
        self._local = before | (stored - given)  # a parameter is called by its name
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
    for module in (circuits.joins, circuits.graphs):
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
    assert rename_locals_of_circuits(monkeypatch) > 2
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


# -- one thing is changed between two openings of a state in files


def compiled(source: str) -> tuple[Any, dict[str, Any]]:
    """The circuit of a query that is written in a module of its own, and the names of that."""
    module = types.ModuleType(f"module_of_a_user_{len(linecache.cache)}")
    sys.modules[module.__name__] = module  # dataclasses look there
    file = f"{module.__name__}.py"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    names = vars(module) | {"st": st, "Any": Any}
    exec(compile(source, file, "exec", dont_inherit=True), names)
    return st.compile(names["query"]), names


def taken(source: str, where: Path) -> None:
    """Make a state with a query: one step, of the rows that its module has as ROWS."""
    graph, names = compiled(source)
    with st.StoreParquet.from_graph(graph, str(where), create=True) as store:
        st.Stepper(graph, store).step(names["ROWS"])


def gone_on(source: str, where: Path) -> Any:
    """The outputs of a step more with another query, which takes the rows away again."""
    graph, names = compiled(source)
    with st.StoreParquet.from_graph(graph, str(where)) as store:
        return st.Stepper(graph, store).step(tuple(-rows for rows in names["ROWS"]))


ROW = """
class Order(st.Data):
    user: int
    amount: int

ROWS = (st.ZSetPython({Order(user=1, amount=2): 1, Order(user=1, amount=3): 1}),)
"""

OF_CLASSES = (
    ROW
    + """
class Spent(st.Data):
    user: int
    amount: int

class Count(st.Data):
    user: int
    n: int

def query(orders: st.ZSet[Order]) -> Any:
    spent = st.map(orders, f=lambda o: Spent(user=o.user, amount=o.amount * 2))
    known = st.distinct(spent)
    pairs = st.join(known, orders, on_left=lambda s: s.user, on_right=lambda o: o.user)
    repeated = st.map(pairs, f=lambda p: p.left)
    return repeated, st.aggregate(known, by=lambda s: s.user, into=Count, n=st.agg.count())
"""
)

OF_PYTHON = (
    ROW
    + """
def rate(amount: int, by: int) -> int:
    total = amount * by
    return total

def value(order: Order, scale: int = 3) -> int:
    amount = order.amount
    by = [step for step in range(amount)]
    return rate(amount, len(by)) + max((user for user in [order.user]), key=lambda u: -u)

def query(orders: st.ZSet[Order]) -> Any:
    return st.distinct(st.map(orders, f=st.python(value)))
"""
)

OF_SOME_COLUMNS = (
    ROW
    + """
def query(orders: st.ZSet[Order]) -> Any:
    large = st.filter(orders, f=lambda o: o.amount > 1)
    users = st.map(large, f=lambda o: o.user)
    return st.distinct(users), st.count(st.map(orders, f=lambda o: o.amount))
"""
)


def test_a_state_goes_on_when_a_class_of_rows_is_renamed(tmp_path: Path) -> None:
    taken(OF_CLASSES, tmp_path / "state")
    repeated, counted = gone_on(
        OF_CLASSES.replace("Order", "Purchase").replace("Spent", "Paid"), tmp_path / "state"
    )
    assert [n for _, n in repeated.to_python().iter()] == [-2, -2]
    assert [n for _, n in counted.to_python().iter()] == [-1]


@pytest.mark.parametrize(
    ("old", "new"),
    [("o.amount * 2", "o.amount * 3"), ("amount=o.amount * 2", "amount=o.user * 2")],
)
def test_a_state_is_refused_when_a_field_of_a_row_is_computed_otherwise(
    old: str, new: str, tmp_path: Path
) -> None:
    taken(OF_CLASSES, tmp_path / "state")
    with pytest.raises(st.StoreMismatch, match="belongs to another circuit"):
        gone_on(OF_CLASSES.replace(old, new), tmp_path / "state")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("order", "o"),
        ("total", "product"),
        ("step for step in", "i for i in"),
        ("user for user in", "x for x in"),
        ("lambda u: -u", "lambda name: -name"),
        ("value", "worth"),
    ],
)
def test_a_state_goes_on_when_names_within_a_python_function_change(
    old: str, new: str, tmp_path: Path
) -> None:
    taken(OF_PYTHON, tmp_path / "state")
    anew = OF_PYTHON[len(ROW) :].replace(old, new)
    assert anew != OF_PYTHON[len(ROW) :]
    (out,) = gone_on(ROW + anew, tmp_path / "state")
    assert [n for _, n in out.to_python().iter()] == [-1, -1]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("amount * by", "amount + by"),
        ("rate(amount, len(by))", "rate(len(by), amount + 1)"),
        ("order.amount", "order.user"),
        ("amount: int, by: int", "by: int, amount: int"),
        ("scale: int = 3", "scale: int = 4"),
        ("-u)", "u)"),
    ],
)
def test_a_state_is_refused_when_a_python_function_changes(
    old: str, new: str, tmp_path: Path
) -> None:
    taken(OF_PYTHON, tmp_path / "state")
    anew = OF_PYTHON[len(ROW) :].replace(old, new)
    assert anew != OF_PYTHON[len(ROW) :]
    with pytest.raises(st.StoreMismatch, match="belongs to another circuit"):
        gone_on(ROW + anew, tmp_path / "state")


def test_a_state_goes_on_when_an_input_gets_a_column_that_nothing_reads(tmp_path: Path) -> None:
    taken(OF_SOME_COLUMNS, tmp_path / "state")
    wider = OF_SOME_COLUMNS.replace("amount: int", "amount: int\n    note: str = ''")
    users, counted = gone_on(wider, tmp_path / "state")
    assert dict(users.to_python().iter()) == {1: -1}
    assert dict(counted.to_python().iter()) == {0: 1, 2: -1}


def test_a_state_that_keeps_the_rows_says_which_column_is_new(tmp_path: Path) -> None:
    whole = OF_CLASSES.replace("lambda p: p.left", "lambda p: p.right")
    taken(whole, tmp_path / "state")
    wider = whole.replace("amount: int\n\nROWS", "amount: int\n    note: str = ''\n\nROWS")
    with pytest.raises(st.StoreMismatch, match="'note'") as e:
        gone_on(wider, tmp_path / "state")
    assert "st.map" in str(e.value)


@pytest.mark.parametrize(
    ("old", "new"),
    [("amount: int", "amount: float"), ("user: int", "user: str")],
)
def test_a_state_is_refused_when_a_column_that_is_read_has_another_type(
    old: str, new: str, tmp_path: Path
) -> None:
    source = OF_SOME_COLUMNS.replace("o: o.user)", "o: o.user == o.user)")
    taken(source, tmp_path / "state")
    other = source.replace(old, new).replace("user=1", "user='1'" if "str" in new else "user=1")
    other = other.replace("amount=", "amount=0.5+" if "float" in new else "amount=")
    with pytest.raises(st.StoreMismatch, match="belongs to another circuit"):
        gone_on(other, tmp_path / "state")


FED_BACK = """
ROWS = (st.ZSetPython({1: 1}), st.ZSetPython({2: 1}))

def query(a: st.ZSet[int], b: st.ZSet[int]) -> Any:
    with st.feedback(st.ZSet[int]) as y, st.feedback(st.ZSet[int]) as x:
        one = st.add(a, st.map(y, f=lambda n: n + 10))
        other = st.add(b, st.map(x, f=lambda n: n + 20))
        y.connect(st.delay(one))
        x.connect(st.delay(other))
    return one, other
"""


def test_a_state_is_refused_when_feedbacks_are_connected_otherwise(tmp_path: Path) -> None:
    taken(FED_BACK, tmp_path / "state")
    crossed = FED_BACK.replace("delay(one)", "delay(both)").replace("delay(other)", "delay(one)")
    with pytest.raises(st.StoreMismatch, match="belongs to another circuit"):
        gone_on(crossed.replace("delay(both)", "delay(other)"), tmp_path / "state")


def test_a_state_with_feedbacks_goes_on_with_the_same_circuit(tmp_path: Path) -> None:
    taken(FED_BACK, tmp_path / "state")
    one, _ = gone_on(FED_BACK.replace("one", "first"), tmp_path / "state")
    assert dict(one.to_python().iter()) == {1: -1, 11: 1}


OF_SPARK = (
    ROW
    + """
from pyspark.sql import functions as F

def query(orders: st.ZSet[Order]) -> Any:
    return st.distinct(st.map(orders, f=lambda o: F.format_string("%s", o.amount)))
"""
)


def test_a_state_is_refused_when_what_spark_reads_has_another_type(tmp_path: Path) -> None:
    taken(OF_SPARK, tmp_path / "state")
    other = OF_SPARK.replace("amount: int", "amount: float").replace("amount=", "amount=0.5+")
    with pytest.raises(st.StoreMismatch, match="belongs to another circuit"):
        gone_on(other, tmp_path / "state")


def test_a_state_goes_on_when_spark_does_not_read_the_column_that_is_new(tmp_path: Path) -> None:
    taken(OF_SPARK, tmp_path / "state")
    (out,) = gone_on(
        OF_SPARK.replace("amount: int", "amount: int\n    note: str = ''"), tmp_path / "state"
    )
    assert dict(out.to_python().iter()) == {"2": -1, "3": -1}


def test_a_state_is_refused_when_a_python_function_gets_rows_of_another_class(
    tmp_path: Path,
) -> None:
    source = OF_PYTHON.replace("order.amount", "len(repr(order))")
    taken(source, tmp_path / "state")
    with pytest.raises(st.StoreMismatch, match="belongs to another circuit"):
        gone_on(source.replace("Order", "Purchase"), tmp_path / "state")
