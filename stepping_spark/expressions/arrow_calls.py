"""Operators on values that Arrow computes as Spark does, so that the driver need not ask Spark.

Only those that are exact in both: whole numbers as long as nothing is beyond 64 bits, comparisons
of values of one type that has one order, and logic with NULL. Arrow's checked arithmetic fails
where Spark would fail, or wrap around, as its settings say; then Spark is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute

from stepping_spark.expressions.expr import Call, Expr, Literal, is_plain
from stepping_spark.rows.atoms import BOOL, INT, Atom, RowType
from stepping_spark.rows.types import unwrap

pc: Any = pyarrow.compute

_ORDERED = ("int", "str", "date", "datetime", "LocalDateTime", "timedelta", "Decimal")
_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
    "neg": pc.negate_checked,
}
_COMPARISONS: dict[str, Callable[..., Any]] = {
    "==": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_LOGIC: dict[str, Callable[..., Any]] = {
    "&": pc.and_kleene,
    "|": pc.or_kleene,
    "~": pc.invert,
}
_NULLS: dict[str, Callable[..., Any]] = {"isNull": pc.is_null, "isNotNull": pc.is_valid}


def is_known(e: Expr) -> bool:
    """Whether the driver has the values of an expression without Spark, if nothing overflows."""
    if not isinstance(e, Call):
        return is_plain(e) or (e.on_driver and all(map(is_known, e.parts())))
    return _function(e) is not None and all(map(is_known, e.args))


def computed(e: Call, args: Sequence[Any]) -> Any | None:
    """The column that an operator makes of those of its arguments; None where Spark is to say."""
    function = _function(e)
    if function is None:
        return None
    rows = len(args[0])
    # A constant as a scalar; but of constants only there would be no column.
    given = [
        column[0] if isinstance(a, Literal) and rows and i else column
        for i, (a, column) in enumerate(zip(e.args, args, strict=True))
    ]
    try:
        return function(*given)
    except pa.ArrowInvalid:  # beyond 64 bits
        return None


def _function(e: Call) -> Callable[..., Any] | None:
    types = [unwrap(a.type) for a in e.args]
    if e.op in _ARITHMETIC and all(t == INT for t in (*types, unwrap(e.type))):
        return _ARITHMETIC[e.op]
    if e.op in _COMPARISONS and all(map(_is_ordered, types)) and types[0] == types[-1]:
        return _COMPARISONS[e.op]
    if e.op in _LOGIC and all(t == BOOL for t in types):
        return _LOGIC[e.op]
    return _NULLS.get(e.op)


def _is_ordered(t: RowType) -> bool:
    return isinstance(t, Atom) and t.name in _ORDERED
