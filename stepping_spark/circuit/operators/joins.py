"""Operators that match rows of two streams by key."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import CompileError
from stepping_spark.circuit.operators.base import KeepsSigns, KeyedRead, Linearity, Operator
from stepping_spark.circuit.operators.linear import in_group, parts_of, without_group
from stepping_spark.circuit.physical import (
    AntiJoin,
    Argument,
    Cell,
    EquiJoin,
    Physical,
    Positive,
    Project,
    Union,
    Where,
)
from stepping_spark.expressions.expr import Call, Expr, Field, Literal, tupled, whole
from stepping_spark.expressions.index import Key
from stepping_spark.rows.atoms import BOOL, RowType
from stepping_spark.rows.data import pair_of
from stepping_spark.rows.schema import (
    StreamType,
    ZSetType,
)
from stepping_spark.rows.types import Optional, Struct, tuple_of, unwrap

T = TypeVar("T")
SIDES = ("left", "right")  # of a pair


@dataclass(frozen=True)
class Join(KeepsSigns):
    """Pairs of rows with equal keys; weights multiply. NULL keys match nothing."""

    left: Key
    right: Key
    linearity: ClassVar[Linearity] = Linearity.BILINEAR
    arity: ClassVar[int] = 2
    monotone: ClassVar[bool] = True
    recursive: ClassVar[bool] = True

    def named_after(self, *inputs: str) -> str:
        return " ⋈ ".join(inputs)

    def is_nothing(self, *inputs: bool) -> bool:
        return any(inputs)

    def type_of(self, *inputs: StreamType) -> StreamType:
        a, b = (self._zset(t) for t in inputs)
        left, right = ([unwrap(p.type) for p in k.parts] for k in (self.left, self.right))
        if left != right:
            raise CompileError(
                f"{user_line()}: join takes keys of one type, found {self.left} of type "
                f"{self.left.type} on the left and {self.right} of type {self.right.type} on the "
                "right; convert one (.cast)"
            )
        return ZSetType(pair_of(a, b))

    def lookups(self, *inputs: StreamType) -> Mapping[int, KeyedRead]:
        on, key = self.left.parts, self.right.parts
        return {0: KeyedRead(on, ((1, key),)), 1: KeyedRead(key, ((0, on),))}

    def lifted(
        self, group: Field, inputs: Sequence[StreamType], grouped: Sequence[bool]
    ) -> tuple[Operator, ...]:
        """Match rows of the same group, also of the NULL group; a pair is in its rows' group."""
        join = self
        if all(grouped):
            # A struct is never NULL, and structs of NULL are equal.
            own = tupled(group) if isinstance(group.type, Optional) else group
            keys = ((k, tupled(*k.parts, own)) for k in (self.left, self.right))
            join = Join(*(Key(e, (*k.ascending, True)) for k, e in keys))
        sides = (without_group(self._zset(t), s) for t, s in zip(inputs, SIDES, strict=True))
        pair, at = self._zset(self.type_of(*inputs)), SIDES[0 if grouped[0] else 1]
        return join, in_group(pair, sides, group, at, *group.path)

    def physical(self, *args: Argument) -> Physical:
        left, right = args
        rows = tuple(self._zset(a.type) for a in args)
        cells = tuple((side, whole(row)) for side, row in enumerate(rows))
        columns = pair_of(*rows).fields
        return EquiJoin(left, right, self.left.parts, self.right.parts, cells, columns)

    def describe(self) -> str:
        return f"{self.left} = {self.right}"


def join_of(op: Operator) -> Join | None:
    """The join at the beginning of an operator, if there is one."""
    first = parts_of(op)[0]
    return first if isinstance(first, Join) else None


@dataclass(frozen=True)
class LookUp(Operator):
    """Tuples, each joined with the table's rows of its key, inserted at `place`; weights multiply.

    With `left`, a tuple gets None if its key is NULL, or absent in the table; `optional` means that
    the type of the new member allows None, whether inserted here or elsewhere. With `bare`, the
    input rows are single members, not tuples. The table's weights may have any sign: a key is
    present if the weights of its rows add up to more than zero.
    """

    on: tuple[Expr, ...]
    key: tuple[Expr, ...]
    place: int
    left: bool = False
    optional: bool = False
    bare: bool = False
    linearity: ClassVar[Linearity] = Linearity.LOOK_UP
    arity: ClassVar[int] = 2

    def is_nothing(self, *inputs: bool) -> bool:
        return inputs[0]

    def lookups(self, *inputs: StreamType) -> Mapping[int, KeyedRead]:
        return {1: KeyedRead(self.key, ((0, self.on),))}

    def type_of(self, *inputs: StreamType) -> StreamType:
        rows, table = (self._zset(t) for t in inputs)
        on, key = ([unwrap(e.type) for e in side] for side in (self.on, self.key))
        if on != key:
            shown = [", ".join(f"{e} of type {e.type}" for e in s) for s in (self.on, self.key)]
            raise CompileError(
                f"{user_line()}: a lookup takes keys of one type, found on={shown[0]}, and "
                f"key={shown[1]}; convert one with st.map before"
            )
        member = Optional(unwrap(table)) if self.optional else table
        members = self.members(rows)
        return ZSetType(tuple_of((*members[: self.place], member, *members[self.place :])))

    def members(self, row_type: RowType) -> tuple[RowType, ...]:
        """The types of the members of input tuples."""
        if self.bare:
            return (row_type,)
        assert isinstance(row_type, Struct)
        return tuple(t for _, t in row_type.fields)

    def physical(self, *args: Argument) -> Physical:
        """The pairs of matching rows; with `left` also the other tuples, with NULL."""
        known, table = args
        of_known: tuple[Expr, ...] = (whole(self._zset(known.type)),)
        if not self.bare:
            of_known = tuple(Field(t, (n,)) for n, t in known.schema.columns)
        columns = self.type_of(known.type, table.type).schema.columns

        def row(members: Sequence[T], member: T) -> tuple[T, ...]:
            return (*members[: self.place], member, *members[self.place :])

        member = (1, whole(self._zset(table.type)))
        cells = row([(0, e) for e in of_known], member)
        pairs = EquiJoin(known, table, self.on, self.key, cells, columns)
        if not self.left:
            return pairs
        absent = AntiJoin(known, Present(self.key).physical(table), self.on)
        nothing = Literal(columns[self.place][1], None)
        shown = zip(row(of_known, nothing), columns, strict=True)
        return Union((pairs, Project(absent, tuple(Cell(e, (c,)) for e, c in shown))))

    def describe(self) -> str:
        on, key = (", ".join(map(str, side)) for side in (self.on, self.key))
        return f"{on} = {key} at {self.place}{', or None' if self.left else ''}"


@dataclass(frozen=True)
class Present(Operator):
    """The keys whose rows have a positive total weight, each once; without NULL keys."""

    key: tuple[Expr, ...]
    linearity: ClassVar[Linearity] = Linearity.PER_KEY
    recursive: ClassVar[bool] = True

    @property
    def unit_weights(self) -> bool:
        return True

    def type_of(self, *inputs: StreamType) -> StreamType:
        self._zset(inputs[0])
        return ZSetType(tuple_of(e.type for e in self.key))

    def physical(self, *args: Argument) -> Physical:
        types = tuple_of(e.type for e in self.key)
        cells = tuple(Cell(e, (c,)) for e, c in zip(self.key, types.fields, strict=True))
        known = (Call(BOOL, "isNotNull", (Field(t, (n,)),)) for n, t in types.fields)
        condition: Expr = functools.reduce(lambda a, b: Call(BOOL, "&", (a, b)), known)
        return Positive(Where(Project(args[0], cells), condition))

    def keyed_by(self, t: StreamType) -> tuple[Expr, ...]:
        return self.key

    def describe(self) -> str:
        return ", ".join(map(str, self.key))
