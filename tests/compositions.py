"""Random queries: up to six operators, one after the other, over rows of one type.

Each operator takes streams of rows and gives one, whatever it makes in between, so that any may
follow any. A stream may be used several times, also by one operator. Functions of rows are
operators on fields, so that plain Python can evaluate them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as hs

import stepping_spark as st
from tests.cases import Z
from tests.strategies import Step, streams_of

INPUTS = 2
MOST = 6  # operators of a query
JOINS = 2  # of those at most: the weights of each multiply


class Row(st.Data):
    k: int | None
    v: int | None
    t: str | None


class Summary(st.Data):
    k: int | None
    n: int
    known: int
    total: int | None


class Shorter(st.Data):
    k: int | None
    n: int
    total: int | None


class Longer(st.Data):
    k: int | None
    n: int
    known: int
    total: int | None
    most: int | None
    different: int


class Extremes(st.Data):
    k: int | None
    n: int
    least: int | None
    most: int | None
    at: str | None


class Mixed(st.Data):
    k: int | None
    n: int
    most: int | None
    different: int
    distinct: int | None


class Whole(st.Data):
    n: int
    total: int | None
    least: int | None


Stream = Any  # a ZSet[Row], in a query
Function = Callable[..., Stream]  # of the operators, st or st.linear, and of streams
ONE: dict[str, Function] = {}  # operators of one stream
TWO: dict[str, Function] = {}
PRODUCTS = {"join on k", "join on two", "delta join", "outer left", "outer full", "outer right"}


def one(name: str) -> Callable[[Function], Function]:
    """Register an operator of one stream."""
    return lambda f: ONE.setdefault(name, f)


def two(name: str) -> Callable[[Function], Function]:
    """Register an operator of two streams."""
    return lambda f: TWO.setdefault(name, f)


@one("filter")
def filter_(_: Any, a: Stream) -> Stream:
    return st.filter(a, f=lambda r: (r.v > 0) | (r.k == 1))


@one("with text")
def with_text(_: Any, a: Stream) -> Stream:
    return st.filter(a, f=lambda r: r.t.isNotNull())


@one("map")
def map_(_: Any, a: Stream) -> Stream:
    return st.map(a, f=lambda r: Row(k=r.v, v=r.k, t=r.t))


@one("map to fewer")
def map_to_fewer(_: Any, a: Stream) -> Stream:
    return st.map(a, f=lambda r: Row(k=r.k % 2, v=r.v, t=None))


@one("map many")
def map_many(_: Any, a: Stream) -> Stream:
    return st.map_many(a, f=lambda r: [r, Row(k=r.k, v=r.k, t="m"), r])


@one("explode")
def explode(_: Any, a: Stream) -> Stream:
    f: Any = lambda r: [(r, 1), (Row(k=0, v=r.v, t=r.t), -1)]  # noqa: E731
    return st.explode(a, f=f)


@one("distinct")
def distinct(ops: Any, a: Stream) -> Stream:
    return ops.distinct(a)


@one("neg")
def neg(_: Any, a: Stream) -> Stream:
    return st.neg(a)


@one("count")
def count(ops: Any, a: Stream) -> Stream:
    n: Any = ops.count(a)
    return st.map(n, f=lambda n: Row(k=0, v=n, t="n"))


@one("reduce")
def reduce(ops: Any, a: Stream) -> Stream:
    total: Any = ops.reduce(a, zero=int, pick_value=lambda r: r.v)
    return st.map(total, f=lambda n: Row(k=n, v=n, t=None))


@one("sum by key")
def sum_by_key(ops: Any, a: Stream) -> Stream:
    sums = ops.group_reduce_flatten(a, by=lambda r: r.k, zero=int, pick_value=lambda r: r.v)
    return st.map(sums, f=lambda p: Row(k=p.right, v=p.left, t=None))


@one("sums")
def sums(ops: Any, a: Stream) -> Stream:
    found = ops.aggregate(
        a,
        lambda r: r.k,
        Summary,
        n=st.agg.count(),
        known=st.agg.count(lambda r: r.v),
        total=st.agg.sum(lambda r: r.v),
    )
    return st.map(found, f=lambda x: Row(k=x.n - x.known, v=x.total, t=None))


@one("extremes")
def extremes(ops: Any, a: Stream) -> Stream:
    found = ops.aggregate(
        a,
        lambda r: r.k,
        Extremes,
        n=st.agg.count(),
        least=st.agg.min(lambda r: r.v),
        most=st.agg.max(lambda r: r.v),
        at=st.agg.arg_max(lambda r: r.v, lambda r: r.t),
    )
    return st.map(found, f=lambda x: Row(k=x.least, v=x.most + x.n, t=x.at))


@one("mixed")
def mixed(ops: Any, a: Stream) -> Stream:
    found = ops.aggregate(
        a,
        lambda r: r.k,
        Mixed,
        n=st.agg.count(),
        most=st.agg.max(lambda r: r.v),
        different=st.agg.count_distinct(lambda r: r.t),
        distinct=st.agg.sum_distinct(lambda r: r.v),
    )
    return st.map(found, f=lambda x: Row(k=x.different, v=x.most, t=None))


@one("aggregate of all")
def aggregate_of_all(ops: Any, a: Stream) -> Stream:
    found = ops.aggregate(
        a,
        None,
        Whole,
        n=st.agg.count(),
        total=st.agg.sum(lambda r: r.v),
        least=st.agg.min(lambda r: r.k),
    )
    return st.map(found, f=lambda x: Row(k=x.least, v=x.total, t="all"))


@one("first of all")
def first_of_all(ops: Any, a: Stream) -> Stream:
    by: Any = lambda r: (r.v, r.k)  # noqa: E731
    return ops.first_n(a, st.Index.pick(Row, by, ascending=(False, True)), 2)


@one("first of each")
def first_of_each(ops: Any, a: Stream) -> Stream:
    return ops.first_n(a, lambda r: r.v, 1, by=lambda r: r.k)


def per_group(a: Stream, f: Callable[[Stream], Stream]) -> Stream:
    found: Any = st.flatten(st.per_group[st.group(a, by=lambda r: r.t)](f))
    return st.map(found, f=lambda p: Row(k=p.left.k, v=p.left.v, t=p.right))


@one("distinct per group")
def distinct_per_group(ops: Any, a: Stream) -> Stream:
    return per_group(a, lambda s: ops.distinct(map_to_fewer(ops, s)))


@one("first per group")
def first_per_group(ops: Any, a: Stream) -> Stream:
    return per_group(a, lambda s: first_of_all(ops, s))


@one("aggregate per group")
def aggregate_per_group(ops: Any, a: Stream) -> Stream:
    return per_group(a, lambda s: mixed(ops, s))


@two("add")
def add(_: Any, a: Stream, b: Stream) -> Stream:
    return st.add(a, b)


@two("subtract")
def subtract(_: Any, a: Stream, b: Stream) -> Stream:
    return st.add(a, st.neg(b))


@two("join on k")
def join_on_k(ops: Any, a: Stream, b: Stream) -> Stream:
    pairs = ops.join(a, b, on_left=lambda r: r.k, on_right=lambda r: r.v)
    return st.map(pairs, f=lambda p: Row(k=p.left.v, v=p.right.k, t=p.left.t))


@two("join on two")
def join_on_two(ops: Any, a: Stream, b: Stream) -> Stream:
    pairs = ops.join(a, b, on_left=lambda r: (r.k, r.t), on_right=lambda r: (r.k, r.t))
    return st.map(pairs, f=lambda p: Row(k=p.left.k, v=p.right.v, t=p.left.t))


@two("semijoin")
def semijoin(ops: Any, a: Stream, b: Stream) -> Stream:
    return ops.semijoin(a, b, on_left=lambda r: r.k, on_right=lambda r: r.k)


@two("antijoin")
def antijoin(ops: Any, a: Stream, b: Stream) -> Stream:
    return ops.antijoin(a, b, on_left=lambda r: r.v, on_right=lambda r: r.k)


@two("delta join")
def delta_join(ops: Any, a: Stream, b: Stream) -> Stream:
    found = ops.delta_join(a, st.Lookup(b, key=lambda r: r.k, on=lambda row: row[0].v, how="left"))
    return st.map(found, f=lambda row: Row(k=row[0].k, v=row[1].v, t=row[1].t))


def outer_join(how: str) -> Function:
    def query(ops: Any, a: Stream, b: Stream) -> Stream:
        pairs = ops.outer_join(a, b, on_left=lambda r: r.k, on_right=lambda r: r.k, how=how)
        return st.map(pairs, f=lambda p: Row(k=p.left.v, v=p.right.v, t=p.right.t))

    return query


for _how in ("left", "right", "full"):
    two(f"outer {_how}")(outer_join(_how))


ALL = frozenset({*ONE, *TWO})

# Operators as somebody has edited them, by the name of the operator and of what was edited.
EDITED: dict[str, dict[str, Function]] = {}


def edited(name: str, what: str) -> Callable[[Function], Function]:
    """Register an edited operator."""
    return lambda f: EDITED.setdefault(name, {}).setdefault(what, f)


edited("filter", "another constant")(lambda _, a: st.filter(a, f=lambda r: (r.v > 1) | (r.k == 1)))
edited("filter", "a condition less")(lambda _, a: st.filter(a, f=lambda r: r.v > 0))
edited("with text", "a condition more")(
    lambda _, a: st.filter(a, f=lambda r: r.t.isNotNull() & (r.v > 0))
)
edited("map to fewer", "another constant")(
    lambda _, a: st.map(a, f=lambda r: Row(k=r.k % 3, v=r.v, t=None))
)
edited("map to fewer", "a column more")(
    lambda _, a: st.map(a, f=lambda r: Row(k=r.k % 2, v=r.v, t=r.t))
)
edited("first of all", "more rows")(lambda ops, a: ops.first_n(a, lambda r: r.v, 3))
edited("first of each", "more rows")(
    lambda ops, a: ops.first_n(a, lambda r: r.v, 2, by=lambda r: r.k)
)
edited("first of each", "another key")(
    lambda ops, a: ops.first_n(a, lambda r: r.v, 1, by=lambda r: r.t)
)
edited("semijoin", "another key")(
    lambda ops, a, b: ops.semijoin(a, b, on_left=lambda r: r.v, on_right=lambda r: r.v)
)
edited("antijoin", "another key")(
    lambda ops, a, b: ops.antijoin(a, b, on_left=lambda r: r.k, on_right=lambda r: r.k)
)


@edited("sum by key", "another key")
def sum_by_value(ops: Any, a: Stream) -> Stream:
    sums = ops.group_reduce_flatten(a, by=lambda r: r.v, zero=int, pick_value=lambda r: r.v)
    return st.map(sums, f=lambda p: Row(k=p.right, v=p.left, t=None))


@edited("sums", "an aggregate less")
def fewer_sums(ops: Any, a: Stream) -> Stream:
    total: Any = st.agg.sum(lambda r: r.v)
    found = ops.aggregate(a, lambda r: r.k, Shorter, n=st.agg.count(), total=total)
    return st.map(found, f=lambda x: Row(k=x.n, v=x.total, t=None))


@edited("sums", "aggregates more")
def sums_and_extremes(ops: Any, a: Stream) -> Stream:
    found = ops.aggregate(
        a,
        lambda r: r.k,
        Longer,
        n=st.agg.count(),
        known=st.agg.count(lambda r: r.v),
        total=st.agg.sum(lambda r: r.v),
        most=st.agg.max(lambda r: r.v),
        different=st.agg.count_distinct(lambda r: r.t),
    )
    return st.map(found, f=lambda x: Row(k=x.n - x.known, v=x.total + x.most, t=None))


@edited("extremes", "another key")
def extremes_by_value(ops: Any, a: Stream) -> Stream:
    total: Any = st.agg.max(lambda r: r.k)
    found = ops.aggregate(a, lambda r: r.v, Shorter, n=st.agg.count(), total=total)
    return st.map(found, f=lambda x: Row(k=x.total, v=x.n, t=None))


@edited("join on k", "another key")
def join_on_v(ops: Any, a: Stream, b: Stream) -> Stream:
    pairs = ops.join(a, b, on_left=lambda r: r.v, on_right=lambda r: r.v)
    return st.map(pairs, f=lambda p: Row(k=p.left.v, v=p.right.k, t=p.left.t))


@edited("join on k", "a join more")
def join_twice(ops: Any, a: Stream, b: Stream) -> Stream:
    return semijoin(ops, join_on_k(ops, a, b), b)


@edited("join on two", "a column of the key less")
def join_on_one(ops: Any, a: Stream, b: Stream) -> Stream:
    pairs = ops.join(a, b, on_left=lambda r: r.k, on_right=lambda r: r.k)
    return st.map(pairs, f=lambda p: Row(k=p.left.k, v=p.right.v, t=p.left.t))


@edited("delta join", "a lookup more")
def delta_join_twice(ops: Any, a: Stream, b: Stream) -> Stream:
    first = st.Lookup(b, key=lambda r: r.k, on=lambda row: row[0].v, how="left")
    second = st.Lookup(b, key=lambda r: r.v, on=lambda row: row[0].k, how="left")
    found = ops.delta_join(a, first, second)
    return st.map(found, f=lambda row: Row(k=row[0].k, v=row[1].v, t=row[2].t))


@edited("outer left", "another key")
def outer_join_on_v(ops: Any, a: Stream, b: Stream) -> Stream:
    pairs = ops.outer_join(a, b, on_left=lambda r: r.v, on_right=lambda r: r.k, how="left")
    return st.map(pairs, f=lambda p: Row(k=p.left.v, v=p.right.v, t=p.right.t))


@dataclass(frozen=True)
class Composition:
    """A query: operators, each with the numbers of the streams that it takes.

    Streams 0 and 1 are the inputs, and what the operators give comes after. The last one is the
    output. An edited operator is called `name: what was edited`.
    """

    steps: tuple[tuple[str, tuple[int, ...]], ...]

    def query(self, ops: Any) -> Callable[..., Any]:
        """The query on changes, with `st`, or on whole tables, with `st.linear`."""

        def query(a: st.ZSet[Row], b: st.ZSet[Row]) -> st.ZSet[Row]:
            streams: list[Any] = [a, b]
            for name, taken in self.steps:
                base, _, what = name.partition(": ")
                known = ONE if len(taken) == 1 else TWO
                f = EDITED[base][what] if what else known[base]
                streams.append(f(ops, *(streams[i] for i in taken)))
            result: st.ZSet[Row] = streams[-1]
            return result

        return query


@hs.composite
def compositions(
    draw: hs.DrawFn, most: int = MOST, least: int = 1, among: Collection[str] = ALL
) -> Composition:
    """Queries of some operators, in which every one but the last feeds another."""
    many = draw(hs.integers(least, most))
    steps: list[tuple[str, tuple[int, ...]]] = []
    unused: list[int] = []
    products = 0
    for i in range(many):
        last = INPUTS + i - 1
        names = sorted(set(among) - (PRODUCTS if products == JOINS else set()))
        name = draw(hs.sampled_from(names))
        products += name in PRODUCTS
        first = last if i and draw(hs.integers(0, 3)) else draw(hs.integers(0, last))
        taken = (first,) if name in ONE else (first, draw(hs.integers(0, last)))
        steps.append((name, taken))
        unused = [s for s in (*unused, INPUTS + i) if s not in taken]
    return Composition(tuple(_fed(steps, unused)))


def _fed(
    steps: Sequence[tuple[str, tuple[int, ...]]], unused: Sequence[int]
) -> list[tuple[str, tuple[int, ...]]]:
    """The steps, with what nothing takes added to the output."""
    made = list(steps)
    for stream in unused[:-1]:
        made.append(("add", (INPUTS + len(made) - 1, stream)))
    return made


def _close(row: Row) -> Row:
    """A row of few values, so that rows meet in every operator."""
    k = None if row.k is None else row.k % 3
    v = None if row.v is None else row.v % 4
    return Row(k=k, v=v, t=None if row.t is None else "ab"[len(row.t) % 2])


def steps_of(max_steps: int = 4) -> hs.SearchStrategy[list[Step]]:
    """Steps of changes of the two inputs: see `streams_of`."""
    streams = streams_of(*[Row] * INPUTS, max_steps=max_steps)
    return streams.map(lambda steps: [tuple(map(_all_close, step)) for step in steps])


def _all_close(change: Any) -> Any:
    return Z([(_close(row), n) for row, n in change.iter()])
