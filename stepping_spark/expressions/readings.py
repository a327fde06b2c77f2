"""Spark's functions that Arrow computes as Spark does, without a call of Spark.

A Column of such functions has a reading: an expression of fields, constants, operators and
functions. The driver computes the reading, and Spark the Column itself. Only Spark computes
functions that depend on the session's time zone, or on the letters of a language beyond ASCII.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute

from stepping_spark.errors import CompileError
from stepping_spark.expressions.arrow_calls import is_known
from stepping_spark.expressions.derived import Derived, choice
from stepping_spark.expressions.expr import Call, Expr, Field, Literal
from stepping_spark.expressions.function_kernels import (
    KERNELS,
    PARTS_OF_SECONDS,
    UNITS,
    UNITS_OF_TIME,
    strftime,
)
from stepping_spark.expressions.operations import result_type
from stepping_spark.rows.atoms import (
    BOOL,
    DATE,
    DATETIME,
    FLOAT,
    INT,
    LOCAL_DATETIME,
    STR,
    Atom,
    RowType,
)
from stepping_spark.rows.types import Optional, unwrap
from stepping_spark.spark.trees import Tree

pc: Any = pyarrow.compute


@dataclass(frozen=True)
class Function(Derived):
    """A function of Spark, with the constants that it takes beside columns."""

    name: str = ""
    constants: tuple[Any, ...] = ()
    said: ClassVar[str] = "function"

    @property
    def in_session_zone(self) -> bool:
        return any(unwrap(a.type) == DATETIME for a in self.args) or self.name == "date_format"

    def arrow(self, columns: Sequence[Any]) -> Any:
        try:
            return KERNELS[self.name](*columns, *self.constants)
        except pa.ArrowInvalid:
            return None


def reading_of(tree: Tree, texts: Mapping[str, Expr], t: RowType) -> Expr | None:
    """A Column's parts as an expression of the type that Arrow can evaluate; None if there is none.

    `texts` maps texts of SQL to the expressions that they stand for.
    """
    found = _read(tree, texts)
    if found is None or not is_known(found) or unwrap(found.type).arrow != unwrap(t).arrow:
        return None
    return found


def _read(tree: Tree, texts: Mapping[str, Expr]) -> Expr | None:
    if tree.kind == "text":
        return texts.get(tree.value)
    if tree.kind == "constant":
        return _constant(tree.value)
    if tree.kind == "case":
        return _case(tree, texts)
    parts = [_read(p, texts) for p in tree.parts]
    known = [p for p in parts if p is not None]
    if len(known) < len(parts) or not known:
        return None
    if tree.kind == "cast":
        return _cast(known[0], tree.value)
    return _function(tree.value, known) if tree.kind == "function" else None


_CONSTANTS: dict[type, RowType] = {bool: BOOL, int: INT, float: FLOAT, str: STR}


def _constant(value: Any) -> Expr | None:
    t = _CONSTANTS.get(type(value))
    if isinstance(value, Decimal):
        _, digits, exponent = value.as_tuple()
        if isinstance(exponent, int) and -len(digits) <= exponent <= 0:
            t = Atom("Decimal", Decimal, len(digits), -exponent)
    return None if t is None else Literal(t, value)


def _cast(e: Expr, ddl: str) -> Expr | None:
    """A cast to the type that a value already has, or to a wider number; None for other casts."""
    if unwrap(e.type).ddl == ddl:
        return e
    if ddl == "DATE" and unwrap(e.type) == DATETIME:
        return _function("to_date", [e])
    return _call("to_float", [e], FLOAT) if ddl == "DOUBLE" and unwrap(e.type) == INT else None


def _case(tree: Tree, texts: Mapping[str, Expr]) -> Expr | None:
    """CASE as choices, from the last to the first. All values must have one type."""
    *branches, rest = tree.parts
    values = [_read(v, texts) for v in (*branches[1::2], rest) if not _is_null(v)]
    types = {unwrap(v.type) for v in values if v is not None}
    if None in values or len(types) != 1:
        return None
    (t,) = types
    null = Literal(Optional(t), None)
    found = null if _is_null(rest) else _read(rest, texts)
    for condition, value in reversed([*zip(branches[::2], branches[1::2], strict=True)]):
        when = _read(condition, texts)
        then = null if _is_null(value) else _read(value, texts)
        if found is None or when is None or then is None or unwrap(when.type) != BOOL:
            return None
        found = choice(when, then, found)
    return found if isinstance(t, Atom) else None


def _is_null(tree: Tree) -> bool:
    return tree == Tree("constant")


def _call(op: str, args: Sequence[Expr], t: RowType) -> Expr:
    return Call(_null_as(args, t), op, tuple(args))


def _null_as(args: Sequence[Expr], t: RowType) -> RowType:
    """The type of a value that is NULL if an argument is."""
    return Optional(t) if any(isinstance(a.type, Optional) for a in args) else t


# Operators

_OPERATORS = {
    "=": "==",
    "==": "==",
    "!=": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
    "<=>": "eqNullSafe",
    "and": "&",
    "or": "|",
    "!": "~",
    "not": "~",
    "in": "isin",
    "isnull": "isNull",
    "isnotnull": "isNotNull",
    "+": "+",
    "-": "-",
    "*": "*",
    "%": "%",
    "mod": "%",
    "coalesce": "coalesce",
    "ifnull": "coalesce",
    "nvl": "coalesce",
}


def _operator(op: str, args: Sequence[Expr]) -> Expr | None:
    types = [unwrap(a.type) for a in args]
    if len(args) < (1 if op in ("~", "isNull", "isNotNull") else 2):
        return None
    if op == "coalesce":
        if len(set(types)) > 1:
            return None
        *front, last = args
        while front:
            last = Call(last.type, op, (front.pop(), last))
        return last
    if op in ("+", "-", "*", "%") and not _are_numbers(args):
        return None
    try:
        return Call(result_type(op, tuple(a.type for a in args), ""), op, tuple(args))
    except CompileError:  # Spark would convert one side
        return None


def _are_numbers(args: Sequence[Expr]) -> bool:
    """Whether Spark computes these numbers with the types that they have here.

    In Spark, constants and parts of dates are 32-bit ints. Beside a 64-bit int or a float, the
    result is the same. Beside a Decimal, the digits of the result differ.
    """
    types = [unwrap(a.type) for a in args]
    if all(t in (INT, FLOAT) for t in types):
        return any(map(_is_wide, args))
    return all(
        _is_wide(a) if t == INT else _is_decimal(t) for a, t in zip(args, types, strict=True)
    )


def _is_decimal(t: RowType) -> bool:
    return isinstance(t, Atom) and t.name == "Decimal"


def _is_wide(e: Expr) -> bool:
    """Whether a number has 64 bits in Spark."""
    if isinstance(e, Call) and e.op in ("+", "-", "*", "%", "coalesce"):
        return any(map(_is_wide, e.args))
    return isinstance(e, Field) or unwrap(e.type) == FLOAT


# Functions


def _function(name: str, args: list[Expr]) -> Expr | None:
    if name in _OPERATORS:
        return _operator(_OPERATORS[name], args)
    if name in ("date_add", "date_sub") and [unwrap(a.type) for a in args] == [DATE, INT]:
        return _call("+" if name == "date_add" else "-", args, DATE)
    if name in ("nullif", "nvl2"):
        return _chosen(name, args)
    form = _FORMS.get(name)
    if form is None:
        return None
    if name in ("date_trunc", "concat_ws"):  # their constant comes first
        args = [*args[1:], args[0]]
    columns, constants = args[: form.columns or None], args[form.columns or len(args) :]
    types = {unwrap(a.type) for a in columns}
    if not types <= form.types or len(types) != 1:
        return None
    values = [a.constant if isinstance(a, Literal) else None for a in constants]
    if not form.takes(*values) if form.columns else constants:
        return None
    t = types.pop() if form.given is None else form.given
    return Function(_null_as(columns, t), tuple(columns), form.kernel or name, tuple(values))


def _chosen(name: str, args: Sequence[Expr]) -> Expr | None:
    """`nullif` and `nvl2`, as choices between values of one type."""
    last = args[-2:] if name == "nvl2" else args
    types = {unwrap(a.type) for a in last}
    if len(args) != (3 if name == "nvl2" else 2) or len(types) != 1:
        return None
    (t,) = types
    if not isinstance(t, Atom):
        return None
    if name == "nvl2":
        return choice(Call(BOOL, "isNotNull", (args[0],)), args[1], args[2])
    same = _operator("==", args)
    return None if same is None else choice(same, Literal(Optional(t), None), args[0])


@dataclass(frozen=True)
class Form:
    """The signature of a function: its columns, with their types, and its constants.

    `columns` is the number of columns; 0 is any, and -1 is all but the last argument.
    """

    types: frozenset[RowType]
    given: RowType | None = None  # the type of the result; None: that of the columns
    columns: int = 1
    takes: Callable[..., bool] = lambda *constants: not constants
    kernel: str = ""  # if its name is not the function's


def _is_padding(*values: Any) -> bool:
    return (
        len(values) == 2 and _is_number(values[0]) and _is_text(values[1]) and len(values[1]) == 1
    )


def _is_number(*values: Any) -> bool:
    return len(values) == 1 and type(values[0]) is int and 0 <= values[0] <= 1_000


def _is_length_of_hash(*values: Any) -> bool:
    return len(values) == 1 and values[0] in (0, 224, 256, 384, 512)


def _is_text(*values: Any) -> bool:
    return len(values) == 1 and isinstance(values[0], str)


def _is_pattern(*values: Any) -> bool:
    return _is_text(*values) and "\\" not in values[0]


def _is_piece(*values: Any) -> bool:
    return len(values) == 2 and all(type(v) is int for v in values) and values[0] > 0 <= values[1]


def _is_replaced(*values: Any) -> bool:
    return len(values) == 2 and all(isinstance(v, str) for v in values) and values[0] != ""


def _is_unit(*values: Any) -> bool:
    return _is_text(*values) and values[0].lower() in UNITS


def _is_unit_of_time(*values: Any) -> bool:
    return _is_text(*values) and values[0].lower() in UNITS_OF_TIME


def _is_format(*values: Any) -> bool:
    return _is_text(*values) and bool(values[0]) and strftime(values[0]) is not None


_TEXT = frozenset({STR})
_DAYS: frozenset[RowType] = frozenset({DATE, DATETIME, LOCAL_DATETIME})
_INSTANTS: frozenset[RowType] = frozenset({DATETIME})
_NUMBERS: frozenset[RowType] = frozenset({INT, FLOAT})

_FORMS: dict[str, Form] = {
    **dict.fromkeys(("upper", "ucase"), Form(_TEXT, kernel="upper")),
    **dict.fromkeys(("lower", "lcase"), Form(_TEXT, kernel="lower")),
    **dict.fromkeys(
        ("length", "len", "char_length", "character_length"), Form(_TEXT, INT, kernel="length")
    ),
    **{n: Form(_TEXT) for n in ("trim", "ltrim", "rtrim")},
    "concat": Form(_TEXT, columns=0),
    **dict.fromkeys(("substring", "substr"), Form(_TEXT, takes=_is_piece, kernel="substring")),
    "concat_ws": Form(_TEXT, columns=-1, takes=_is_text),
    **{n: Form(_TEXT, takes=_is_padding) for n in ("lpad", "rpad")},
    **{n: Form(_TEXT, takes=_is_number) for n in ("left", "right", "repeat")},
    "reverse": Form(_TEXT),
    "md5": Form(_TEXT),
    **dict.fromkeys(("sha", "sha1"), Form(_TEXT, kernel="sha1")),
    "sha2": Form(_TEXT, takes=_is_length_of_hash),
    "crc32": Form(_TEXT, INT),
    "like": Form(_TEXT, BOOL, takes=_is_pattern),
    **{n: Form(_TEXT, BOOL, takes=_is_text) for n in ("startswith", "endswith", "contains")},
    "replace": Form(_TEXT, takes=_is_replaced),
    **{n: Form(_DAYS, INT) for n in ("year", "quarter", "month", "weekofyear", "dayofweek")},
    **{n: Form(_DAYS, INT) for n in ("weekday", "dayofyear")},
    **dict.fromkeys(("day", "dayofmonth"), Form(_DAYS, INT, kernel="day")),
    **{n: Form(_DAYS - {DATE}, INT) for n in ("hour", "minute", "second")},
    "to_date": Form(_INSTANTS, DATE),
    "date_trunc": Form(_INSTANTS, takes=_is_unit_of_time),
    "date_format": Form(frozenset({DATE, DATETIME}), STR, takes=_is_format),
    "trunc": Form(frozenset({DATE}), takes=_is_unit),
    **dict.fromkeys(("datediff", "date_diff"), Form(frozenset({DATE}), INT, 2, kernel="datediff")),
    "last_day": Form(frozenset({DATE})),
    "unix_date": Form(frozenset({DATE}), INT),
    **{n: Form(frozenset({DATETIME}), INT) for n in PARTS_OF_SECONDS},
    "abs": Form(_NUMBERS),
    "isnan": Form(frozenset({FLOAT}), BOOL),
    "sqrt": Form(frozenset({FLOAT})),
    "pmod": Form(frozenset({INT}), columns=2),
    **{n: Form(frozenset({INT}), columns=2) for n in ("&", "|", "^")},
    "try_divide": Form(_NUMBERS, FLOAT, 2),
    **{n: Form(frozenset({INT, DATE}), columns=0) for n in ("greatest", "least")},
}
