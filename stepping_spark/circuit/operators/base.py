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
    """How an operator treats sums, which decides how it is made incremental."""

    LINEAR = "linear"  # Q(a + b) = Q(a) + Q(b)
    BILINEAR = "bilinear"  # linear in each of its two inputs
    TEMPORAL = "linear, with the time of the step"  # Q_t(a + b) = Q_t(a) + Q_t(b)
    LOOK_UP = "linear in its first input"  # and in what the second has for each key
    PER_KEY = "per key"  # a key's result depends on the rows of that key; none for no rows
    NONLINEAR = "not linear"


@dataclass(frozen=True)
class AllColumns(Expr):
    """As the only part of a key: all columns of the row."""

    def __str__(self) -> str:
        return "row"


ALL = AllColumns(Struct("row", (), tuple))


@dataclass(frozen=True)
class KeyedRead:
    """How an operator reads an input: at the keys of the rows of other inputs.

    `key` is over rows of this input. `at` has the others by number, with the key over their rows.
    """

    key: tuple[Expr, ...]
    at: tuple[tuple[int, tuple[Expr, ...]], ...]
    of_changes: bool = True  # whether it pays only where the others are no states
    nulls: bool = False  # whether NULL keys match each other
    fold: Operator | None = None  # what takes the rows of each key

    def pays(self, is_state: Callable[[int], bool]) -> bool:
        """Whether to read by key, where `is_state` says which inputs are states."""
        return not (self.of_changes and any(is_state(n) for n, _ in self.at))


@dataclass(frozen=True)
class Operator:
    """A primitive, with its arguments as fields."""

    linearity: ClassVar[Linearity] = Linearity.LINEAR
    arity: ClassVar[int] = 1
    gives_change: ClassVar[bool] = False  # its output is never a state, even if an input is
    gives_state: ClassVar[bool] = False  # its output is a sum over the steps
    monotone: ClassVar[bool] = False  # more rows in never take away a row that came out
    over_steps: ClassVar[bool] = False  # its output depends on the steps before
    recursive: ClassVar[bool] = False  # it may stand over a recursive stream
    keeps_rows: ClassVar[bool] = False  # its output rows are input rows
    same_stream: ClassVar[bool] = False  # its input, kept by a key or a step later
    same_at_first: ClassVar[bool] = False  # its output at the first step is its input
    row_at: ClassVar[tuple[str, ...] | None] = None  # the path of an input row in its output row
    key_at: ClassVar[tuple[str, ...] | None] = None  # the path of the key in its output row
    reduces: ClassVar[bool] = False  # its rows by key are parts of an aggregation
    how: ClassVar[str] = ""  # how it takes a step, where its linearity does not say that

    def is_positive(self, *inputs: bool) -> bool:
        """Whether the result has no negative weights; `inputs` says which inputs have none."""
        return False

    @property
    def due(self) -> tuple[Expr, tuple[int, ...]] | None:
        """Of an operator whose state is the rows that it has not emitted yet: when they are due.

        The time of a row, and how far it must be before the greatest time of each further input.
        """
        return None

    @property
    def by_row(self) -> bool:
        """Whether it takes the rows of its inputs one by one."""
        return self.linearity in (Linearity.LINEAR, Linearity.TEMPORAL)

    @property
    def unit_weights(self) -> bool:
        """Whether each row of the result has the weight 1."""
        return False

    def named_after(self, *inputs: str) -> str:
        """A name for the result, made of those of the inputs; "" for the operator's own name."""
        return ""

    def is_nothing(self, *inputs: bool) -> bool:
        """Whether the result is certainly empty; `inputs` says which inputs are."""
        return all(inputs)

    def physical(self, *args: Argument) -> Physical:
        """The physical tree of the result over the arguments. The planner handles D, I and z⁻¹."""
        raise NotImplementedError(f"{self.name} is computed by the plan")

    def change(self, states: Sequence[Argument], changes: Sequence[Argument]) -> Physical:
        """Of an operator that works per key: the change of its result, by those of its inputs."""
        (state,), (change,) = states, changes
        return change_of(self.tree((change.type,)), state, change)

    def tree(self, types: tuple[StreamType, ...]) -> Physical:
        """The same, for inputs of these types; the same object each time."""
        pair: tuple[tuple[StreamType, ...], Physical] | None = self.__dict__.get("_tree")
        if pair is None or pair[0] != types:
            pair = types, self.physical(*(Argument(i, t) for i, t in enumerate(types)))
            self.__dict__["_tree"] = pair
        return pair[1]

    @property
    def name(self) -> str:
        """The name of the function that makes one."""
        snake = "".join(f"_{c.lower()}" if c.isupper() else c for c in type(self).__name__)
        return snake.strip("_")

    def type_of(self, *inputs: StreamType) -> StreamType:
        """The type of the output; a CompileError where the inputs do not fit."""
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
        """What does the same for each group: operators, one after the other; () if nothing does.

        The rows then carry the key of their `group`. `inputs` are the types without it; only those
        that are `grouped` get it.
        """
        return ()

    def keyed_by(self, t: StreamType) -> tuple[Expr, ...]:
        """Of an operator that works per key: the key, over rows of its input."""
        return (ALL,)

    @property
    def folds(self) -> tuple[Operator, ...]:
        """Of an operator that works per key: what it does per key with each of its inputs."""
        return (self,)

    def lookups(self, *inputs: StreamType) -> Mapping[int, KeyedRead]:
        """The inputs, by number, of which it needs only the rows with some keys."""
        return {}

    def _zset(self, t: StreamType) -> RowType:
        if not isinstance(t, ZSetType):
            raise CompileError(f"{user_line()}: {self.name} takes a ZSet, found {t}")
        return t.row


class Same(Operator):
    """An operator whose result has the type of its input, also of rows that carry a group."""

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
    """The value that a loop feeds back; the graph knows the vertex it is connected to."""

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
