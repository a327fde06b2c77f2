"""The queries of states that earlier versions made, and the changes of their steps."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Annotated, Any

import stepping_spark as st


class Sale(st.Data):
    id: int
    shop: str
    cents: int | None
    price: Annotated[Decimal, st.Precision(10, 2)]
    day: dt.date
    tags: list[str]


class Shop(st.Data):
    name: str
    city: str | None


class Total(st.Data):
    shop: str
    sales: int
    cents: int | None
    dearest: Annotated[Decimal, st.Precision(10, 2)]


class Before(st.Data):
    shop: str
    id: int
    day: dt.date
    previous: int | None


def joined(sales: st.ZSet[Sale], shops: st.ZSet[Shop]) -> st.ZSet[st.Pair[Sale, Shop]]:
    return st.join(sales, shops, on_left=lambda s: s.shop, on_right=lambda s: s.name)


def totals(sales: st.ZSet[Sale]) -> st.ZSet[Total]:
    return st.aggregate(
        sales,
        by=lambda s: s.shop,
        into=Total,
        sales=st.agg.count(),
        cents=st.agg.sum(lambda s: s.cents),
        dearest=st.agg.max(lambda s: s.price),
    )


def dearest(sales: st.ZSet[Sale]) -> st.ZSet[Sale]:
    return st.first_n(sales, st.win.desc(lambda s: s.price), 1, by=lambda s: s.shop)


def before(sales: st.ZSet[Sale]) -> st.ZSet[Before]:
    return st.window(
        sales,
        by=lambda s: s.shop,
        order=lambda s: s.id,
        into=Before,
        previous=st.win.lag(lambda s: s.cents),
    )


QUERIES: dict[str, Callable[..., Any]] = {
    "join": joined,
    "aggregate": totals,
    "first_n": dearest,
    "window": before,
}


def _sale(number: int, shop: str, cents: int | None, price: str, tags: Sequence[str]) -> Sale:
    day = dt.date(2024, 2, 27) + dt.timedelta(days=number)
    return Sale(id=number, shop=shop, cents=cents, price=Decimal(price), day=day, tags=list(tags))


_SHOPS = st.ZSetPython({Shop(name="A", city="Łódź"): 1, Shop(name="\0", city=None): 1})
_FIRST, _SECOND, _THIRD, _FOURTH = (
    _sale(1, "A", 250, "2.50", ["tea", "␀"]),
    _sale(2, "A", None, "9.99", []),
    _sale(3, "\0", 7, "-0.01", [""]),
    _sale(4, "A", 8, "0.00", ["a", "b"]),
)

STEPS: list[tuple[st.ZSetPython[Any], ...]] = [
    (st.ZSetPython({_FIRST: 1, _SECOND: 2}), _SHOPS),
    (st.ZSetPython({_SECOND: -1, _THIRD: 1}), st.ZSetPython({})),
    (
        st.ZSetPython({_SECOND: -1, _FOURTH: 1}),
        st.ZSetPython({Shop(name="A", city="Łódź"): -1, Shop(name="A", city="Oslo"): 1}),
    ),
]
"""The changes of steps; all but the last are in the states."""


def changes_of(name: str, step: int) -> tuple[st.ZSetPython[Any], ...]:
    """The changes of a step for the inputs of a query."""
    return STEPS[step] if name == "join" else STEPS[step][:1]
