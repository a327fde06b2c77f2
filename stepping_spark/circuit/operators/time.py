"""Operators over the steps and over watermarks: delay, integrate, differentiate, late rows.

The watermark of an input is its greatest time so far, minus its lateness. The greatest time is a
stream of its own, and an input of these operators: a Z-set of at most one row.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import CompileError
from stepping_spark.circuit.operators.base import KeepsSigns, KeyedRead, Linearity, Operator, Same
from stepping_spark.circuit.operators.groups import Window
from stepping_spark.circuit.physical import (
    Argument,
    BelowGreatest,
    Due,
    Physical,
    Project,
    Union,
    Where,
    cells_of,
)
from stepping_spark.expressions.expr import Call, Expr, Field, Literal, tupled, whole
from stepping_spark.rows.atoms import BOOL, INT, RowType
from stepping_spark.rows.data import Timed
from stepping_spark.rows.schema import Carrying, StreamType, ZSetType
from stepping_spark.rows.types import Optional, Struct, tuple_of


@dataclass(frozen=True)
class Delay(KeepsSigns, Same):
    """z⁻¹: the value of the previous step; empty at the first."""

    gives_state: ClassVar[bool] = True
    over_steps: ClassVar[bool] = True
    same_stream: ClassVar[bool] = True

    def named_after(self, *inputs: str) -> str:
        return " ".join(("old", *inputs))


@dataclass(frozen=True)
class Integrate(KeepsSigns, Same):
    """I: the sum of all values so far."""

    gives_state: ClassVar[bool] = True
    over_steps: ClassVar[bool] = True
    same_at_first: ClassVar[bool] = True

    def named_after(self, *inputs: str) -> str:
        return " ".join(("state of", *inputs))


@dataclass(frozen=True)
class Differentiate(Same):
    """D: the value minus the value of the previous step."""

    gives_change: ClassVar[bool] = True
    over_steps: ClassVar[bool] = True
    same_at_first: ClassVar[bool] = True


@dataclass(frozen=True)
class Temporal(Operator):
    """An operator that compares the times of rows with the time of the step."""

    time: RowType

    def type_of(self, *inputs: StreamType) -> StreamType:
        row = self._zset(inputs[0])
        inner = row.inner if isinstance(row, Carrying) else row
        if not (isinstance(inner, Struct) and inner.python is Timed):
            raise CompileError(f"{user_line()}: {self.name} takes timed rows, found {row}")
        return inputs[0]

    def physical(self, *args: Argument) -> Physical:
        return Due(args[0], self.time)


@dataclass(frozen=True)
class AsOf(Temporal):
    """The rows of a timed value whose time has come."""

    linearity: ClassVar[Linearity] = Linearity.TEMPORAL


@dataclass(frozen=True)
class Hold(Temporal):
    """The timed rows whose time comes at this step: of the change, and of rows held back before.

    It is `AsOf` from changes to changes. Its state is the rows whose time is still to come.
    """

    linearity: ClassVar[Linearity] = Linearity.NONLINEAR  # its output depends on the time
    gives_change: ClassVar[bool] = True
    by_row: ClassVar[bool] = True
    how: ClassVar[str] = "linear, and keeps what is still to come"

    @property
    def due(self) -> tuple[Expr, tuple[int, ...]]:
        return Field(self.time, ("time",)), ()


class ByWatermark(Operator):
    """An operator that selects rows of its first input by watermarks."""

    gives_change: ClassVar[bool] = True
    row_inputs: ClassVar[int] = 1  # the number of inputs of rows; further inputs are greatest times
    by_row: ClassVar[bool] = True

    def type_of(self, *inputs: StreamType) -> StreamType:
        return inputs[0]

    def is_nothing(self, *inputs: bool) -> bool:
        return inputs[0]


@dataclass(frozen=True)
class InTime(ByWatermark):
    """The rows of a change at or after the watermark; with `late`, the other rows.

    Its inputs are the change, and the greatest time of previous steps. A NULL time is late.
    """

    at: Expr
    lateness: int  # in the unit of the times, see `expressions.expr`
    late: bool = False
    linearity: ClassVar[Linearity] = Linearity.LOOK_UP
    arity: ClassVar[int] = 2
    how: ClassVar[str] = (
        "linear in its first input; a row is late if its time is before the watermark"
    )

    @property
    def name(self) -> str:
        return "late" if self.late else "in_time"

    def is_positive(self, *inputs: bool) -> bool:
        return inputs[0]

    def physical(self, *args: Argument) -> Physical:
        rows, greatest = args
        tree: Physical = BelowGreatest(rows, greatest, self.at, self.lateness, others=not self.late)
        if not isinstance(self.at.type, Optional):
            return tree
        has = Call(BOOL, "isNull" if self.late else "isNotNull", (self.at,))
        return Union((tree, Where(rows, has))) if self.late else Where(tree, has)

    def describe(self) -> str:
        side = "before the watermark" if self.late else "from the watermark on"
        return f"{self.at} {side}"


@dataclass(frozen=True)
class Expire(ByWatermark):
    """The rows whose value the watermarks pass at this step: of the change, and of earlier rows.

    Its inputs are the change, and the greatest time of each input whose watermark counts, up to
    this step. A value is passed when it is before all watermarks, each minus a further distance.
    Its state is the rows whose value is not passed yet.
    """

    value: Expr
    distances: tuple[int, ...]  # from the greatest time of each input
    linearity: ClassVar[Linearity] = Linearity.NONLINEAR  # its output depends on the time
    how: ClassVar[str] = "linear, and keeps what the watermark has not passed yet"

    @property
    def due(self) -> tuple[Expr, tuple[int, ...]]:
        return self.value, self.distances

    def physical(self, *args: Argument) -> Physical:
        rows, *greatest = args
        return _before_all(rows, self.value, self.distances, greatest)

    def describe(self) -> str:
        return f"{self.value} before the watermark"


@dataclass(frozen=True)
class Touched(Operator):
    """The changed rows and the newly expired rows; empty if no row expired.

    Each row comes with the number of its stream, so that rows of the two never cancel out.
    """

    linearity: ClassVar[Linearity] = Linearity.NONLINEAR
    arity: ClassVar[int] = 2
    gives_change: ClassVar[bool] = True
    by_row: ClassVar[bool] = True

    def is_nothing(self, *inputs: bool) -> bool:
        return inputs[1]

    def type_of(self, *inputs: StreamType) -> StreamType:
        return ZSetType(tuple_of((self._zset(inputs[0]), INT)))

    def physical(self, *args: Argument) -> Physical:
        row = self._zset(args[0].type)
        numbered = (tupled(whole(row), Literal(INT, i)) for i in (0, 1))
        return Union(tuple(Project(a, cells_of(e)) for a, e in zip(args, numbered, strict=True)))


@dataclass(frozen=True)
class Settled(ByWatermark):
    """The rows of a window's partitions that no later change can affect or need.

    Its inputs are the old state of the window, the change, rows of the partitions to check, and the
    greatest time of each input whose watermark counts, up to this step. `window` computes the
    values that decide for a row. `free` has pairs of such a value and a distance: a row is settled
    if each value is before all watermarks, minus its distance and that of the input.
    """

    window: Window
    free: tuple[tuple[Expr, int], ...]
    distances: tuple[int, ...]  # from the greatest time of each input
    row_inputs: ClassVar[int] = 3
    by_row: ClassVar[bool] = False
    linearity: ClassVar[Linearity] = Linearity.NONLINEAR
    how: ClassVar[str] = "not linear: looks at partitions of which the watermark passes a row"

    def is_nothing(self, *inputs: bool) -> bool:
        return inputs[2]

    def lookups(self, *inputs: StreamType) -> Mapping[int, KeyedRead]:
        key = self.window.keys
        return {0: KeyedRead(key, ((2, tuple(e.under("_1") for e in key)),), nulls=True)}

    def physical(self, *args: Argument) -> Physical:
        state, change, _, *greatest = args
        row = self._zset(state.type)
        tree = _over(self.window.tree((state.type,)), Union((state, change)))
        for value, further in self.free:
            tree = _before_all(tree, value, [d + further for d in self.distances], greatest)
        return Project(tree, cells_of(Field(row, ("left",))))

    def describe(self) -> str:
        return f"{', '.join(str(e) for e, _ in self.free)} before the watermark"


def _over(windowed: Physical, rows: Physical) -> Physical:
    return dataclasses.replace(windowed, of=rows)  # type: ignore[call-arg]


def _before_all(
    rows: Physical, value: Expr, distances: Sequence[int], greatest: Sequence[Physical]
) -> Physical:
    """The rows whose value is before each greatest time minus its distance."""
    for latest, distance in zip(greatest, distances, strict=True):
        rows = BelowGreatest(rows, latest, value, distance)
    return rows
