"""Mistakes that no checker can find: `st.compile` refuses each, with the line and the remedy.

To a checker a field is a value, of which Python itself can say whether it is true, or make text.
"""

from __future__ import annotations

import stepping_spark as st
from tests.typing.programs.shop import Customer, Line, Order, Revenue


def and_in_the_place_of_an_operator(orders: st.ZSet[Order]) -> st.ZSet[Order]:
    return st.filter(orders, f=lambda o: o.id > 3 and o.customer > 3)


def an_f_string(customers: st.ZSet[Customer]) -> st.ZSet[str]:
    return st.map(customers, f=lambda c: f"{c.name} of {c.country}")


def a_field_that_into_has_not(lines: st.ZSet[Line]) -> st.ZSet[Revenue]:
    """Which fields `by` fills is not in its type, so a checker cannot know which are to come."""
    return st.aggregate(
        lines, by=lambda x: (x.product, x.no), into=Revenue, totla=st.agg.sum(lambda x: x.price)
    )


def a_field_of_what_is_looked_for(lines: st.ZSet[Line], orders: st.ZSet[Order]) -> st.ZSet[int]:
    """A lookup is made before the join that it is for, so the tuple has no type yet."""
    order = st.Lookup(orders, key=lambda o: o.id, on=lambda t: t[0].ordre)
    return st.map(st.delta_join(lines, order), f=lambda t: t[0].qty)
