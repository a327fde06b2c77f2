"""Operators per key: distinct, sums, first rows, lists, windows; and their change, H."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar

from stepping_spark.base.callsite import Line, user_line
from stepping_spark.base.errors import CompileError
from stepping_spark.circuit.operators.base import GivesSets, KeyedRead, Linearity, Operator, Same
from stepping_spark.circuit.operators.linear import Map, in_group, trees_of, without_group
from stepping_spark.circuit.physical import (
    Argument,
    BucketedRank,
    ChangeOf,
    CollatedChange,
    Contributions,
    Gather,
    Hole,
    LargestByKey,
    Physical,
    Positive,
    Rank,
    Sorting,
    Totals,
    Union,
    WindowCall,
    Windowed,
    change_of,
    over,
)
from stepping_spark.circuit.physical.windows import windowed
from stepping_spark.expressions.expr import Expr, Field, tupled
from stepping_spark.expressions.index import Key, Order
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.data import pair_of
from stepping_spark.rows.schema import (
    Accumulated,
    GroupedType,
    ScalarType,
    StreamType,
    ZSetType,
    columns_of,
)
from stepping_spark.rows.types import ListOf, Optional, Struct

READ_WHOLE = 1_024
"""Rows of a group that a step reads whole in any case. Beyond: the group may be in buckets."""

ROWS_PER_FIRST = 4
"""Rows of a group for each row that its buckets would store, up to which it is read whole."""

LARGE_GROUP = 1 << 16
"""The rows of a large group, if `group_size` does not say."""

LEAST_BUCKETS, MOST_BUCKETS = 16, 4_096


def buckets_of(group_size: int | None, n: int) -> int | None:
    """The number of buckets of a large group, of which n rows each are kept; None for no buckets.

    A step reads a bucket, and the first rows of all: N / b + n · b rows. So b is about √(N / n).
    """
    if group_size is not None and group_size <= READ_WHOLE:
        return None
    root = math.sqrt((group_size or LARGE_GROUP) / n)
    return min(max(1 << round(math.log2(max(root, 1))), LEAST_BUCKETS), MOST_BUCKETS)


def _order_text(order: Order) -> str:
    return ", ".join(f"{e}{'' if up else ' desc'}" for e, up in order)


@dataclass(frozen=True)
class Distinct(GivesSets, Same):
    """Every row with a positive weight, once."""

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
    """Every row with a positive weight, with its weight: x⁺ = max(x, 0)."""

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

    def lifted(
        self, group: Field, inputs: Sequence[StreamType], grouped: Sequence[bool]
    ) -> tuple[Operator, ...]:
        key = Key(group)
        if self.key is not None:
            key = Key(tupled(self.key.expr, group), (True, True))
        return (replace(self, key=key),)

    def describe(self) -> str:
        return str(self.pick) if self.key is None else f"{self.pick} by {self.key}"


@dataclass(frozen=True)
class MakeSet(Operator):
    """The Z-set of a single row, the number; not linear, and not empty for zero."""

    linearity: ClassVar[Linearity] = Linearity.NONLINEAR

    def is_nothing(self, *inputs: bool) -> bool:
        return False

    def type_of(self, *inputs: StreamType) -> StreamType:
        (t,) = inputs
        if not isinstance(t, ScalarType):
            raise CompileError(f"{user_line()}: make_set takes a number, found {t}")
        return ZSetType(t.sum.value)

    def lifted(
        self, group: Field, inputs: Sequence[StreamType], grouped: Sequence[bool]
    ) -> tuple[Operator, ...]:
        """One row per group, with its number; a group without rows has none."""
        number = self._zset(self.type_of(*inputs))
        of_struct = isinstance(number, Struct)
        parts = (Field(t, ("left", n) if of_struct else ("left",)) for n, t in columns_of(number))
        return Flatten(), in_group(number, parts, group, "right")

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

    def lifted(
        self, group: Field, inputs: Sequence[StreamType], grouped: Sequence[bool]
    ) -> tuple[Operator, ...]:
        return self, _key_apart(self._zset(self.type_of(*inputs)), group)

    def keyed_by(self, t: StreamType) -> tuple[Expr, ...]:
        assert isinstance(t, GroupedType)
        return (Field(t.key, ("_key_",)),)


@dataclass(frozen=True)
class Top(GivesSets):
    """The first n rows of each key by an order, by multiplicity; ties are broken by the whole row.

    With `ties`, all rows that fewer than n rows precede in the order, like SQL's RANK. Rows without
    a positive weight do not count. The order is Spark's: NULL first and NaN last, the reverse if it
    descends. `group_size` is the approximate number of rows of the largest groups, if the query has
    one: the result does not depend on it.
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

    def lifted(
        self, group: Field, inputs: Sequence[StreamType], grouped: Sequence[bool]
    ) -> tuple[Operator, ...]:
        return (replace(self, keys=(*self.keys, group)),)

    def keyed_by(self, t: StreamType) -> tuple[Expr, ...]:
        return self.keys

    def describe(self) -> str:
        by = ", ".join(map(str, self.keys))
        ties = " with ties" if self.ties else ""
        return f"{self.n}{ties} by {_order_text(self.order) or 'row'} of each ({by})"


@dataclass(frozen=True)
class Listed(GivesSets):
    """A row for each key: the list of the values of its rows, in an order, and the key.

    A row of weight 2 occurs twice; ties are broken by the whole row.
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

    def lifted(
        self, group: Field, inputs: Sequence[StreamType], grouped: Sequence[bool]
    ) -> tuple[Operator, ...]:
        operator = replace(self, key=tupled(self.key, group))
        return operator, _key_apart(self._zset(self.type_of(*inputs)), group)

    @property
    def list_type(self) -> ListOf:
        """The type of the lists."""
        return ListOf(self.item.type)

    def keyed_by(self, t: StreamType) -> tuple[Expr, ...]:
        return (self.key,)

    def describe(self) -> str:
        return f"{self.item} by {_order_text(self.order) or 'row'} of each {self.key}"


@dataclass(frozen=True)
class Collate(GivesSets):
    """One row for each key, from rows with one of its pieces each.

    An input row is the key and then the pieces, all but one of them NULL. An output row is a key
    with its pieces, if none of the first `required` is missing. If several rows have the same
    piece, which no reduction produces, the largest value counts.
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
        return LargestByKey(args[0], self.required)

    def lifted(
        self, group: Field, inputs: Sequence[StreamType], grouped: Sequence[bool]
    ) -> tuple[Operator, ...]:
        """Combine the pieces by key and group."""
        key, *pieces = (Field(t, (n,)) for n, t in columns_of(self._zset(inputs[0])))
        row = self._zset(self.type_of(*inputs))
        (_, own), *columns = columns_of(row)
        parts = (Field(own, ("_1", "_1")), *(Field(t, (n,)) for n, t in columns))
        both = Map(tupled(tupled(key, group), *pieces))
        return both, self, in_group(row, parts, group, "_1", "_2")

    def keyed_by(self, t: StreamType) -> tuple[Expr, ...]:
        row = self._zset(t)
        assert isinstance(row, Struct)
        name, key = row.fields[0]
        return (Field(key, (name,)),)

    def describe(self) -> str:
        return f"{self.required} required"


@dataclass(frozen=True)
class Haitch(Operator):
    """H: the result of `of` for a state plus its change, minus the result for the state alone.

    For each input of `of` it has two: the state, and its change. Only the keys of the changes
    matter, so only these are read from the states.
    """

    of: Operator  # an operator per key
    linearity: ClassVar[Linearity] = Linearity.NONLINEAR
    arity: ClassVar[int] = 2
    gives_change: ClassVar[bool] = True
    change_by_key: ClassVar[bool] = True
    over_steps: ClassVar[bool] = True

    @property
    def user_name(self) -> str:
        return self.of.name

    def is_nothing(self, *inputs: bool) -> bool:
        return all(inputs[1::2])

    def is_positive(self, *inputs: bool) -> bool:
        return self.of.monotone and all(inputs)

    def lookups(self, *inputs: StreamType) -> Mapping[int, KeyedRead]:
        keys = [of.keyed_by(t) for of, t in zip(self.of.folds, inputs[1::2], strict=True)]
        at = tuple((2 * n + 1, key) for n, key in enumerate(keys))
        return {
            2 * n: KeyedRead(key, at, of_changes=False, nulls=True, fold=fold)
            for n, (key, fold) in enumerate(zip(keys, self.of.folds, strict=True))
        }

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

    def lifted(
        self, group: Field, inputs: Sequence[StreamType], grouped: Sequence[bool]
    ) -> tuple[Operator, ...]:
        of, *rest = self.of.lifted(group, inputs[1::2], grouped[1::2]) or (self,)
        return (Haitch(of), *rest) if of.linearity is Linearity.PER_KEY else ()

    def describe(self) -> str:
        detail = self.of.describe()
        named = "" if isinstance(self.of, Distinct) else self.of.name
        return f"{named} {detail}" if detail else named


@dataclass(frozen=True)
class BucketedTop(Operator):
    """The change of some rows of each group, among which are its first rows.

    These are the first rows of a group, if it has at most `read_whole` rows. Beyond, they are the
    first rows of each of its buckets, by a hash of the row. So a step reads a small group, or the
    buckets of the changed rows of a large one.

    The inputs are the state and the change of all rows. The plan adds a third input, the state of
    the result, which tells which groups are in buckets. As this depends on the order of the steps,
    the sum y of the result is unique only in its first rows: Top(y) = Top(I(a)).
    """

    top: Top
    buckets: int
    linearity: ClassVar[Linearity] = Linearity.NONLINEAR
    arity: ClassVar[int] = 2
    gives_change: ClassVar[bool] = True
    change_by_key: ClassVar[bool] = True
    over_steps: ClassVar[bool] = True
    how: ClassVar[str] = (
        "not linear: recomputed for the keys of the change; of a large group, for the buckets of "
        "the change"
    )

    @property
    def read_whole(self) -> int:
        """The most rows of a group that a step reads whole."""
        return max(READ_WHOLE, ROWS_PER_FIRST * self.top.n * self.buckets)

    @property
    def user_name(self) -> str:
        return self.top.name

    def is_nothing(self, *inputs: bool) -> bool:
        return inputs[1]

    def lookups(self, *inputs: StreamType) -> Mapping[int, KeyedRead]:
        key = self.top.keys
        read = KeyedRead(key, ((1, key),), of_changes=False, nulls=True)
        return {n: read for n in range(len(inputs)) if n != 1}

    def type_of(self, *inputs: StreamType) -> StreamType:
        return self.top.type_of(inputs[1])

    def physical(self, *args: Argument) -> Physical:
        top, (state, change, firsts) = self.top, args
        rank = Rank(Hole(change.schema), top.keys, top.order, top.n, top.ties)
        return BucketedRank(rank, self.buckets, self.read_whole, state, change, firsts)

    def describe(self) -> str:
        return f"{self.buckets:,} buckets of large groups: {self.top.name} {self.top.describe()}"


@dataclass(frozen=True)
class Collated(GivesSets):
    """One row for each key, from the results of several operators, each with an input of its own.

    The result is `Collate` of the sum of their results, which is not stored. A part is an operator
    per key, followed by maps that turn each of its rows into a piece. All parts have keys of one
    type.
    """

    parts: tuple[tuple[Operator, ...], ...]
    required: int
    linearity: ClassVar[Linearity] = Linearity.PER_KEY

    @cached_property
    def collate(self) -> Collate:
        """The operator that makes one row of the pieces of a key."""
        return Collate(self.required)

    def type_of(self, *inputs: StreamType) -> StreamType:
        t = inputs[0]
        for operator in self.parts[0]:
            t = operator.type_of(t)
        return self.collate.type_of(t)

    def physical(self, *args: Argument) -> Physical:
        pieces = []
        for part, arg in zip(self.parts, args, strict=True):
            first, *maps = trees_of(part, (arg.type,))
            pieces.append(_after(over(first, arg), maps))
        return LargestByKey(Union(tuple(pieces)), self.required)

    def change(self, states: Sequence[Argument], changes: Sequence[Argument]) -> Physical:
        folds: list[ChangeOf] = []
        pieces: list[Physical] = []
        for part, state, change in zip(self.parts, states, changes, strict=True):
            first, *maps = trees_of(part, (change.type,))
            fold = change_of(first, state, change)
            pieces.append(_after(Hole(fold.schema, len(folds)), maps))
            folds.append(fold)
        return CollatedChange(
            LargestByKey(Union(tuple(pieces)), self.required, once=True), tuple(folds)
        )

    @property
    def folds(self) -> tuple[Operator, ...]:
        return tuple(part[0] for part in self.parts)

    def identity(self) -> str:
        parts = (" · ".join(f"{p.name} {p.identity()}" for p in part) for part in self.parts)
        return f"{' + '.join(parts)} · {self.collate.identity()}"

    def describe(self) -> str:
        of = " + ".join(f"{p[0].name} {p[0].describe()}".strip() for p in self.parts)
        return f"of {of}, {self.collate.describe()}"


def _key_apart(pair: RowType, group: Field) -> Map:
    """The map of pairs of a value and (its key, its group) to pairs of the value and the key."""
    (_, left), (_, right) = columns_of(pair)
    parts = (Field(left, ("left",)), Field(right, ("right", "_1")))
    return in_group(pair, parts, group, "right", "_2")


def _after(tree: Physical, maps: Sequence[Physical]) -> Physical:
    """The tree with maps applied to it, one after the other."""
    for f in maps:
        tree = over(f, tree)
    return tree


@dataclass(frozen=True)
class Window(GivesSets):
    """Each row, repeated by its weight, with the results of functions over its partition.

    Ties are broken by the whole row; rows without a positive weight do not count.
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

    def lifted(
        self, group: Field, inputs: Sequence[StreamType], grouped: Sequence[bool]
    ) -> tuple[Operator, ...]:
        pair = self._zset(self.type_of(*inputs))
        (_, row), (_, results) = columns_of(pair)
        parts = (without_group(row, "left"), Field(results, ("right",)))
        operator = replace(self, keys=(*self.keys, group))
        return operator, in_group(pair, parts, group, "left", *group.path)

    def keyed_by(self, t: StreamType) -> tuple[Expr, ...]:
        return self.keys

    def describe(self) -> str:
        by, order = (", ".join(map(str, parts)) for parts in (self.keys, self.sorting))
        return f"{', '.join(map(str, self.calls))} by {order or 'row'} of each ({by})"


@dataclass(frozen=True)
class ReducePart:
    """The aggregates of one reduction, and the state that it keeps."""

    kind: str
    aggregates: tuple[str, ...]
    keeps: str

    def __str__(self) -> str:
        return f"{self.kind}: {', '.join(self.aggregates)}\n  keeps {self.keeps}"


@dataclass(frozen=True)
class ReducePlan:
    """The plan of the aggregates of one `st.aggregate`; printed, a few lines of text.

    `parts` are the reductions, each with its kind, its aggregates and its state. If there are
    several, `collated` is true: their results are joined by key.

    >>> class Summary(st.Data):
    ...     user: str
    ...     orders: int
    ...     least: float
    >>> def query(orders: st.ZSet[tuple[str, float]]) -> st.ZSet[Summary]:
    ...     return st.aggregate(orders, by=lambda o: o[0], into=Summary,
    ...                         orders=st.agg.count(), least=st.agg.min(lambda o: o[1]))
    >>> (plan,) = st.explain(st.compile(query, append_only=("orders",))).reductions
    >>> isinstance(plan, st.ReducePlan) and plan.collated
    True
    >>> print(plan)
    aggregate by _1 into Summary
      accumulable: orders = count()
        keeps the number of rows and 1 sum, by key
      hierarchical, monotonic: least = min(_2)
        keeps the first row, by key
      collation: one row of the parts of each key
    """

    by: str
    into: str
    parts: tuple[ReducePart, ...]
    line: Line | None = field(default=None, compare=False, repr=False)  # of the user
    scope: tuple[str, ...] = field(default=(), compare=False, repr=False)  # of its vertices

    @property
    def collated(self) -> bool:
        """Whether the results of several reductions are joined."""
        return len(self.parts) > 1

    def __str__(self) -> str:
        lines = [f"aggregate {f'by {self.by} ' if self.by else ''}into {self.into}"]
        lines += [f"  {line}" for part in self.parts for line in str(part).splitlines()]
        if self.collated:
            lines.append("  collation: one row of the parts of each key")
        return "\n".join(lines)
