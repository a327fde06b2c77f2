"""Mistakes that checkers find: at each line that says so, in both or in the one that is named.

The queries are mistakes indeed: `st.compile` refuses each.
"""

from __future__ import annotations

import stepping_spark as st
from stepping_spark import functions as F
from tests.typing.programs.shop import Customer, Line, Order, Return, Revenue, Sold


def misspelt_field(orders: st.ZSet[Order]) -> st.ZSet[Order]:
    return st.filter(orders, f=lambda o: o.plcaed == o.id)  # error


def text_compared_with_a_number(customers: st.ZSet[Customer]) -> st.ZSet[Customer]:
    return st.filter(customers, f=lambda c: c.name > 3)  # error


def field_that_a_row_has_not(orders: st.ZSet[Order]) -> st.ZSet[Sold]:
    return st.map(orders, f=lambda o: Sold(nmae="x", qty=1, returned=None))  # error


def value_of_another_type(orders: st.ZSet[Order]) -> st.ZSet[Sold]:
    return st.map(orders, f=lambda o: Sold(name=o.id, qty=1, returned=None))  # error


def function_of_a_value_of_another_type(orders: st.ZSet[Order]) -> st.ZSet[int]:
    return st.map(orders, f=lambda o: F.month(F.array(o.id)))  # error


def stream_of_other_rows(lines: st.ZSet[Line], orders: st.ZSet[Order]) -> st.ZSet[Line]:
    pairs = st.join(lines, orders, on_left=lambda x: x.order, on_right=lambda o: o.id)
    return pairs  # error


def misspelt_key(lines: st.ZSet[Line], orders: st.ZSet[Order]) -> st.ZSet[int]:
    pairs = st.join(lines, orders, on_left=lambda x: x.ordre, on_right=lambda o: o.id)  # error
    return st.map(pairs, f=lambda p: p.left.qty)


def misspelt_after_a_join(lines: st.ZSet[Line], orders: st.ZSet[Order]) -> st.ZSet[int]:
    pairs = st.join(lines, orders, on_left=lambda x: x.order, on_right=lambda o: o.id)
    return st.map(pairs, f=lambda p: p.right.costumer)  # error


def misspelt_after_an_outer_join(lines: st.ZSet[Line], back: st.ZSet[Return]) -> st.ZSet[int]:
    pairs = st.outer_join(lines, back, on_left=lambda x: x.no, on_right=lambda r: r.no)
    return st.map(pairs, f=lambda p: p.left.quantity)  # error


def misspelt_where_nothing_matched(lines: st.ZSet[Line], back: st.ZSet[Return]) -> st.ZSet[int]:
    pairs = st.outer_join(lines, back, on_left=lambda x: x.no, on_right=lambda r: r.no)
    return st.map(pairs, f=lambda p: p.right.quantity)  # error


def misspelt_after_a_delta_join(lines: st.ZSet[Line], orders: st.ZSet[Order]) -> st.ZSet[int]:
    known = st.delta_join(lines, st.Lookup(orders, key=lambda o: o.id, on=lambda t: t[0].order))
    return st.map(known, f=lambda t: t[1].costumer)  # error


def misspelt_key_of_a_lookup(lines: st.ZSet[Line], orders: st.ZSet[Order]) -> st.ZSet[int]:
    order = st.Lookup(orders, key=lambda o: o.ids, on=lambda t: t[0].order)  # error
    return st.map(st.delta_join(lines, order), f=lambda t: t[0].qty)


def misspelt_in_an_aggregate(lines: st.ZSet[Line]) -> st.ZSet[Revenue]:
    return st.aggregate(
        lines,
        by=lambda x: (x.product, x.no),
        into=Revenue,
        total=st.agg.sum(lambda x: x.prize),  # error
    )


def rows_into_another_class(lines: st.ZSet[Line]) -> st.ZSet[Line]:
    made = st.aggregate(
        lines, by=lambda x: (x.product, x.no), into=Revenue, total=st.agg.sum(lambda x: x.price)
    )
    return made  # error


def right(lines: st.ZSet[Line], orders: st.ZSet[Order]) -> st.ZSet[int]:
    """No mistake; those in steps of it are below."""
    pairs = st.join(lines, orders, on_left=lambda x: x.order, on_right=lambda o: o.id)
    return st.map(pairs, f=lambda p: p.left.qty)


def steps(store: st.Store, line: Line, order: Order) -> None:
    """Mistakes in steps."""
    graph = st.compile(right)
    stepper = st.Stepper(graph, store)
    stepper.step((st.ZSetPython({order: 1}), None))  # error
    stepper.step((None, st.ZSetPython({line: 1})))  # error
    stepper.step((st.ZSetPython({line: 1}),))  # error
    stepper.step(st.ZSetPython({line: 1}))  # error
    st.iteration(store, graph, (None, None, None))  # error
    st.reference(graph).step((None, 3))  # error
    (out,) = stepper.step((None, None))
    text: str = next(out.iter())[0]  # error
    first, _ = stepper.step((None, None))  # error
    lines, orders = st.actions(store, graph)
    lines.insert(order)  # error
    orders.insert(order)
    print(text, first)
