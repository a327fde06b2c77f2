"""Symbolic rows: what a row function is called with, so that calling it once tells what it does."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, NoReturn

from pyspark.sql import Column, functions

from stepping_spark.callsite import user_line
from stepping_spark.errors import CompileError, InputError
from stepping_spark.expressions.expr import (
    Build,
    Call,
    Expr,
    Field,
    Items,
    Literal,
    Opaque,
    Singleton,
    coerce,
)
from stepping_spark.expressions.operations import result_type
from stepping_spark.rows.atoms import (
    ATOMS,
    BOOL,
    DATE,
    INT_MAX,
    INT_MIN,
    LOCAL_DATETIME,
    MOST_DIGITS,
    STR,
    Atom,
    RowType,
)
from stepping_spark.rows.data import Data
from stepping_spark.rows.types import ListOf, Optional, Struct, is_open, row_type, unwrap
from stepping_spark.spark.columns import DeferredColumn
from stepping_spark.spark.session import get_session
from stepping_spark.spark.types import analyzed, text_of

_OR_PYTHON = ", or wrap the function in st.python"
_USE = "use the function of pyspark.sql.functions that does it" + _OR_PYTHON


def _refuse(what: str, remedy: str = _USE) -> NoReturn:
    raise CompileError(f"{user_line()}: {what} of a symbolic row cannot be traced; {remedy}")


class SymbolicColumn(DeferredColumn):
    """A column of a symbolic row; a real pyspark Column wherever Spark asks for one."""

    def __init__(self, expr: Expr) -> None:
        super().__init__()
        self.__expr__ = expr

    def __spark_column__(self) -> Column:
        return to_column(self.__expr__)

    def __repr__(self) -> str:
        return f"Column<'{self.__expr__}'>"

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("_") and not name[1:].isdigit():  # _1 is a field of a tuple
            return object.__getattribute__(self, name)
        expr: Expr = object.__getattribute__(self, "__expr__")
        bare = unwrap(expr.type)
        if isinstance(bare, Struct):
            for field, t in bare.fields:
                if field == name:
                    return symbolic(_field(expr, name, t))
        if name in type(self).__dict__:
            return object.__getattribute__(self, name)
        if hasattr(Column, name):
            return getattr(to_column(expr), name)
        if isinstance(bare, Struct):
            have = ", ".join(n for n, _ in bare.fields)
            if bare.python is tuple:
                types = [t for _, t in bare.fields]
                have = "parts: " + ", ".join(f"row[{i}] is {t}" for i, t in enumerate(types))
            raise CompileError(f"{user_line()}: {bare} has no field {name!r}; it has {have}")
        raise CompileError(
            f"{user_line()}: {expr}.{name}: a {bare} column has no {name!r}; {_USE} "
            f"(such as F.{name})"
        )

    def __getitem__(self, k: Any) -> Any:
        bare = unwrap(self.__expr__.type)
        if isinstance(bare, Struct) and bare.python is tuple and isinstance(k, int):
            n = len(bare.fields)
            if not -n <= k < n:
                raise CompileError(f"{user_line()}: {bare} has {n} fields; there is no [{k}]")
            return getattr(self, f"_{k % n + 1}")
        if isinstance(bare, Struct) and isinstance(k, str):
            return getattr(self, k)
        return to_column(self.__expr__)[k]

    def __iter__(self) -> Any:
        bare = unwrap(self.__expr__.type)
        if isinstance(bare, Struct) and bare.python is tuple:
            return iter([getattr(self, n) for n, _ in bare.fields])
        if isinstance(bare, Struct):
            names = ", ".join(f".{n}" for n, _ in bare.fields)
            _refuse(f"iteration over {self.__expr__}, a {bare},", f"name its fields: {names}")
        _refuse(f"iteration over {self.__expr__}")

    def __len__(self) -> int:
        bare = unwrap(self.__expr__.type)
        if isinstance(bare, Struct) and bare.python is tuple:  # f(*row) asks for it
            return len(bare.fields)
        _refuse(f"len({self.__expr__})", "write F.length(…) or F.size(…)" + _OR_PYTHON)

    def isNull(self) -> Column:  # noqa: N802 - the names are pyspark's
        return self._apply("isNull")

    def isNotNull(self) -> Column:  # noqa: N802
        return self._apply("isNotNull")

    def eqNullSafe(self, other: Any) -> Column:  # noqa: N802
        return self._apply("eqNullSafe", other)

    def isin(self, *options: Any) -> Column:
        if len(options) == 1 and isinstance(options[0], list | tuple | set | frozenset):
            options = tuple(options[0])
        if not options:
            return SymbolicColumn(Literal(BOOL, False))
        return self._apply("isin", *options)

    def between(self, low: Any, high: Any) -> Column:
        within: Column = (self >= low) & (self <= high)
        return within

    def _apply(self, op: str, *others: Any, reverse: bool = False) -> Column:
        if any(isinstance(o, Column) and not isinstance(o, SymbolicColumn) for o in others):
            return _opaque_apply(self, op, others, reverse)
        days = _whole_days(self, op, others, reverse)
        if days is not None:
            others, reverse = (days,), False
        args = tuple(to_expr(o, beside=self.__expr__.type) for o in (self, *others))
        if any(isinstance(a, Literal) and a.constant is None for a in args):
            _refuse(f"{op} with None", "use .isNull() or .isNotNull(); NULL equals nothing")
        if reverse:
            args = args[::-1]
        t = result_type(op, tuple(a.type for a in args), str(user_line()))
        return SymbolicColumn(Call(t, op, args))


def _whole_days(
    self: SymbolicColumn, op: str, others: tuple[Any, ...], reverse: bool
) -> int | None:
    """The days that a constant timedelta moves a date by; Spark makes a timestamp of their sum."""
    if len(others) != 1 or not isinstance(others[0], dt.timedelta):
        return None
    days = others[0].days
    moved = op == "+" or (op == "-" and not reverse)
    if unwrap(self.__expr__.type) != DATE or not moved or others[0] != dt.timedelta(days=days):
        return None
    return days


def _field(expr: Expr, name: str, t: RowType) -> Expr:
    if isinstance(expr.type, Optional) and not isinstance(t, Optional):
        t = Optional(t)
    if isinstance(expr, Field):
        return Field(t, (*expr.path, name))
    if isinstance(expr, Build):
        names = [n for n, _ in unwrap(expr.type).fields]  # type: ignore[attr-defined]
        return expr.fields[names.index(name)]
    return opaque(to_column(expr).getField(name))


def _opaque_apply(self: SymbolicColumn, op: str, others: tuple[Any, ...], rev: bool) -> Column:
    column = to_column(self.__expr__)
    if op in ("isin", "eqNullSafe"):
        result: Column = getattr(column, op)(*others)
        return result
    a, b = (others[0], column) if rev else (column, others[0])
    return _BINARY[op](a, b)


# The calls that are ever made of Columns.
_OF_COLUMNS: dict[str, Callable[..., Column]] = {
    "coalesce": functions.coalesce,
    "isNotNull": lambda a: a.isNotNull(),
    "known": lambda a: a,
    "<": lambda a, b: a < b,
}

_BINARY: dict[str, Callable[[Any, Any], Column]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "%": lambda a, b: a % b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "&": lambda a, b: a & b,
    "|": lambda a, b: a | b,
}


def _operator(op: str, reverse: bool = False) -> Any:
    def method(self: SymbolicColumn, *others: Any) -> Column:
        return self._apply(op, *others, reverse=reverse)

    return method


for _name, _op in {
    "add": "+", "sub": "-", "mul": "*", "truediv": "/", "mod": "%", "and": "&", "or": "|",
}.items():  # fmt: skip
    setattr(SymbolicColumn, f"__{_name}__", _operator(_op))
    setattr(SymbolicColumn, f"__r{_name}__", _operator(_op, reverse=True))
for _name, _op in {
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "neg": "neg", "invert": "~",
}.items():  # fmt: skip
    setattr(SymbolicColumn, f"__{_name}__", _operator(_op))


_INSTEAD = {
    "__bool__": "write & | ~ for and, or, not, with each comparison in parentheses; .isin(…) for "
    "in, F.when(…) for if",
    "__format__": "write F.concat(…) or F.format_string(…)",
    "__str__": 'write .cast("string")',
    "__int__": 'write .cast("bigint")',
    "__float__": 'write .cast("double")',
    "__contains__": "write .contains(…) or F.array_contains(…)",
}


def _untraceable(name: str, what: str) -> Any:
    def method(self: SymbolicColumn, *args: Any) -> NoReturn:
        instead = _INSTEAD.get(name)
        remedy = instead + _OR_PYTHON if instead else _USE
        _refuse(what.format(self.__expr__), remedy)

    method.__name__ = name
    return method


for _name, _what in {
    "__bool__": "the truth (`if`, `and`, `or`, `not`, `in`) of {0}",
    "__format__": "an f-string or format() of {0}",
    "__str__": "str({0})",
    "__int__": "int({0})",
    "__float__": "float({0})",
    "__complex__": "complex({0})",
    "__index__": "{0} as an index",
    "__round__": "round({0})",
    "__trunc__": "trunc({0})",
    "__floor__": "floor({0})",
    "__ceil__": "ceil({0})",
    "__abs__": "abs({0})",
    "__contains__": "`in` on {0}",
    "__hash__": "the hash (as a key of a dict or set) of {0}",
    "__call__": "a call of {0}",
    "__floordiv__": "the floor division (//) of {0}",
    "__rfloordiv__": "a floor division (//) by {0}",
    "__divmod__": "divmod of {0}",
    "__pow__": "a power (**) of {0}",
    "__rpow__": "a power (**) with {0}",
    "__next__": "next({0})",
}.items():
    setattr(SymbolicColumn, _name, _untraceable(_name, _what))


def symbolic(expr: Expr) -> SymbolicColumn:
    """The symbolic row or column that stands for an expression."""
    return SymbolicColumn(expr)


def to_column(expr: Expr) -> Column:
    """The pyspark Column of an expression; starts a session where none is active."""
    get_session()
    if isinstance(expr, Opaque):
        return expr.column
    if expr.in_sql:
        return functions.expr(expr.sql(""))
    if isinstance(expr, Singleton):
        item = to_column(expr.item).alias("_value_")
        return functions.array(
            functions.struct(item, functions.lit(1).cast("bigint").alias("_count_"))
        )
    if isinstance(expr, Call):
        return _OF_COLUMNS[expr.op](*[to_column(a) for a in expr.args])
    if isinstance(expr, Items):
        return functions.array(*[to_column(e) for e in expr.items]).cast(expr.type.ddl)
    t = unwrap(expr.type)
    assert isinstance(expr, Build) and isinstance(t, Struct), expr
    named = zip(t.fields, expr.fields, strict=True)
    return functions.struct(*[to_column(e).alias(n) for (n, _), e in named])


def to_expr(value: Any, beside: RowType | None = None, at: str = "") -> Expr:
    """What a row function gave, or an operand in it, as an expression.

    `beside` is the type of the other operand: it says what a bare None would be. `at` begins what
    an error says: by default the user's line.
    """
    at = at or str(user_line())
    if isinstance(value, SymbolicColumn):
        return value.__expr__
    if isinstance(value, Column):
        return opaque(value, at)
    if isinstance(value, Data):
        return _build_data(value, at)
    if isinstance(value, tuple):
        parts = tuple(to_expr(v, at=at) for v in value)
        fields = tuple((f"_{i}", p.type) for i, p in enumerate(parts, 1))
        return Build(Struct("tuple", fields, tuple), parts)
    if isinstance(value, list):
        return _list(value, at)
    if value is None:
        t = beside if beside is not None else STR
        return Literal(t if isinstance(t, Optional) else Optional(t), None)
    if isinstance(value, enum.Enum):
        return _constant(value, row_type(type(value)), at)
    if isinstance(value, dt.datetime) and value.tzinfo is None:
        return _constant(value, LOCAL_DATETIME, at)
    if isinstance(value, decimal.Decimal):
        return _constant(value, _decimal_type(value, at), at)
    if type(value) in ATOMS:
        return _constant(value, ATOMS[type(value)], at)
    raise CompileError(
        f"{at}: a row function gave {value!r} ({type(value).__name__}); it should give a column, "
        "a st.Data, a st.Pair, a tuple, a list or a constant"
    )


def _list(values: list[Any], at: str) -> Expr:
    """A list: its items are values of one type, the widest of theirs."""
    parts = [to_expr(v, at=at) for v in values]
    types = list(dict.fromkeys(p.type for p in parts))
    for t in (*types, *(Optional(unwrap(t)) for t in types)):
        try:
            items = tuple(coerce(p, t, at) for p in parts)
        except CompileError:
            continue
        return Items(ListOf(t), items)
    shown = ", ".join(map(str, types)) or "nothing, so that their type is unknown"
    raise CompileError(f"{at}: the items of a list are of one type, found {shown}; convert them")


def _constant(value: Any, t: RowType, at: str) -> Expr:
    if type(value) is int and not INT_MIN <= value <= INT_MAX:
        raise CompileError(
            f"{at}: the constant {value} is beyond the 64 bits of an int; write Decimal({value})"
        )
    try:
        t.encode(value, f"{at}: the constant")
    except InputError as e:
        raise CompileError(str(e)) from None
    return Literal(t, value)


def _decimal_type(value: decimal.Decimal, at: str) -> RowType:
    _, digits, exponent = value.as_tuple()
    if isinstance(exponent, str):
        raise CompileError(f"{at}: the constant {value!r} is no number to Spark; use a float")
    scale = max(0, -exponent)
    precision = max(len(digits) + max(0, exponent), scale, 1)
    if precision > MOST_DIGITS:
        raise CompileError(
            f"{at}: the constant {value!r} has {precision} digits, and Spark's decimals have up to "
            f"{MOST_DIGITS}; round it, or use a float"
        )
    return Atom("Decimal", decimal.Decimal, precision, scale)


def _build_data(value: Data, at: str) -> Expr:
    cls = type(value)
    parts, fields = [], []
    for name, annotation in cls.__row_fields__().items():
        where = f"{at}: field {name!r} of {cls.__name__}"
        if is_open(annotation):
            part = to_expr(getattr(value, name), at=where)
            target = part.type
        else:
            target = row_type(annotation)
            part = coerce(to_expr(getattr(value, name), target, where), target, where)
        parts.append(part)
        fields.append((name, target))
    return Build(Struct(cls.__name__, tuple(fields), cls), tuple(parts))


def opaque(column: Column, at: str = "") -> Expr:
    """A Column that only Spark can read, with the type that Spark's analyzer says it has."""
    t, frame = analyzed(column, _ROW.get(), at or str(user_line()))
    return Opaque.traced(t, column, frame, text_of(column))


def trace_row(f: Callable[[Any], Any], t: RowType, where: str) -> Expr:
    """Call a function with a symbolic row of the type: what it gives, as an expression.

    `where` is where the function is, for errors about what it gives.
    """
    token = _ROW.set(t)
    try:
        given = f(symbolic(Field(t, () if isinstance(t, Struct) else ("_value_",))))
        return to_expr(given, at=where)
    finally:
        _ROW.reset(token)


_ROW: ContextVar[RowType] = ContextVar("row")  # the type of the row being traced
