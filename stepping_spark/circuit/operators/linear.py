"""Operators that are linear and keep no state: Q(a + b) = Q(a) + Q(b)."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import CompileError
from stepping_spark.circuit.operators.base import GivesSets, KeepsSigns, KeyedRead, Operator, Same
from stepping_spark.circuit.physical import (
    Argument,
    Negate,
    NoRows,
    Physical,
    Project,
    Union,
    Unnest,
    Where,
    cells_of,
    of_columns,
    paths_of,
)
from stepping_spark.expressions.expr import Build, Expr, Field, is_plain
from stepping_spark.expressions.index import Key
from stepping_spark.rows.atoms import BOOL, INT, RowType
from stepping_spark.rows.data import timed, weighted
from stepping_spark.rows.schema import (
    VALUE,
    Columns,
    StreamType,
    ZSetType,
    carrying,
    columns_of,
)
from stepping_spark.rows.types import ListOf, Optional, Struct, ZSetOf, unwrap


@dataclass(frozen=True)
class Nothing(GivesSets):
    """A stream without rows: the only linear operator without an input."""

    type: ZSetType
    arity: ClassVar[int] = 0
    monotone: ClassVar[bool] = True

    def type_of(self, *inputs: StreamType) -> StreamType:
        return self.type

    def physical(self, *args: Argument) -> Physical:
        return NoRows(self.type.schema)


@dataclass(frozen=True)
class RowByRow(Operator):
    """An operator that applies a function to one row at a time."""

    f: Expr

    def describe(self) -> str:
        return str(self.f)


@dataclass(frozen=True)
class Carrier(RowByRow):
    """An operator whose function ignores the carried columns of a row; the result carries them."""

    carried: Columns = ()

    def lifted(
        self, group: Field, inputs: Sequence[StreamType], grouped: Sequence[bool]
    ) -> tuple[Operator, ...]:
        return (replace(self, carried=(*self.carried, (group.path[0], group.type))),)


@dataclass(frozen=True)
class Map(KeepsSigns, Carrier):
    """Maps each row to another row, with the same carried columns.

    `note` is the text in pictures, line by line, instead of the function.
    """

    note: tuple[str, ...] = field(default=(), compare=False)
    monotone: ClassVar[bool] = True
    recursive: ClassVar[bool] = True

    def type_of(self, *inputs: StreamType) -> StreamType:
        self._zset(inputs[0])
        return ZSetType(carrying(self.f.type, self.carried))

    def physical(self, *args: Argument) -> Physical:
        return Project(args[0], (*cells_of(self.f), *of_columns(self.carried)))

    def items(self, value: Any) -> Iterable[tuple[Any, int]]:
        """The rows, with their weights, of a result of the function."""
        return ((value, 1),)


@dataclass(frozen=True)
class PrunedMap(Map):
    """A map without the columns of its result that no reader needs.

    `whole` is the function with all columns; None if the map leaves out columns of its input. Which
    columns are left out is no part of the identity of a stream.
    """

    whole: Expr | None = None

    @property
    def name(self) -> str:
        return "map"

    def named_after(self, *inputs: str) -> str:
        return inputs[0] if self.whole is None else ""

    def describe(self) -> str:
        """The columns that are left, if they are fields of the row; otherwise the function."""
        parts = self.f.parts()
        is_flat = self.whole is None and all(isinstance(p, Field) for p in parts)
        return ", ".join(map(str, parts)) if is_flat else str(self.f)

    @property
    def unpruned(self) -> Map | None:
        """The map with all columns; None if its input has them."""
        return None if self.whole is None else Map(self.whole, self.carried, self.note)


def only_prunes(op: Operator) -> bool:
    """Whether an operator only leaves out columns of its input."""
    return isinstance(op, PrunedMap) and op.whole is None


@dataclass(frozen=True)
class Filter(KeepsSigns, RowByRow, Same):
    """The rows for which the function is true; NULL is not true."""

    monotone: ClassVar[bool] = True
    recursive: ClassVar[bool] = True
    keeps_rows: ClassVar[bool] = True

    def type_of(self, *inputs: StreamType) -> StreamType:
        self._zset(inputs[0])
        if self.f.type not in (BOOL, Optional(BOOL)):
            raise CompileError(
                f"{user_line()}: filter takes a function that returns a bool, found {self.f.type}, "
                f"from {self.f}; compare it with something"
            )
        return inputs[0]

    def physical(self, *args: Argument) -> Physical:
        return Where(args[0], self.f)


@dataclass(frozen=True)
class MapMany(KeepsSigns, Carrier):
    """Maps each row to the items of a list, with repetitions, and the same carried columns."""

    monotone: ClassVar[bool] = True
    recursive: ClassVar[bool] = True

    def type_of(self, *inputs: StreamType) -> StreamType:
        self._zset(inputs[0])
        t = self.f.type.inner if isinstance(self.f.type, Optional) else self.f.type
        if not isinstance(t, ListOf):
            remedy = "use F.array(…), or map for a single row"
            if isinstance(t, ZSetOf):
                remedy = (
                    f"make a list of it in f=st.python(f, to=list[{t.inner}]): [row for row, n in "
                    "z.iter() for _ in range(n)] of a Z-set z"
                )
            raise CompileError(
                f"{user_line()}: map_many takes a function that returns an array, found "
                f"{self.f.type}, from {self.f}; {remedy}"
            )
        return ZSetType(carrying(t.inner, self.carried))

    def physical(self, *args: Argument) -> Physical:
        lists = unwrap(self.f.type)
        assert isinstance(lists, ListOf)
        paths, columns = paths_of(lists.inner), columns_of(lists.inner)
        return Unnest(args[0], self.f, paths, columns, None, self.carried, self.name)

    def items(self, value: Any) -> Iterable[tuple[Any, int]]:
        """The rows, with their weights, of a result of the function."""
        return ((item, 1) for item in value or ())


@dataclass(frozen=True)
class Explode(Carrier):
    """Maps each row to the values of a list of (value, weight); weights multiply.

    A list of (value, time, weight) produces timed rows. The result has the same carried columns.
    """

    def type_of(self, *inputs: StreamType) -> StreamType:
        self._zset(inputs[0])
        fields = [t for _, t in self.item.fields]
        if len(fields) not in (2, 3) or fields[-1] != INT:
            raise CompileError(
                f"{user_line()}: explode takes a function that returns (value, weight) pairs, "
                f"found {self.f.type}, from {self.f}; return a list of tuples, with ints as weights"
            )
        value, *time, _ = fields
        return ZSetType(carrying(timed(value, time[0]) if time else value, self.carried))

    def physical(self, *args: Argument) -> Physical:
        (name, value), *time, (weight, _) = self.item.fields
        paths, columns = paths_of(value, name), columns_of(value)
        if time:
            ((at, when),) = time
            paths, columns = ((name,), (at,)), (("value", value), ("time", when))
        return Unnest(args[0], self.f, paths, columns, (weight,), self.carried, self.name)

    def items(self, value: Any) -> Iterable[tuple[Any, int]]:
        """The rows, with their weights, of a result of the function."""
        return weighted(value)

    @property
    def item(self) -> Struct:
        """The type of the items of the list."""
        lists = unwrap(self.f.type)
        item = lists.inner if isinstance(lists, ListOf) else lists
        return item if isinstance(item, Struct) else Struct("", (), tuple)


@dataclass(frozen=True)
class Add(KeepsSigns, Same):
    """The sum of streams."""

    arity: ClassVar[int] = 2
    monotone: ClassVar[bool] = True
    recursive: ClassVar[bool] = True
    keeps_rows: ClassVar[bool] = True

    def type_of(self, *inputs: StreamType) -> StreamType:
        a, b = inputs
        if a != b:
            raise CompileError(
                f"{user_line()}: add takes two streams of one type, found {a} and {b}; map one "
                "to the type of the other"
            )
        return a

    def physical(self, *args: Argument) -> Physical:
        return Union(args)


@dataclass(frozen=True)
class Neg(Same):
    """The stream with every weight, or number, negated."""

    keeps_rows: ClassVar[bool] = True

    def physical(self, *args: Argument) -> Physical:
        return Negate(args[0])


@dataclass(frozen=True)
class Arrange(KeepsSigns, Same):
    """The unchanged input; arranges its state by this key."""

    key: Key
    monotone: ClassVar[bool] = True
    keeps_rows: ClassVar[bool] = True
    same_stream: ClassVar[bool] = True
    same_at_first: ClassVar[bool] = True

    def type_of(self, *inputs: StreamType) -> StreamType:
        self._zset(inputs[0])
        return inputs[0]

    def physical(self, *args: Argument) -> Physical:
        return args[0]

    def describe(self) -> str:
        return f"by {self.key}"


@dataclass(frozen=True)
class IdentityPrint(KeepsSigns, Same):
    """The unchanged input, printed at each step."""

    label: str
    monotone: ClassVar[bool] = True

    def physical(self, *args: Argument) -> Physical:
        return args[0]

    def describe(self) -> str:
        return self.label

    def identity(self) -> str:
        return ""


@dataclass(frozen=True)
class Fused(Operator):
    """A chain of operators as one operator."""

    parts: tuple[Operator, ...]

    def is_nothing(self, *inputs: bool) -> bool:
        return self.parts[0].is_nothing(*inputs)

    @property
    def name(self) -> str:
        return "·".join(p.name for p in self.parts)

    def type_of(self, *inputs: StreamType) -> StreamType:
        return self.types(*inputs)[-1]

    def types(self, *inputs: StreamType) -> tuple[StreamType, ...]:
        """The type of the result of each part."""
        results = [self.parts[0].type_of(*inputs)]
        for p in self.parts[1:]:
            results.append(p.type_of(results[-1]))
        return tuple(results)

    def describe(self) -> str:
        return " · ".join(filter(None, (p.describe() for p in self.parts)))

    def identity(self) -> str:
        return " · ".join(f"{p.name} {p.identity()}" for p in self.parts)

    def lookups(self, *inputs: StreamType) -> Mapping[int, KeyedRead]:
        return self.parts[0].lookups(*inputs)

    def reads_unseen(self, *inputs: StreamType) -> str:
        taken = (inputs, *((t,) for t in self.types(*inputs)))
        return " ".join(p.reads_unseen(*t) for p, t in zip(self.parts, taken, strict=False))


def parts_of(op: Operator) -> tuple[Operator, ...]:
    """The operators in a fused one; otherwise the operator itself."""
    return op.parts if isinstance(op, Fused) else (op,)


def trees_of(parts: Sequence[Operator], types: tuple[StreamType, ...]) -> list[Physical]:
    """The physical trees of a chain of operators, the first one over these types."""
    trees = [parts[0].tree(types)]
    for before, p in itertools.pairwise(parts):
        types = (before.type_of(*types),)
        trees.append(p.tree(types))
    return trees


def in_group(row: RowType, parts: Iterable[Expr], group: Field, *at: str) -> Map:
    """The map that builds rows of these parts, in the group whose key is at a path."""
    columns = ((group.path[0], group.type),)
    return Map(Build(carrying(row, columns), (*parts, Field(group.type, at))))


def without_group(row: RowType, side: str) -> Expr:
    """The row on one side of a pair, without the group that it may carry."""
    if isinstance(row, Struct):
        return Build(row, tuple(Field(t, (side, n)) for n, t in row.fields))
    return Field(row, (side, VALUE))


def only_projects(op: Operator) -> bool:
    """Whether an operator only picks fields, and so costs nothing to compute twice."""
    return isinstance(op, Map) and is_plain(op.f)
