"""`per_group`: a circuit lifted to run per key gives what running it for each key would give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as hs
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import stepping_spark as st
from stepping_spark.language import linear
from tests.cases import Z
from tests.strategies import Step, add_up, streams_of


class Sale(st.Data):
    shop: str | None
    item: str
    price: int


class Tag(st.Data):
    item: str
    tag: str


class Prices(st.Data):
    item: str
    n: int
    total: int
    least: int
    most: str
    prices: int
    first: list[int]
    names: Z[str]


class Totals(st.Data):
    n: int
    most: int | None
    first: list[str]


Body = Callable[[Any, Any, Any], Any]  # operators, the group's stream, a stream from outside


def odd_items(ops: Any, s: Any, tags: Any) -> Any:
    return st.map(st.filter(s, f=lambda r: r.price % 2 == 1), f=lambda r: (r.item, r.price + 1))


def lengths(ops: Any, s: Any, tags: Any) -> Any:
    return st.map(s, f=st.python(lambda r: len(r.item), to=int))


def many(ops: Any, s: Any, tags: Any) -> Any:
    doubled: Any = st.map_many(s, f=lambda r: [r.item, r.item])
    f: Any = lambda item: [(item, 2), ("", -1)]  # noqa: E731
    return st.explode(doubled, f=f)


def items(ops: Any, s: Any, tags: Any) -> Any:
    return ops.distinct(st.map(s, f=lambda r: r.item))


def total(ops: Any, s: Any, tags: Any) -> Any:
    return ops.reduce(s, zero=int, pick_value=lambda r: r.price)


def number(ops: Any, s: Any, tags: Any) -> Any:
    dear = st.filter(s, f=st.python(lambda r: r.price > 1, to=bool))
    return ops.count(st.add(dear, s))


def by_item(ops: Any, s: Any, tags: Any) -> Any:
    return ops.group_reduce_flatten(s, by=lambda r: r.item, zero=int, pick_value=lambda r: r.price)


def collected(ops: Any, s: Any, tags: Any) -> Any:
    item: Any = st.agg.collect(lambda r: r.item)
    return ops.reduce(s, zero=Z, pick_value=item)


def with_outside(ops: Any, s: Any, tags: Any) -> Any:
    return ops.join(tags, s, on_left=lambda t: t.item, on_right=lambda r: r.item)


def with_itself(ops: Any, s: Any, tags: Any) -> Any:
    cheap = st.filter(s, f=lambda r: r.price < 3)
    pairs = ops.join(s, cheap, on_left=lambda r: r.item, on_right=lambda r: r.item)
    return ops.distinct(st.map(pairs, f=lambda p: (p.left.price, p.right.price)))


def nested(ops: Any, s: Any, tags: Any) -> Any:
    prices = st.per_group[st.group(s, by=lambda r: r.item)](
        lambda t: ops.distinct(st.map(t, f=lambda r: r.price))
    )
    return ops.count(st.flatten(prices))


def nested_join(ops: Any, s: Any, tags: Any) -> Any:
    inner = st.per_group[st.group(s, by=lambda r: r.price)](
        lambda t: ops.join(t, s, on_left=lambda r: r.item, on_right=lambda r: r.item)
    )
    flat: Any = st.flatten(inner)
    return st.map(flat, f=lambda g: (g.left.left.price, g.left.right.price, g.right))


def cheapest(ops: Any, s: Any, tags: Any) -> Any:
    return ops.first_n(s, lambda r: (r.price, r.item), 2)


def cheapest_of_each(ops: Any, s: Any, tags: Any) -> Any:
    best = st.per_group[st.group(s, by=lambda r: r.item)](
        lambda t: ops.first_n(t, lambda r: r.price, 1)
    )
    flat: Any = st.flatten(best)
    return st.map(flat, f=lambda g: g.left.price)


def price(r: Sale) -> int:
    return r.price


def item(r: Sale) -> str:
    return r.item


def aggregates_by_item(ops: Any, s: Any, tags: Any) -> Any:
    return ops.aggregate(
        s,
        lambda r: r.item,
        Prices,
        n=st.agg.count(),
        total=st.agg.sum(lambda r: r.price),
        least=st.agg.min(lambda r: r.price),
        most=st.agg.arg_max(price, item),
        prices=st.agg.count_distinct(lambda r: r.price),
        first=st.agg.first_n(lambda r: r.price, 2, lambda r: r.price),
        names=st.agg.collect(item),
    )


def aggregates(ops: Any, s: Any, tags: Any) -> Any:
    return ops.aggregate(
        s,
        None,
        Totals,
        n=st.agg.count(),
        most=st.agg.max(lambda r: r.price),
        first=st.agg.first_n(lambda r: r.price, 2, lambda r: r.item),
    )


def dearest_of_each(ops: Any, s: Any, tags: Any) -> Any:
    best = st.per_group[st.group(s, by=lambda r: r.item)](lambda t: aggregates(ops, t, tags))
    flat: Any = st.flatten(best)
    return st.map(flat, f=lambda g: g.left.most)


BODIES: dict[str, tuple[Body, Any]] = {
    "filter and map": (odd_items, tuple[str, int]),
    "a function in Python": (lengths, int),
    "map many and explode": (many, str),
    "distinct": (items, str),
    "reduce": (total, int),
    "count, after a filter in Python": (number, int),
    "groups by another key": (by_item, st.Pair[int, str]),
    "collect": (collected, Z[str]),
    "a join with a stream from outside": (with_outside, st.Pair[Tag, Sale]),
    "a join with the group itself": (with_itself, tuple[int, int]),
    "groups of groups": (nested, int),
    "the first rows": (cheapest, Sale),
    "the first rows of groups of groups": (cheapest_of_each, int),
    "aggregates of every kind": (aggregates_by_item, Prices),
    "aggregates without a key": (aggregates, Totals),
    "aggregates of groups of groups": (dearest_of_each, int | None),
    "a join in groups of groups": (nested_join, tuple[int, int, int]),
}
every_body = pytest.mark.parametrize("body", BODIES)


def lifted(body: str, ops: Any = st) -> Callable[..., Any]:
    f, _ = BODIES[body]

    def query(a: st.ZSet[Sale], tags: st.ZSet[Tag]) -> Any:
        g = st.group(a, by=lambda r: r.shop)
        return st.flatten(st.per_group[g](lambda s: f(ops, s, tags)))

    return gives(query, st.Pair[BODIES[body][1], str | None])  # type: ignore[misc]


def alone(body: str) -> Callable[..., Any]:
    f, row = BODIES[body]

    def query(s: st.ZSet[Sale], tags: st.ZSet[Tag]) -> Any:
        return f(linear, s, tags)

    return gives(query, row)


def gives(query: Callable[..., Any], row: Any) -> Callable[..., Any]:
    query.__annotations__["return"] = st.ZSet[row]
    return query


def one_by_one(body: str, a: Any, tags: Any) -> Any:
    """What the circuit gives for each group that has rows, by itself."""
    graph = st.compile(alone(body), optimize=False)
    pairs: list[Any] = []
    for shop in {row.shop for row, _ in a.iter()}:
        rows = Z([(row, n) for row, n in a.iter() if row.shop == shop])
        (found,) = st.reference(graph).step((rows, tags))
        pairs += [(st.Pair(left=row, right=shop), n) for row, n in found.iter()]
    return Z(pairs)


# A reduction gives a row for a group whose weights add up to something: those are its rows.
def has_rows(steps: Sequence[Step]) -> list[Step]:
    def positive(z: Any) -> Any:
        return Z([(row, abs(n)) for row, n in z.iter()])

    return [tuple(map(positive, step)) for step in steps]


def check(graph: Any, step: Callable[..., tuple[Any, ...]], body: str, steps: Any) -> None:
    so_far: Step = (Z(), Z())
    found = Z[Any]()
    for change in steps:
        so_far = add_up([change], so_far)
        (out,) = step(change)
        found = found + out.to_python()
        assert found == one_by_one(body, *so_far)


@hs.composite
def streams(draw: hs.DrawFn) -> list[Step]:
    """Insertions, then deletions of what is there: no weight is negative at any time."""
    steps = has_rows(draw(streams_of(Sale, Tag, max_steps=3)))
    back = [tuple(-z for z in step) for step in steps]
    return [*steps, *draw(hs.permutations(back))]


@every_body
@pytest.mark.turn(3)
@pytest.mark.parametrize("optimize", [True, False], ids=["optimized", "as written"])
@settings(max_examples=15)
@given(data=hs.data())
def test_plain_python_gives_what_each_group_gives_by_itself(
    body: str, optimize: bool, data: hs.DataObject
) -> None:
    steps = data.draw(streams())
    for query in (lifted(body), st.incrementalize(lifted(body, linear))):
        graph = st.compile(query, optimize=optimize)
        check(graph, st.reference(graph).step, body, steps)


@every_body
@pytest.mark.turn(2)
@settings(max_examples=4)
@given(data=hs.data())
def test_the_driver_and_spark_give_what_each_group_gives_by_itself(
    spark: SparkSession, body: str, data: hs.DataObject
) -> None:
    steps = data.draw(streams())
    graph = st.compile(lifted(body))
    check(graph, st.Stepper(graph, st.StoreMemory.from_graph(graph)).step, body, steps)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=0)
    check(graph, stepper.step, body, steps[:2])


def test_a_lifted_reduction_is_the_reduction_by_key() -> None:
    def by_key(a: st.ZSet[Sale], tags: st.ZSet[Tag]) -> st.ZSet[st.Pair[int, str | None]]:
        return st.group_reduce_flatten(
            a, by=lambda r: r.shop, zero=int, pick_value=lambda r: r.price
        )

    shown = [str(st.explain(st.compile(q))) for q in (lifted("reduce"), by_key)]
    for text in shown:
        assert "recomputed for the keys of the change" in text
        assert "in full" not in text


def test_a_group_that_has_nothing_to_add_up_has_no_sum() -> None:
    def query(a: st.ZSet[Sale]) -> st.ZSet[st.Pair[int, str | None]]:
        g = st.group(a, by=lambda r: r.shop)
        dear = st.per_group[g](lambda s: st.count(st.filter(s, f=lambda r: r.price > 1)))
        return st.flatten(dear)

    reference = st.reference(st.compile(query))
    cheap, dear = (Sale(shop="x", item="tea", price=p) for p in (1, 2))
    assert reference.step((Z({cheap: 1}),)) == (Z(),)
    assert reference.step((Z({dear: 1}),)) == (Z({st.Pair(left=1, right="x"): 1}),)
    assert reference.step((Z({dear: -1}),)) == (Z({st.Pair(left=1, right="x"): -1}),)


def test_functions_that_only_spark_reads_see_the_row_without_its_group(
    spark: SparkSession,
) -> None:
    upper: Any = F.upper

    def query(a: st.ZSet[Sale]) -> st.ZSet[st.Pair[str, str | None]]:
        g = st.group(a, by=lambda r: r.shop)
        return st.flatten(st.per_group[g](lambda s: st.map(s, f=lambda r: upper(r.item), to=str)))

    graph = st.compile(query)
    for local_rows in (st.Limits.local_rows, 0):
        stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
        (out,) = stepper.step((Z({Sale(shop="x", item="tea", price=1): 2}),))
        assert out == Z({st.Pair(left="TEA", right="x"): 2})


def test_a_loop_may_be_per_group() -> None:
    def running(a: st.ZSet[Sale]) -> st.ZSet[st.Pair[int, str | None]]:
        def body(s: st.ZSet[Sale]) -> st.ZSet[int]:
            prices = st.map(s, f=lambda r: r.price)
            with st.feedback(st.ZSet[int]) as before:
                so_far = st.add(before, prices)
                before.connect(st.delay(so_far))
            return so_far

        return st.flatten(st.per_group[st.group(a, by=lambda r: r.shop)](body))

    reference = st.reference(st.compile(running))
    one, two = Sale(shop="x", item="tea", price=1), Sale(shop=None, item="tea", price=1)
    reference.step((Z({one: 1}),))
    (out,) = reference.step((Z({two: 2}),))
    assert out == Z({st.Pair(left=1, right="x"): 1, st.Pair(left=1, right=None): 2})


def test_what_cannot_be_per_group_is_refused_with_both_lines() -> None:
    cache = st.Cache[Sale](name="sales")

    def mixed(s: Any, a: Any) -> Any:
        return st.add(s, a)

    def cached(s: Any, a: Any) -> Any:
        _ = cache[s](lambda s: st.integrate(s))
        return s

    def temporal(s: Any, a: Any) -> Any:
        return st.temporal_filter(s, lower=lambda r: r.price)

    def unused(s: Any, a: Any) -> Any:
        return a

    for body, message in (
        (mixed, "would count once in each group"),
        (cached, "a cache inside per_group"),
        (temporal, "st.temporal_filter, or st.join_function, cannot be used per group"),
        (unused, "does not depend on the group"),
    ):

        def query(a: st.ZSet[Sale], body: Any = body) -> Any:
            g = st.group(a, by=lambda r: r.shop)
            return st.flatten(st.per_group[g](lambda s: body(s, a)))

        with pytest.raises(st.CompileError, match=rf"test_groups\.py:\d+.*{message}"):
            st.compile(only_input(query))


def only_input(query: Callable[..., Any]) -> Callable[..., Any]:
    def inner(a: st.ZSet[Sale]) -> Any:
        return query(a)

    return inner
