"""The first row of each group: the operator of minima and maxima that keep their row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from stepping_spark.index import Key
from stepping_spark.operators import Linearity, Operator
from stepping_spark.schema import StreamType
from stepping_spark.types import sort_key

Values = Sequence[Sequence[Any]]  # columns, of encoded values


@dataclass(frozen=True)
class Least(Operator):
    """Of each group the row that comes first in an order, once; the whole row breaks ties.

    Rows without a positive weight are not there. NULL comes before all, NaN after all; where the
    order descends it is the other way round.
    """

    by: Key
    order: Key
    linearity: ClassVar[Linearity] = Linearity.PER_KEY

    def type_of(self, *inputs: StreamType) -> StreamType:
        self._zset(inputs[0])
        return inputs[0]

    def describe(self) -> str:
        return f"{self.order} of each {self.by}"

    def firsts(self, by: Values, order: Values, rows: Values) -> list[int]:
        """The positions of the first row of each group, given the columns of all rows."""
        found = list(range(len(rows[0])))
        # Sorts are stable: what decides last is sorted by first.
        ways = [*zip(order, self.order.ascending, strict=True), *((k, True) for k in rows)]
        for values, up in reversed(ways):
            keys = [sort_key(v) for v in values]
            found.sort(key=keys.__getitem__, reverse=not up)
        groups = list(zip(*([sort_key(v) for v in values] for values in by), strict=True))
        first: dict[Any, int] = {}
        for i in found:
            first.setdefault(groups[i], i)
        return sorted(first.values())
