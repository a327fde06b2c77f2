"""The primitive operators: their fields, the type of what they give, and whether they are linear.

What an operator means is said elsewhere, once per interpretation: in `reference` in plain Python,
in `lower` as Spark SQL.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import ClassVar

from stepping_spark.atoms import BOOL, RowType
from stepping_spark.errors import CompileError
from stepping_spark.expr import Expr
from stepping_spark.index import Key
from stepping_spark.origin import user_line
from stepping_spark.rows import Pair
from stepping_spark.schema import Accumulated, GroupedType, ScalarType, StreamType, ZSetType
from stepping_spark.types import ListOf, Optional, Struct


class Linearity(enum.Enum):
    """How an operator treats sums, which decides how it is made incremental."""

    LINEAR = "linear"  # Q(a + b) = Q(a) + Q(b)
    BILINEAR = "bilinear"  # linear in each of its two inputs
    PER_KEY = "per key"  # what it gives for a key depends on that key's rows; nothing for nothing
    NONLINEAR = "not linear"


@dataclass(frozen=True)
class Operator:
    """A primitive, with its arguments as fields."""

    linearity: ClassVar[Linearity] = Linearity.LINEAR
    arity: ClassVar[int] = 1
    gives_change: ClassVar[bool] = False  # whatever it takes, what it gives is no state

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

    def told_by(self) -> str:
        """What tells it from others of its kind, in every process and whatever names it has."""
        return self.describe()

    def _zset(self, t: StreamType) -> RowType:
        if not isinstance(t, ZSetType):
            raise CompileError(f"{user_line()}: {self.name} takes a ZSet, found {t}")
        return t.row


@dataclass(frozen=True)
class Input(Operator):
    """An input of the circuit."""

    number: int
    label: str
    type: StreamType
    arity: ClassVar[int] = 0

    def told_by(self) -> str:
        return str(self.number)

    def type_of(self, *inputs: StreamType) -> StreamType:
        return self.type


@dataclass(frozen=True)
class Feedback(Operator):
    """The value that a loop feeds back; the graph knows the vertex it is connected to."""

    number: int
    type: StreamType
    arity: ClassVar[int] = 0

    def told_by(self) -> str:
        return str(self.number)

    def type_of(self, *inputs: StreamType) -> StreamType:
        return self.type


@dataclass(frozen=True)
class Map(Operator):
    """Each row becomes another."""

    f: Expr

    def type_of(self, *inputs: StreamType) -> StreamType:
        self._zset(inputs[0])
        return ZSetType(self.f.type)

    def describe(self) -> str:
        return str(self.f)


@dataclass(frozen=True)
class Filter(Operator):
    """The rows for which the function is true; NULL is not true."""

    f: Expr

    def type_of(self, *inputs: StreamType) -> StreamType:
        self._zset(inputs[0])
        if self.f.type not in (BOOL, Optional(BOOL)):
            raise CompileError(
                f"{user_line()}: filter takes a function that gives a bool, found {self.f.type}, "
                f"from {self.f}; compare it with something"
            )
        return inputs[0]

    def describe(self) -> str:
        return str(self.f)


@dataclass(frozen=True)
class MapMany(Operator):
    """Each row becomes the items of a list, repeats counted."""

    f: Expr

    def type_of(self, *inputs: StreamType) -> StreamType:
        self._zset(inputs[0])
        t = self.f.type.inner if isinstance(self.f.type, Optional) else self.f.type
        if not isinstance(t, ListOf):
            raise CompileError(
                f"{user_line()}: map_many takes a function that gives an array, found "
                f"{self.f.type}, from {self.f}; use F.array(…), or map for a single row"
            )
        return ZSetType(t.inner)

    def describe(self) -> str:
        return str(self.f)


@dataclass(frozen=True)
class Add(Operator):
    """The sum of two streams."""

    arity: ClassVar[int] = 2

    def type_of(self, *inputs: StreamType) -> StreamType:
        a, b = inputs
        if a != b:
            raise CompileError(
                f"{user_line()}: add takes two streams of one type, found {a} and {b}; map one "
                "to the type of the other"
            )
        return a


class _Same(Operator):
    def type_of(self, *inputs: StreamType) -> StreamType:
        return inputs[0]


@dataclass(frozen=True)
class Neg(_Same):
    """The stream with every weight, or number, negated."""


@dataclass(frozen=True)
class Delay(_Same):
    """z⁻¹: the value of the step before; at first nothing."""


@dataclass(frozen=True)
class Integrate(_Same):
    """I: the sum of all values so far."""


@dataclass(frozen=True)
class Differentiate(_Same):
    """D: the value less the one of the step before."""


@dataclass(frozen=True)
class Arrange(_Same):
    """The same value; asks that the state it comes from is kept by this key."""

    key: Key

    def type_of(self, *inputs: StreamType) -> StreamType:
        self._zset(inputs[0])
        return inputs[0]

    def describe(self) -> str:
        return f"by {self.key}"


@dataclass(frozen=True)
class IdentityPrint(_Same):
    """The same value, printed at each step."""

    label: str

    def describe(self) -> str:
        return self.label

    def told_by(self) -> str:
        return ""


@dataclass(frozen=True)
class Join(Operator):
    """Pairs of rows whose keys are equal; weights multiply. NULL keys match nothing."""

    left: Key
    right: Key
    linearity: ClassVar[Linearity] = Linearity.BILINEAR
    arity: ClassVar[int] = 2

    def type_of(self, *inputs: StreamType) -> StreamType:
        a, b = (self._zset(t) for t in inputs)
        left, right = ([_plain(p.type) for p in k.parts] for k in (self.left, self.right))
        if left != right:
            raise CompileError(
                f"{user_line()}: join takes keys of one type, found {self.left} of type "
                f"{self.left.type} on the left and {self.right} of type {self.right.type} on the "
                "right; convert one (.cast)"
            )
        return ZSetType(pair_of(a, b))

    def describe(self) -> str:
        return f"{self.left} = {self.right}"


def _plain(t: RowType) -> RowType:
    return t.inner if isinstance(t, Optional) else t


def pair_of(left: RowType, right: RowType) -> Struct:
    """The type of a Pair."""
    return Struct("Pair", (("left", left), ("right", right)), Pair)


@dataclass(frozen=True)
class Distinct(_Same):
    """Every row whose weight is positive, once."""

    linearity: ClassVar[Linearity] = Linearity.PER_KEY

    def type_of(self, *inputs: StreamType) -> StreamType:
        self._zset(inputs[0])
        return inputs[0]


@dataclass(frozen=True)
class Accumulate(Operator):
    """The sum of what `pick` gives for the rows, by key; without a key, one sum."""

    key: Key | None
    pick: Expr

    @property
    def name(self) -> str:
        return "make_scalar" if self.key is None else "accumulate"

    def type_of(self, *inputs: StreamType) -> StreamType:
        self._zset(inputs[0])
        total = Accumulated(self.pick.type)
        total.check(f"{user_line()}: {self.name} of {self.pick}")
        return ScalarType(total) if self.key is None else GroupedType(self.key.type, total)

    def describe(self) -> str:
        return str(self.pick) if self.key is None else f"{self.pick} by {self.key}"


@dataclass(frozen=True)
class MakeSet(Operator):
    """The Z-set of one row, the number; not linear, and not empty for zero."""

    linearity: ClassVar[Linearity] = Linearity.NONLINEAR

    def type_of(self, *inputs: StreamType) -> StreamType:
        (t,) = inputs
        if not isinstance(t, ScalarType):
            raise CompileError(f"{user_line()}: make_set takes a number, found {t}")
        return ZSetType(t.sum.value)


@dataclass(frozen=True)
class Flatten(Operator):
    """One row for each group: its sum and its key. A group without rows has none."""

    linearity: ClassVar[Linearity] = Linearity.PER_KEY

    def type_of(self, *inputs: StreamType) -> StreamType:
        (t,) = inputs
        if not isinstance(t, GroupedType):
            raise CompileError(f"{user_line()}: flatten takes a Grouped, found {t}")
        return ZSetType(pair_of(t.sum.value, t.key))


@dataclass(frozen=True)
class Haitch(Operator):
    """H: what `of` gives for a state and a change of it, less what it gave for the state alone.

    Only keys of the change matter, so only they are read from the state.
    """

    of: Operator  # one that works per key
    linearity: ClassVar[Linearity] = Linearity.NONLINEAR
    arity: ClassVar[int] = 2

    def type_of(self, *inputs: StreamType) -> StreamType:
        state, change = inputs
        if state != change:
            raise CompileError(
                f"{user_line()}: haitch takes a state and a change of one type, found {state} "
                f"and {change}"
            )
        return self.of.type_of(state)

    def describe(self) -> str:
        return (
            "" if isinstance(self.of, Distinct) else f"{self.of.name} {self.of.describe()}".strip()
        )
