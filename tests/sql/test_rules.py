"""Rewrites of plans: the rows of views are the same without them, and what they save."""

from __future__ import annotations

import itertools
import random
import re
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from sqlglot import exp

import stepping_spark as st
from stepping_spark.plan.planner import plan_of as plan_of_graph
from stepping_spark.sql import api, with_sources
from stepping_spark.sql.facts import FALSE, NULL, OTHER, TRUE, possible
from stepping_spark.sql.plan import (
    GroupBy,
    PlanColumn,
    RelationalPlan,
    Shapes,
    SqlJoin,
    TableScan,
    WhereClause,
    nodes,
    ref,
)
from stepping_spark.sql.rules import optimized
from tests.sql.corpus import Maintained
from tests.sql.shop import TABLES, changes, queries

SEEDS = range(2)
PARTS = 8
STEPS = 4

OUTER = {  # the joins that are left
    "SELECT o.id, c.name FROM orders o LEFT JOIN customers c USING (customer) "
    "WHERE c.country = 'AT'": "inner",
    "SELECT o.id, c.name FROM customers c RIGHT JOIN orders o USING (customer) "
    "WHERE c.score > 0.6 OR c.country IN ('AT', 'DE')": "inner",
    "SELECT o.id, c.name FROM orders o FULL JOIN customers c ON o.customer = c.customer "
    "WHERE o.qty + 1 > 1": "left",
    "SELECT o.id, c.name FROM orders o FULL JOIN customers c ON o.customer = c.customer "
    "WHERE c.name LIKE 'b%'": "right",
    "SELECT o.id, c.name FROM orders o FULL JOIN customers c ON o.customer = c.customer "
    "WHERE c.score < o.qty": "inner",
    "SELECT o.id FROM orders o LEFT JOIN customers c ON o.customer = c.customer "
    "WHERE NOT (c.country IS NULL)": "inner",
    "SELECT o.id FROM orders o LEFT JOIN customers c ON o.customer = c.customer "
    "WHERE c.country IS NULL": "left",
    "SELECT o.id FROM orders o LEFT JOIN customers c ON o.customer = c.customer "
    "WHERE coalesce(c.score, 2) > 1": "left",
    "SELECT o.id FROM orders o LEFT JOIN customers c ON o.customer = c.customer "
    "WHERE CASE WHEN c.name IS NULL THEN FALSE ELSE c.score > 0 END": "inner",
    "SELECT o.id FROM orders o LEFT JOIN customers c ON o.customer = c.customer "
    "WHERE CASE WHEN c.name = 'Bob' THEN FALSE ELSE o.qty > 0 END": "left",
    "SELECT o.id FROM orders o LEFT JOIN customers c ON o.customer = c.customer "
    "WHERE NOT (c.country <=> 'AT')": "left",
    "SELECT o.id, i.product FROM (orders o LEFT JOIN customers c ON o.customer = c.customer) "
    "JOIN items i ON i.price > c.score": "inner inner",
    "SELECT id FROM orders o WHERE amount > "
    "(SELECT avg(score) FROM customers c WHERE c.customer = o.customer)": "inner",
    "SELECT id FROM orders o WHERE qty > "
    "(SELECT count(*) FROM customers c WHERE c.customer = o.customer)": "left",
}
COMMON = [  # rows that are joined with their own groups
    "SELECT o.id, o.amount FROM orders o, customers c WHERE o.customer = c.customer AND "
    "c.country = 'AT' AND o.amount < (SELECT avg(p.amount) FROM orders p WHERE p.customer = "
    "c.customer)",
    "SELECT o.id, c.name FROM customers c JOIN orders o ON c.customer = o.customer WHERE "
    "c.score > 0.5 AND o.qty = (SELECT min(p.qty) FROM orders p WHERE c.customer = p.customer) "
    "AND o.note = 'a'",
    "SELECT o.id, i.product FROM orders o, items i, customers c WHERE o.id = i.order_id AND "
    "o.customer = c.customer AND c.country = 'DE' AND i.price = (SELECT max(j.price) FROM orders "
    "p, items j WHERE p.id = j.order_id AND p.customer = c.customer)",
    "SELECT o.id, i.product FROM orders o JOIN items i ON o.id = i.order_id WHERE i.price < "
    "(SELECT sum(j.price) FROM orders p JOIN items j ON p.id = j.order_id WHERE p.customer = "
    "o.customer)",
    "SELECT o.id FROM orders o, customers c, (SELECT customer, qty, max(amount) AS most FROM "
    "orders WHERE note = 'a' GROUP BY customer, qty) g WHERE o.note = 'a' AND o.customer = "
    "c.customer AND o.qty = c.score AND c.name = 'Ann' AND g.customer = c.customer AND g.qty = "
    "c.score AND o.amount = g.most",
]
NOT_COMMON = [
    "SELECT o.id, o.amount FROM orders o, customers c WHERE o.customer = c.customer AND "
    "c.country = 'AT' AND o.amount >= (SELECT avg(p.amount) FROM orders p WHERE p.note = 'b' AND "
    "p.customer = c.customer)",
]
REGROUPED = [
    "SELECT c.name, o.id, sum(i.price) AS total FROM customers c, orders o, items i WHERE o.id IN "
    "(SELECT order_id FROM items GROUP BY order_id HAVING sum(price) > 2) AND c.customer = "
    "o.customer AND o.id = i.order_id GROUP BY c.name, o.id",
    "SELECT o.customer, count(*) AS n, count(i.price) AS known, min(i.price) AS least, "
    "max(i.product) AS most, max(o.qty) AS q, sum(i.order_id) AS s FROM orders o JOIN items i ON "
    "i.order_id = o.id WHERE EXISTS (SELECT 1 FROM (SELECT order_id AS k, count(*) AS n FROM items "
    "GROUP BY order_id) g WHERE g.k = o.id AND n < 4) GROUP BY o.customer",
    "SELECT i.order_id, sum(i.price) AS s FROM orders o, items i, (SELECT order_id, "
    "sum(price) AS s FROM items WHERE product = 'tea' GROUP BY order_id) g WHERE i.product = 'tea' "
    "AND g.order_id = o.id AND i.order_id = g.order_id AND o.qty < g.s GROUP BY i.order_id",
    "SELECT sum(i.price) AS s, max(o.qty) AS q FROM orders o, items i WHERE o.id = i.order_id AND "
    "o.id IN (SELECT order_id FROM items GROUP BY order_id HAVING count(*) > 1)",
]
NOT_REGROUPED = [
    "SELECT o.customer, sum(i.price) AS s FROM orders o, items i WHERE o.id = i.order_id AND "
    "o.id IN (SELECT order_id FROM items GROUP BY order_id HAVING sum(price) > 2) AND EXISTS "
    "(SELECT 1 FROM customers c WHERE c.score < i.price) GROUP BY o.customer",
    "SELECT o.customer, sum(i.price) AS s, sum(o.qty) AS q FROM orders o, items i WHERE o.id = "
    "i.order_id AND o.id IN (SELECT order_id FROM items GROUP BY order_id HAVING sum(price) > 2) "
    "GROUP BY o.customer",
    "SELECT i.product, sum(i.price) AS s FROM orders o, items i WHERE o.id = i.order_id AND "
    "o.id IN (SELECT order_id FROM items GROUP BY order_id HAVING sum(price) > 2) "
    "GROUP BY i.product",
    "SELECT o.customer, sum(i.price) AS s FROM orders o, items i WHERE o.id = i.order_id AND "
    "i.product = 'tea' AND o.id IN (SELECT order_id FROM items GROUP BY order_id HAVING sum(price) "
    "> 2) GROUP BY o.customer",
    "SELECT o.customer, sum(DISTINCT i.price) AS s, count(*) AS n FROM orders o, items i WHERE "
    "o.id = i.order_id AND o.id IN (SELECT order_id FROM items GROUP BY order_id HAVING sum(price) "
    "> 2) GROUP BY o.customer",
    "SELECT count(*) AS n FROM orders o, items i WHERE o.id = i.order_id AND o.id IN (SELECT "
    "order_id FROM items GROUP BY order_id HAVING sum(price) > 2)",
    "SELECT o.customer, sum(i.price) AS s FROM orders o, items i WHERE o.id = i.order_id AND "
    "o.qty IN (SELECT order_id FROM items GROUP BY order_id HAVING sum(price) > 2) "
    "GROUP BY o.customer",
]
NULLS = {  # how many antijoins and marks are left
    "SELECT qty FROM orders WHERE id NOT IN (SELECT customer FROM customers)": 1,
    "SELECT qty FROM orders WHERE id NOT IN (SELECT customer FROM orders)": 2,
    "SELECT id FROM orders WHERE customer NOT IN (SELECT customer FROM customers)": 2,
    "SELECT id FROM orders WHERE customer NOT IN (SELECT qty FROM orders WHERE qty > 1)": 2,
    "SELECT id FROM orders WHERE customer > 1 AND customer NOT IN (SELECT customer FROM customers)":
        2,
    "SELECT qty FROM orders WHERE qty = 1 OR id NOT IN (SELECT customer FROM customers)": 1,
    "SELECT id FROM orders LEFT JOIN customers c USING (customer) WHERE c.customer NOT IN "
    "(SELECT id FROM orders)": 2,
}  # fmt: skip
SHARED = [
    "SELECT customer, sum(price * qty) AS s FROM orders JOIN items ON id = order_id GROUP BY "
    "customer HAVING sum(price * qty) > (SELECT sum(price * qty) / 4 FROM orders JOIN items ON "
    "id = order_id)",
    "WITH paid AS (SELECT customer, id, price, product FROM orders JOIN items ON id = order_id) "
    "SELECT 'p' AS what, sum(price) AS v FROM paid UNION ALL SELECT product, max(customer) FROM "
    "paid GROUP BY product",
]
ONE_ROW = [
    "SELECT c.name, o.id FROM customers c, orders o WHERE c.customer = o.customer AND o.amount = "
    "(SELECT max(amount) FROM orders)",
    "SELECT c.name, o.id FROM customers c, orders o, (SELECT min(qty) AS q FROM orders) m WHERE "
    "c.customer = o.customer AND m.q = o.qty AND m.q < c.score",
]
FEW = [
    "SELECT o.id, i.product FROM items i, orders o, customers c WHERE o.id = i.order_id AND "
    "c.customer = o.customer AND c.country = 'AT'",
    "SELECT c.name, o.id FROM customers c, orders o, (SELECT order_id, sum(price) AS s FROM items "
    "GROUP BY order_id HAVING sum(price) > 2) g WHERE c.customer = o.customer AND order_id = o.id",
    "SELECT o.id, i.product, d.name FROM items i JOIN orders o ON o.id = i.order_id JOIN customers "
    "c ON o.customer = c.customer JOIN customers d ON d.score = c.score WHERE d.name LIKE 'B%'",
]
EVERY = [*OUTER, *COMMON, *NOT_COMMON, *REGROUPED, *NOT_REGROUPED, *NULLS, *SHARED, *ONE_ROW, *FEW]


def plan_of(text: str, monkeypatch: pytest.MonkeyPatch) -> RelationalPlan:
    """The plan of a view, after all rules."""
    found: list[RelationalPlan] = []

    def kept(*given: Any, **more: Any) -> RelationalPlan:
        found.append(optimized(*given, **more))
        return found[-1]

    with monkeypatch.context() as m:
        m.setattr(api, "optimized", kept)
        compiled(text)
    return found[-1]


def compiled(text: str) -> None:
    tables: dict[str, Any] = TABLES
    st.compile(st.sql(text, **tables))


def hows(plan: RelationalPlan) -> list[str]:
    return [n.how for n in nodes(plan) if isinstance(n, SqlJoin)]


def hold(text: str, seeds: Iterable[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Step a view with rules and without, and compare the rows after each step."""
    with_rules = Maintained(text, TABLES)
    with monkeypatch.context() as m:
        m.setattr(api, "optimized", lambda plan, facts, **_: plan)
        without = Maintained(text, TABLES)
    assert_same(with_rules, without, seeds, text)


def assert_same(
    one: Maintained, other: Maintained, seeds: Iterable[int] = SEEDS, text: str = ""
) -> None:
    """See that two views have the same rows after random steps, and when tables are empty again."""
    for seed in seeds:
        steps = list(changes(seed, STEPS))
        _, there = steps[-1]
        gone = {name: {row: -n for row, n in rows.items()} for name, rows in there.items()}
        for change in (*(change for change, _ in steps), gone):
            for view in (one, other):
                view.step(change)
            assert one.left == other.left, (text, seed)


JOINS = {name: text for name, text in queries().items() if "JOIN" in text}


@pytest.mark.turn(3)
@pytest.mark.spark
@pytest.mark.parametrize("text", JOINS.values(), ids=JOINS)
def test_a_view_has_the_same_rows_when_its_state_has_whole_rows(text: str) -> None:
    assert_same(Maintained(text, TABLES), Maintained(text, TABLES, whole_rows=True))


def test_a_state_with_whole_rows_has_all_columns_of_tables_below_joins() -> None:
    text = (
        "SELECT c.country, count(*) AS n FROM orders o JOIN customers c USING (customer) "
        "JOIN items i ON i.order_id = o.id WHERE o.qty > 1 GROUP BY c.country"
    )
    tables: dict[str, Any] = TABLES
    for whole_rows in (False, True):
        graph = st.compile(st.sql(text, **tables), whole_rows=whole_rows)
        names = {n for r in plan_of_graph(graph).registers for n, _ in r.schema.columns}
        wanted = {"name", "score", "amount", "product"}
        assert wanted <= names if whole_rows else not wanted & names


@pytest.mark.spark
@pytest.mark.turn(PARTS)
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("whole_rows", [False, True])
def test_a_circuit_is_the_same_if_tables_have_only_the_columns_that_are_read(
    whole_rows: bool, part: int
) -> None:
    read = Counter[bool]()
    for name, text in [*queries().items()][part::PARTS]:
        graphs = []
        query: Any = st.sql(text)
        if not hasattr(query, "with_tables"):
            continue  # it reads no table
        kept = None if whole_rows else ()
        for bound in query.with_tables(TABLES), with_sources([query], [TABLES], kept)[0]:
            graph = st.compile(bound, whole_rows=whole_rows)
            columns = sum(len(v.type.schema.columns) for v in graph.inputs)
            graphs.append((columns, re.sub(r"  \(.*", "", str(st.explain(graph)))))
        (every, whole), (some, narrow) = graphs
        assert narrow == whole, name
        read[some < every] += 1
    assert read[True] == 0 if whole_rows else read[True] > read[False]


@pytest.mark.parametrize("text", EVERY)
def test_a_view_has_the_same_rows_without_rules(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hold(text, SEEDS, monkeypatch)


_ALIASES = {"orders": ("o", "p"), "items": ("i", "j"), "customers": ("c", "d")}
_CHAIN = ("customers", "orders", "items")
_LINKS = {("customers", "orders"): "{0}.customer = {1}.customer", ("orders", "items"):
          "{0}.id = {1}.order_id"}  # fmt: skip
_ALONE = {
    "orders": ["{}.qty > 0", "{}.note = 'a'", "{}.amount IS NOT NULL", "{}.qty <> 2 OR {}.id > 9"],
    "items": ["{}.product = 'tea'", "{}.price > 1", "{}.product IS NULL", "NOT {}.price > 2"],
    "customers": ["{}.country = 'AT'", "{}.score > 0.7", "{}.name <> 'Bob'", "{}.country IS NULL"],
}
_NUMBERS = {"orders": ["amount", "qty"], "items": ["price"], "customers": ["score"]}
_KEYS = {"orders": ["customer", "id"], "items": ["order_id"], "customers": ["customer"]}


def random_view(r: random.Random) -> str:
    """A view that joins tables, and compares them with groups of the same tables, or of others."""
    shape = r.choice((_with_aggregate, _with_aggregate, _with_groups))
    return shape(r, r.choice((_CHAIN[:2], _CHAIN[1:], _CHAIN)))


def _links(of: tuple[str, ...], n: int) -> list[str]:
    return [_LINKS[a, b].format(_ALIASES[a][n], _ALIASES[b][n]) for a, b in pairwise(of)]


def _alone(r: random.Random, t: str, n: int) -> str:
    return "(" + r.choice(_ALONE[t]).replace("{}", _ALIASES[t][n]) + ")"


def _read(of: tuple[str, ...], n: int) -> str:
    return ", ".join(f"{t} {_ALIASES[t][n]}" for t in of)


def _column(r: random.Random, of: tuple[str, ...], n: int, names: dict[str, list[str]]) -> str:
    t = r.choice(of)
    return f"{_ALIASES[t][n]}.{r.choice(names[t])}"


def _with_aggregate(r: random.Random, outer: tuple[str, ...]) -> str:
    """Rows that are compared with an aggregate of rows of some of the tables, by a key."""
    inner = r.choice((outer[-1:], outer[1:], outer, outer[:1]))
    where = [*_links(outer, 0), *(_alone(r, t, 0) for t in outer if r.random() < 0.5)]
    within = _links(inner, 1)
    if r.random() < 0.2:
        within.append(_alone(r, r.choice(inner), 1))
    if inner[0] != outer[0] and r.random() < 0.8:  # by the key that joins the next table
        before = outer[outer.index(inner[0]) - 1]
        link = _LINKS[before, inner[0]]
        within.append(link.format(_ALIASES[before][0], _ALIASES[inner[0]][1]))
    else:
        t = r.choice(inner)
        key = r.choice(_KEYS[t])
        other = f"{_ALIASES[t][0]}.{key}"
        other = other if r.random() < 0.8 else _column(r, outer, 0, _KEYS)
        within.append(f"{_ALIASES[t][1]}.{key} = {other}")
    name = r.choice(("min", "max", "sum", "avg", "count"))
    sub = f"SELECT {name}({_column(r, inner, 1, _NUMBERS)}) FROM {_read(inner, 1)} WHERE "
    left = _column(r, outer, 0, _NUMBERS)
    compared = f"{left} {r.choice(('<', '=', '>='))} ({sub}{' AND '.join(within)})"
    where.append(compared if r.random() < 0.8 else f"({compared} OR {left} IS NULL)")
    listed = f"{_column(r, outer, 0, _KEYS)} AS k, {_column(r, outer, 0, _NUMBERS)} AS v"
    return f"SELECT {listed} FROM {_read(outer, 0)} WHERE {' AND '.join(where)}"


def _with_groups(r: random.Random, outer: tuple[str, ...]) -> str:
    """Sums of rows whose keys are among those of groups."""
    before, t = outer[-2:]
    key = {"orders": "customer", "items": "order_id"}[t]
    own = [_alone(r, t, 1)] if r.random() < 0.3 else []
    named = _LINKS[before, t].format(_ALIASES[before][0], "").split(" = ")[0]
    having = f"{r.choice(('sum', 'count', 'max'))}({r.choice(_NUMBERS[t])}) > 1"
    inside = f" WHERE {own[0]}" if own else ""
    groups = f"SELECT {key} FROM {t} {_ALIASES[t][1]}{inside} GROUP BY {key} HAVING {having}"
    where = [*_links(outer, 0), f"{named} IN ({groups})"]
    if own and r.random() < 0.8:
        where.append(own[0].replace(f"{_ALIASES[t][1]}.", f"{_ALIASES[t][0]}."))
    if r.random() < 0.4:
        where.append(_alone(r, before, 0))
    r.shuffle(where)
    calls = [f"{r.choice(('sum', 'count', 'min', 'max'))}({_column(r, (t,), 0, _NUMBERS)}) AS v"]
    more = [f"max({_column(r, outer, 0, _NUMBERS)}) AS m", "count(*) AS n", "sum(o.qty) AS q"]
    calls += [e for e in more if r.random() < 0.3]
    by = r.choice((named, f"{_ALIASES[t][0]}.{key}", _column(r, outer, 0, _KEYS), ""))
    shown = ", ".join([f"{by} AS k", *calls] if by else calls)
    group = f" GROUP BY {by}" if by else ""
    return f"SELECT {shown} FROM {_read(outer, 0)} WHERE {' AND '.join(where)}{group}"


@pytest.mark.parametrize(
    "seeds",
    [
        range(12),
        *(pytest.param(range(n, n + 50), marks=pytest.mark.long) for n in range(100, 500, 50)),
    ],
    ids=lambda seeds: str(seeds[0]),
)
def test_a_random_view_has_the_same_rows_without_rules(
    seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in seeds:
        hold(random_view(random.Random(seed)), [seed], monkeypatch)


@pytest.mark.parametrize("text", OUTER)
def test_outer_joins_of_which_a_condition_wants_matches_only_are_inner(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert " ".join(hows(plan_of(text, monkeypatch))) == OUTER[text]


@pytest.mark.parametrize("text", COMMON)
def test_rows_and_their_groups_read_one_join(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = plan_of(text, monkeypatch)
    (groups,) = (n for n in nodes(plan) if isinstance(n, GroupBy))
    shapes = Shapes()
    grouped = shapes.of(groups.source)
    assert [shapes.of(n) for n in nodes(plan)].count(grouped) == 2


@pytest.mark.parametrize("text", [*REGROUPED, *NOT_REGROUPED])
def test_rows_whose_groups_are_joined_are_read_once(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of(text, monkeypatch)
    read = [n.table for n in nodes(plan) if isinstance(n, TableScan)].count("items")
    assert read == (1 if text in REGROUPED else 2)


@pytest.mark.parametrize("text", NULLS)
def test_what_is_never_null_is_not_asked_for(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Counter(hows(plan_of(text, monkeypatch)))
    assert found["anti"] + found["mark"] == NULLS[text]


@pytest.mark.parametrize("text", SHARED)
def test_joins_that_differ_in_the_columns_that_are_read_are_one(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    joins = [n for n in nodes(plan_of(text, monkeypatch)) if isinstance(n, SqlJoin)]
    joins = [n for n in joins if isinstance(n.on[0], exp.EQ)]
    assert len(joins) == 2
    assert len(set(map(Shapes().of, joins))) == 1


@pytest.mark.parametrize("text", FEW)
def test_few_rows_are_joined_first(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    joins = [n for n in nodes(plan_of(text, monkeypatch)) if isinstance(n, SqlJoin)]
    assert any(isinstance(n, WhereClause) for n in nodes(joins[-1].right))


@pytest.mark.parametrize("text", ONE_ROW)
def test_a_single_row_is_joined_first_with_what_it_is_equal_to(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    joins = [n for n in nodes(plan_of(text, monkeypatch)) if isinstance(n, SqlJoin)]
    read = [{n.table for n in nodes(j) if isinstance(n, TableScan)} for j in joins]
    assert read == [{"customers", "orders"}, {"orders"}]


A, B = (PlanColumn(name) for name in "ab")
VALUES = {TRUE: True, FALSE: False, NULL: None, OTHER: 3}


def conditions() -> list[exp.Expr]:
    """Conditions on two columns."""
    a, b, null = ref(A), ref(B), exp.Null()
    some: list[exp.Expr] = [a, b, null, exp.true(), exp.false(), exp.Is(this=a, expression=null)]
    some += [exp.NullSafeEQ(this=x, expression=y) for x, y in ((a, b), (a, null), (b, null))]
    some += [exp.EQ(this=a, expression=b)]
    some += [exp.Not(this=e.copy()) for e in some]
    pairs = list(itertools.product(some, some))
    some += [exp.And(this=x.copy(), expression=y.copy()) for x, y in pairs]
    some += [exp.Or(this=x.copy(), expression=y.copy()) for x, y in pairs]
    some += [
        exp.Case(ifs=[exp.If(this=x.copy(), true=y.copy())], default=b.copy()) for x, y in pairs
    ]
    some += [exp.Anonymous(this="coalesce", expressions=[x.copy(), y.copy()]) for x, y in pairs]
    return some


def value(e: exp.Expr, b: bool | None) -> bool | None:
    """The value of a condition where a is NULL."""
    known = {A: None, B: b}

    def of(e: exp.Expr) -> bool | None:
        match e:
            case exp.Column():
                return known[e.meta["column"]]
            case exp.Null():
                return None
            case exp.Boolean():
                return bool(e.this)
            case exp.Is():
                return of(e.this) is None
            case exp.Not():
                inner = of(e.this)
                return None if inner is None else not inner
            case exp.NullSafeEQ():
                return of(e.this) is of(e.expression)
            case exp.EQ():
                x, y = of(e.this), of(e.expression)
                return None if None in (x, y) else x is y
            case exp.And():
                x, y = of(e.this), of(e.expression)
                return False if False in (x, y) else None if None in (x, y) else True
            case exp.Or():
                x, y = of(e.this), of(e.expression)
                return True if True in (x, y) else None if None in (x, y) else False
            case exp.Case():
                (branch,) = e.args["ifs"]
                return of(branch.args["true"]) if of(branch.this) is True else of(e.args["default"])
        values = map(of, e.expressions)
        return next((v for v in values if v is not None), None)

    return of(e)


def test_a_value_where_a_column_is_null_is_among_the_possible_ones() -> None:
    for e in conditions():
        found = possible(e, {A})
        for b in (True, False, None):
            assert {True: TRUE, False: FALSE, None: NULL}[value(e, b)] in found, e.sql()
