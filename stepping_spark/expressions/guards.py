"""Guards against results of Spark's functions that are no Python value: the step then fails."""

from __future__ import annotations

import functools

from stepping_spark.packages import Column
from stepping_spark.packages import functions as F
from stepping_spark.rows.atoms import Atom, RowType
from stepping_spark.rows.types import ListOf, Optional, Struct

UUID_TEXT = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"

YEARS = {
    "date": ("DATE'0001-01-01'", "DATE'9999-12-31'"),
    "datetime": ("timestamp_micros(-62135596800000000L)", "timestamp_micros(253402300799999999L)"),
    "LocalDateTime": (
        "TIMESTAMP_NTZ'0001-01-01 00:00:00'",
        "TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'",
    ),
}
"""The least and the greatest value that Python has, in SQL: Spark's calendar has 290,000 years."""


def guarded(column: Column, t: RowType) -> Column:
    """The same Column, with an error for values that the type does not allow.

    Such values are text that is no UUID or member of the Enum, and years beyond 9999. A UUID is
    converted to lower case, so that equal UUIDs are equal text.
    """
    return column if _is_safe(t) else _guarded(column, t)


def _is_safe(t: RowType) -> bool:
    if isinstance(t, Optional | ListOf):
        return _is_safe(t.inner)
    if isinstance(t, Struct):
        return all(_is_safe(f) for _, f in t.fields)
    return not isinstance(t, Atom) or t.name not in (*YEARS, "UUID", "Enum")


def _guarded(c: Column, t: RowType) -> Column:
    if isinstance(t, Optional):
        return guarded(c, t.inner)
    if isinstance(t, ListOf):
        return F.transform(c, lambda item: guarded(item, t.inner))
    if isinstance(t, Struct):
        unsafe = ((n, f) for n, f in t.fields if not _is_safe(f))
        return functools.reduce(lambda s, f: s.withField(f[0], guarded(c[f[0]], f[1])), unsafe, c)
    assert isinstance(t, Atom)
    if t.name == "UUID":
        c = F.lower(c)
        return _or_error(c, c.rlike(UUID_TEXT), "a UUID")
    if t.name == "Enum":
        return _or_error(c, c.isin(*t.members), f"one of {', '.join(t.members)}")
    least, most = YEARS[t.name]
    return _or_error(c, c.between(F.expr(least), F.expr(most)), "a year from 1 to 9999")


def _or_error(c: Column, fits: Column, expected: str) -> Column:
    said = F.concat(F.lit(f"expected {expected}, found "), c.cast("string"))
    return F.when(c.isNull() | fits, c).otherwise(F.raise_error(said))
