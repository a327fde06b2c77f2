"""Spark's functions that Arrow computes as Spark does, without a call of Spark.

A Column of such functions has a reading: an expression of fields, constants, operators and
functions. The driver computes the reading, and Spark the Column itself. Only Spark computes
functions that depend on the session's time zone, or on the letters of a language beyond ASCII.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute

from stepping_spark.base.errors import CompileError, StepError
from stepping_spark.expressions.arrow_kernels import is_known
from stepping_spark.expressions.expr import Call, Expr, Field, Literal
from stepping_spark.expressions.operations import result_type
from stepping_spark.expressions.portable import Derived, choice
from stepping_spark.expressions.spark_functions import ALSO_CALLED, CAST, DECIMALS, FORMS
from stepping_spark.rows.atoms import (
    BOOL,
    DATE,
    DATETIME,
    FLOAT,
    INT,
    STR,
    Atom,
    RowType,
)
from stepping_spark.rows.sql_text import text
from stepping_spark.rows.types import Optional, unwrap
from stepping_spark.spark.column_tree import Tree

pc: Any = pyarrow.compute
_CONSTANT_FIRST = ("date_trunc", "concat_ws")


@dataclass(frozen=True)
class SparkFunction(Derived):
    """A function of Spark, with the constants that it takes beside columns."""

    name: str = ""
    constants: tuple[Any, ...] = ()
    said: ClassVar[str] = "function"

    def __str__(self) -> str:
        return f"{self.name}({', '.join([*map(str, self.args), *map(repr, self.constants)])})"

    def _sql(self, row: str) -> str:
        args: list[str] = [a.sql(row) for a in self.args]
        constants: list[str] = [text(c) if isinstance(c, str) else f"{c}" for c in self.constants]
        if self.name.startswith(CAST):
            return f"CAST({args[0]} AS {self.type.ddl})"
        if self.name in ("&", "|", "^"):
            return f"{args[0]} {self.name} {args[1]}"
        if self.name in _CONSTANT_FIRST:
            args, constants = constants, args
        called = f"{self.name}({', '.join([*args, *constants])})"
        # Many of these functions give an INT, and the column is a BIGINT
        return f"CAST({called} AS BIGINT)" if unwrap(self.type) == INT else called

    def of(self, *values: Any) -> Any:
        """The value by the same kernel, for a column of one value."""
        pairs = zip(self.args, values, strict=True)
        columns = [pa.array([a.type.encode(v, str(self))], a.type.arrow) for a, v in pairs]
        found = None if self.in_session_zone else self.arrow(columns)
        if found is None:
            raise StepError(f"only Spark can evaluate {self} of {values}")
        return self.type.decode(found[0].as_py())

    @property
    def in_session_zone(self) -> bool:
        return any(unwrap(a.type) == DATETIME for a in self.args) or self.name == "date_format"

    def arrow(self, columns: Sequence[Any]) -> Any:
        try:
            return FORMS[self.name].kernel(*columns, *self.constants)
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


def function_of(name: str, args: Sequence[Expr]) -> Expr | None:
    """A call of one of Spark's functions as an expression of the driver; None if it is unknown."""
    found = _function(name, list(args)) if ALSO_CALLED.get(name, name) in FORMS else None
    return found if found is not None and is_known(found) else None


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
    name = ALSO_CALLED.get(name, name)
    form = FORMS.get(name)
    if form is None:
        return None
    if name in _CONSTANT_FIRST:
        args = [*args[1:], args[0]]
    columns, constants = args[: form.columns or None], args[form.columns or len(args) :]
    types = {unwrap(a.type) for a in columns}
    families = {DECIMALS if _is_decimal(t) else t for t in types}
    if not families <= form.types or len(types) != 1:
        return None
    values = [a.constant if isinstance(a, Literal) else None for a in constants]
    if not form.takes(*values) if form.columns else constants:
        return None
    t = types.pop() if form.given is None else form.given
    return SparkFunction(_null_as(columns, t), tuple(columns), name, tuple(values))


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
