"""Expressions over one row: traced row functions, as SQL and as plain Python."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, final

from stepping_spark.callsite import user_line
from stepping_spark.errors import CompileError, StepError
from stepping_spark.expressions.guards import guarded
from stepping_spark.expressions.operations import OPERATORS, fit
from stepping_spark.packages import Column, DataFrame
from stepping_spark.rows.atoms import DATE, RowType
from stepping_spark.rows.grouped import Carrying, InGroup
from stepping_spark.rows.literals import literal, text
from stepping_spark.rows.sql_text import Sql, closed
from stepping_spark.rows.types import Struct, ZSetOf, quote, unwrap


@dataclass(frozen=True)
class Expr:
    """An expression over the columns of one row. Equal expressions have equal values."""

    type: RowType

    on_driver: ClassVar[bool] = False
    """Whether it only reads and arranges the values of its parts, so that Arrow can do so too."""

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
        """The expressions that this one is made of."""
        return ()

    def under(self, side: str) -> Expr:
        """The same expression, over rows that have the row at field `side`."""
        raise CompileError(
            f"{user_line()}: the key {self}, which only Spark can read, cannot go with a "
            "st.python function; st.map the rows first, with the key as a field"
        )

    @property
    def in_sql(self) -> bool:
        """Whether it has an `sql`: it contains no opaque Column and no Python function."""
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
        path = () if self.path == ("_value_",) else self.path
        return Field(self.type, (side, *path))

    def value(self, row: Any) -> Any:
        for name in self.path:
            if row is None:
                return None
            if isinstance(row, InGroup):
                row = getattr(row, name)
                continue
            if name == "_value_":
                continue
            row = row[int(name[1:]) - 1] if isinstance(row, tuple) else getattr(row, name)
        return row.row if isinstance(row, InGroup) and not isinstance(self.type, Carrying) else row


def whole(row: RowType) -> Field:
    """The row itself."""
    return Field(row, () if isinstance(row, Struct) else ("_value_",))


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

    def under(self, side: str) -> Expr:
        return self


@dataclass(frozen=True)
class Build(Expr):
    """A row made of the values of its fields."""

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

    def under(self, side: str) -> Expr:
        return Build(self.type, tuple(e.under(side) for e in self.fields))


@dataclass(frozen=True)
class Items(Expr):
    """A list of the values of its items."""

    items: tuple[Expr, ...]

    def __str__(self) -> str:
        return f"[{', '.join(map(str, self.items))}]"

    def _sql(self, row: str) -> str:
        inner = ", ".join(e.sql(row) for e in self.items)
        return f"CAST(array({inner}) AS {self.type.ddl})"

    def value(self, row: Any) -> Any:
        return tuple(e.value(row) for e in self.items)

    def parts(self) -> tuple[Expr, ...]:
        return self.items

    def under(self, side: str) -> Expr:
        return Items(self.type, tuple(e.under(side) for e in self.items))


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
    """An operator on values, with Spark's meaning (ANSI). Most operators give NULL for NULL."""

    op: str
    args: tuple[Expr, ...]

    def __str__(self) -> str:
        # A store tells circuits apart by this text, so parentheses show the operands.
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

    def under(self, side: str) -> Expr:
        return Call(self.type, self.op, tuple(e.under(side) for e in self.args))


class Meaning:
    """The common meaning of Columns that Spark considers the same; equal to no other object.

    Spark is asked once, when a Column is traced. Later comparisons do not call the JVM: expressions
    are compared during garbage collection too (vertices are interned by them), when another call of
    the JVM may be in progress.
    """

    __slots__ = ("__weakref__", "analyzed")
    _known: ClassVar[dict[str, weakref.WeakSet[Meaning]]] = {}

    def __init__(self, analyzed: DataFrame) -> None:
        self.analyzed = analyzed

    @classmethod
    def of(cls, analyzed: DataFrame, text: str) -> Meaning:
        """The meaning of a Column with this text, from a query that selects it from its rows."""
        known = cls._known.setdefault(text, weakref.WeakSet())
        for meaning in list(known):
            if meaning.analyzed.sameSemantics(analyzed):
                return meaning
        made = cls(analyzed)
        known.add(made)
        return made


@dataclass(frozen=True)
class Opaque(Expr):
    """A pyspark Column that only Spark can read. Equal if Spark considers the Columns the same."""

    column: Column = dataclasses.field(compare=False)
    meaning: Meaning  # over rows of the type that it was traced with
    text: str
    # The same expression for Arrow, if there is one
    reading: Expr | None = dataclasses.field(default=None, compare=False)

    in_sql: ClassVar[bool] = False

    @classmethod
    def traced(
        cls, t: RowType, column: Column, analyzed: DataFrame, text: str, reading: Expr | None
    ) -> Opaque:
        """A Column as a value of the type; `analyzed` is a query that selects it from its rows."""
        return cls(t, guarded(column.cast(t.ddl), t), Meaning.of(analyzed, text), text, reading)

    def __str__(self) -> str:
        return self.text

    def value(self, row: Any) -> Any:
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
    """The functions in expressions that only Spark evaluates, as text for people."""
    found: dict[str, None] = {}
    for e in exprs:
        inner = e.parts() if isinstance(e, Build) else ()
        texts = for_spark(p for p in inner if not is_plain(p)) or [str(e).replace("`", "")]
        found.update(dict.fromkeys(texts))
    return [*found]


def fields_of(e: Expr) -> Iterator[Field]:
    """The fields that an expression reads, as far as it is not opaque."""
    if isinstance(e, Field):
        yield e
    for part in e.parts():
        yield from fields_of(part)
