"""Queries that are right, and that checkers do not understand: with PySpark's own types.

A field is a value to a checker, and a Column to PySpark's signatures. The ways to write the same
that checkers understand are in `views`.
"""

from __future__ import annotations

from pyspark.sql import functions as F

import stepping_spark as st
from tests.typing.programs.shop import Order, Sold


def function(orders: st.ZSet[Order]) -> st.ZSet[int]:
    return st.map(orders, f=lambda o: F.month(o.placed))  # error


def field(orders: st.ZSet[Order]) -> st.ZSet[Sold]:
    return st.map(orders, f=lambda o: Sold(name=F.lit("x"), qty=o.id, returned=None))  # error


def isin(orders: st.ZSet[Order]) -> st.ZSet[Order]:
    return st.filter(orders, f=lambda o: o.id.isin(1, 2))  # error


def is_not_null(orders: st.ZSet[Order]) -> st.ZSet[Order]:
    return st.filter(orders, f=lambda o: o.note.isNotNull())  # error


def cast(orders: st.ZSet[Order]) -> st.ZSet[str]:
    return st.map(orders, f=lambda o: o.id.cast("string"))  # error
