"""Window functions: values of a row that depend on the rows around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stepping_spark.expressions.expr import Expr
from stepping_spark.graph.operators.base import GivesSets, Linearity
from stepping_spark.physical import Argument, Physical, Sorting, WindowCall, Windowed
from stepping_spark.physical.windows import windowed
from stepping_spark.rows.schema import StreamType, ZSetType


@dataclass(frozen=True)
class Window(GivesSets):
    """Each row, as often as it counts, and what functions over its partition give for it.

    Ties are broken by the whole row; a row without a positive weight is not there.
    """

    keys: tuple[Expr, ...]
    sorting: tuple[Sorting, ...]
    calls: tuple[WindowCall, ...]
    linearity: ClassVar[Linearity] = Linearity.PER_KEY
    row_at: ClassVar[tuple[str, ...]] = ("left",)

    def type_of(self, *inputs: StreamType) -> StreamType:
        return ZSetType(windowed(self._zset(inputs[0]), self.calls))

    def physical(self, *args: Argument) -> Physical:
        row = self._zset(args[0].type)
        return Windowed(args[0], row, self.keys, self.sorting, self.calls)

    def keyed_by(self, t: StreamType) -> tuple[Expr, ...]:
        return self.keys

    def describe(self) -> str:
        by, order = (", ".join(map(str, parts)) for parts in (self.keys, self.sorting))
        return f"{', '.join(map(str, self.calls))} by {order or 'row'} of each ({by})"
