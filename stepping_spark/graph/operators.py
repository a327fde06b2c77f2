"""The primitive operators: their fields, the type of what they give, and whether they are linear.

What an operator means is said elsewhere, once per interpretation: in `reference` in plain Python,
in `lower` as Spark SQL.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import ClassVar

from stepping_spark.callsite import user_line
from stepping_spark.errors import CompileError
from stepping_spark.expressions.digest import digest_of
from stepping_spark.expressions.expr import Expr, Field, PythonCall, is_plain
from stepping_spark.expressions.index import Key
from stepping_spark.rows.atoms import BOOL, INT, RowType
from stepping_spark.rows.data import Timed, pair_of, timed
from stepping_spark.rows.grouped import Carrying, carrying
from stepping_spark.rows.schema import (
    Accumulated,
    Columns,
    GroupedType,
    ScalarType,
    StreamType,
    ZSetType,
)
from stepping_spark.rows.types import ListOf, Optional, Struct, ZSetOf, tuple_of, unwrap


class Linearity(enum.Enum):
    """How an operator treats sums, which decides how it is made incremental."""

    LINEAR = "linear"  # Q(a + b) = Q(a) + Q(b)
    BILINEAR = "bilinear"  # linear in each of its two inputs
    TEMPORAL = "linear, with the time of the step"  # Q_t(a + b) = Q_t(a) + Q_t(b)
    LOOK_UP = "linear in its first input"  # and in what the second has for each key
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
        f = getattr(self, "f", None)
        computed = f" {digest_of(f.function)}" if isinstance(f, PythonCall) else ""
        return self.describe() + computed

    def keyed_by(self, t: StreamType) -> tuple[Expr, ...]:
        """Of an operator that works per key: the key, over rows of its input; none: the row."""
        return ()

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
    append_only: bool = False
    arity: ClassVar[int] = 0

    def describe(self) -> str:
        return "append only" if self.append_only else ""

    def told_by(self) -> str:
        return f"{self.number}{' append only' if self.append_only else ''}"

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
class Placeholder(Operator):
    """The rows of one group, while a circuit per group is traced; never a part of a graph."""

    number: int
    type: StreamType
    arity: ClassVar[int] = 0

    def type_of(self, *inputs: StreamType) -> StreamType:
        return self.type

    def told_by(self) -> str:
        return str(self.number)


@dataclass(frozen=True)
class Map(Operator):
    """Each row becomes another; the carried columns go along.

    `note` is what a picture says of it, a line each, in the place of the function.
    """

    f: Expr
    carried: Columns = ()
    note: tuple[str, ...] = field(default=(), compare=False)

    def type_of(self, *inputs: StreamType) -> StreamType:
        self._zset(inputs[0])
        return ZSetType(carrying(self.f.type, self.carried))

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
    """Each row becomes the items of a list, repeats counted; the carried columns go along."""

    f: Expr
    carried: Columns = ()

    def type_of(self, *inputs: StreamType) -> StreamType:
        self._zset(inputs[0])
        t = self.f.type.inner if isinstance(self.f.type, Optional) else self.f.type
        if not isinstance(t, ListOf):
            remedy = "use F.array(…), or map for a single row"
            if isinstance(t, ZSetOf):
                remedy = (
                    f"make a list of it in f=st.python(f, to=list[{t.inner}]): [row for row, n in "
                    "z.iter() for _ in range(n)] of a Z-set z"
                )
            raise CompileError(
                f"{user_line()}: map_many takes a function that gives an array, found "
                f"{self.f.type}, from {self.f}; {remedy}"
            )
        return ZSetType(carrying(t.inner, self.carried))

    def describe(self) -> str:
        return str(self.f)


@dataclass(frozen=True)
class Explode(Operator):
    """Each row becomes the values of a list of (value, weight); weights multiply.

    A list of (value, time, weight) gives timed rows. The carried columns go along.
    """

    f: Expr
    carried: Columns = ()

    def type_of(self, *inputs: StreamType) -> StreamType:
        self._zset(inputs[0])
        fields = [t for _, t in self.item.fields]
        if len(fields) not in (2, 3) or fields[-1] != INT:
            raise CompileError(
                f"{user_line()}: explode takes a function that gives (value, weight)s, found "
                f"{self.f.type}, from {self.f}; give a list of tuples, with ints as weights"
            )
        value, *time, _ = fields
        return ZSetType(carrying(timed(value, time[0]) if time else value, self.carried))

    @property
    def item(self) -> Struct:
        """The type of what the list holds."""
        lists = unwrap(self.f.type)
        item = lists.inner if isinstance(lists, ListOf) else lists
        return item if isinstance(item, Struct) else Struct("", (), tuple)

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
        left, right = ([unwrap(p.type) for p in k.parts] for k in (self.left, self.right))
        if left != right:
            raise CompileError(
                f"{user_line()}: join takes keys of one type, found {self.left} of type "
                f"{self.left.type} on the left and {self.right} of type {self.right.type} on the "
                "right; convert one (.cast)"
            )
        return ZSetType(pair_of(a, b))

    def describe(self) -> str:
        return f"{self.left} = {self.right}"


@dataclass(frozen=True)
class LookUp(Operator):
    """Tuples, each with a row of the table that has its key put in at `place`; weights multiply.

    With `left`, a tuple whose key no row has, or is NULL, gets None instead; `optional` says that
    the type has room for None, whether one is put in here or elsewhere. `bare`: what is given is
    the tuple's only member, not a tuple. The table's weights may have any sign: a key is there
    if those of its rows add up to more than zero.
    """

    on: tuple[Expr, ...]
    key: tuple[Expr, ...]
    place: int
    left: bool = False
    optional: bool = False
    bare: bool = False
    linearity: ClassVar[Linearity] = Linearity.LOOK_UP
    arity: ClassVar[int] = 2

    def type_of(self, *inputs: StreamType) -> StreamType:
        known, table = (self._zset(t) for t in inputs)
        on, key = ([unwrap(e.type) for e in side] for side in (self.on, self.key))
        if on != key:
            shown = [", ".join(f"{e} of type {e.type}" for e in s) for s in (self.on, self.key)]
            raise CompileError(
                f"{user_line()}: a lookup takes keys of one type, found on={shown[0]}, and "
                f"key={shown[1]}; convert one with st.map before"
            )
        found = Optional(unwrap(table)) if self.optional else table
        members = self.members(known)
        return ZSetType(tuple_of((*members[: self.place], found, *members[self.place :])))

    def members(self, known: RowType) -> tuple[RowType, ...]:
        """The types of what is in the tuples that are given."""
        if self.bare:
            return (known,)
        assert isinstance(known, Struct)
        return tuple(t for _, t in known.fields)

    def describe(self) -> str:
        on, key = (", ".join(map(str, side)) for side in (self.on, self.key))
        return f"{on} = {key} at {self.place}{', or None' if self.left else ''}"

    def told_by(self) -> str:
        return f"{self.describe()} {self.optional} {self.bare}"


@dataclass(frozen=True)
class Present(Operator):
    """The keys that rows have whose weights add up to more than zero, each once; none is NULL."""

    key: tuple[Expr, ...]
    linearity: ClassVar[Linearity] = Linearity.PER_KEY

    def type_of(self, *inputs: StreamType) -> StreamType:
        self._zset(inputs[0])
        return ZSetType(tuple_of(e.type for e in self.key))

    def keyed_by(self, t: StreamType) -> tuple[Expr, ...]:
        return self.key

    def describe(self) -> str:
        return ", ".join(map(str, self.key))


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
        total.check(f"{user_line()}: the sum of {self.pick}")
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

    def keyed_by(self, t: StreamType) -> tuple[Expr, ...]:
        assert isinstance(t, GroupedType)
        return (Field(t.key, ("_key_",)),)


@dataclass(frozen=True)
class Temporal(_Same):
    """What compares the times of rows with that of the step."""

    time: RowType

    def type_of(self, *inputs: StreamType) -> StreamType:
        row = self._zset(inputs[0])
        inner = row.inner if isinstance(row, Carrying) else row
        if not (isinstance(inner, Struct) and inner.python is Timed):
            raise CompileError(f"{user_line()}: {self.name} takes timed rows, found {row}")
        return inputs[0]


@dataclass(frozen=True)
class AsOf(Temporal):
    """The timed rows whose time has come, of a whole value."""

    linearity: ClassVar[Linearity] = Linearity.TEMPORAL


@dataclass(frozen=True)
class Hold(Temporal):
    """The timed rows whose time comes at this step: of the change, and of what was held back.

    The same as `AsOf`, from changes to changes. What is still to come is its state.
    """

    linearity: ClassVar[Linearity] = Linearity.NONLINEAR  # what it gives depends on when
    gives_change: ClassVar[bool] = True


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
        detail = self.of.describe()
        named = "" if isinstance(self.of, Distinct) else self.of.name
        return f"{named} {detail}" if detail else named


@dataclass(frozen=True)
class Fused(Operator):
    """Operators one after the other, as one: what the first gives goes through the rest."""

    parts: tuple[Operator, ...]

    @property
    def name(self) -> str:
        return "·".join(p.name for p in self.parts)

    def type_of(self, *inputs: StreamType) -> StreamType:
        return self.types(*inputs)[-1]

    def types(self, *inputs: StreamType) -> tuple[StreamType, ...]:
        """What each part gives."""
        found = [self.parts[0].type_of(*inputs)]
        for p in self.parts[1:]:
            found.append(p.type_of(found[-1]))
        return tuple(found)

    def describe(self) -> str:
        return " · ".join(filter(None, (p.describe() for p in self.parts)))

    def told_by(self) -> str:
        return " · ".join(p.told_by() for p in self.parts)


def parts_of(op: Operator) -> tuple[Operator, ...]:
    """The operators that one is made of: itself, if it is not fused."""
    return op.parts if isinstance(op, Fused) else (op,)


def join_of(op: Operator) -> Join | None:
    """The join that an operator begins with, if it does."""
    first = parts_of(op)[0]
    return first if isinstance(first, Join) else None


def only_picks(op: Operator) -> bool:
    """Whether an operator only picks fields, so that it costs nothing to have it twice."""
    return isinstance(op, Map) and is_plain(op.f)
