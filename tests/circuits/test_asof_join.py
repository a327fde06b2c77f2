"""As-of joins, against pandas and DuckDB, and what they say of calls that do not fit."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Callable
from typing import Any, cast

import duckdb
import pandas as pd
import pytest
from pyspark.sql import SparkSession

import stepping_spark as st


class Order(st.Data):
    id: int
    product: str | None
    at: dt.datetime | None


class Price(st.Data):
    product: str | None
    since: dt.datetime | None
    price: int


START = dt.datetime(2024, 3, 31, tzinfo=dt.UTC)
WAYS: list[dict[str, Any]] = [
    {"direction": "backward", "how": "left"},
    {"direction": "forward", "how": "inner"},
    {"direction": "nearest", "how": "left", "tolerance": dt.timedelta(minutes=30)},
    {"direction": "backward", "how": "inner", "tolerance": dt.timedelta(minutes=15)},
]


def joined(**how: Any) -> Callable[..., Any]:
    def query(orders: st.ZSet[Order], prices: st.ZSet[Price]) -> Any:
        given: dict[str, Any] = {
            "on_left": lambda o: o.product,
            "on_right": lambda p: p.product,
            "at_left": lambda o: o.at,
            "at_right": lambda p: p.since,
        }
        return st.asof_join(orders, prices, **{**given, **how})

    return query


def by_pandas(orders: list[Order], prices: list[Price], way: dict[str, Any]) -> Counter[Any]:
    """What pandas finds; it knows no NULL as a time, and joins NULL with NULL."""
    known = [o for o in orders if o.product is not None and o.at is not None]
    found: Counter[Any] = Counter()
    if way["how"] == "left":
        found.update((o.id, None) for o in orders if o.product is None or o.at is None)
    left = pd.DataFrame({"product": o.product, "at": o.at, "id": o.id} for o in known)
    there = [p for p in prices if p.product is not None and p.since is not None]
    there.sort(key=lambda p: (p.since, p.product, p.price))
    right = pd.DataFrame({"product": p.product, "at": p.since, "price": p.price} for p in there)
    merged = pd.merge_asof(
        left.sort_values("at"),
        right,
        on="at",
        by="product",
        direction=way["direction"],
        tolerance=way.get("tolerance"),
    )
    for row in cast("Any", merged.itertuples()):
        price = None if pd.isna(row.price) else int(row.price)
        if price is not None or way["how"] == "left":
            found[(row.id, price)] += 1
    return found


def moment(draw: random.Random) -> dt.datetime | None:
    return draw.choice((None, *(START + dt.timedelta(minutes=5 * i) for i in range(30))))


@pytest.mark.parametrize("local_rows", [0, 2_000_000])
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_the_sum_of_changes_is_what_pandas_finds_in_the_tables(
    way: dict[str, Any], local_rows: int, spark: SparkSession
) -> None:
    graph = st.compile(joined(**way))
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
    draw = random.Random(5)
    orders: list[Order] = []
    prices: list[Price] = []
    found: Counter[Any] = Counter()
    for step in range(4 if local_rows else 2):
        changes = []
        for rows, made in ((orders, _order), (prices, _price)):
            gone = [rows.pop(draw.randrange(len(rows))) for _ in range(len(rows) // 3)]
            came = [made(draw, 15 * step + i) for i in range(15)]
            cast("list[Any]", rows).extend(came)
            changes.append(st.ZSetPython([(r, 1) for r in came] + [(r, -1) for r in gone]))
        (out,) = stepper.step(tuple(changes))
        for pair, n in out.iter():
            found[(pair.left.id, None if pair.right is None else pair.right.price)] += n
        assert {k: n for k, n in found.items() if n} == by_pandas(orders, prices, way)


IN_DUCKDB = {
    (direction, how): f"{join} prices p ON o.product = p.product AND o.placed {sign} p.since"
    for direction, sign in (("backward", ">="), ("forward", "<="))
    for how, join in (("left", "ASOF LEFT JOIN"), ("inner", "ASOF JOIN"))
}


def by_duckdb(orders: list[Order], prices: list[Price], join: str) -> Counter[Any]:
    """What DuckDB's ASOF finds; of prices that tie it takes any, so here none do."""
    with duckdb.connect() as db:
        db.execute("CREATE TABLE orders (id BIGINT, product TEXT, placed TIMESTAMP)")
        db.execute("CREATE TABLE prices (product TEXT, since TIMESTAMP, price BIGINT)")
        for o in orders:
            db.execute("INSERT INTO orders VALUES (?, ?, ?)", [o.id, o.product, _naive(o.at)])
        for p in prices:
            row = [p.product, _naive(p.since), p.price]
            db.execute("INSERT INTO prices VALUES (?, ?, ?)", row)
        return Counter(db.execute(f"SELECT o.id, p.price FROM orders o {join}").fetchall())


def _naive(at: dt.datetime | None) -> dt.datetime | None:
    return None if at is None else at.replace(tzinfo=None)


@pytest.mark.parametrize(("direction", "how"), IN_DUCKDB)
def test_the_sum_of_changes_is_what_duckdb_finds_in_the_tables(direction: str, how: str) -> None:
    graph = st.compile(joined(direction=direction, how=how))
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    draw = random.Random(8)
    orders: list[Order] = []
    prices: dict[Any, Price] = {}
    found: Counter[Any] = Counter()
    for step in range(4):
        came: list[Any] = [_order(draw, 10 * step + i) for i in range(10)]
        gone: list[Any] = [orders.pop(draw.randrange(len(orders))) for _ in range(len(orders) // 3)]
        change = Counter([*came]), Counter[Any]()
        change[0].subtract(gone)
        orders += came
        for _ in range(10):
            new = _price(draw, 0)
            old = prices.pop((new.product, new.since), None)
            prices[new.product, new.since] = new
            change[1].update([new])
            change[1].subtract([] if old is None else [old])
        (out,) = stepper.step(tuple(st.ZSetPython(c.items()) for c in change))
        for pair, n in out.iter():
            found[(pair.left.id, None if pair.right is None else pair.right.price)] += n
        expected = by_duckdb(orders, [*prices.values()], IN_DUCKDB[direction, how])
        assert {k: n for k, n in found.items() if n} == expected


Query = Callable[[st.ZSet[Order], st.ZSet[Price]], Any]


def among_dear(how: str) -> Query:
    return lambda o, p: joined(how=how)(o, st.filter(p, lambda p: p.price > 15))


def dear_ones(o: st.ZSet[Order], p: st.ZSet[Price]) -> Any:
    return st.filter(joined()(o, p), lambda pair: pair.right.price > 15)


ON = "prices p ON o.product = p.product AND o.placed >= p.since"


@pytest.mark.parametrize(
    ("query", "join"),
    [
        (among_dear("inner"), f"ASOF JOIN {ON} AND p.price > 15"),
        (among_dear("left"), f"ASOF LEFT JOIN {ON} AND p.price > 15"),
        (dear_ones, f"ASOF JOIN {ON} WHERE p.price > 15"),
    ],
)
def test_a_filter_before_is_a_condition_of_on_and_a_filter_after_one_of_where(
    query: Query, join: str
) -> None:
    def filtered(o: st.ZSet[Order], p: st.ZSet[Price]) -> Any:
        return query(o, p)

    draw = random.Random(3)
    orders = [_order(draw, i) for i in range(40)]
    prices = {(p.product, p.since): p for p in (_price(draw, i) for i in range(60))}
    step = st.reference(st.compile(filtered)).step
    (out,) = step(
        (st.ZSetPython([(o, 1) for o in orders]), st.ZSetPython([(p, 1) for p in prices.values()]))
    )
    found = Counter[Any]()
    for pair, n in out.iter():
        found[(pair.left.id, None if pair.right is None else pair.right.price)] += n
    assert found == by_duckdb(orders, [*prices.values()], join)


def _order(draw: random.Random, number: int) -> Any:
    return Order(id=number, product=draw.choice(("tea", "rice", None)), at=moment(draw))


def _price(draw: random.Random, number: int) -> Any:
    product = draw.choice(("tea", "rice", "salt", None))
    return Price(product=product, since=moment(draw), price=draw.randrange(40))


@pytest.mark.parametrize(
    ("query", "said"),
    [
        (joined(direction="sideways"), "expected one of 'backward', 'forward', 'nearest'"),
        (joined(how="full"), "expected one of 'inner', 'left'"),
        (joined(at_right=lambda p: p.price), "those of both sides must be of the same types"),
        (joined(at_left=lambda o: (o.at, o.id)), "expected one value, found 2"),
        (joined(tolerance=5), "expected timedelta"),
        (joined(where=lambda p: p.right.price > 0), r"where= would be .* st\.filter\(r, lambda r"),
        (joined(tolerance=dt.timedelta(-1)), "zero or more"),
        (
            joined(at_left=lambda o: o.product, at_right=lambda p: p.product, direction="nearest"),
            "times are str, which have no distances",
        ),
    ],
)
def test_what_does_not_fit_is_said_where_the_query_is_compiled(
    query: Callable[..., Any], said: str
) -> None:
    with pytest.raises(st.CompileError, match=said):
        st.compile(query)
