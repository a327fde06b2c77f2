"""Types of streams, and the relations that hold their values: columns, and diffs to add up.

Every value of a stream is one relation: rows of `columns`, each with one or more `diffs`. Equal
rows are one row whose diffs are added up, and a row whose diffs are all zero does not exist. A
Z-set has the diff `_count_`. A sum has the sum itself as its diff.
"""

from __future__ import annotations

import decimal
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from stepping_spark.errors import CompileError
from stepping_spark.rows.atoms import INT, Atom, RowType
from stepping_spark.rows.type_json import fields_of, kind_of
from stepping_spark.rows.types import Optional, Struct, ZSetOf, quote

CHANGE = "_change_type"
COUNT = "_count_"
VALUE = "_value_"
# Wider than 64 bits, so that a sum of ints can overflow only on output.
BIG_INT = Atom("Decimal", decimal.Decimal, 38, 0)
# A sum of ints that is shown as a Decimal. It is none, which would be stored in halves.
SUM_OF_INTS = Atom("Decimal", int, 38, 0)
LOW_DIGITS = 18  # of a Decimal of 38 digits that are in its low half: they fit 64 bits

Columns = tuple[tuple[str, RowType], ...]


@dataclass(frozen=True)
class Schema:
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
    def of_kinds(cls, said: object) -> Schema:
        """The schema for the result of `kinds`. Raises ValueError if it is not valid."""
        match said:
            case {"columns": [*columns], "diffs": [*diffs]}:
                found = cls(fields_of(columns), fields_of(diffs))
                found._check()
                return found
        raise ValueError("a relation that does not say its columns and diffs")

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
        found = []
        fields = self.value.fields if isinstance(self.value, Struct) else ((VALUE, self.value),)
        for name, t in fields:
            bare = t.inner if isinstance(t, Optional) else t
            if isinstance(bare, Atom):
                found.append((name, bare, isinstance(t, Optional)))
        return tuple(found)

    @cached_property
    def floats(self) -> tuple[str, ...]:
        """The names of the leaves that are floats."""
        return tuple(n for n, t, _ in self.leaves() if t.name == "float")

    @cached_property
    def item(self) -> RowType | None:
        """The type that tells the rows of one sum apart: a Z-set's row, a float's exponent."""
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
        found: list[tuple[str, RowType]] = []
        for name, t, _ in self.leaves():
            if t.name == "int":
                found.append((_diff(name), BIG_INT))
            elif t.is_halved:
                scales = {_diff(name): t.scale, high_diff(_diff(name)): high_scale(t)}
                found += [(d, Atom("Decimal", decimal.Decimal, 38, s)) for d, s in scales.items()]
            elif t.name == "Decimal":
                found.append((_diff(name), Atom("Decimal", decimal.Decimal, 38, t.scale)))
        if self.floats:
            found.append(("_limb_", BIG_INT))
        if isinstance(self.value, ZSetOf):
            found.append((COUNT, INT))
        return tuple(found)


def _diff(name: str) -> str:
    return name if name == VALUE else f"_sum_{name}_"


def high_diff(diff: str) -> str:
    """The diff with the high half of a sum, whose low half is in this one."""
    return f"_high{diff}"


def high_scale(t: Atom) -> int:
    """The digits after the point that the high half of a sum has."""
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
        columns = () if item is None else (("_item_", Optional(item)),)
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
        items = () if item is None else (("_item_", Optional(item)),)
        return Schema(self.keys + items, (("_rows_", INT), *self.sum.diffs()))
