"""Random streams that come in time, and the queries that lateness is tested with."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import stepping_spark as st


class Event(st.Data):
    key: str | None
    at: int
    n: int


class Beside(st.Data):
    key: str | None
    at: int
    n: int
    found: int | None


LATENESS = 6


def windowed(order: Any = lambda e: e.at, **found: Any) -> Callable[..., Any]:
    def query(l: st.ZSet[Event], r: st.ZSet[Event]) -> Any:  # noqa: E741
        return st.window(l, by=lambda e: e.key, order=order, into=Beside, **found)

    return query


def bounded(**found: Any) -> Callable[..., Any]:
    class Many(st.Data):
        key: str | None
        at: int
        n: int
        prev: int | None
        total: int | None

    def query(l: st.ZSet[Event], r: st.ZSet[Event]) -> Any:  # noqa: E741
        return st.window(l, by=lambda e: e.key, order=lambda e: e.at, into=Many, **found)

    return query


def sessions(l: st.ZSet[Event], r: st.ZSet[Event]) -> Any:  # noqa: E741
    some = st.filter(l, f=lambda e: e.n > 0)
    return st.sessions(some, by=lambda e: e.key, at=lambda e: e.at, gap=3)


def asof(direction: Any, how: Any = "inner", tolerance: Any = None) -> Callable[..., Any]:
    def query(l: st.ZSet[Event], r: st.ZSet[Event]) -> Any:  # noqa: E741
        return st.asof_join(
            l,
            r,
            on_left=lambda e: e.key,
            on_right=lambda e: e.key,
            at_left=lambda e: e.at,
            at_right=lambda e: e.at,
            direction=direction,
            how=how,
            tolerance=tolerance,
        )

    return query


def joined(l: st.ZSet[Event], r: st.ZSet[Event]) -> Any:  # noqa: E741
    return st.join(l, r, on_left=lambda e: (e.key, e.at), on_right=lambda e: (e.key, e.at))


def outer(l: st.ZSet[Event], r: st.ZSet[Event]) -> Any:  # noqa: E741
    return st.outer_join(
        l, r, on_left=lambda e: (e.key, e.at), on_right=lambda e: (e.key, e.at), how="full"
    )


def chained(l: st.ZSet[Event], r: st.ZSet[Event]) -> Any:  # noqa: E741
    """A join by the time, mapped, then distinct, and a window over that which looks back."""
    pairs = st.map(
        joined(l, r), f=lambda p: Event(key=p.left.key, at=p.right.at, n=p.left.n + p.right.n)
    )
    each = st.distinct(pairs)
    before = st.window(
        each, by=lambda e: e.key, order=lambda e: e.at, into=Beside, found=st.win.lag(lambda e: e.n)
    )
    return st.sessions(before, by=lambda b: b.key, at=lambda b: b.at, gap=4)


def first(l: st.ZSet[Event], r: st.ZSet[Event]) -> Any:  # noqa: E741
    return st.first_n(l, lambda e: e.n, 2, by=lambda e: (e.key, e.at))


def ranked(l: st.ZSet[Event], r: st.ZSet[Event]) -> Any:  # noqa: E741
    return st.window(
        l,
        by=lambda e: (e.at, e.key),
        order=lambda e: e.n,
        into=Beside,
        found=st.win.row_number(),
    )


class Counted(st.Data):
    key: str | None
    at: int
    n: int
    total: int
    most: int
    kinds: int
    all: list[int]


def counted(l: st.ZSet[Event], r: st.ZSet[Event]) -> Any:  # noqa: E741
    """Sums, a maximum, a distinct count and a list by the time, and then by the sums of those."""
    each = st.aggregate(
        l,
        by=lambda e: (e.key, e.at),
        into=Counted,
        n=st.agg.count(),
        total=st.agg.sum(lambda e: e.n),
        most=st.agg.max(lambda e: e.n),
        kinds=st.agg.count_distinct(lambda e: e.n),
        all=st.agg.collect_list(lambda e: e.n),
    )
    again = st.map(each, f=lambda c: Event(key=c.key, at=c.at, n=c.total))
    return st.aggregate(again, by=lambda e: e.at, into=Times, n=st.agg.sum(lambda e: e.n))


class Times(st.Data):
    at: int
    n: int


def except_(l: st.ZSet[Event], r: st.ZSet[Event]) -> Any:  # noqa: E741
    return st.except_(l, r)


SETTLED: dict[str, Callable[..., Any]] = {
    "lag": windowed(found=st.win.lag(lambda e: e.n, 2)),
    "lead": windowed(found=st.win.lead(lambda e: e.n)),
    "rows back": windowed(found=st.win.sum(lambda e: e.n, rows=(-2, 0))),
    "rows forward": windowed(found=st.win.max(lambda e: e.n, rows=(-1, 2))),
    "range back": windowed(found=st.win.count(range=(-4, 0))),
    "range both": windowed(found=st.win.sum(lambda e: e.n, range=(-2, 3))),
    "descending lag": windowed(st.win.desc(lambda e: e.at), found=st.win.lag(lambda e: e.n)),
    "descending lead": windowed(st.win.desc(lambda e: e.at), found=st.win.lead(lambda e: e.n, 2)),
    "rows back and range forward": bounded(
        prev=st.win.lag(lambda e: e.n), total=st.win.sum(lambda e: e.n, range=(-3, 2))
    ),
    "sessions": sessions,
    "asof backward": asof("backward"),
    "asof backward left": asof("backward", "left"),
    "asof forward": asof("forward", "left"),
    "asof nearest": asof("nearest", "left"),
    "asof tolerance": asof("nearest", "left", 2),
    "joined": joined,
    "outer": outer,
    "chained": chained,
    "distinct": lambda l, r: st.distinct(l),  # noqa: E741
    "first": first,
    "ranked": ranked,
    "except": except_,
    "counted": counted,
}


def annotated(query: Callable[..., Any]) -> Callable[..., Any]:
    """The query as a function whose inputs are `l` and `r`."""

    def q(l: st.ZSet[Event], r: st.ZSet[Event]) -> Any:  # noqa: E741
        return query(l, r)

    return q


def event(draw: random.Random, at: int) -> Event:
    return Event(key=draw.choice(("a", "b", None)), at=at, n=draw.randint(0, 2))


def in_time(
    steps: int, seed: int, *, many: int = 4, lateness: int = LATENESS, pace: int = 2
) -> Iterator[tuple[st.ZSetPython[Event], st.ZSetPython[Event]]]:
    """Changes of two inputs, insertions and deletions, none from before its input's watermark."""
    draw = random.Random(seed)
    there: list[Counter[Event]] = [Counter(), Counter()]
    greatest = [-1_000_000, -1_000_000]
    for step in range(steps):
        given = []
        for side in (0, 1):
            watermark = greatest[side] - lateness
            rows, change = there[side], Counter[Event]()
            if draw.random() < 0.9:
                for _ in range(draw.randint(0, many)):
                    at = max(watermark, pace * step + draw.randint(-lateness - pace, pace))
                    change[event(draw, at)] += draw.choice((1, 1, 2))
                for row in list(rows):
                    if row.at >= watermark and draw.random() < 0.25:
                        change[row] -= draw.randint(1, rows[row])
            greatest[side] = max([greatest[side], *(e.at for e, n in change.items() if n > 0)])
            rows.update(change)
            there[side] = +rows
            given.append(st.ZSetPython(change.items()))
        yield given[0], given[1]
