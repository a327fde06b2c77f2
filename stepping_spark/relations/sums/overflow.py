"""SQL of weights and sums that never wraps around, and Decimals of 38 digits in two halves.

With ANSI off, Spark's own operators wrap around beyond 64 bits, and give NULL beyond 38 digits,
which sums ignore. The functions here raise an error in every setting of the session.

A sum that goes from 10³⁸ − 1 to −10³⁸ + 1 changes by 2 · 10³⁸, which no DECIMAL can hold. So a
Decimal of 38 digits is stored as two: low + high. The low half has the last 18 digits, the high one
the 20 before them, both with the sign of the whole. Each half has a sum of its own, with room for
10¹⁸ rows. Only the final value has to fit. The functions exist in Arrow, Python and SQL, and
agree:

    halves(x)          the two halves of a Decimal
    joined(low, high)  the Decimal of the sums of halves, or an error if it has more than 38 digits

The high half is stored without the digits of the low half: in units of 10¹⁸ if there are 18 digits
or fewer after the point. Different sums of halves may represent the same number, and are equal.
"""

from __future__ import annotations

import decimal
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from stepping_spark.relations.arrow import Array, one_array
from stepping_spark.rows.atoms import INT, MOST_DIGITS, Atom, RowType
from stepping_spark.rows.schema import BIG_INT, LOW_DIGITS, Columns, high_scale
from stepping_spark.rows.sql_text import Sql, any_of, closed, let, text
from stepping_spark.rows.types import quote

HALF = "4294967295L"  # the lower 32 bits
_TWO_32 = "4294967296BD"
_TWO_64 = "18446744073709551616BD"


def fitting(value: str, t: RowType, message: str) -> Sql:
    """The value, or an error if it does not fit the type: NULL must mean that it does not."""
    return closed(f"coalesce({value}, CAST(raise_error({text(message)}) AS {t.ddl}))")


def beyond(diff: str, t: RowType) -> str:
    """The error of a diff whose sum does not fit its type."""
    return f"the sum of {diff} is beyond {t.ddl}; feed fewer or smaller weights"


def zero(t: RowType) -> Sql:
    """A typed zero. Beside a bare 0, Spark rounds a decimal with scale 38 to scale 37."""
    return closed("0L" if t.ddl == "BIGINT" else f"CAST(0 AS {t.ddl})")


def product(a: Sql, b: Sql, message: str = "the product of two weights is beyond BIGINT") -> Sql:
    """The product of two weights, or an error."""
    return fitting(f"try_multiply({a}, {b})", INT, message)


def opposite(x: Sql, t: RowType) -> Sql:
    """The opposite of a diff, exactly: Spark's minus rounds decimals to 34 digits."""
    if not t.ddl.startswith("DECIMAL"):
        return fitting(f"try_subtract(0L, {x})", t, f"the opposite of a weight is beyond {t.ddl}")
    digits = f"CAST({x} AS STRING)"
    turned = f"if({x} < {zero(t)}, substring({digits}, 2), concat('-', {digits}))"
    return closed(f"CAST({turned} AS {t.ddl})")


def total(x: str, t: RowType, message: str, *, grouped: bool = True) -> Sql:
    """The sum of a diff, as an aggregate. Without rows it is NULL; a group always has rows."""
    if t.ddl == "BIGINT":
        # The upper and the lower half of the bits are added apart. Neither sum can overflow, so the
        # order of rows does not matter, and both are far cheaper than a sum of decimals.
        low = closed(f"sum({x} & {HALF})")
        high = f"try_multiply(sum(shiftright({x}, 32)) + shiftright({low}, 32), {HALF} + 1L)"
        value = fitting(closed(f"{high} + ({low} & {HALF})"), t, message)
    else:
        value = fitting(f"try_sum({x})", t, message)
    return value if grouped else closed(f"CASE WHEN count(1) > 0 THEN {value} END")


@dataclass(frozen=True)
class SumsQuery:
    """The SQL that adds up the diffs of many rows, in three nested queries.

    `rows` are expressions over rows, `sums` are aggregates over `rows`, and `totals` are the diffs,
    as expressions over `sums`. Each is a list of texts with their names. `alive` is the condition,
    on `sums`, that one of the diffs is not zero.

    Decimals of 38 digits without a point are added up as longs: see `_limbs`. Spark copies a sum of
    decimals for each row, which takes longer than all the rest of a query.
    """

    rows: tuple[tuple[str, Sql], ...]
    sums: tuple[tuple[str, Sql], ...]
    totals: tuple[tuple[str, Sql], ...]
    alive: Sql

    @classmethod
    def of(
        cls,
        diffs: Columns,
        message_of: Callable[[str, RowType], str],
        *,
        grouped: bool = True,
    ) -> SumsQuery:
        """The sums of diffs; `message_of` makes the error of a sum that does not fit its type.

        `grouped` is true if there are columns to group by.
        """
        rows: list[tuple[str, Sql]] = []
        sums: list[tuple[str, Sql]] = []
        totals: list[tuple[str, Sql]] = []
        alive: list[Sql] = []
        for name, t in diffs:
            x = closed(quote(name))
            if is_wide(t):
                parts = [f"{name}.{i}" for i in range(3)]
                low, middle, high = parts
                rows += zip(parts, _limbs(x), strict=True)
                sums += [(n, closed(f"sum({quote(n)})")) for n in (low, middle)]
                sums.append((high, closed(f"try_sum({quote(high)})")))
                quoted = [closed(quote(n)) for n in parts]
                totals.append((name, _of_limbs(quoted, t, message_of(name, t))))
                alive.append(_is_other_than_zero(quoted))
            else:
                rows.append((name, x))
                sums.append((name, total(x, t, message_of(name, t), grouped=grouped)))
                totals.append((name, x))
                alive.append(closed(f"{x} <> {zero(t)}"))
        return cls(tuple(rows), tuple(sums), tuple(totals), any_of(alive))


def is_wide(t: RowType) -> bool:
    """Whether a diff is a sum of ints, which has up to 38 digits."""
    return t.ddl == "DECIMAL(38, 0)"


def _limbs(x: Sql) -> tuple[Sql, Sql, Sql]:
    """An integer of up to 38 digits as three longs: low + middle · 2^32 + high · 2^64.

    A decimal is computed only for integers beyond 64 bits. The low limb has 32 bits and the middle
    one 32 and a sign. So two billion rows can be added up in any order. If the sum of some of the
    rows is beyond 38 digits, the high limb is an error, and so is the whole sum.
    """
    fits = closed(f"TRY_CAST({x} AS BIGINT)")
    rest = closed(f"{x} % {_TWO_64}")
    return (
        closed(f"coalesce({fits} & {HALF}, CAST({rest} % {_TWO_32} AS BIGINT))"),
        closed(f"coalesce(shiftright({fits}, 32), {rest} DIV {_TWO_32})"),
        closed(f"if({fits} IS NULL, {x} DIV {_TWO_64}, 0L)"),
    )


def _is_other_than_zero(sums: list[Sql]) -> Sql:
    """Whether the integer of three sums of limbs is not zero."""
    low, middle, high = sums
    carried = closed(f"{middle} + shiftright({low}, 32)")
    rest = closed(f"try_add({high}, shiftright({carried}, 32))")
    # Without rows all three are NULL. Beyond 64 bits only the last one is.
    last = f"coalesce({rest} <> 0L, {low} IS NOT NULL)"
    return any_of([f"{low} & {HALF} <> 0L", f"{carried} & {HALF} <> 0L", last])


def _of_limbs(sums: list[Sql], t: RowType, message: str) -> Sql:
    """The decimal of three sums of limbs; an error if it has more than 38 digits."""
    low, middle, high = sums
    short = f"try_add(try_multiply({middle}, {HALF} + 1L), {low})"
    fits = f"if({high} = 0, CAST({short} AS {t.ddl}), NULL)"
    # A product of decimals has as many digits as both together, and is exact up to 38.
    lower = closed(f"CAST({middle} AS DECIMAL(19, 0)) * {_TWO_32} + CAST({low} AS DECIMAL(19, 0))")
    upper = closed(f"CAST({high} AS DECIMAL(19, 0)) + {lower} DIV {_TWO_64}")
    long = joined_limbs(upper, closed(f"{lower} % {_TWO_64}"), _TWO_64)
    value = fitting(f"{fits}, TRY_CAST({long} AS {t.ddl})", t, message)
    return closed(f"CASE WHEN {low} IS NOT NULL THEN {value} END")


def joined_limbs(upper: Sql, rest: Sql, base: str) -> Sql:
    """The integer upper · base + rest; NULL if it has more than 38 digits.

    The product is nearer to zero than the sum: otherwise it might overflow although the sum fits.
    """
    one = f"if({upper} > 0, 1BD, -1BD)"
    product = f"try_multiply(TRY_CAST({upper} - {one} AS DECIMAL(20, 0)), {base})"
    return closed(f"try_add({product}, {rest} + {one} * {base})")


def shifted(text: str, places: int) -> Sql:
    """The number in the text of a decimal, with the point moved right, as an integer."""
    exponent = "coalesce(TRY_CAST(split_part(d, 'E', 2) AS INT), 0)"  # small numbers have an E
    moved = f"concat(split_part(d, 'E', 1), 'E', CAST({exponent} + {places} AS STRING))"
    return let("d", text, f"CAST({moved} AS DECIMAL(38, 0))")


_BASE = 10**LOW_DIGITS
_BASE_SQL = f"{_BASE}BD"
_INTS = pa.decimal256(MOST_DIGITS, 0)
_EXACT = decimal.Context(prec=100)


@functools.cache
def _base() -> Any:
    """The unit of the high half, for Arrow. Made on first use, because Arrow then loads pandas."""
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
    """The Decimal of the sums of halves, with any number of digits."""
    units = int(low.scaleb(t.scale, _EXACT)) + int(high.scaleb(high_scale(t), _EXACT)) * _BASE
    return _scaled(units, t.scale)


def _scaled(units: int, scale: int) -> decimal.Decimal:
    return decimal.Decimal(units).scaleb(-scale, _EXACT)


# -- in Arrow


def halves_of_array(values: Array, t: Atom) -> tuple[Array, Array]:
    """The halves of Decimals. NULL is zero."""
    cast: Any = values.cast(t.arrow) if values.type != t.arrow else values
    filled: Any = pc.fill_null(cast, decimal.Decimal(0))
    units = _units(filled)
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
    array: Array = units.view(pa.decimal256(units.type.precision, t.scale)).cast(t.arrow)
    return array


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


def _units_sql(x: Sql, scale: int) -> Sql:
    """A Decimal in units of its last digit, as an integer."""
    if scale:
        return shifted(f"CAST({x} AS STRING)", scale)
    return closed(f"CAST({x} AS {BIG_INT.ddl})")
