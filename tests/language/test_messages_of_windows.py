"""What errors of windows, aggregates and joins say to a user who knows those of PySpark."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

import stepping_spark as st


class Visit(st.Data):
    id: int
    shop: str
    day: dt.date
    at: dt.datetime


class Counted(st.Data):
    id: int
    n: int


class Middle(st.Data):
    n: float | None


def windowed(a: Any, **arguments: Any) -> Any:
    return st.window(a, **{"order": lambda v: v.id, "into": Counted, **arguments})


def aggregated(a: Any, **arguments: Any) -> Any:
    return st.aggregate(a, lambda v: v.id, Counted, **arguments)


def nearest(a: Any, **arguments: Any) -> Any:
    return st.asof_join(
        a,
        a,
        on_left=lambda v: v.id,
        on_right=lambda v: v.id,
        at_left=lambda v: v.shop,
        at_right=lambda v: v.shop,
        **arguments,
    )


def by_id(join: Any, a: Any, **arguments: Any) -> Any:
    return join(a, a, on_left=lambda v: v.id, on_right=lambda v: v.id, **arguments)


ANY: Any = st  # for arguments that a checker would refuse

SAID: list[Any] = [
    # names of arguments that PySpark has
    (
        lambda a: windowed(a, partition_by=lambda v: v.shop, n=st.win.rank()),
        "window: partition_by= is not an argument, and Counted has no field of that name; write "
        "by=",
    ),
    (
        lambda a: windowed(a, orderBy="id", n=st.win.rank()),
        "orderBy= is not an argument, and Counted",
    ),
    # functions that are not called
    (
        lambda a: windowed(a, n=st.win.rank),
        "window: n= is a function that is not called; write n=st.win.rank()",
    ),
    (lambda a: windowed(a, n=st.win.sum), "write n=st.win.sum(lambda row: …)"),
    (lambda a: windowed(a, fields={"n": st.win.ntile}), "write n=st.win.ntile(…)"),
    (
        lambda a: aggregated(a, n=st.agg.count),
        "aggregate: n= is a function that is not called; write n=st.agg.count()",
    ),
    (
        lambda a: st.map(a, f=ANY.win.rank),
        "in <lambda>: function 'rank' takes () -> 'WindowFunction[Any]'; a function of rows is "
        "called with one argument",
    ),
    # arguments that a function does not take
    (
        lambda a: windowed(a, n=ANY.win.sum(lambda v: v.id, frame=(0, 1))),
        "unexpected keyword argument 'frame'; it takes sum(f, *, rows=None, range=None)",
    ),
    (
        lambda a: aggregated(a, n=ANY.agg.string_agg(lambda v: v.shop, sep=",")),
        "'sep'; it takes string_agg(f, separator='', *, order=None, distinct=False)",
    ),
    (
        lambda a: aggregated(a, n=ANY.agg.variance(lambda v: v.id, ddof=0)),
        "'ddof'; it takes variance(f, *, population=False)",
    ),
    (
        lambda a: aggregated(a, n=ANY.agg.sum(lambda v: v.id, 1)),
        "were given; it takes sum(f)",
    ),
    (
        lambda a: st.aggregate(
            a, ANY.rollup(lambda v: v.id, lambda v: v.shop), Counted, n=st.agg.count()
        ),
        "were given; it takes rollup(by)",
    ),
    # values of another kind
    (
        lambda a: st.aggregate(a, None, Middle, n=st.agg.median(lambda v: v.shop)),
        "n = median(shop): str cannot be added up",
    ),
    (
        lambda a: nearest(a, direction="nearest"),
        "asof_join: direction='nearest': times are str, which have no distances",
    ),
    (lambda a: nearest(a, tolerance=3), "asof_join: tolerance=3: times are str"),
    (
        lambda a: st.sessions(a, at=lambda v: v.id, gap=-5),
        "sessions: gap=-5: expected the largest gap between two rows of a session, zero or more, "
        "found -5",
    ),
    (
        lambda a: windowed(a, n=st.win.count(range=(dt.timedelta(days=-2), 0))),
        "expected int, found datetime.timedelta(days=-2) (timedelta); the order is by int",
    ),
    (
        lambda a: st.sessions(a, at=lambda v: v.id, gap=dt.timedelta(days=2)),
        "expected int, found datetime.timedelta(days=2) (timedelta); at gives int",
    ),
    *[
        (
            lambda a, join=join: by_id(join, a, null_safe="yes"),
            "null_safe='yes': expected True, so that NULL keys match each other, or False",
        )
        for join in (
            *(st.join, st.semijoin, st.antijoin, st.outer_join, st.half_join),
            *(st.linear.join, st.linear.outer_join),
        )
    ],
    (lambda a: by_id(st.join, a, null_safe=None), "null_safe=None: expected True"),
    (
        lambda a: st.delta_join(
            a, ANY.Lookup(a, lambda v: v.id, lambda row: row[0].id, null_safe=1)
        ),
        "null_safe=1 of a Lookup; it is True or False",
    ),
]


@pytest.mark.parametrize(("body", "said"), SAID)
def test_an_error_says_what_to_write(body: Any, said: str) -> None:
    def query(a: st.ZSet[Visit]) -> Any:
        return body(a)

    with pytest.raises(st.CompileError) as caught:
        st.compile(query)
    assert said in str(caught.value)
    assert "test_messages_of_windows.py:" in str(caught.value)


def test_days_of_dates_are_a_timedelta_or_a_number() -> None:
    def query(a: st.ZSet[Visit]) -> st.ZSet[Counted]:
        two: Any = st.win.count(range=(dt.timedelta(days=-2), 0))
        return st.window(a, order=lambda v: v.day, into=Counted, n=two)

    def found(a: st.ZSet[Visit]) -> Any:
        return st.sessions(a, at=lambda v: v.day, gap=dt.timedelta(days=2))

    st.compile(query)
    st.compile(found)


@pytest.mark.parametrize("module", [st.agg, st.win])
def test_a_module_of_functions_lists_nothing_else(module: Any) -> None:
    assert dir(module) == sorted(module.__all__)
    for name in module.__all__:
        assert getattr(module, name).__module__ == module.__name__


def test_the_joins_of_intervals_and_of_everything_name_each_other() -> None:
    assert "`st.range_join`" in str(st.cross_join.__doc__)
    assert "`st.cross_join`" in str(st.range_join.__doc__)
