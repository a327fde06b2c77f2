"""Symbolic rows: a row function is called once with such a row; its result is an expression."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import CompileError, InputError
from stepping_spark.base.packages import Column, functions
from stepping_spark.expressions.coercion import coerce
from stepping_spark.expressions.columns import ROW, TEXTS, Directed, ExprColumn, opaque, to_column
from stepping_spark.expressions.expr import Build, Call, Expr, Field, Items, Literal, whole
from stepping_spark.expressions.operations import result_type
from stepping_spark.rows.atoms import (
    ATOMS,
    BOOL,
    DATE,
    INT,
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
from stepping_spark.spark.column_tree import as_trees


def to_expr(value: Any, beside: RowType | None = None, at: str = "") -> Expr:
    """The result of a row function, or an operand in it, as an expression.

    `beside` is the type of the other operand, which gives a bare None its type. `at` begins the
    text of an error; the default is the user's line.
    """
    at = at or str(user_line())
    if isinstance(value, ExprColumn):
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
    """A list. Its items have the widest type of the values.

    If one of the values may be NULL, the type of the items is optional.
    """
    parts = [to_expr(v, at=at) for v in values]
    types = list(dict.fromkeys(p.type for p in parts))
    optional = [Optional(unwrap(t)) for t in types]
    for t in optional if any(isinstance(t, Optional) for t in types) else types:
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
        raise CompileError(f"{at}: the constant {value!r} is not a number to Spark; use a float")
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


__all__ = ["SymbolicColumn", "symbolic", "to_column", "trace_row"]

_OR_PYTHON = ", or wrap the function in st.python"
_USE = "use the function of pyspark.sql.functions that does it" + _OR_PYTHON


def _refuse(what: str, remedy: str = _USE) -> NoReturn:
    raise CompileError(f"{user_line()}: {what} of a symbolic row cannot be traced; {remedy}")


class SymbolicColumn(ExprColumn):
    """A column of a symbolic row. Spark gets a real pyspark Column wherever it needs one."""

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
        use = f"use F.{name}{_OR_PYTHON}" if hasattr(functions, name) else _USE
        raise CompileError(
            f"{user_line()}: {expr}.{name}: a column of type {bare} has no field and no method "
            f"{name!r}; {use}"
        )

    @property
    def __row_names__(self) -> tuple[str, ...] | None:
        """The names of the fields of a row, for `Data.of`; None: it is a single value."""
        bare = unwrap(self.__expr__.type)
        return tuple(n for n, _ in bare.fields) if isinstance(bare, Struct) else None

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
        if isinstance(bare, Struct) and bare.python is tuple:  # f(*row) calls this
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

    def asc(self) -> Column:
        return self._directed(ascending=True, nulls_first=True)

    def asc_nulls_first(self) -> Column:
        return self._directed(ascending=True, nulls_first=True)

    def asc_nulls_last(self) -> Column:
        return self._directed(ascending=True, nulls_first=False)

    def desc(self) -> Column:
        return self._directed(ascending=False, nulls_first=False)

    def desc_nulls_first(self) -> Column:
        return self._directed(ascending=False, nulls_first=True)

    def desc_nulls_last(self) -> Column:
        return self._directed(ascending=False, nulls_first=False)

    def _directed(self, *, ascending: bool, nulls_first: bool) -> Column:
        expr: Expr = self.__expr__
        return SymbolicColumn(Directed(expr.type, expr, ascending, nulls_first))

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
        t = result_type(op, _types_of(args), str(user_line()))
        return SymbolicColumn(Call(t, op, args))


def _types_of(args: Sequence[Expr]) -> tuple[RowType, ...]:
    """The types of an operator's arguments.

    Beside a Decimal, Spark treats a constant int as a Decimal with just the int's digits.
    """
    types = [a.type for a in args]
    if any(isinstance(t := unwrap(a.type), Atom) and t.name == "Decimal" for a in args):
        for i, a in enumerate(args):
            if isinstance(a, Literal) and a.type == INT:
                types[i] = Atom("Decimal", decimal.Decimal, len(str(abs(a.constant))), 0)
    return tuple(types)


def _whole_days(
    self: SymbolicColumn, op: str, others: tuple[Any, ...], reverse: bool
) -> int | None:
    """The days by which a constant timedelta moves a date: Spark's sum would be a timestamp."""
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
    return BINARY[op](a, b)


BINARY: dict[str, Callable[[Any, Any], Column]] = {
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
"""Operators of two values, by their names, on Columns."""


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
    """The symbolic row or column for an expression."""
    return SymbolicColumn(expr)


def trace_row(f: Callable[[Any], Any], t: RowType, where: str, *, trees: bool = True) -> Expr:
    """Call a function with a symbolic row of the type, and return the result as an expression.

    `where` is the place of the function, for errors about its result. PySpark's functions return
    trees in it; without `trees`, Columns of the active session.
    """
    token, texts = ROW.set(t), TEXTS.set({})
    try:
        with as_trees(trees):
            traced = f(symbolic(whole(t)))
            return to_expr(traced, at=where)
    finally:
        ROW.reset(token)
        TEXTS.reset(texts)
