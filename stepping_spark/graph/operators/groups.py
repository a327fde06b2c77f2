"""Operators that work on each key separately: distinct, sums, first rows, lists; and their H."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stepping_spark.callsite import user_line
from stepping_spark.errors import CompileError
from stepping_spark.expressions.expr import Expr, Field
from stepping_spark.expressions.index import Key, Order
from stepping_spark.graph.operators.base import GivesSets, Linearity, Operator, Same
from stepping_spark.physical import (
    Argument,
    Contributions,
    Gather,
    Physical,
    Pieces,
    Positive,
    Rank,
    Totals,
)
from stepping_spark.rows.data import pair_of
from stepping_spark.rows.schema import (
    Accumulated,
    GroupedType,
    ScalarType,
    StreamType,
    ZSetType,
)
from stepping_spark.rows.types import ListOf, Optional, Struct

BUCKETS = (4096, 64)  # of a large group's rows, by level; each number divides the one before
UNKNOWN = (256,)  # of groups of any size: a state twice as large as the rows, and not three times
READ_WHOLE = 1_024  # rows of a group, or of a bucket, that are read as they are


def levels_of(group_size: int | None) -> tuple[int, ...]:
    """The numbers of buckets in which the rows of a group are kept, for its size if that is known.

    A level pays if what it divides has more than `READ_WHOLE` rows.
    """
    if group_size is None:
        return UNKNOWN
    below = (*BUCKETS[1:], 1)
    pairs = zip(BUCKETS, below, strict=True)
    return tuple(n for n, smaller in pairs if group_size > READ_WHOLE * smaller)


def _shown(order: Order) -> str:
    return ", ".join(f"{e}{'' if up else ' desc'}" for e, up in order)


@dataclass(frozen=True)
class Distinct(GivesSets, Same):
    """Every row whose weight is positive, once."""

    linearity: ClassVar[Linearity] = Linearity.PER_KEY
    row_at: ClassVar[tuple[str, ...]] = ()
    monotone: ClassVar[bool] = True
    recursive: ClassVar[bool] = True

    @property
    def unit_weights(self) -> bool:
        return True

    def type_of(self, *inputs: StreamType) -> StreamType:
        self._zset(inputs[0])
        return inputs[0]

    def physical(self, *args: Argument) -> Physical:
        return Positive(args[0])


@dataclass(frozen=True)
class PositivePart(GivesSets, Same):
    """Every row whose weight is positive, with its weight: x⁺ = max(x, 0)."""

    linearity: ClassVar[Linearity] = Linearity.PER_KEY
    row_at: ClassVar[tuple[str, ...]] = ()
    monotone: ClassVar[bool] = True
    keeps_rows: ClassVar[bool] = True

    def type_of(self, *inputs: StreamType) -> StreamType:
        self._zset(inputs[0])
        return inputs[0]

    def physical(self, *args: Argument) -> Physical:
        return Positive(args[0], counted=True)


@dataclass(frozen=True)
class Accumulate(Operator):
    """The sum of `pick` over the rows, by key; without a key, one sum."""

    key: Key | None
    pick: Expr

    @property
    def name(self) -> str:
        return "make_scalar" if self.key is None else "accumulate"

    def type_of(self, *inputs: StreamType) -> StreamType:
        self._zset(inputs[0])
        total = Accumulated(self.pick.type)
        total.check(f"{user_line()}: the sum of {self.pick}")
        return ScalarType(total) if self.key is None else GroupedType(self.key.type, total)

    def physical(self, *args: Argument) -> Physical:
        of = self.type_of(*(a.type for a in args))
        assert isinstance(of, GroupedType | ScalarType)
        return Contributions(args[0], self.key, self.pick, of)

    def describe(self) -> str:
        return str(self.pick) if self.key is None else f"{self.pick} by {self.key}"


@dataclass(frozen=True)
class MakeSet(Operator):
    """The Z-set of one row, the number; not linear, and not empty for zero."""

    linearity: ClassVar[Linearity] = Linearity.NONLINEAR

    def is_nothing(self, *inputs: bool) -> bool:
        return False

    def type_of(self, *inputs: StreamType) -> StreamType:
        (t,) = inputs
        if not isinstance(t, ScalarType):
            raise CompileError(f"{user_line()}: make_set takes a number, found {t}")
        return ZSetType(t.sum.value)

    def physical(self, *args: Argument) -> Physical:
        assert isinstance(args[0].type, ScalarType)
        return Totals(args[0], args[0].type)


@dataclass(frozen=True)
class Flatten(GivesSets):
    """One row for each group: its sum and its key. A group without rows has none."""

    linearity: ClassVar[Linearity] = Linearity.PER_KEY
    key_at: ClassVar[tuple[str, ...]] = ("right",)
    reduces: ClassVar[bool] = True

    def type_of(self, *inputs: StreamType) -> StreamType:
        (t,) = inputs
        if not isinstance(t, GroupedType):
            raise CompileError(f"{user_line()}: flatten takes a Grouped, found {t}")
        return ZSetType(pair_of(t.sum.value, t.key))

    def physical(self, *args: Argument) -> Physical:
        assert isinstance(args[0].type, GroupedType)
        return Totals(args[0], args[0].type)

    def keyed_by(self, t: StreamType) -> tuple[Expr, ...]:
        assert isinstance(t, GroupedType)
        return (Field(t.key, ("_key_",)),)


@dataclass(frozen=True)
class Top(GivesSets):
    """The first n rows of each key by an order, by multiplicity; ties are broken by the whole row.

    With `ties`, all rows before which there are fewer than n by the order, as SQL's RANK has it.
    A row without a positive weight is not there. The order is Spark's: NULL first and NaN last, the
    reverse where it descends. `group_size` is about how many rows the largest groups have, where
    the query says so: the result does not depend on it.
    """

    keys: tuple[Expr, ...]
    order: Order
    n: int
    ties: bool = False
    group_size: int | None = None
    linearity: ClassVar[Linearity] = Linearity.PER_KEY
    row_at: ClassVar[tuple[str, ...]] = ()
    reduces: ClassVar[bool] = True
    recursive: ClassVar[bool] = True

    @property
    def unit_weights(self) -> bool:
        return self.n == 1 and not self.ties

    def type_of(self, *inputs: StreamType) -> StreamType:
        self._zset(inputs[0])
        return inputs[0]

    def physical(self, *args: Argument) -> Physical:
        return Rank(args[0], self.keys, self.order, self.n, self.ties)

    def keyed_by(self, t: StreamType) -> tuple[Expr, ...]:
        return self.keys

    def describe(self) -> str:
        by = ", ".join(map(str, self.keys))
        ties = " with ties" if self.ties else ""
        return f"{self.n}{ties} by {_shown(self.order) or 'row'} of each ({by})"


@dataclass(frozen=True)
class Listed(GivesSets):
    """A row for each key: the list of the values of its rows, in an order, and the key.

    A row of weight 2 is there twice; ties are broken by the whole row.
    """

    key: Expr
    order: Order
    item: Expr
    linearity: ClassVar[Linearity] = Linearity.PER_KEY
    key_at: ClassVar[tuple[str, ...]] = ("right",)
    reduces: ClassVar[bool] = True

    def type_of(self, *inputs: StreamType) -> StreamType:
        self._zset(inputs[0])
        return ZSetType(pair_of(self.list_type, self.key.type))

    def physical(self, *args: Argument) -> Physical:
        return Gather(args[0], self.key, self.order, self.item)

    @property
    def list_type(self) -> ListOf:
        """The type of the lists."""
        return ListOf(self.item.type)

    def keyed_by(self, t: StreamType) -> tuple[Expr, ...]:
        return (self.key,)

    def describe(self) -> str:
        return f"{self.item} by {_shown(self.order) or 'row'} of each {self.key}"


@dataclass(frozen=True)
class Collate(GivesSets):
    """One row for each key, from rows that each bring one of its pieces.

    A row is the key and then the pieces, all but one of them NULL. What comes out is the key and
    its pieces, where all of the first `required` are there. Of several rows that bring one piece,
    which no reduction gives, the largest is taken.
    """

    required: int
    linearity: ClassVar[Linearity] = Linearity.PER_KEY
    key_at: ClassVar[tuple[str, ...]] = ("_1",)

    def type_of(self, *inputs: StreamType) -> StreamType:
        row = self._zset(inputs[0])
        assert isinstance(row, Struct)
        fields = tuple(
            (n, t.inner if 1 <= i <= self.required and isinstance(t, Optional) else t)
            for i, (n, t) in enumerate(row.fields)
        )
        return ZSetType(Struct("tuple", fields, tuple))

    def physical(self, *args: Argument) -> Physical:
        return Pieces(args[0], self.required)

    def keyed_by(self, t: StreamType) -> tuple[Expr, ...]:
        row = self._zset(t)
        assert isinstance(row, Struct)
        name, key = row.fields[0]
        return (Field(key, (name,)),)

    def describe(self) -> str:
        return f"{self.required} required"


@dataclass(frozen=True)
class Haitch(Operator):
    """H: what `of` gives for a state and a change of it, less what it gave for the state alone.

    For each input of `of` it has two: the state, and its change. Only keys of the changes matter,
    so only they are read from the states.
    """

    of: Operator  # one that works per key
    linearity: ClassVar[Linearity] = Linearity.NONLINEAR
    arity: ClassVar[int] = 2
    gives_change: ClassVar[bool] = True
    over_steps: ClassVar[bool] = True

    def is_nothing(self, *inputs: bool) -> bool:
        return all(inputs[1::2])

    def is_positive(self, inputs: bool) -> bool:
        return inputs and self.of.monotone

    def type_of(self, *inputs: StreamType) -> StreamType:
        states, changes = inputs[::2], inputs[1::2]
        for state, change in zip(states, changes, strict=True):
            if state != change:
                raise CompileError(
                    f"{user_line()}: haitch takes a state and a change of one type, found {state} "
                    f"and {change}"
                )
        return self.of.type_of(*states)

    def physical(self, *args: Argument) -> Physical:
        return self.of.change(args[::2], args[1::2])

    def describe(self) -> str:
        detail = self.of.describe()
        named = "" if isinstance(self.of, Distinct) else self.of.name
        return f"{named} {detail}" if detail else named
