"""What each pass makes of a circuit, as text, and that results are the same without any of them."""

from __future__ import annotations

import dataclasses
import random
import re
from collections.abc import Callable, Iterator
from textwrap import dedent
from typing import Any

import pytest
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark.passes import PASSES, Pass, optimize
from stepping_spark.passes.cleanup import drop_dead, merge_maps, share_registers
from stepping_spark.passes.expire_state import drop_settled
from stepping_spark.passes.incremental import (
    cancel,
    collate_at_once,
    push_integrals,
    recognise_differences,
    recognise_integrals,
)
from stepping_spark.passes.top_n import first_of_ranked, keep_only_first, put_in_buckets
from stepping_spark.passes.unread_columns import drop_unread
from tests.cases import Order, User


class Total(st.Data):
    user: int
    n: int
    most: int


def loop(a: st.ZSet[int]) -> Any:
    with st.feedback(st.ZSet[int]) as before:
        total = st.add(a, before)
        before.connect(st.delay(total))
    return total


def by_hand(a: st.ZSet[int]) -> Any:
    return st.add(a, st.neg(st.delay(a)))


def undone(a: st.ZSet[int]) -> Any:
    return st.differentiate(st.neg(st.neg(st.integrate(a))))


nested = st.sql(
    "SELECT n + 1 AS n FROM (SELECT user, count(*) AS n FROM "
    "(SELECT id, user FROM orders WHERE amount > 1) GROUP BY user) "
    "UNION ALL SELECT user FROM orders",
    orders=Order,
)


def pairs(a: st.ZSet[int], b: st.ZSet[int]) -> Any:
    all_a, all_b = st.integrate(a), st.integrate(b)
    both = st.linear.join(all_a, all_b, on_left=lambda x: x, on_right=lambda y: y)
    return st.differentiate(both)


def once(a: st.ZSet[int]) -> Any:
    return st.differentiate(st.linear.distinct(st.integrate(a)))


def largest(orders: st.ZSet[Order]) -> Any:
    return st.first_n(orders, lambda o: o.amount, 2, by=lambda o: o.user)


def each(times: st.ZSet[int]) -> Any:
    return st.distinct(times)


class Placed(st.Data):
    id: int
    place: int


def placed(orders: st.ZSet[Order]) -> Any:
    ranked = st.window(
        orders,
        by=lambda o: o.user,
        order=lambda o: o.amount,
        into=Placed,
        place=st.win.row_number(),
    )
    return st.filter(ranked, f=lambda p: p.place < 3)


def totals(orders: st.ZSet[Order]) -> Any:
    return st.aggregate(
        orders,
        by=lambda o: o.user,
        into=Total,
        group_size=100,
        n=st.agg.count(),
        most=st.agg.max(lambda o: o.amount),
    )


def indexed(a: st.ZSet[int]) -> Any:
    return st.map(st.delay_indexed(st.integrate(a), (lambda x: x,)), f=lambda x: x + 1)


def of_one(a: st.ZSet[int]) -> Any:
    st.distinct(a)
    return st.neg(a)


def met(orders: st.ZSet[Order], users: st.ZSet[User]) -> Any:
    pairs = st.join(orders, users, on_left=lambda o: o.user, on_right=lambda u: u.id)
    named = st.map(pairs, f=lambda p: st.row(p.left, name=p.right.name))
    return st.group_reduce_flatten(
        named, by=lambda o: o.name, zero=int, pick_value=lambda o: o.amount
    )


def text(graph: Any) -> str:
    """A circuit as it is printed, without types and the name of the query."""
    lines = str(graph).replace(f"{graph.name}.", "").splitlines()[1:]
    return "\n".join(re.sub(r": [^=]* = ", " = ", line.strip()) for line in lines)


# The pass, the query, and the text before and after it.
RULES: list[tuple[Pass, Callable[..., Any], str, str]] = [
    (
        recognise_integrals,
        loop,
        """\
        a = input()
        before = feedback(delay)
        total = add(a, before)
        delay = delay(total)
        return total""",
        """\
        a = input()
        total = integrate(a)
        return total""",
    ),
    (
        recognise_differences,
        by_hand,
        """\
        a = input()
        delay = delay(a)
        neg = neg(delay)
        add = add(a, neg)
        return add""",
        """\
        a = input()
        add = differentiate(a)
        return add""",
    ),
    (
        cancel,
        undone,
        """\
        a = input()
        integrate = integrate(a)
        neg = neg(integrate)
        neg_2 = neg(neg)
        differentiate = differentiate(neg_2)
        return differentiate""",
        """\
        a = input()
        return a""",
    ),
    (
        push_integrals,
        pairs,
        """\
        a = input()
        b = input()
        all_a = integrate(a)
        all_b = integrate(b)
        both = join(all_a, all_b) [_value_ = _value_]
        differentiate = differentiate(both)
        return differentiate""",
        """\
        a = input()
        b = input()
        all_a = integrate(a)
        all_a ⋈ b = join(all_a, b) [_value_ = _value_]
        all_b = integrate(b)
        old all_b = delay(all_b)
        a ⋈ old all_b = join(a, old all_b) [_value_ = _value_]
        differentiate = add(all_a ⋈ b, a ⋈ old all_b)
        return differentiate""",
    ),
    (
        push_integrals,
        once,
        """\
        a = input()
        integrate = integrate(a)
        distinct = distinct(integrate)
        differentiate = differentiate(distinct)
        return differentiate""",
        """\
        a = input()
        integrate = integrate(a)
        old integrate = delay(integrate)
        differentiate = haitch(old integrate, a)
        return differentiate""",
    ),
    (
        keep_only_first,
        largest,
        """\
        orders = input() [append only]
        first_n.state of orders = integrate(orders)
        first_n.old state of orders = delay(first_n.state of orders)
        first_n.top = haitch(first_n.old state of orders, orders) [top 2 by amount of each (user)]
        return first_n.top""",
        """\
        orders = input() [append only]
        first_n.feedback = feedback(first_n.top)
        first_n.state of feedback = integrate(first_n.feedback)
        first_n.old state of feedback = delay(first_n.state of feedback)
        first_n.top = haitch(first_n.old state of feedback, orders) \
[top 2 by amount of each (user)]
        return first_n.top""",
    ),
    (
        put_in_buckets,
        largest,
        """\
        orders = input()
        first_n.state of orders = integrate(orders)
        first_n.old state of orders = delay(first_n.state of orders)
        first_n.top = haitch(first_n.old state of orders, orders) [top 2 by amount of each (user)]
        return first_n.top""",
        """\
        orders = input()
        first_n.state of orders = integrate(orders)
        first_n.old state of orders = delay(first_n.state of orders)
        first_n.top_of_256 = bucketed_top(first_n.old state of orders, orders) \
[256 buckets of large groups: top 2 by amount of each (user)]
        first_n.state of top_of_256 = integrate(first_n.top_of_256)
        first_n.old state of top_of_256 = delay(first_n.state of top_of_256)
        first_n.top = haitch(first_n.old state of top_of_256, first_n.top_of_256) \
[top 2 by amount of each (user)]
        return first_n.top""",
    ),
    (
        first_of_ranked,
        placed,
        """\
        orders = input()
        window.state of orders = integrate(orders)
        window.old state of orders = delay(window.state of orders)
        window.window = haitch(window.old state of orders, orders) \
[window row_number() by amount of each (user)]
        window.map = map(window.window) [Placed(id=left.id, place=right._1)]
        filter = filter(window.map) [place < 3]
        return filter""",
        """\
        orders = input()
        window.state of orders = integrate(orders)
        window.old state of orders = delay(window.state of orders)
        window.top = haitch(window.old state of orders, orders) [top 2 by amount of each (user)]
        window.state of top = integrate(window.top)
        window.old state of top = delay(window.state of top)
        window.window = haitch(window.old state of top, window.top) \
[window row_number() by amount of each (user)]
        window.map = map(window.window) [Placed(id=left.id, place=right._1)]
        filter = filter(window.map) [place < 3]
        return filter""",
    ),
    (
        share_registers,
        indexed,
        """\
        a = input()
        integrate = integrate(a)
        delay = delay(integrate)
        arrange = arrange(delay) [by _value_]
        map = map(arrange) [_value_ + 1]
        return map""",
        """\
        a = input()
        integrate = integrate(a)
        delay = delay(integrate)
        map = map(delay) [_value_ + 1]
        return map""",
    ),
    (
        drop_settled,
        each,
        """        times = input()
        times_lateness.times_greatest_time = feedback(times_lateness.times_greatest_time_change)
        times_lateness.state of times_greatest_time = integrate(times_lateness.times_greatest_time)
        times_lateness.old state of times_greatest_time = delay(times_lateness.state of \
times_greatest_time)
        times_lateness.times_in_time = in_time(times, times_lateness.old state of \
times_greatest_time) [_value_ from the watermark on]
        distinct.state of times_in_time = integrate(times_lateness.times_in_time)
        distinct.old state of times_in_time = delay(distinct.state of times_in_time)
        distinct.distinct = haitch(distinct.old state of times_in_time, \
times_lateness.times_in_time)
        times_lateness.times_times = map(times_lateness.times_in_time) [_value_]
        times_lateness.times_times_added = positive_part(times_lateness.times_times)
        times_lateness.times_greatest_time_change = haitch(times_lateness.old state of \
times_greatest_time, times_lateness.times_times_added) [top 1 by _value_ desc of each (0)]
        times_lateness.times_late = late(times, times_lateness.old state of times_greatest_time) \
[_value_ before the watermark]
        return distinct.distinct
        run times_lateness.times_late""",
        """        times = input()
        times_lateness.times_greatest_time = feedback(times_lateness.times_greatest_time_change)
        times_lateness.state of times_greatest_time = integrate(times_lateness.times_greatest_time)
        times_lateness.old state of times_greatest_time = delay(times_lateness.state of \
times_greatest_time)
        times_lateness.times_in_time = in_time(times, times_lateness.old state of \
times_greatest_time) [_value_ from the watermark on]
        distinct.expire = expire(times_lateness.times_in_time, times_lateness.state of \
times_greatest_time) [_value_ before the watermark]
        distinct.neg = neg(distinct.expire)
        distinct.add = add(times_lateness.times_in_time, distinct.neg)
        distinct.state of add = integrate(distinct.add)
        distinct.old state of add = delay(distinct.state of add)
        distinct.distinct = haitch(distinct.old state of add, times_lateness.times_in_time)
        times_lateness.times_times = map(times_lateness.times_in_time) [_value_]
        times_lateness.times_times_added = positive_part(times_lateness.times_times)
        times_lateness.times_greatest_time_change = haitch(times_lateness.old state of \
times_greatest_time, times_lateness.times_times_added) [top 1 by _value_ desc of each (0)]
        times_lateness.times_late = late(times, times_lateness.old state of times_greatest_time) \
[_value_ before the watermark]
        return distinct.distinct
        run times_lateness.times_late""",
    ),
    (
        collate_at_once,
        totals,
        """\
        orders = input()
        aggregate.map = map(orders) [tuple(_1=user)]
        aggregate.accumulate = accumulate(aggregate.map) [tuple(_1=1) by _1]
        aggregate.state of accumulate = integrate(aggregate.accumulate)
        aggregate.old state of accumulate = delay(aggregate.state of accumulate)
        aggregate.flatten = haitch(aggregate.old state of accumulate, aggregate.accumulate) \
[flatten]
        aggregate.map_2 = map(aggregate.flatten) [tuple(_1=right, _2=left, _3=None)]
        aggregate.map_3 = map(orders) [tuple(_1=user, _2=amount)]
        aggregate.state of map_3 = integrate(aggregate.map_3)
        aggregate.old state of map_3 = delay(aggregate.state of map_3)
        aggregate.top = haitch(aggregate.old state of map_3, aggregate.map_3) \
[top 1 by _2 desc of each (_1)]
        aggregate.map_4 = map(aggregate.top) [tuple(_1=_1, _2=None, _3=tuple(_1=_2))]
        aggregate.add = add(aggregate.map_2, aggregate.map_4)
        aggregate.state of add = integrate(aggregate.add)
        aggregate.old state of add = delay(aggregate.state of add)
        aggregate.collate = haitch(aggregate.old state of add, aggregate.add) [collate 2 required]
        aggregate.map_5 = map(aggregate.collate) [Total(user=_1, n=_2._1, most=_3._1)]
        return aggregate.map_5""",
        """\
        orders = input()
        aggregate.map = map(orders) [tuple(_1=user)]
        aggregate.accumulate = accumulate(aggregate.map) [tuple(_1=1) by _1]
        aggregate.state of accumulate = integrate(aggregate.accumulate)
        aggregate.old state of accumulate = delay(aggregate.state of accumulate)
        aggregate.map_2 = map(orders) [tuple(_1=user, _2=amount)]
        aggregate.state of map_2 = integrate(aggregate.map_2)
        aggregate.old state of map_2 = delay(aggregate.state of map_2)
        aggregate.collate = haitch(aggregate.old state of accumulate, aggregate.accumulate, \
aggregate.old state of map_2, aggregate.map_2) [collated of flatten + top 1 by _2 desc of each \
(_1), 2 required]
        aggregate.map_3 = map(aggregate.collate) [Total(user=_1, n=_2._1, most=_3._1)]
        return aggregate.map_3""",
    ),
    (
        merge_maps,
        nested,
        """\
        orders = input()
        filter = filter(orders) [amount > 1]
        map = map(filter) [Row(user=user)]
        aggregate.map = map(map) [tuple(_1=user)]
        aggregate.accumulate = accumulate(aggregate.map) [tuple(_1=1) by _1]
        aggregate.state of accumulate = integrate(aggregate.accumulate)
        aggregate.old state of accumulate = delay(aggregate.state of accumulate)
        aggregate.flatten = haitch(aggregate.old state of accumulate, aggregate.accumulate) \
[flatten]
        aggregate.map_2 = map(aggregate.flatten) [tuple(_1=right, _2=left)]
        aggregate.map_3 = map(aggregate.map_2) [Row(user=_1, count=_2._1)]
        map_2 = map(aggregate.map_3) [Row(n=count + 1)]
        map_3 = map(map_2) [Row(n=n)]
        map_4 = map(orders) [Row(user=user)]
        map_5 = map(map_4) [Row(n=user)]
        union.add = add(map_3, map_5)
        map_6 = map(union.add) [Row(n=n)]
        return map_6""",
        """\
        orders = input()
        filter = filter(orders) [amount > 1]
        aggregate.map = map(filter) [tuple(_1=user)]
        aggregate.accumulate = accumulate(aggregate.map) [tuple(_1=1) by _1]
        aggregate.state of accumulate = integrate(aggregate.accumulate)
        aggregate.old state of accumulate = delay(aggregate.state of accumulate)
        aggregate.flatten = haitch(aggregate.old state of accumulate, aggregate.accumulate) \
[flatten]
        aggregate.map_2 = map(aggregate.flatten) [tuple(_1=right, _2=left)]
        map = map(aggregate.map_2) [Row(n=_2._1 + 1)]
        map_2 = map(orders) [Row(n=user)]
        union.add = add(map, map_2)
        return union.add""",
    ),
    (
        drop_unread,
        met,
        """\
        orders = input()
        users = input()
        join.state of orders = integrate(orders)
        join.state of users = integrate(users)
        join.state of orders ⋈ state of users = join(join.state of orders, join.state of users) \
[user = id]
        join.differentiate = differentiate(join.state of orders ⋈ state of users)
        named = map(join.differentiate) \
[Row(id=left.id, user=left.user, amount=left.amount, name=right.name)]
        group_reduce_flatten.state of named = integrate(named)
        group_reduce_flatten.accumulate = accumulate(group_reduce_flatten.state of named) \
[amount by name]
        group_reduce_flatten.flatten = flatten(group_reduce_flatten.accumulate)
        group_reduce_flatten.differentiate = differentiate(group_reduce_flatten.flatten)
        return group_reduce_flatten.differentiate""",
        """\
        orders = input()
        users = input()
        join.orders = map(orders) [user, amount]
        join.state of orders = integrate(join.orders)
        join.state of users = integrate(users)
        join.state of orders ⋈ state of users = join(join.state of orders, join.state of users) \
[user = id]
        join.differentiate = differentiate(join.state of orders ⋈ state of users)
        named = map(join.differentiate) [Row(amount=left.amount, name=right.name)]
        group_reduce_flatten.state of named = integrate(named)
        group_reduce_flatten.accumulate = accumulate(group_reduce_flatten.state of named) \
[amount by name]
        group_reduce_flatten.flatten = flatten(group_reduce_flatten.accumulate)
        group_reduce_flatten.differentiate = differentiate(group_reduce_flatten.flatten)
        return group_reduce_flatten.differentiate""",
    ),
]
# These rewrite what the passes before them give.
AFTER: dict[Pass, int] = {
    drop_unread: 3,
    keep_only_first: 6,
    put_in_buckets: 6,
    drop_settled: 10,
    first_of_ranked: 6,
    collate_at_once: 11,
    merge_maps: 12,
}


@pytest.mark.parametrize(
    ("rule", "query", "before", "after"),
    RULES,
    ids=[f"{rule.__name__} of {query.__name__}" for rule, query, *_ in RULES],
)
def test_a_pass_makes_this_of_a_circuit(
    rule: Pass, query: Callable[..., Any], before: str, after: str
) -> None:
    graph = st.compile(
        query,
        append_only=["orders"] if rule is keep_only_first else (),
        lateness={"times": (lambda t: t, 5)} if rule is drop_settled else None,
        optimize=False,
    )
    graph = optimize(graph, PASSES[: AFTER.get(rule, 0)])
    assert text(graph) == dedent(before)
    assert text(rule(graph)) == dedent(after)


def test_what_no_output_needs_is_forgotten() -> None:
    graph = st.compile(of_one, optimize=False)
    dropped = drop_dead(graph)
    assert text(dropped) == text(graph)
    names = {o.path.parts[-1] for o in graph.origins.values()}
    assert names > {o.path.parts[-1] for o in dropped.origins.values()} == {"a", "neg"}


def test_every_pass_has_such_a_test() -> None:
    assert {rule for rule, *_ in RULES} | {drop_dead} == set(PASSES)


# -- without one pass


def of_many_kinds(orders: st.ZSet[Order], users: st.ZSet[int]) -> Any:
    """What each of the passes has something to do for."""
    known = st.join(orders, users, on_left=lambda o: o.user, on_right=lambda u: u)
    rows = st.map(known, f=lambda p: p.left)
    totals = st.aggregate(
        rows,
        by=lambda o: o.user,
        into=Total,
        n=st.agg.count(),
        most=st.agg.max(lambda o: o.amount),
    )
    missing = st.outer_join(users, orders, on_left=lambda u: u, on_right=lambda o: o.user)
    first = largest(orders)
    with st.feedback(st.ZSet[int]) as before:
        summed = st.add(users, before)
        before.connect(st.delay(summed))
    changed = st.add(summed, st.neg(st.delay(summed)))
    of_text = st.sql("SELECT user + 1 FROM (SELECT user, amount FROM o)", o=orders)
    return totals, missing, first, summed, changed, indexed(users), st.distinct(users), of_text


def steps(seed: int, n: int, *, only_more: bool = False) -> Iterator[tuple[Any, Any]]:
    """Random changes: rows come, and some or all of them go."""
    source = random.Random(seed)
    there: list[list[Any]] = [[], []]
    for _ in range(n):
        change: list[dict[Any, int]] = [{}, {}]
        for rows, found in zip(there, change, strict=True):
            gone = 0 if only_more else source.choice((0, 1, 2, len(rows)))
            for _ in range(min(gone, len(rows))):
                row = rows.pop(source.randrange(len(rows)))
                found[row] = found.get(row, 0) - 1
            for _ in range(source.randrange(4)):
                user, amount = source.randrange(3), source.randrange(5)
                row = Order(id=len(rows), user=user, amount=amount) if rows is there[0] else user
                rows.append(row)
                found[row] = found.get(row, 0) + 1
        yield st.ZSetPython(change[0]), st.ZSetPython(change[1])


@pytest.mark.parametrize("only_more", [False, True], ids=["with deletions", "append only"])
@pytest.mark.parametrize("left_out", range(len(PASSES)), ids=lambda i: f"{i}, {PASSES[i].__name__}")
def test_results_are_the_same_without_any_one_pass(
    left_out: int, only_more: bool, spark: SparkSession
) -> None:
    written = st.compile(
        of_many_kinds, append_only=["orders", "users"] if only_more else (), optimize=False
    )
    passes = (*PASSES[:left_out], *PASSES[left_out + 1 :])
    graph = dataclasses.replace(optimize(written, passes), optimized=True)
    stepper: Any = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    oracle = st.reference(written)
    for step in steps(left_out, 8, only_more=only_more):
        assert stepper.step(step) == oracle.step(step)
