"""SQL of weights and sums: exact, and an error if a column cannot hold them.

With ANSI off, Spark's own operators wrap around beyond 64 bits, and give NULL beyond 38 digits,
which sums ignore. The functions here raise an error in every setting of the session.
"""

from __future__ import annotations

from stepping_spark.rows.atoms import INT, RowType
from stepping_spark.rows.literals import text
from stepping_spark.rows.schema import Schema
from stepping_spark.rows.sql_text import Sql, any_of, closed, let
from stepping_spark.rows.types import quote

HALF = "4294967295L"  # the lower 32 bits


def fitting(value: str, t: RowType, said: str) -> Sql:
    """The value, or an error if it does not fit the type: NULL must mean that it does not."""
    return closed(f"coalesce({value}, CAST(raise_error({text(said)}) AS {t.ddl}))")


def zero(t: RowType) -> Sql:
    """A typed zero. Beside a bare 0, Spark rounds a decimal with scale 38 to scale 37."""
    return closed("0L" if t.ddl == "BIGINT" else f"CAST(0 AS {t.ddl})")


def nonzero(schema: Schema) -> Sql:
    """Whether a row of a relation has a diff other than zero."""
    return any_of(f"{quote(n)} <> {zero(t)}" for n, t in schema.diffs)


def product(a: Sql, b: Sql, said: str = "the product of two weights is beyond BIGINT") -> Sql:
    """The product of two weights, or an error."""
    return fitting(f"try_multiply({a}, {b})", INT, said)


def opposite(x: Sql, t: RowType) -> Sql:
    """The opposite of a diff, exactly: Spark's minus rounds decimals to 34 digits."""
    if not t.ddl.startswith("DECIMAL"):
        return fitting(f"try_subtract(0L, {x})", t, f"the opposite of a weight is beyond {t.ddl}")
    digits = f"CAST({x} AS STRING)"
    turned = f"if({x} < {zero(t)}, substring({digits}, 2), concat('-', {digits}))"
    return closed(f"CAST({turned} AS {t.ddl})")


def total(x: str, t: RowType, said: str, *, grouped: bool = True) -> Sql:
    """The sum of a diff, as an aggregate. Without rows it is NULL; a group always has rows."""
    if t.ddl == "BIGINT":
        # The upper and the lower half of the bits are added apart. Neither sum can overflow, so the
        # order of rows does not matter, and both are far cheaper than a sum of decimals.
        low = closed(f"sum({x} & {HALF})")
        high = f"try_multiply(sum(shiftright({x}, 32)) + shiftright({low}, 32), {HALF} + 1L)"
        found = fitting(closed(f"{high} + ({low} & {HALF})"), t, said)
    else:
        found = fitting(f"try_sum({x})", t, said)
    return found if grouped else closed(f"CASE WHEN count(1) > 0 THEN {found} END")


def shifted(text: str, places: int) -> Sql:
    """The number in the text of a decimal, with the point moved right, as an integer."""
    exponent = "coalesce(TRY_CAST(split_part(d, 'E', 2) AS INT), 0)"  # small numbers have an E
    moved = f"concat(split_part(d, 'E', 1), 'E', CAST({exponent} + {places} AS STRING))"
    return let("d", text, f"CAST({moved} AS DECIMAL(38, 0))")
