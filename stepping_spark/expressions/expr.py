"""Expressions over one row: their classes, each as SQL and in plain Python.

Also other expressions in place of fields, the time of a step, and checks of results.

Rows for the future are stored by their time, in minutes if it is an instant. So a step reads the
rows that became due by key: the times since the last step.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, final

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import CompileError, StepError
from stepping_spark.base.packages import Column
from stepping_spark.base.packages import functions as F
from stepping_spark.expressions.operations import OPERATORS, fit
from stepping_spark.rows.atoms import DATE, DATETIME, INT, LOCAL_DATETIME, Atom, RowType
from stepping_spark.rows.schema import VALUE, Carrying, InGroup
from stepping_spark.rows.sql_text import Sql, closed, literal, text
from stepping_spark.rows.types import ListOf, Optional, Struct, ZSetOf, quote, tuple_of, unwrap

UUID_TEXT = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"

YEARS = {
    "date": ("DATE'0001-01-01'", "DATE'9999-12-31'"),
    "datetime": ("timestamp_micros(-62135596800000000L)", "timestamp_micros(253402300799999999L)"),
    "LocalDateTime": (
        "TIMESTAMP_NTZ'0001-01-01 00:00:00'",
        "TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'",
    ),
}
"""The least and the greatest value of Python, in SQL: Spark's calendar has 290,000 years."""


def guarded(column: Column, t: RowType) -> Column:
    """The Column, with an error for values that the type does not allow.

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
    message = F.concat(F.lit(f"expected {expected}, found "), c.cast("string"))
    return F.when(c.isNull() | fits, c).otherwise(F.raise_error(message))


@dataclass(frozen=True)
class Expr:
    """An expression over the columns of one row. Equal expressions have equal values."""

    type: RowType

    on_driver: ClassVar[bool] = False
    """Whether the expression only reads and arranges the values of its parts, as Arrow can too."""

    @final
    def sql(self, row: str) -> Sql:
        """The expression as Spark SQL, over a relation named `row`."""
        return closed(self._sql(row))

    def _sql(self, row: str) -> str:
        """The text of `sql`, which adds parentheses where they are needed."""
        raise NotImplementedError

    def value(self, row: Any) -> Any:
        """The expression's value for a Python row, equal to Spark's."""
        raise NotImplementedError

    def parts(self) -> tuple[Expr, ...]:
        """The direct parts of the expression."""
        return ()

    def under(self, side: str) -> Expr:
        """The expression, over rows that contain the original row in field `side`."""
        if not self.in_sql:
            raise CompileError(
                f"{user_line()}: the key {self}, which only Spark can read, cannot go with a "
                "st.python function; st.map the rows first, with the key as a field"
            )
        return replaced(self, lambda field: field.under(side))

    @property
    def in_sql(self) -> bool:
        """Whether `sql` exists: there is no opaque Column and no Python function in it."""
        return all(p.in_sql for p in self.parts())


@dataclass(frozen=True)
class Field(Expr):
    """A field, by the path of names that leads to it. The empty path is the row itself."""

    path: tuple[str, ...]

    on_driver: ClassVar[bool] = True

    def __str__(self) -> str:
        return ".".join(self.path) or "row"

    def _sql(self, row: str) -> str:
        if not self.path:
            t = unwrap(self.type)
            assert isinstance(t, Struct)
            prefix = f"{quote(row)}." if row else ""
            inner = ", ".join(f"{text(n)}, {prefix}{quote(n)}" for n, _ in t.fields)
            return f"named_struct({inner})"
        return ".".join(quote(n) for n in (row, *self.path) if n)

    def under(self, side: str) -> Expr:
        path = () if self.path == (VALUE,) else self.path
        return Field(self.type, (side, *path))

    def value(self, row: Any) -> Any:
        for name in self.path:
            if row is None:
                return None
            if isinstance(row, InGroup):
                row = getattr(row, name)
                continue
            if name == VALUE:
                continue
            row = row[int(name[1:]) - 1] if isinstance(row, tuple) else getattr(row, name)
        return row.row if isinstance(row, InGroup) and not isinstance(self.type, Carrying) else row


def whole(row: RowType) -> Field:
    """The row itself."""
    return Field(row, () if isinstance(row, Struct) else (VALUE,))


@dataclass(frozen=True)
class Literal(Expr):
    """A constant."""

    constant: Any

    on_driver: ClassVar[bool] = True

    def __str__(self) -> str:
        return repr(self.constant)

    def _sql(self, row: str) -> str:
        return literal(self.type.encode(self.constant, "a constant"), self.type)

    def value(self, row: Any) -> Any:
        return self.constant


@dataclass(frozen=True)
class Build(Expr):
    """A row built from expressions for its fields."""

    fields: tuple[Expr, ...]

    on_driver: ClassVar[bool] = True

    def __str__(self) -> str:
        t = unwrap(self.type)
        assert isinstance(t, Struct)
        inner = ", ".join(f"{n}={e}" for (n, _), e in zip(t.fields, self.fields, strict=True))
        return f"{t.name}({inner})"

    def _sql(self, row: str) -> str:
        t = unwrap(self.type)
        assert isinstance(t, Struct)
        inner = ", ".join(
            f"{text(n)}, {e.sql(row)}" for (n, _), e in zip(t.fields, self.fields, strict=True)
        )
        return f"named_struct({inner})"

    def value(self, row: Any) -> Any:
        t = unwrap(self.type)
        assert isinstance(t, Struct)
        return t.build([e.value(row) for e in self.fields])

    def parts(self) -> tuple[Expr, ...]:
        return self.fields


def tupled(*parts: Expr) -> Build:
    """The tuple of some values."""
    return Build(tuple_of(e.type for e in parts), parts)


@dataclass(frozen=True)
class Items(Expr):
    """A list of the values of its items."""

    items: tuple[Expr, ...]

    on_driver: ClassVar[bool] = True

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self.items))}]"

    def _sql(self, row: str) -> str:
        inner = ", ".join(e.sql(row) for e in self.items)
        return f"CAST(array({inner}) AS {self.type.ddl})"

    def value(self, row: Any) -> Any:
        return tuple(e.value(row) for e in self.items)

    def parts(self) -> tuple[Expr, ...]:
        return self.items


_BOUND: ContextVar[Mapping[str, Any]] = ContextVar("bound", default=MappingProxyType({}))
"""The values of variables, while plain Python evaluates a function of items."""


@dataclass(frozen=True)
class Variable(Expr):
    """An item of a list, or its position, within the function of `Transformed`."""

    name: str

    on_driver: ClassVar[bool] = True

    def __str__(self) -> str:
        return self.name

    def _sql(self, row: str) -> str:
        return quote(self.name)

    def value(self, row: Any) -> Any:
        return _BOUND.get()[self.name]


@dataclass(frozen=True)
class Transformed(Expr):
    """The list of a function's results for the items of a list, optionally with their positions."""

    items: Expr
    variables: tuple[Variable, ...]
    body: Expr

    on_driver: ClassVar[bool] = True

    def __str__(self) -> str:
        return f"transform({self.items}, ({', '.join(map(str, self.variables))}) -> {self.body})"

    def _sql(self, row: str) -> str:
        names = ", ".join(quote(v.name) for v in self.variables)
        if len(self.variables) > 1:  # Spark takes no parentheses around one
            names = f"({names})"
        call = f"transform({self.items.sql(row)}, {names} -> {self.body.sql(row)})"
        return f"CAST({call} AS {self.type.ddl})"

    def value(self, row: Any) -> Any:
        given = self.items.value(row)
        if given is None:
            return None
        results = []
        for place, item in enumerate(given):
            values = zip((v.name for v in self.variables), (item, place), strict=False)
            token = _BOUND.set({**_BOUND.get(), **dict(values)})
            try:
                results.append(self.body.value(row))
            finally:
                _BOUND.reset(token)
        return tuple(results)

    def parts(self) -> tuple[Expr, ...]:
        return (self.items, self.body)


@dataclass(frozen=True)
class Singleton(Expr):
    """The Z-set of one row. A collection of rows is the sum of such Z-sets."""

    item: Expr

    on_driver: ClassVar[bool] = True

    def __str__(self) -> str:
        return f"{{{self.item}}}"

    def _sql(self, row: str) -> str:
        return f"array(named_struct('_value_', {self.item.sql(row)}, '_count_', 1L))"

    def value(self, row: Any) -> Any:
        assert isinstance(self.type, ZSetOf)
        return self.type.build({self.item.value(row): 1})

    def parts(self) -> tuple[Expr, ...]:
        return (self.item,)


@dataclass(frozen=True)
class Call(Expr):
    """An operator on values, with Spark's meaning (ANSI). Most operators return NULL for NULL."""

    op: str
    args: tuple[Expr, ...]

    def __str__(self) -> str:
        # A store distinguishes circuits by this text, so parentheses show the operands.
        args = [closed(str(a)) if isinstance(a, Call) else str(a) for a in self.args]
        rest = ", ".join(args[1:])
        return OPERATORS[self.op].sql.format(*args, rest=rest, type=self.type)

    def _sql(self, row: str) -> str:
        args = [a.sql(row) for a in self.args]
        if self.op in ("+", "-") and unwrap(self.type) == DATE:
            # Spark moves dates by an INT number of days
            args[1] = closed(f"CAST({args[1]} AS INT)")
        form = OPERATORS[self.op].sql
        return form.format(*args, rest=", ".join(args[1:]), type=self.type.ddl)

    def value(self, row: Any) -> Any:
        args = [a.value(row) for a in self.args]
        op = OPERATORS[self.op]
        if op.strict and any(a is None for a in args):
            return None
        return fit(op.python(*args), self.type, str(self))

    def parts(self) -> tuple[Expr, ...]:
        return self.args


@dataclass(frozen=True)
class Opaque(Expr):
    """A pyspark Column, returned by a function of rows. Equal if the parts of the Columns are."""

    column: Column = dataclasses.field(compare=False)
    meaning: Hashable  # its identity, over rows of the type that it was traced with
    text: str
    types: tuple[RowType, ...]  # the types to which the Column is converted, one after the other
    # The same expression for Arrow, if there is one
    reading: Expr | None = dataclasses.field(default=None, compare=False)

    in_sql: ClassVar[bool] = False

    def converted(self, target: RowType, reading: Expr | None = None) -> Opaque:
        """The Column as a value of another type; the `reading` is of that type."""
        types = (*self.types, target)
        return Opaque(target, self.column, self.meaning, self.text, types, reading)

    def __str__(self) -> str:
        return self.text

    def value(self, row: Any) -> Any:
        if self.reading is not None:
            return self.reading.value(row)
        raise StepError(
            f"plain Python cannot evaluate the Spark expression {self}; for st.reference, write "
            "it with operators on fields, or as a st.python function"
        )


@dataclass(frozen=True)
class PythonCall(Expr):
    """A Python function of the row, called once per row and step."""

    function: Callable[[Any], Any]
    name: str
    beside: bool = False  # whether to return the row too, as Pair(left=row, right=value)

    in_sql: ClassVar[bool] = False

    def __str__(self) -> str:
        return f"python:{self.name}"

    def value(self, row: Any) -> Any:
        value = self.function(row.row if isinstance(row, InGroup) else row)
        if self.beside:
            assert isinstance(self.type, Struct)
            return self.type.build([row.row if isinstance(row, InGroup) else row, value])
        return value


def is_plain(e: Expr) -> bool:
    """Whether the driver can compute an expression, for whole columns, without Spark."""
    return e.on_driver and all(map(is_plain, e.parts()))


def for_spark(exprs: Iterable[Expr]) -> list[str]:
    """The texts of functions in expressions that only Spark can evaluate."""
    functions: dict[str, None] = {}
    for e in exprs:
        inner = e.parts() if isinstance(e, Build) else ()
        texts = for_spark(p for p in inner if not is_plain(p)) or [str(e).replace("`", "")]
        functions.update(dict.fromkeys(texts))
    return [*functions]


def fields_of(e: Expr) -> Iterator[Field]:
    """The fields that an expression reads, except in opaque parts."""
    if isinstance(e, Field):
        yield e
    for part in e.parts():
        yield from fields_of(part)


class NotComposed(Exception):
    """The error for two functions of rows that cannot be composed to one."""


def replaced(e: Expr, f: Callable[[Field], Expr]) -> Expr:
    """An expression with its fields replaced by `f`, in the form that the driver computes.

    Raises `NotComposed` if only Spark or Python can evaluate it.
    """
    if isinstance(e, Field):
        return f(e)
    if isinstance(e, Opaque) and e.reading is not None:
        return replaced(e.reading, f)
    if isinstance(e, Opaque | PythonCall):
        raise NotComposed
    return with_parts(e, lambda part: replaced(part, f))


def with_parts(e: Expr, f: Callable[[Expr], Expr]) -> Expr:
    """An expression with each direct part replaced by `f` of it."""
    changed: dict[str, Any] = {}
    for own in dataclasses.fields(e):
        value = getattr(e, own.name)
        if isinstance(value, Expr):
            changed[own.name] = f(value)
        elif isinstance(value, tuple) and value and all(isinstance(v, Expr) for v in value):
            changed[own.name] = tuple(map(f, value))
    return dataclasses.replace(e, **changed) if changed else e


def field_of(e: Expr, path: tuple[str, ...], t: RowType) -> Expr:
    """The field, of type `t`, of an expression's row. Raises `NotComposed` if it cannot be read."""
    if not path:
        return e
    if isinstance(e, Field):
        return Field(t, (*e.path, *path))
    row_type = unwrap(e.type)
    if isinstance(e, Build) and isinstance(row_type, Struct):
        names = [n for n, _ in row_type.fields]
        return field_of(e.fields[names.index(path[0])], path[1:], t)
    if isinstance(e, Literal) and e.constant is None:
        return Literal(Optional(unwrap(t)), None)
    raise NotComposed


def bare(e: Expr) -> Expr:
    """An expression without its treatment of NULL: equal ones have equal values, or NULL."""
    while isinstance(e, Call) and e.op == "known":
        (e,) = e.args
    if isinstance(e, Call):
        return Call(unwrap(e.type), e.op, tuple(map(bare, e.args)))
    return dataclasses.replace(e, type=unwrap(e.type)) if isinstance(e, Field) else e


def places_in(f: Expr, value: Expr) -> Iterator[Expr]:
    """The places of a value of the row in the result of a function."""
    if bare(f) == value:
        yield Field(value.type, ())
    elif isinstance(f, Build):
        row_type = unwrap(f.type)
        assert isinstance(row_type, Struct)
        for (name, _), e in zip(row_type.fields, f.fields, strict=True):
            for place in places_in(e, value):
                yield place.under(name)
    elif isinstance(f, Call) and f.op == "known":
        (known,) = f.args
        yield from places_in(known, value)
    elif isinstance(f, Field):
        within = _within(value, f.path)
        if within is not None:
            yield within


def _within(value: Expr, path: tuple[str, ...]) -> Expr | None:
    """A value over a row, as one over the part at a path; None if it reads other parts too."""
    if isinstance(value, Field):
        starts = value.path[: len(path)] == path
        return Field(value.type, value.path[len(path) :]) if starts else None
    if not isinstance(value, Call):
        return value if isinstance(value, Literal) else None
    args = [_within(a, path) for a in value.args]
    conditions = tuple(a for a in args if a is not None)
    return Call(value.type, value.op, conditions) if len(conditions) == len(args) else None


_MINUTE = dt.timedelta(minutes=1)
_MICROSECOND = dt.timedelta(microseconds=1)
_EPOCHS = {
    DATETIME: dt.datetime(1970, 1, 1, tzinfo=dt.UTC),
    LOCAL_DATETIME: dt.datetime(1970, 1, 1),
}


def units_of(time: Any, t: RowType) -> int:
    """A time as a number of days or microseconds; a number is unchanged."""
    if t in _EPOCHS:
        return int((time - _EPOCHS[t]) // _MICROSECOND)
    return int(time.toordinal()) if t == DATE else int(time)


def time_of(units: int, t: RowType) -> Any:
    """The time with this number of units; the earliest time that exists, if it would be earlier."""
    if t in _EPOCHS:
        earliest = units_of(dt.datetime.min.replace(tzinfo=_EPOCHS[t].tzinfo), t)
        return _EPOCHS[t] + _MICROSECOND * max(units, earliest)
    return dt.date.fromordinal(max(units, 1)) if t == DATE else units


def tick(time: Expr) -> Expr:
    """The key by which a row is stored until its time has come."""
    if time.type in (INT, DATE):
        return time
    return Call(INT, "minute" if time.type == DATETIME else "local_minute", (time,))


def ticks(since: Any, now: Any, t: RowType, most: int) -> Sequence[Any] | None:
    """The keys of the times after `since`, up to `now`; None if there are more than `most`."""
    if since is None:
        return ()
    first, last = _tick_of(since, t), _tick_of(now, t)
    if t == DATE:
        first, last = first.toordinal(), last.toordinal()
    if last - first > most:
        return None
    # The minute of the last step may not be over. Its day, or its number, is.
    keys = range(first if t in _EPOCHS else first + 1, last + 1)
    return [dt.date.fromordinal(n) for n in keys] if t == DATE else keys


def _tick_of(time: Any, t: RowType) -> Any:
    return (time - _EPOCHS[t]) // _MINUTE if t in _EPOCHS else time
