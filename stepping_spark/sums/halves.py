"""Sums of Decimals of 38 digits in two halves, so that a change may be larger than what it changes.

A sum that goes from 10³⁸ − 1 to −10³⁸ + 1 changes by 2 · 10³⁸, which no DECIMAL can hold. So a
Decimal of 38 digits is stored as two: low + high. The low half has the last 18 digits, the high one
the 20 before them, both with the sign of the whole. Each is the sum of its own, with room for 10¹⁸
rows. Only the value that is shown has to fit. The functions exist in Arrow, Python and SQL, and
agree:

    halves(x)          the two halves of a Decimal
    joined(low, high)  the Decimal of the sums of halves, or an error if it has more than 38 digits

The high half is stored without the digits that the low one has: in units of 10¹⁸ if there are 18
digits or fewer after the point. Different sums of halves may be the same number, and are equal.
"""

from __future__ import annotations

import decimal
import functools
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from stepping_spark.relations.arrow import Array, one_array
from stepping_spark.rows.atoms import MOST_DIGITS, Atom
from stepping_spark.rows.schema import BIG_INT, LOW_DIGITS, high_scale
from stepping_spark.rows.sql_text import Sql, all_of, any_of, closed
from stepping_spark.sums.overflow import joined_limbs, shifted

_BASE = 10**LOW_DIGITS
_BASE_SQL = f"{_BASE}BD"
_INTS = pa.decimal256(MOST_DIGITS, 0)
_EXACT = decimal.Context(prec=100)


@functools.cache
def _base() -> Any:
    """The unit of the high half, for Arrow. Not made when this is imported: Arrow loads pandas."""
    return pa.scalar(decimal.Decimal(_BASE), pa.decimal256(LOW_DIGITS + 1, 0))


def low_type(t: Atom) -> Atom:
    """The type of the low half of one Decimal."""
    return Atom("Decimal", decimal.Decimal, max(LOW_DIGITS, t.scale), t.scale)


def high_type(t: Atom) -> Atom:
    """The type of the high half of one Decimal."""
    return Atom("Decimal", decimal.Decimal, MOST_DIGITS - LOW_DIGITS, high_scale(t))


# -- in Python


def halves(value: decimal.Decimal, t: Atom) -> tuple[decimal.Decimal, decimal.Decimal]:
    """The halves of a Decimal."""
    units = int(value.scaleb(t.scale, _EXACT))
    high = abs(units) // _BASE * (1 if units > 0 else -1)
    return _scaled(units - high * _BASE, t.scale), _scaled(high, high_scale(t))


def joined(low: decimal.Decimal, high: decimal.Decimal, t: Atom) -> decimal.Decimal:
    """The Decimal of the sums of halves, of as many digits as it has."""
    units = int(low.scaleb(t.scale, _EXACT)) + int(high.scaleb(high_scale(t), _EXACT)) * _BASE
    return _scaled(units, t.scale)


def _scaled(units: int, scale: int) -> decimal.Decimal:
    return decimal.Decimal(units).scaleb(-scale, _EXACT)


# -- in Arrow


def halves_of_array(values: Array, t: Atom) -> tuple[Array, Array]:
    """The halves of Decimals. NULL is zero."""
    given: Any = values.cast(t.arrow) if values.type != t.arrow else values
    known: Any = pc.fill_null(given, decimal.Decimal(0))
    units = _units(known)
    high: Any = pc.trunc(pc.divide(units, _base())).cast(_INTS)
    low: Any = pc.subtract(units, pc.multiply(high, _base()))
    return _of_units(low, low_type(t)), _of_units(high, high_type(t))


def joined_array(low: Any, high: Any, t: Atom) -> Array:
    """The Decimals of sums of halves. Raises ArrowInvalid if one does not fit."""
    upper = pc.multiply(_units(one_array(high)), _base())
    return _of_units(pc.add(upper, _units(one_array(low))), t)


def _units(values: Any) -> Any:
    """Decimals in units of their last digit."""
    return values.view(pa.decimal128(values.type.precision, 0)).cast(_INTS)


def _of_units(units: Any, t: Atom) -> Array:
    found: Array = units.view(pa.decimal256(units.type.precision, t.scale)).cast(t.arrow)
    return found


# -- in SQL


def halves_sql(x: Sql, t: Atom) -> tuple[Sql, Sql]:
    """The halves of a Decimal; both NULL for NULL. Each operation here is exact."""
    unit = f"{decimal.Decimal(1).scaleb(LOW_DIGITS - t.scale):f}BD"
    low = closed(f"{x} % {unit}")
    upper = closed(f"{x} - {low}")
    high = upper if t.scale >= LOW_DIGITS else closed(f"{upper} / {unit}")
    return (
        closed(f"CAST({low} AS {low_type(t).ddl})"),
        closed(f"CAST({high} AS {high_type(t).ddl})"),
    )


def joined_sql(low: Sql, high: Sql, t: Atom) -> Sql:
    """The Decimal of the sums of halves; NULL if it does not fit."""
    lower, upper = _units_sql(low, t.scale), _units_sql(high, high_scale(t))
    last = closed(f"{lower} % {_BASE_SQL}")
    carried = f"CAST(({lower} - {last}) / {_BASE_SQL} AS {BIG_INT.ddl})"
    units = joined_limbs(closed(f"try_add({upper}, {carried})"), last, _BASE_SQL)
    if not t.scale:
        return closed(f"TRY_CAST({units} AS {t.ddl})")
    digits = f"CAST(TRY_CAST({units} AS {BIG_INT.ddl}) AS STRING)"
    return closed(f"TRY_CAST(concat({digits}, 'E-{t.scale}') AS {t.ddl})")


def same_sql(new: tuple[Sql, Sql], old: tuple[Sql, Sql], t: Atom) -> Sql:
    """Whether two sums of halves are the same number, or both are NULL."""
    halves = all_of(closed(f"{a} <=> {b}") for a, b in zip(new, old, strict=True))
    whole = f"coalesce({joined_sql(*new, t)} = {joined_sql(*old, t)}, false)"
    return any_of([halves, whole])


def _units_sql(x: Sql, scale: int) -> Sql:
    """A Decimal in units of its last digit, as an integer."""
    if scale:
        return shifted(f"CAST({x} AS STRING)", scale)
    return closed(f"CAST({x} AS {BIG_INT.ddl})")
