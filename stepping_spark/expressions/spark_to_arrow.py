"""Spark's functions that Arrow computes with equal results, without a call of Spark.

A Column of such functions has a reading: an expression of fields, constants, operators and
functions, with the type from Spark's analyzer. The driver computes the reading, and Spark the
Column itself. Only Spark computes functions of times in zones whose rules `zones` does not have, or
of letters beyond ASCII.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute

from stepping_spark.base.errors import CompileError, StepError
from stepping_spark.expressions.arrow_kernels import is_known
from stepping_spark.expressions.expr import (
    Build,
    Call,
    Expr,
    Field,
    Items,
    Literal,
    Transformed,
    Variable,
)
from stepping_spark.expressions.operations import rank, result_type
from stepping_spark.expressions.portable import Derived, choice, hashed, narrowed
from stepping_spark.expressions.spark_functions import (
    ALSO_CALLED,
    CAST,
    DECIMALS,
    FORMS,
    LISTS,
    TEXTS,
    TRY_CAST,
)
from stepping_spark.expressions.zones import local_times
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
from stepping_spark.rows.types import ListOf, Optional, Struct, unwrap
from stepping_spark.spark.column_tree import Tree

pc: Any = pyarrow.compute


@dataclass(frozen=True)
class SparkFunction(Derived):
    """A function of Spark, with its constant arguments."""

    name: str = ""
    constants: tuple[Any, ...] = ()
    label: ClassVar[str] = "function"

    def __str__(self) -> str:
        return f"{self.name}({', '.join([*map(str, self.args), *map(repr, self.constants)])})"

    def _sql(self, row: str) -> str:
        args: list[str] = [a.sql(row) for a in self.args]
        constants: list[str] = [text(c) if isinstance(c, str) else f"{c}" for c in self.constants]
        if self.name.startswith(CAST):
            return f"CAST({args[0]} AS {self.type.ddl})"
        if self.name.startswith(TRY_CAST):
            return f"TRY_CAST({args[0]} AS {self.type.ddl})"
        if self.name in ("&", "|", "^", "div"):
            return f"{args[0]} {self.name} {args[1]}"
        if self.name == "timestampdiff":  # a unit is a word, not a text
            return f"timestampdiff({self.constants[0]}, {args[0]}, {args[1]})"
        if FORMS[self.name].constant_first:
            args, constants = [constants[-1], *args], constants[:-1]
        called = f"{self.name}({', '.join([*args, *constants])})"
        # Many of these functions give an INT, and the column is a BIGINT
        wide = unwrap(self.type) in (INT, ListOf(INT))
        return f"CAST({called} AS {self.type.ddl})" if wide else called

    def of(self, *values: Any) -> Any:
        """The value, computed by the kernel on a column of one value."""
        pairs = zip(self.args, values, strict=True)
        columns = [pa.array([a.type.encode(v, str(self))], a.type.arrow) for a, v in pairs]
        column = None if self.in_session_zone else self.arrow(columns)
        if column is None:
            raise StepError(f"plain Python cannot evaluate {self} of {values}: only Spark can")
        return self.type.decode(column[0].as_py())

    @property
    def is_int(self) -> bool:
        """Whether it is an INT in Spark, whose column here is a BIGINT."""
        return unwrap(self.type) == INT and FORMS[self.name].bits == 32

    @property
    def in_session_zone(self) -> bool:
        types = frozenset(unwrap(a.type) for a in self.args)
        return FORMS[self.name].needs_zone(types, self.constants)

    def arrow(self, columns: Sequence[Any]) -> Any:
        try:
            column = FORMS[self.name].kernel(*columns, *self.constants)
        except pa.ArrowInvalid:
            return None
        arrow_type = unwrap(self.type).arrow
        return column if column is None or column.type == arrow_type else column.cast(arrow_type)

    def arrow_in(self, columns: Sequence[Any], zone: dt.tzinfo) -> Any:
        in_zone = FORMS[self.name].in_zone
        try:
            if in_zone is not None:
                return in_zone(*columns, *self.constants, zone)
            pairs = zip(self.args, columns, strict=True)
            local = [local_times(c, zone) if unwrap(a.type) == DATETIME else c for a, c in pairs]
        except pa.ArrowInvalid:
            return None
        return self.arrow(local)


def reading_of(tree: Tree, texts: Mapping[str, Expr]) -> Expr | None:
    """A Column as an expression of Spark's type that Arrow can evaluate; None if there is none.

    `texts` maps texts of SQL to the expressions that they stand for.
    """
    reading = _read(tree, texts)
    return reading if reading is not None and is_known(reading) else None


def function_of(name: str, args: Sequence[Expr]) -> Expr | None:
    """A call of one of Spark's functions, as an expression for the driver; None if unknown.

    It is nullable if an argument is. Spark's own type may be wider.
    """
    is_there = name == "array" or ALSO_CALLED.get(name, name) in FORMS
    call = _function(name, list(args)) if is_there else None
    if isinstance(call, SparkFunction) and _nulls_of(call) != "always":
        t = call.type.inner if isinstance(call.type, Optional) else call.type
        call = replace(call, type=_null_as(call.args, t))
    return call if call is not None and is_known(call) else None


def _read(tree: Tree, texts: Mapping[str, Expr]) -> Expr | None:
    if tree.kind == "text":
        return texts.get(tree.value)
    if tree.kind == "constant":
        return _constant(tree.value)
    if tree.kind == "case":
        return _case(tree, texts)
    if tree.kind == "variable":
        return texts.get(_VARIABLE + tree.value)
    if tree.kind == "function" and tree.value == "transform":
        return _transformed(tree, texts)
    if tree.kind == "function" and tree.value == "struct":
        return _struct(tree, texts)
    parts = [_read(p, texts) for p in tree.parts]
    readable = [p for p in parts if p is not None]
    if len(readable) < len(parts) or not readable:
        return None
    if tree.kind == "cast":
        return _cast(readable[0], tree.value)
    if tree.kind == "try_cast":
        return _cast(readable[0], tree.value, is_try=True)
    return _function(tree.value, readable) if tree.kind == "function" else None


_CONSTANTS: dict[type, RowType] = {bool: BOOL, int: INT, float: FLOAT, str: STR}


_VARIABLE = "variable "


def _transformed(tree: Tree, texts: Mapping[str, Expr]) -> Expr | None:
    """A `transform`, whose function may also have an item's position as a parameter."""
    of, function = tree.parts
    items = _read(of, texts)
    if (
        items is None
        or not isinstance(t := unwrap(items.type), ListOf)
        or function.kind != "lambda"
    ):
        return None
    depth = sum(text.startswith(_VARIABLE) for text in texts)
    types = zip(function.value, (t.inner, INT), strict=False)
    variables = {n: Variable(part, f"x{depth + i}") for i, (n, part) in enumerate(types, 1)}
    names = {**texts, **{_VARIABLE + n: v for n, v in variables.items()}}
    body = _read(function.parts[0], names)
    if body is None:
        return None
    list_type = _null_as([items], ListOf(body.type))
    return Transformed(list_type, items, tuple(variables.values()), body)


def _struct(tree: Tree, texts: Mapping[str, Expr]) -> Expr | None:
    """A `struct` of named values."""
    named = [(p.value, _read(p.parts[0], texts)) for p in tree.parts if p.kind == "alias"]
    fields = [(n, e) for n, e in named if e is not None]
    if len(fields) < len(tree.parts) or len({n.lower() for n, _ in fields}) < len(fields):
        return None
    t = Struct("", tuple((n, e.type) for n, e in fields), dict)
    return Build(t, tuple(e for _, e in fields))


def _constant(value: Any) -> Expr | None:
    t = _CONSTANTS.get(type(value))
    if isinstance(value, Decimal):
        _, digits, exponent = value.as_tuple()
        if isinstance(exponent, int) and -len(digits) <= exponent <= 0:
            t = Atom("Decimal", Decimal, len(digits), -exponent)
    return None if t is None else Literal(t, value)


def _cast(e: Expr, ddl: str, *, is_try: bool = False) -> Expr | None:
    """A cast; None for one that only Spark computes. `is_try`: NULL instead of an error."""
    have = unwrap(e.type)
    if have.ddl == ddl:
        return None if is_try else e
    if ddl == "DOUBLE" and have == INT:
        return _call("to_float", [e], FLOAT)
    if ddl in _BITS:
        bigint = e if have == INT else _function(f"{CAST}bigint", [e])
        return None if bigint is None or is_try else narrowed(bigint, _BITS[ddl])
    if ddl.startswith("DECIMAL(") and (_is_decimal(have) or (have == INT and _is_wide(e))):
        digits = ddl.removeprefix("DECIMAL(").removesuffix(")").split(",")
        t = Atom("Decimal", Decimal, *(int(d) for d in digits))
        whole, scale = (20, 0) if have == INT else _digits_of(have)
        room = t.precision - t.scale
        fits = (room >= whole and t.scale >= scale) or (_is_decimal(have) and room > whole)
        decimal = _null_as([e], t) if fits else Optional(t)  # Spark takes it for nullable
        return None if is_try else Call(decimal, "to_decimal", (e,))
    return _function(f"{TRY_CAST if is_try else CAST}{ddl.lower()}", [e])


def _digits_of(t: RowType) -> tuple[int, int]:
    """The digits of a Decimal before and after the point."""
    assert isinstance(t, Atom)
    return t.precision - t.scale, t.scale


_BITS = {"TINYINT": 8, "SMALLINT": 16, "INT": 32}


def _case(tree: Tree, texts: Mapping[str, Expr]) -> Expr | None:
    """CASE as choices, from the last to the first. All values must have one type."""
    *branches, rest = tree.parts
    values = [_read(v, texts) for v in (*branches[1::2], rest) if not _is_null(v)]
    types = {unwrap(v.type) for v in values if v is not None}
    if None in values or len(types) != 1:
        return None
    (t,) = types
    null = Literal(Optional(t), None)
    result = null if _is_null(rest) else _read(rest, texts)
    for condition, value in reversed([*zip(branches[::2], branches[1::2], strict=True)]):
        when = _read(condition, texts)
        then = null if _is_null(value) else _read(value, texts)
        if result is None or when is None or then is None or unwrap(when.type) != BOOL:
            return None
        result = choice(when, then, result)
    return result if isinstance(t, Atom) else None


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
    "/": "/",
    "%": "%",
    "mod": "%",
    "negative": "neg",
    "coalesce": "coalesce",
    "ifnull": "coalesce",
    "nvl": "coalesce",
}


def _operator(op: str, args: Sequence[Expr]) -> Expr | None:
    types = [unwrap(a.type) for a in args]
    if len(args) < (1 if op in ("~", "isNull", "isNotNull", "neg") else 2):
        return None
    if op == "coalesce":
        if len(set(types)) > 1:
            return None
        *front, last = args
        while front:
            first = front.pop()
            t = last.type if isinstance(first.type, Optional) else first.type
            last = Call(t, op, (first, last))
        return last
    if op in ("+", "-", "*", "/", "%", "neg") and not _are_numbers(args):
        return None
    try:
        t = result_type(op, tuple(a.type for a in args), "")
        if op in ("/", "%"):  # Spark takes it for nullable: of zero it was NULL in its older mode
            t = Optional(unwrap(t))
        return Call(t, op, tuple(args))
    except CompileError:  # Spark would convert one side
        return None


def _are_numbers(args: Sequence[Expr]) -> bool:
    """Whether Spark computes these numbers with the types that they have here.

    In Spark, constants and parts of dates are 32-bit ints. Beside a 64-bit int or a float, the
    result is the same. Beside a Decimal, the digits of the result differ.
    """
    types = [unwrap(a.type) for a in args]
    if FLOAT in types:
        return all(map(rank, types))
    if all(t == INT for t in types):
        return any(map(_is_wide, args))
    return all(
        _is_wide(a) if t == INT else _is_decimal(t) for a, t in zip(args, types, strict=True)
    )


def _is_decimal(t: RowType) -> bool:
    return isinstance(t, Atom) and t.name == "Decimal"


def _is_wide(e: Expr) -> bool:
    """Whether a number has 64 bits in Spark."""
    if isinstance(e, Call) and e.op in ("+", "-", "*", "%", "neg", "coalesce"):
        return any(map(_is_wide, e.args))
    return isinstance(e, Field) or unwrap(e.type) == FLOAT


# Functions


def _function(name: str, args: list[Expr]) -> Expr | None:
    if name in _OPERATORS:
        return _operator(_OPERATORS[name], args)
    if name in ("date_add", "date_sub") and [unwrap(a.type) for a in args] == [DATE, INT]:
        return _call("+" if name == "date_add" else "-", args, DATE)
    if name == "array":
        return _array(args)
    if name in _CASTS and len(args) == 1:
        return _cast(args[0], _CASTS[name])
    if name in ("nullif", "nvl2"):
        return _chosen(name, args)
    if name in ("hash", "xxhash64"):
        is_known_width = all(unwrap(a.type) != INT or _is_wide(a) for a in args)
        return hashed(name, args, [False] * len(args)) if is_known_width else None
    if name == "log" and len(args) == 1:
        name = "ln"
    name = ALSO_CALLED.get(name, name)
    form = FORMS.get(name)
    if form is None:
        return None
    if form.constant_first:
        args = [*args[1:], args[0]]
    columns, constants = args[: form.columns or None], args[form.columns or len(args) :]
    if len(columns) < form.columns:  # Spark raises the error for a wrong number of arguments
        return None
    types = {unwrap(a.type) for a in columns}
    families = {_family(t) for t in types}
    if not types or not families <= form.types or (form.alike and len(types) > 1):
        return None
    values = [a.constant if isinstance(a, Literal) else None for a in constants]
    if not form.takes(*values) if form.columns else constants:
        return None
    t = types.pop()
    if callable(form.given):
        t = form.given(t, *values)
    elif form.given is not None:
        t = form.given
    return _as_spark_says(SparkFunction(t, tuple(columns), name, tuple(values)))


def _family(t: RowType) -> RowType:
    """The type that stands for a type in the table."""
    if isinstance(t, ListOf):
        return TEXTS if unwrap(t.inner) == STR else LISTS
    return DECIMALS if _is_decimal(t) else t


def _as_spark_says(f: SparkFunction) -> SparkFunction:
    """The function with the nullability that Spark assigns to its type."""
    optional = [isinstance(a.type, Optional) for a in f.args]
    nullable = {"any": any(optional), "all": all(optional), "never": False}
    t = unwrap(f.type)
    return replace(f, type=Optional(t) if nullable.get(_nulls_of(f), True) else t)


def _nulls_of(f: SparkFunction) -> str:
    nulls = FORMS[f.name].nulls
    return nulls if isinstance(nulls, str) else nulls(unwrap(f.args[0].type))


def _array(args: Sequence[Expr]) -> Expr | None:
    """A list of values of one type."""
    types = {unwrap(a.type) for a in args}
    return Items(ListOf(_null_as(args, types.pop())), tuple(args)) if len(types) == 1 else None


_CASTS = {"to_timestamp": "TIMESTAMP", "to_timestamp_ntz": "TIMESTAMP_NTZ"}


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
