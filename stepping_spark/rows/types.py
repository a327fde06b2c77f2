"""Row types: the meaning of a Python annotation in Spark, in Arrow and as a literal value."""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import functools
import math
import types as pytypes
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import pyarrow as pa

from stepping_spark.base.errors import InputError
from stepping_spark.rows.atoms import ATOMS, INT, NAN, STORABLE, Atom, Precision, RowType


@dataclass(frozen=True)
class Optional(RowType):
    """A type or NULL."""

    inner: RowType

    def __str__(self) -> str:
        return f"{self.inner} | None"

    @property
    def ddl(self) -> str:
        return self.inner.ddl

    @property
    def arrow(self) -> pa.DataType:
        return self.inner.arrow

    def encode(self, value: Any, where: str) -> Any:
        return None if value is None else self.inner.encode(value, where)

    def decode(self, value: Any) -> Any:
        return None if value is None else self.inner.decode(value)


@dataclass(frozen=True)
class ListOf(RowType):
    """A Python list: an ARRAY."""

    inner: RowType

    def __str__(self) -> str:
        return f"list[{self.inner}]"

    @property
    def ddl(self) -> str:
        return f"ARRAY<{self.inner.ddl}>"

    @property
    def arrow(self) -> pa.DataType:
        return pa.list_(self.inner.arrow)

    def encode(self, value: Any, where: str) -> Any:
        if not isinstance(value, list | tuple):
            raise self._refuse(value, where)
        return [self.inner.encode(v, f"{where}[{i}]") for i, v in enumerate(value)]

    def decode(self, value: Any) -> Any:
        # Rows must be hashable, so a list field is read as a tuple of the same items.
        return tuple(self.inner.decode(v) for v in value)


@dataclass(frozen=True)
class Struct(RowType):
    """A row with named fields: a `Data`, a `Pair` or a tuple."""

    name: str
    fields: tuple[tuple[str, RowType], ...]
    python: type

    def __str__(self) -> str:
        inner = ", ".join(str(t) for _, t in self.fields)
        if self.python is dict:  # Spark's own struct, without a Python class
            return f"struct<{', '.join(f'{n}: {t}' for n, t in self.fields)}>"
        if self.python is tuple:
            return f"tuple[{inner}]"
        return f"Pair[{inner}]" if self.name == "Pair" else self.name

    @property
    def ddl(self) -> str:
        inner = ", ".join(f"{quote(n)}: {t.ddl}" for n, t in self.fields)
        return f"STRUCT<{inner}>"

    @functools.cached_property
    def arrow(self) -> pa.DataType:
        return pa.struct([pa.field(n, t.arrow) for n, t in self.fields])

    @property
    def column_names(self) -> Mapping[str, str]:
        """The columns of fields whose column has another name (`Column`), by the fields' names."""
        named: Mapping[str, str] = getattr(self.python, "__row_columns__", {})
        return named

    def parts(self, value: Any, where: str) -> list[Any]:
        """The values of the fields, in order."""
        if self.python is tuple:
            if not isinstance(value, tuple) or len(value) != len(self.fields):
                raise self._refuse(value, where)
            return list(value)
        if type(value) is not self.python:  # a subclass may have fields that would be lost
            if type(value).__name__ == self.python.__name__:
                raise _namesake(value, self.python, where)
            raise self._refuse(value, where)
        return [getattr(value, n) for n, _ in self.fields]

    def encode(self, value: Any, where: str) -> Any:
        parts = self.parts(value, where)
        return {
            n: t.encode(v, f"{where}, field {n!r}")
            for (n, t), v in zip(self.fields, parts, strict=True)
        }

    def decode(self, value: Any) -> Any:
        return self.build([t.decode(value[n]) for n, t in self.fields])

    def build(self, parts: list[Any]) -> Any:
        """The Python row of these values."""
        if self.python is tuple:
            return tuple(parts)
        return self.python(**{n: v for (n, _), v in zip(self.fields, parts, strict=True)})


def tuple_of(types: Iterable[RowType]) -> Struct:
    """The type of a tuple."""
    return Struct("tuple", tuple((f"_{i}", t) for i, t in enumerate(types, 1)), tuple)


@dataclass(frozen=True)
class ZSetOf(RowType):
    """A reduced group: a Z-set inside a row, stored as a sorted array of rows and their counts."""

    inner: RowType
    build: Any = dataclasses.field(compare=False)  # ZSetPython, which a later package defines

    def __str__(self) -> str:
        return f"ZSetPython[{self.inner}]"

    @property
    def item(self) -> Struct:
        """The struct of one row of the array."""
        return Struct("item", (("_value_", self.inner), ("_count_", INT)), tuple)

    @property
    def ddl(self) -> str:
        return f"ARRAY<{self.item.ddl}>"

    @property
    def arrow(self) -> pa.DataType:
        return pa.list_(self.item.arrow)

    def encode(self, value: Any, where: str) -> Any:
        if not isinstance(value, self.build):
            raise self._refuse(value, where)
        items = [
            {"_value_": self.inner.encode(row, where), "_count_": INT.encode(n, where)}
            for row, n in value.iter()
        ]
        return sorted(items, key=lambda i: sort_key(i["_value_"]))

    def decode(self, value: Any) -> Any:
        return self.build((self.inner.decode(i["_value_"]), i["_count_"]) for i in value)


def canonical(value: Any) -> Any:
    """The one value for all values that are equal in Spark: one NaN, one zero.

    Lists become tuples, so that rows are hashable.
    """
    if type(value) is float:
        return NAN if math.isnan(value) else value + 0.0
    if isinstance(value, list):
        return tuple(canonical(v) for v in value)
    if type(value) is tuple:
        return tuple(canonical(v) for v in value)
    return value


def _namesake(value: Any, expected: type, where: str) -> InputError:
    """The error for a row of a class that only has the name of the expected class."""
    row_class = type(value)
    named, other = (f"{c.__module__}.{c.__qualname__}" for c in (expected, row_class))
    origin, remedy = f"of {other}, another class of that name", "import the class from one place"
    if named == other:
        origin = "of an older or newer class of that name"
        remedy = "the class was made again, as by a cell that ran twice; compile the query again"
    return InputError(
        f"{where}: expected a row of {named}, found one {origin}: {value!r}; {remedy}"
    )


def quote(name: str) -> str:
    """Any name as a quoted name of Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def sort_key(value: Any) -> Any:
    """A key that sorts encoded values as Spark does: NULL first, false before true, NaN last."""
    match value:
        case None:
            return (0,)
        case float():
            return (1, math.isnan(value), 0.0 if math.isnan(value) else value)
        case str():
            return (1, value.encode("utf-8", "surrogatepass"))
        case dict():
            return (1, *(sort_key(v) for v in value.values()))
        case list() | tuple():
            return (1, *(sort_key(v) for v in value))
    return (1, value)


ZSET_CLASS: list[type] = []  # contains ZSetPython once its module is imported


@functools.cache
def row_type(annotation: Any) -> RowType:
    """The row type of an annotation. Raises a TypeError that lists the types that can be stored."""
    if isinstance(annotation, RowType):
        return annotation
    if annotation in ATOMS:
        return ATOMS[annotation]
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _annotated(annotation, args)
    if origin in (typing.Union, pytypes.UnionType):
        members = [a for a in args if a is not type(None)]
        if len(members) == 1 and len(members) < len(args):
            inner = row_type(members[0])
            return inner if isinstance(inner, Optional) else Optional(inner)
        raise _not_storable(annotation)
    if origin is list and args:
        return ListOf(row_type(args[0]))
    if origin is tuple and args and Ellipsis not in args:
        fields = tuple((f"_{i}", row_type(a)) for i, a in enumerate(args, 1))
        return Struct("tuple", fields, tuple)
    if origin is tuple and len(args) == 2:
        return ListOf(row_type(args[0]))
    if ZSET_CLASS and origin is ZSET_CLASS[0]:
        return ZSetOf(row_type(args[0]), ZSET_CLASS[0])
    return _class_type(annotation, origin, args)


def _annotated(annotation: Any, args: tuple[Any, ...]) -> RowType:
    precision = next((a for a in args[1:] if isinstance(a, Precision)), None)
    if precision is None:
        return row_type(args[0])
    exact = Atom("Decimal", decimal.Decimal, precision.precision, precision.scale)
    if args[0] is decimal.Decimal:
        return exact
    if args[0] == decimal.Decimal | None:
        return Optional(exact)
    raise TypeError(
        f"{annotation}: st.Precision belongs on a Decimal, as in "
        "list[Annotated[Decimal, st.Precision(10, 2)]]"
    )


def _class_type(annotation: Any, origin: Any, args: tuple[Any, ...]) -> RowType:
    cls = origin or annotation
    if isinstance(cls, type) and issubclass(cls, enum.Enum):
        if all(isinstance(member.value, str) for member in cls):
            return Atom("Enum", cls)
        raise TypeError(f"{cls.__name__}: only Enums whose values are strings can be stored")
    fields = getattr(cls, "__row_fields__", None)
    if fields is None:
        raise _not_storable(annotation)
    params = getattr(cls, "__parameters__", ())
    if len(args) != len(params):
        raise TypeError(f"{annotation}: give the {len(params)} types of its fields in brackets")
    bindings = dict(zip(params, args, strict=True))
    named = tuple((n, row_type(bound(a, bindings))) for n, a in fields().items())
    return Struct(cls.__name__, named, cls)


def is_open(annotation: Any) -> bool:
    """Whether an annotation has type variables that are not yet bound."""
    return isinstance(annotation, TypeVar) or bool(_variables(annotation))


def _variables(annotation: Any) -> tuple[Any, ...]:
    # A bare generic class has parameters too, but it should have been given its types.
    return () if isinstance(annotation, type) else getattr(annotation, "__parameters__", ())


def bound(annotation: Any, bindings: Mapping[Any, Any]) -> Any:
    """An annotation with its known type variables replaced."""
    if isinstance(annotation, TypeVar):
        return bindings.get(annotation, annotation)
    variables = _variables(annotation)
    return annotation[tuple(bindings.get(v, v) for v in variables)] if variables else annotation


def _not_storable(annotation: Any) -> TypeError:
    name = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    instead = _instead(typing.get_origin(annotation) or annotation, typing.get_args(annotation))
    remedy = f"use {instead}; " if instead else ""
    return TypeError(f"{name} cannot be stored in a Spark column; {remedy}these can: {STORABLE}")


_SIMILAR: Mapping[Any, str] = {
    bytearray: "bytes",
    complex: "tuple[float, float]",
    dt.time: "a timedelta since midnight",
    list: "list[int], or another type in the brackets",
    tuple: "tuple[int, str], or other types in the brackets",
    typing.Literal: "the type of the values, or a string Enum",
    typing.Union: "a field for each type, each with | None",
    pytypes.UnionType: "a field for each type, each with | None",
}
"""For types of Python that no column can hold, what can be used instead."""


def _instead(origin: Any, args: tuple[Any, ...]) -> str:
    """What can be used instead of a type; "" if nothing is similar."""
    names = [a.__name__ if isinstance(a, type) else str(a) for a in args]
    if origin is dict:
        return f"list[tuple[{', '.join(names or ('str', 'int'))}]]"
    if origin in (set, frozenset):
        return f"list[{names[0] if names else 'int'}]"
    return _SIMILAR.get(origin, "")


def unwrap(t: RowType) -> RowType:
    """The type without its NULL."""
    return t.inner if isinstance(t, Optional) else t
