"""Views as users write them: neither mypy nor pyright finds anything, and each compiles."""

from __future__ import annotations

import datetime as dt

import stepping_spark as st
from stepping_spark import functions as F
from tests.typing.programs.shop import Click, Customer, Line, Order, Return, Revenue, Shown, Sold

START = dt.date(2024, 1, 1)


def functions_give_values(orders: st.ZSet[Order]) -> st.ZSet[Shown]:
    return st.map(
        orders,
        f=lambda o: Shown(
            name=F.upper(F.concat(F.lit("order "), F.coalesce(o.note, F.lit("none")))),
            month=F.month(o.placed),
            spread=F.abs(o.id - o.customer),
            kind=F.when(o.id > 100, "large").when(o.id > 10, "medium").otherwise("small"),
            text=F.col(o.id).cast("string"),
        ),
    )


def methods_of_columns(orders: st.ZSet[Order]) -> st.ZSet[Order]:
    return st.filter(
        orders,
        f=lambda o: (
            F.col(o.id).isin(1, 2, 3)
            & F.col(o.note).isNotNull()
            & F.not_(F.col(o.note).like("%x%"))
            & F.col(o.id).between(1, 9)
        ),
    )


def operators(orders: st.ZSet[Order]) -> st.ZSet[tuple[int, dt.date, bool]]:
    later = st.filter(orders, f=lambda o: (o.placed >= START) & (o.id % 2 == 0))
    return st.map(
        later, f=lambda o: (-o.id, o.placed + dt.timedelta(days=1), F.isnull(o.note) | (o.id > 3))
    )


def lists(lines: st.ZSet[Line]) -> st.ZSet[tuple[str, int, bool | None]]:
    return st.map(
        lines,
        f=lambda x: (
            F.array_join(F.transform(x.tags, lambda t: F.upper(t)), ","),
            F.size(x.tags),
            F.array_contains(x.tags, "new") & (x.tags[0] == "new"),
        ),
    )


def net_revenue(
    lines: st.ZSet[Line], orders: st.ZSet[Order], customers: st.ZSet[Customer]
) -> st.ZSet[Revenue]:
    known = st.delta_join(
        lines,
        st.Lookup(orders, key=lambda o: o.id, on=lambda t: t[0].order),
        st.Lookup(customers, key=lambda c: c.id, on=lambda t: t[1].customer, how="left"),
    )
    return st.aggregate(
        known,
        by=lambda t: (F.coalesce(t[2].country, F.lit("unknown")), F.month(t[1].placed)),
        into=Revenue,
        total=st.agg.sum(lambda t: t[0].qty * t[0].price),
    )


def with_returns(lines: st.ZSet[Line], returns: st.ZSet[Return]) -> st.ZSet[Sold]:
    pairs = st.outer_join(
        lines, returns, on_left=lambda x: (x.order, x.no), on_right=lambda r: (r.order, r.no)
    )
    return st.map(
        pairs, f=lambda p: Sold(name=p.left.product, qty=p.left.qty, returned=p.right.qty)
    )


def matched_or_not(
    lines: st.ZSet[Line], returns: st.ZSet[Return]
) -> tuple[st.ZSet[st.Pair[Line, Return | None]], st.ZSet[st.Pair[Line | None, Return | None]]]:
    left = st.outer_join(lines, returns, on_left=lambda x: x.no, on_right=lambda r: r.no)
    full = st.outer_join(
        lines, returns, on_left=lambda x: x.no, on_right=lambda r: r.no, how="full"
    )
    return left, full


def customers_without_an_order(
    customers: st.ZSet[Customer], orders: st.ZSet[Order]
) -> st.ZSet[Customer]:
    recent = st.temporal_filter(
        orders, lower=lambda o: o.placed, upper=lambda o: F.date_add(o.placed, 30)
    )
    return st.antijoin(customers, recent, on_left=lambda c: c.id, on_right=lambda o: o.customer)


def best_lines(lines: st.ZSet[Line]) -> st.ZSet[Line]:
    return st.first_n(lines, st.win.desc(lambda x: x.qty), 3, by=lambda x: x.product)


def visits(clicks: st.ZSet[Click]) -> st.ZSet[tuple[int, dt.datetime]]:
    found = st.sessions(
        clicks, by=lambda c: c.user, at=lambda c: c.at, gap=dt.timedelta(minutes=30)
    )
    return st.distinct(st.map(found, f=lambda s: (s.row.user, s.start)))


def steps() -> None:
    """What goes into a step, and what comes out of it, is known of a compiled query."""
    graph = st.compile(with_returns)
    line = Line(order=1, no=1, product="tea", qty=2, price=1.5, tags=["new"])
    (out,) = st.reference(graph).step((st.ZSetPython({line: 1}), None))
    names: list[str] = [row.name for row, _ in out.iter()]
    assert names == ["tea"]
    left, full = st.reference(st.compile(matched_or_not)).step((st.ZSetPython({line: 1}), None))
    lonely: list[Return | None] = [pair.right for pair, _ in left.iter()]
    assert lonely == [None]
    assert len(full.to_python()) == 1
    lines, returns = st.actions(st.StoreMemory.from_graph(graph), graph)
    sold: st.ZSet[Sold] = lines.insert(line)
    assert len(sold) == 1
    returns.remove()
