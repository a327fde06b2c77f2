"""The class of all operators, and the leaves of a circuit: inputs and feedbacks."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import CompileError
from stepping_spark.circuit.physical import Argument, Physical, change_of
from stepping_spark.expressions.expr import Expr, Field
from stepping_spark.expressions.fingerprint import identity_of, read_unseen
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.schema import StreamType, ZSetType
from stepping_spark.rows.types import Struct


class Linearity(enum.Enum):
    """The algebraic law of an operator, which decides how it is made incremental."""

    LINEAR = "linear"  # Q(a + b) = Q(a) + Q(b)
    BILINEAR = "bilinear"  # linear in each of its two inputs
    TEMPORAL = "linear, with the time of the step"  # Q_t(a + b) = Q_t(a) + Q_t(b)
    LOOK_UP = "linear in its first input"  # and in the second's rows of each key
    PER_KEY = "per key"  # a key's result depends only on its rows; empty without rows
    NONLINEAR = "not linear"


@dataclass(frozen=True)
class AllColumns(Expr):
    """All columns of the row, as the only part of a key."""

    def __str__(self) -> str:
        return "row"


ALL = AllColumns(Struct("row", (), tuple))


@dataclass(frozen=True)
class KeyedRead:
    """A read of an operator's input at the keys of rows of other inputs.

    `key` is over rows of this input. `at` has the other inputs' numbers, and keys over their rows.
    """

    key: tuple[Expr, ...]
    at: tuple[tuple[int, tuple[Expr, ...]], ...]
    of_changes: bool = True  # whether it pays only if the other inputs are no states
    nulls: bool = False  # whether NULL keys match each other
    fold: Operator | None = None  # the operator that folds the rows of each key

    def pays(self, is_state: Callable[[int], bool]) -> bool:
        """Whether to read by key; `is_state` tests whether the input with a number is a state."""
        return not (self.of_changes and any(is_state(n) for n, _ in self.at))


@dataclass(frozen=True)
class Operator:
    """A primitive, with its arguments as fields."""

    linearity: ClassVar[Linearity] = Linearity.LINEAR
    arity: ClassVar[int] = 1
    gives_change: ClassVar[bool] = False  # its output is never a state, even if an input is
    gives_state: ClassVar[bool] = False  # its output is a sum over the steps
    monotone: ClassVar[bool] = False  # more input rows never remove an output row
    over_steps: ClassVar[bool] = False  # its output depends on previous steps
    change_by_key: ClassVar[bool] = False  # it is the change of an operator per key
    recursive: ClassVar[bool] = False  # it is allowed over a recursive stream
    keeps_rows: ClassVar[bool] = False  # its output rows are input rows
    same_stream: ClassVar[bool] = False  # its output is its input, arranged or a step later
    same_at_first: ClassVar[bool] = False  # its output at the first step is its input
    row_at: ClassVar[tuple[str, ...] | None] = None  # the path of an input row in its output row
    key_at: ClassVar[tuple[str, ...] | None] = None  # the path of the key in its output row
    reduces: ClassVar[bool] = False  # its rows by key are parts of an aggregation
    how: ClassVar[str] = ""  # how it takes a step, unless its linearity says so

    def is_positive(self, *inputs: bool) -> bool:
        """Whether the result has no negative weights; `inputs` is true for inputs without any."""
        return False

    @property
    def due(self) -> tuple[Expr, tuple[int, ...]] | None:
        """For an operator that holds rows back until they are due; None for other operators.

        The time of a row, and its least distance from the greatest time of each further input.
        """
        return None

    @property
    def by_row(self) -> bool:
        """Whether it processes the rows of its inputs one by one."""
        return self.linearity in (Linearity.LINEAR, Linearity.TEMPORAL)

    @property
    def unit_weights(self) -> bool:
        """Whether each row of the result has the weight 1."""
        return False

    def named_after(self, *inputs: str) -> str:
        """A name for the result, from the names of the inputs; "" for the operator's own name."""
        return ""

    def is_nothing(self, *inputs: bool) -> bool:
        """Whether the result is certainly empty; `inputs` is true for empty inputs."""
        return all(inputs)

    def physical(self, *args: Argument) -> Physical:
        """The physical tree of the result over the arguments. The planner handles D, I and z⁻¹."""
        raise NotImplementedError(f"{self.name} is computed by the plan")

    def change(self, states: Sequence[Argument], changes: Sequence[Argument]) -> Physical:
        """For an operator per key: the tree of the change of its result."""
        (state,), (change,) = states, changes
        return change_of(self.tree((change.type,)), state, change)

    def tree(self, types: tuple[StreamType, ...]) -> Physical:
        """The physical tree for inputs of these types; the same object each time."""
        pair: tuple[tuple[StreamType, ...], Physical] | None = self.__dict__.get("_tree")
        if pair is None or pair[0] != types:
            pair = types, self.physical(*(Argument(i, t) for i, t in enumerate(types)))
            self.__dict__["_tree"] = pair
        return pair[1]

    @property
    def name(self) -> str:
        """The name of the function that makes the operator."""
        snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in type(self).__name__)
        return snake.strip("_")

    @property
    def user_name(self) -> str:
        """The name that a user knows: that of the operator whose change it computes, if any."""
        return self.name

    def type_of(self, *inputs: StreamType) -> StreamType:
        """The type of the output. Raises `CompileError` if the inputs do not fit."""
        raise NotImplementedError

    def describe(self) -> str:
        """The arguments, for a graph's text and pictures."""
        return ""

    def identity(self) -> str:
        """Text that identifies the operator in every process, independent of names."""
        return identity_of(tuple(getattr(self, f.name) for f in fields(self)))

    def reads_unseen(self, *inputs: StreamType) -> str:
        """The columns that opaque functions of rows read."""
        return read_unseen(tuple(getattr(self, f.name) for f in fields(self)), inputs)

    def lifted(
        self, group: Field, inputs: Sequence[StreamType], grouped: Sequence[bool]
    ) -> tuple[Operator, ...]:
        """The chain of operators that does the same for each group; () if there is none.

        Their rows carry the key of their `group`. `inputs` are the types without it; only `grouped`
        inputs carry it.
        """
        return ()

    def keyed_by(self, t: StreamType) -> tuple[Expr, ...]:
        """For an operator per key: the key, over rows of its input."""
        return (ALL,)

    @property
    def folds(self) -> tuple[Operator, ...]:
        """For an operator per key: the operators that it applies to each of its inputs."""
        return (self,)

    def lookups(self, *inputs: StreamType) -> Mapping[int, KeyedRead]:
        """The reads by key, by the numbers of the inputs of which it needs only some keys."""
        return {}

    def _zset(self, t: StreamType) -> RowType:
        if not isinstance(t, ZSetType):
            raise CompileError(f"{user_line()}: {self.name} takes a ZSet, found {t}")
        return t.row


class Same(Operator):
    """An operator whose result has the type of its input, also if its rows carry a group."""

    def type_of(self, *inputs: StreamType) -> StreamType:
        return inputs[0]

    def lifted(
        self, group: Field, inputs: Sequence[StreamType], grouped: Sequence[bool]
    ) -> tuple[Operator, ...]:
        return (self,)


class KeepsSigns(Operator):
    """An operator whose result has no negative weights if its inputs have none."""

    def is_positive(self, *inputs: bool) -> bool:
        return all(inputs)


class GivesSets(Operator):
    """An operator whose result never has negative weights."""

    def is_positive(self, *inputs: bool) -> bool:
        return True


@dataclass(frozen=True)
class Input(Operator):
    """An input of the circuit."""

    number: int
    label: str
    type: StreamType
    append_only: bool = False
    arity: ClassVar[int] = 0

    def describe(self) -> str:
        return "append only" if self.append_only else ""

    def identity(self) -> str:
        return f"{self.number}{' append only' if self.append_only else ''}"

    def is_positive(self, *inputs: bool) -> bool:
        return self.append_only

    def type_of(self, *inputs: StreamType) -> StreamType:
        return self.type


@dataclass(frozen=True)
class Feedback(Operator):
    """The value that a loop feeds back; `Graph.loops` has its source."""

    number: int
    type: StreamType
    arity: ClassVar[int] = 0
    over_steps: ClassVar[bool] = True

    def identity(self) -> str:
        return str(self.number)

    def type_of(self, *inputs: StreamType) -> StreamType:
        return self.type


@dataclass(frozen=True)
class Placeholder(Operator):
    """The rows of one group, while a circuit per group is traced; never a part of a graph."""

    number: int
    type: StreamType
    arity: ClassVar[int] = 0

    def type_of(self, *inputs: StreamType) -> StreamType:
        return self.type

    def identity(self) -> str:
        return str(self.number)
