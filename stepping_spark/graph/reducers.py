"""Operators that reduce groups otherwise than by adding: to first rows, to lists, to one row.

Like those of `operators`, of which they are more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stepping_spark.expressions.expr import Expr, Field
from stepping_spark.graph.operators import Linearity, Operator
from stepping_spark.rows.data import pair_of
from stepping_spark.rows.schema import StreamType, ZSetType
from stepping_spark.rows.types import ListOf, Optional, Struct

Order = tuple[tuple[Expr, bool], ...]  # what to order by, and whether ascending


def _shown(order: Order) -> str:
    return ", ".join(f"{e}{'' if up else ' desc'}" for e, up in order)


@dataclass(frozen=True)
class Top(Operator):
    """The first n rows of each key by an order, multiplicities counted; ties go by the whole row.

    A row without a positive weight is not there. The order is Spark's: NULL first and NaN last,
    the reverse where it descends.
    """

    keys: tuple[Expr, ...]
    order: Order
    n: int
    linearity: ClassVar[Linearity] = Linearity.PER_KEY

    def type_of(self, *inputs: StreamType) -> StreamType:
        self._zset(inputs[0])
        return inputs[0]

    def keyed_by(self, t: StreamType) -> tuple[Expr, ...]:
        return self.keys

    def describe(self) -> str:
        by = ", ".join(map(str, self.keys))
        return f"{self.n} by {_shown(self.order) or 'row'} of each ({by})"


@dataclass(frozen=True)
class Listed(Operator):
    """A row for each key: the list of the values of its rows, in an order, and the key.

    A row of weight 2 is there twice; ties go by the whole row.
    """

    key: Expr
    order: Order
    item: Expr
    linearity: ClassVar[Linearity] = Linearity.PER_KEY

    def type_of(self, *inputs: StreamType) -> StreamType:
        self._zset(inputs[0])
        return ZSetType(pair_of(self.list_type, self.key.type))

    @property
    def list_type(self) -> ListOf:
        """The type of the lists."""
        return ListOf(self.item.type)

    def keyed_by(self, t: StreamType) -> tuple[Expr, ...]:
        return (self.key,)

    def describe(self) -> str:
        return f"{self.item} by {_shown(self.order) or 'row'} of each {self.key}"


@dataclass(frozen=True)
class Collate(Operator):
    """One row for each key, from rows that each bring one of its pieces.

    A row is the key and then the pieces, all but one of them NULL. What comes out is the key and
    its pieces, where all of the first `required` are there. Of several rows that bring one piece,
    which no reduction gives, the largest is taken.
    """

    required: int
    linearity: ClassVar[Linearity] = Linearity.PER_KEY

    def type_of(self, *inputs: StreamType) -> StreamType:
        row = self._zset(inputs[0])
        assert isinstance(row, Struct)
        fields = tuple(
            (n, t.inner if 1 <= i <= self.required and isinstance(t, Optional) else t)
            for i, (n, t) in enumerate(row.fields)
        )
        return ZSetType(Struct("tuple", fields, tuple))

    def keyed_by(self, t: StreamType) -> tuple[Expr, ...]:
        row = self._zset(t)
        assert isinstance(row, Struct)
        name, key = row.fields[0]
        return (Field(key, (name,)),)

    def describe(self) -> str:
        return f"{self.required} required"
