"""Operators over the steps: delay, integrate, differentiate, and rows that come with time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from stepping_spark.callsite import user_line
from stepping_spark.errors import CompileError
from stepping_spark.graph.operators.base import KeepsSigns, Linearity, Same
from stepping_spark.physical import Argument, Due, Physical
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.data import Timed
from stepping_spark.rows.grouped import Carrying
from stepping_spark.rows.schema import (
    StreamType,
)
from stepping_spark.rows.types import Struct


@dataclass(frozen=True)
class Delay(KeepsSigns, Same):
    """z⁻¹: the value of the step before; at first nothing."""

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
    """D: the value less the one of the step before."""

    gives_change: ClassVar[bool] = True
    over_steps: ClassVar[bool] = True
    written: ClassVar[bool] = True
    same_at_first: ClassVar[bool] = True


@dataclass(frozen=True)
class Temporal(Same):
    """What compares the times of rows with that of the step."""

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
    """The timed rows whose time has come, of a whole value."""

    linearity: ClassVar[Linearity] = Linearity.TEMPORAL


@dataclass(frozen=True)
class Hold(Temporal):
    """The timed rows whose time comes at this step: of the change, and of what was held back.

    The same as `AsOf`, from changes to changes. What is still to come is its state.
    """

    linearity: ClassVar[Linearity] = Linearity.NONLINEAR  # its output depends on the time
    gives_change: ClassVar[bool] = True
    holds_back: ClassVar[bool] = True
    how: ClassVar[str] = "linear, and keeps what is still to come"
