"""Types of streams, and the columns of relations that hold their values, also as JSON for stores.

Every value of a stream is one relation: rows of `columns`, each with one or more `diffs`. Equal
rows are one row whose diffs are added up, and a row whose diffs are all zero does not exist. A
Z-set has the diff `_count_`. A sum has the sum itself as its diff.

A circuit that runs per group works on such rows. A function of the row sees the row without its
groups. So does a function that only Spark can read, because the columns keep their names.

A kind follows the Python types. It is finer than a type of Spark, which has one STRING for `str`,
`UUID` and `Enum`. Classes are compared by their fields, and Enums not by their members: after a
class is renamed or a member is added, the state can still be used.
"""

from __future__ import annotations

import decimal
import enum
import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeAlias

import pyarrow as pa

from stepping_spark.base.errors import CompileError
from stepping_spark.base.fields import PickledByFields
from stepping_spark.rows.atoms import ATOMS, INT, Atom, RowType
from stepping_spark.rows.types import ListOf, Optional, Struct, ZSetOf, quote

TypeJson: TypeAlias = "str | dict[str, Any]"

_ATOMS = {t.name: t for t in ATOMS.values() if t.name != "Decimal"} | {
    "Enum": Atom("Enum", enum.Enum)
}
_DECIMAL = re.compile(r"Decimal\((\d{1,2}), (\d{1,2})\)")


MOST_LEVELS = 64
"""The most levels of lists, rows and optional values in a row type of a state."""


def kind_of(t: RowType, levels: int = MOST_LEVELS) -> TypeJson:
    """A row type as JSON. Raises `CompileError` if it is nested too deep to be read again."""
    if not levels:
        raise CompileError(
            f"a store cannot keep values that are nested more than {MOST_LEVELS} levels deep, and "
            "a field of a row has some: give it fewer lists and rows within each other"
        )
    within = partial(kind_of, levels=levels - 1)
    match t:
        case Optional():
            return {"optional": within(t.inner)}
        case ListOf():
            return {"list": within(t.inner)}
        case ZSetOf():
            return {"zset": within(t.inner)}
        case Struct():
            return {"row": [[name, within(part)] for name, part in t.fields]}
        case Atom(name="Decimal"):
            return f"Decimal({t.precision}, {t.scale})"
        case Atom():
            return t.name
    raise AssertionError(f"{t!r} has no kind")


def type_of(kind: object, levels: int = MOST_LEVELS) -> RowType:
    """The row type of a kind; its rows have no class. Raises ValueError for an invalid kind."""
    if not levels:
        raise ValueError(f"a value that is nested more than {MOST_LEVELS} levels deep")
    match kind:
        case {"optional": inner}:
            return Optional(type_of(inner, levels - 1))
        case {"list": inner}:
            return ListOf(type_of(inner, levels - 1))
        case {"zset": inner}:
            return ZSetOf(type_of(inner, levels - 1), dict)
        case {"row": [*fields]}:
            return Struct("row", fields_of(fields, levels - 1), dict)
        case str() if kind in _ATOMS:
            return _ATOMS[kind]
        case str() if digits := _DECIMAL.fullmatch(kind):
            precision, scale = int(digits[1]), int(digits[2])
            if 0 <= scale <= precision and 1 <= precision <= 38:
                return Atom("Decimal", decimal.Decimal, precision, scale)
    raise ValueError(f"{kind!r} is not a kind of value")


def fields_of(
    listed: Iterable[object], levels: int = MOST_LEVELS
) -> tuple[tuple[str, RowType], ...]:
    """Names and row types from names and kinds. Raises ValueError if they are invalid."""
    return tuple(_field(pair, levels) for pair in listed)


def _field(listed: object, levels: int) -> tuple[str, RowType]:
    match listed:
        case [str() as name, kind]:
            return name, type_of(kind, levels)
    raise ValueError(f"{listed!r} is not a field: a name and a kind")


CHANGE = "_change_type"
COUNT = "_count_"
VALUE = "_value_"
ITEM = "_item_"  # distinguishes the rows of one sum
# Wider than 64 bits, so that a sum of ints can overflow only on output.
BIG_INT = Atom("Decimal", decimal.Decimal, 38, 0)
# A sum of ints, shown as a Decimal. It is no Decimal field, which would be stored in halves.
SUM_OF_INTS = Atom("Decimal", int, 38, 0)
LOW_DIGITS = 18  # digits in the low half of a Decimal of 38 digits: they fit 64 bits

Columns = tuple[tuple[str, RowType], ...]


@functools.cache
def has_floats(t: pa.DataType) -> bool:
    """Whether a type contains floats, at any depth."""
    if pa.types.is_struct(t):
        return any(has_floats(f.type) for f in t)
    if pa.types.is_list(t):
        return has_floats(t.value_type)
    return pa.types.is_floating(t)


@dataclass(frozen=True)
class Schema(PickledByFields):
    """The columns and the diffs of a relation."""

    columns: Columns
    diffs: Columns = ((COUNT, INT),)

    @cached_property
    def all(self) -> Columns:
        """Columns, then diffs."""
        return self.columns + self.diffs

    @cached_property
    def arrow(self) -> pa.Schema:
        """The schema of a table on the driver."""
        return pa.schema([pa.field(n, t.arrow) for n, t in self.all])

    @cached_property
    def has_floats(self) -> bool:
        """Whether some column contains floats, at any depth."""
        return any(map(has_floats, self.arrow.types))

    @cached_property
    def is_flat(self) -> bool:
        """Whether no column has parts."""
        return not any(map(pa.types.is_nested, self.arrow.types))

    @cached_property
    def names(self) -> list[str]:
        """The names of all columns."""
        return [n for n, _ in self.all]

    @cached_property
    def empty(self) -> pa.Table:
        """The relation without rows, on the driver."""
        return self.arrow.empty_table()

    @property
    def ddl(self) -> str:
        """The schema in Spark SQL."""
        return ", ".join(f"{quote(n)} {t.ddl}" for n, t in self.all)

    @property
    def kinds(self) -> dict[str, object]:
        """The schema as JSON."""
        return {
            "columns": [[n, kind_of(t)] for n, t in self.columns],
            "diffs": [[n, kind_of(t)] for n, t in self.diffs],
        }

    @classmethod
    def of_kinds(cls, kinds: object) -> Schema:
        """The schema for the result of `kinds`. Raises ValueError if it is not valid."""
        match kinds:
            case {"columns": [*columns], "diffs": [*diffs]}:
                relation = cls(fields_of(columns), fields_of(diffs))
                relation._check()
                return relation
        raise ValueError("a relation without columns or diffs")

    def _check(self) -> None:
        """Raise ValueError if this cannot be a relation, as after an edit of its kinds."""
        names = [n for n, _ in self.all]
        if len(set(names)) < len(names):
            raise ValueError("a relation with a column twice")
        for name, t in self.diffs:
            if not (isinstance(t, Atom) and t.name in ("int", "Decimal")):
                raise ValueError(f"a relation with the diff {name!r}, which is not a number: {t}")
        if not self.diffs:
            raise ValueError("a relation without diffs")

    @property
    def row(self) -> RowType:
        """The type of one row's columns."""
        if len(self.columns) == 1 and self.columns[0][0] == VALUE:
            return self.columns[0][1]
        return Struct("row", self.columns, tuple)


@dataclass(frozen=True)
class StreamType:
    """The type of a stream: the type of its values, and the relation that holds one."""

    @property
    def schema(self) -> Schema:
        """The schema of the relation that holds a value."""
        raise NotImplementedError


@dataclass(frozen=True)
class ZSetType(StreamType):
    """Z-sets of rows."""

    row: RowType

    def __post_init__(self) -> None:
        if isinstance(self.row, Struct) and not self.row.fields:
            raise CompileError(f"ZSet[{self.row}]: a row needs at least one field")

    def __str__(self) -> str:
        return f"ZSet[{self.row}]"

    @cached_property
    def schema(self) -> Schema:
        return Schema(columns_of(self.row))


def columns_of(row: RowType) -> Columns:
    """The columns of a row: its fields, or `_value_`."""
    return row.fields if isinstance(row, Struct) else ((VALUE, row),)


@dataclass(frozen=True)
class Accumulated:
    """A value that is a sum: a number, a row of numbers added field by field, or a Z-set."""

    value: RowType

    def __str__(self) -> str:
        return str(self.value)

    def leaves(self) -> tuple[tuple[str, Atom, bool], ...]:
        """The numbers: the name of each diff, its type, and whether it may be NULL."""
        return self._leaves

    @cached_property
    def _leaves(self) -> tuple[tuple[str, Atom, bool], ...]:
        parts = []
        fields = self.value.fields if isinstance(self.value, Struct) else ((VALUE, self.value),)
        for name, t in fields:
            bare = t.inner if isinstance(t, Optional) else t
            if isinstance(bare, Atom):
                parts.append((name, bare, isinstance(t, Optional)))
        return tuple(parts)

    @cached_property
    def floats(self) -> tuple[str, ...]:
        """The names of the leaves that are floats."""
        return tuple(n for n, t, _ in self.leaves() if t.name == "float")

    @cached_property
    def item(self) -> RowType | None:
        """The type that distinguishes the rows of one sum: a Z-set's row, a float's exponent."""
        if isinstance(self.value, ZSetOf):
            return Struct("item", (("value", self.value.inner),), tuple)
        return INT if self.floats else None

    def check(self, where: str) -> None:
        """Refuse values that cannot be added up."""
        if isinstance(self.value, ZSetOf):
            return
        fields = self.value.fields if isinstance(self.value, Struct) else ((VALUE, self.value),)
        leaves = {n: t for n, t, _ in self.leaves()}
        for name, t in fields:
            if name not in leaves or leaves[name].name not in ("int", "float", "Decimal"):
                raise CompileError(
                    f"{where}: {t} cannot be added up; these can: int, float, Decimal, a row "
                    "(Data, tuple) of them, or a st.ZSetPython"
                )

    def diffs(self) -> Columns:
        """The diffs of the relation that holds the sum."""
        columns: list[tuple[str, RowType]] = []
        for name, t, _ in self.leaves():
            if t.name == "int":
                columns.append((_diff(name), BIG_INT))
            elif t.is_halved:
                scales = {_diff(name): t.scale, high_diff(_diff(name)): high_scale(t)}
                columns += [(d, Atom("Decimal", decimal.Decimal, 38, s)) for d, s in scales.items()]
            elif t.name == "Decimal":
                columns.append((_diff(name), Atom("Decimal", decimal.Decimal, 38, t.scale)))
        if self.floats:
            columns.append(("_limb_", BIG_INT))
        if isinstance(self.value, ZSetOf):
            columns.append((COUNT, INT))
        return tuple(columns)


def _diff(name: str) -> str:
    return name if name == VALUE else f"_sum_{name}_"


def high_diff(diff: str) -> str:
    """The diff with the high half of a sum, whose low half is in `diff`."""
    return f"_high{diff}"


def high_scale(t: Atom) -> int:
    """The digits after the point in the high half of a sum."""
    return max(t.scale - LOW_DIGITS, 0)


@dataclass(frozen=True)
class ScalarType(StreamType):
    """Sums that are one value: a stream of numbers."""

    sum: Accumulated

    def __str__(self) -> str:
        return str(self.sum)

    @cached_property
    def schema(self) -> Schema:
        item = self.sum.item
        columns = () if item is None else ((ITEM, Optional(item)),)
        return Schema(columns, self.sum.diffs())


@dataclass(frozen=True)
class GroupedType(StreamType):
    """Sums by key: each group of a Z-set, reduced. A group exists while it has rows."""

    key: RowType
    sum: Accumulated

    def __str__(self) -> str:
        return f"Grouped[{self.sum}, {self.key}]"

    @property
    def keys(self) -> Columns:
        """The columns of the key."""
        return (("_key_", self.key),)

    @cached_property
    def schema(self) -> Schema:
        item = self.sum.item
        items = () if item is None else ((ITEM, Optional(item)),)
        return Schema(self.keys + items, (("_rows_", INT), *self.sum.diffs()))


@dataclass(frozen=True)
class InGroup:
    """A row, and the keys of its groups by the names of their columns."""

    row: Any
    groups: tuple[tuple[str, Any], ...]

    def __getattr__(self, name: str) -> Any:
        for column, key in self.groups:
            if name == column:
                return key
        if name == VALUE:
            return self.row
        if isinstance(self.row, tuple) and name[1:].isdigit():
            return self.row[int(name[1:]) - 1]
        return getattr(self.row, name)


@dataclass(frozen=True)
class Carrying(Struct):
    """The type of rows in groups."""

    inner: RowType
    carried: Columns

    def __str__(self) -> str:
        return f"{self.inner} per {', '.join(str(t) for _, t in self.carried)}"

    def build(self, parts: list[Any]) -> Any:
        """The row of these values, in its groups."""
        n = len(parts) - len(self.carried)
        row = self.inner.build(parts[:n]) if isinstance(self.inner, Struct) else parts[0]
        names = (name for name, _ in self.carried)
        return InGroup(row, tuple(zip(names, parts[n:], strict=True)))


def carrying(row: RowType, columns: Columns) -> RowType:
    """The type of rows with these columns added after their existing key columns."""
    if not columns:
        return row
    if isinstance(row, Carrying):
        return carrying(row.inner, row.carried + columns)
    return Carrying("in group", columns_of(row) + columns, InGroup, row, columns)


def in_groups(row: Any, of: Any, columns: Columns) -> Any:
    """A row with the keys of these groups of `of` added after its existing group keys."""
    if not columns:
        return row
    groups = tuple((name, getattr(of, name)) for name, _ in columns)
    if isinstance(row, InGroup):
        return InGroup(row.row, row.groups + groups)
    return InGroup(row, groups)
