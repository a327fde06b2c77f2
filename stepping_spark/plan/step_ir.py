"""The parts of a step's plan: terms over streams and registers, stages, and identities."""

from __future__ import annotations

import dataclasses
import enum
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self

from stepping_spark.base.fields import PickledByFields
from stepping_spark.base.signature import Signature
from stepping_spark.circuit.graph import AnyGraph, Fixpoint, Vertex
from stepping_spark.circuit.operators import (
    ALL,
    BucketedTop,
    Haitch,
    Operator,
    RowByRow,
    Top,
    Window,
    only_projects,
    parts_of,
    trees_of,
)
from stepping_spark.circuit.physical import (
    Argument,
    Physical,
    Project,
    Sorting,
    Unnest,
    Where,
    times_read,
    walk,
)
from stepping_spark.expressions.arrow_evaluator import Evaluator, RelationOf, evaluator, relation_of
from stepping_spark.expressions.arrow_kernels import is_known
from stepping_spark.expressions.expr import Build, Expr, Field, Literal, PythonCall
from stepping_spark.relations.store import Ordering, Register
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.schema import Schema, StreamType


@dataclass(frozen=True)
class Ref:
    """The value of a stream that is materialised in this step."""

    vertex: Vertex


@dataclass(frozen=True)
class Clock:
    """Decides which times have become due since the last step: by `now`, or by watermarks.

    A mark is the change of the greatest time of an input, and the distance from that time to its
    watermark. A time is due when it is before all watermarks.
    """

    time: RowType
    marks: tuple[tuple[Vertex, int], ...] = ()


@dataclass(frozen=True)
class Keys:
    """The keys of the rows of a stream."""

    of: Vertex
    key: tuple[Expr, ...]


class BucketedRead(NamedTuple):
    """The operator whose large groups are read by bucket, and the read of its own old rows."""

    of: BucketedTop
    firsts: Read


@dataclass(frozen=True, eq=False)
class Read:
    """The value of a register: all of it, or the rows with a key of some streams.

    It is the old value, or the `new` one, which includes all rows of this step's change.

    Interned, because each step looks up many: equal reads are one object.
    """

    _all: ClassVar[weakref.WeakValueDictionary[Any, Read]] = weakref.WeakValueDictionary()

    change: Vertex
    key: tuple[Expr, ...] = ()
    by: tuple[Keys, ...] = ()
    nulls: bool = False  # whether NULL keys match each other
    due: Clock | None = None  # reads the keys that are times due since the last step
    cut: Window | None = None  # needs only the last rows of a key, given a prefix of the others
    new: bool = False
    first: Top | None = None  # needs only the first rows of a key
    buckets: BucketedRead | None = None  # needs only some buckets of large groups

    def __new__(cls, *args: Any, **named: Any) -> Self:
        read = object.__new__(cls)
        read.__init__(*args, **named)  # type: ignore[misc]
        return cls._all.setdefault(read._parts, read)  # type: ignore[return-value]

    @property
    def _parts(self) -> tuple[Any, ...]:
        return tuple(getattr(self, f.name) for f in dataclasses.fields(self))

    def __reduce__(self) -> tuple[type[Read], tuple[Any, ...]]:
        return Read, self._parts


class Side(enum.Enum):
    """One side of a stream in a loop: its state or its change, by iteration."""

    CHANGED = "the changes in this step"
    KEPT = "the old value of a register, of the keys that were looked up"


class When(enum.Enum):
    """Iterations of a loop, relative to the present one."""

    NOW = "this one"
    BEFORE = "those before"
    SO_FAR = "this one and those before"


@dataclass(frozen=True)
class Slice:
    """Some rows of a stream in the body of a loop: of its state or its change, by iteration.

    `key` is the key of the stream's register. With `near`, only rows are needed whose key is among
    the keys of these other slices.
    """

    vertex: Vertex
    side: Side = Side.CHANGED
    when: When = When.NOW
    key: tuple[Expr, ...] = ()
    near: tuple[Slice, ...] = ()


@dataclass(frozen=True)
class Apply:
    """An operator on terms."""

    vertex: Vertex
    operator: Operator
    args: tuple[Term, ...]

    @cached_property
    def parts(self) -> tuple[Operator, ...]:
        """The operator, or the operators fused in it, in order."""
        return parts_of(self.operator)

    @cached_property
    def is_of_vertex(self) -> bool:
        """Whether this is the operator of its vertex, and not a sum or difference by the planner.

        Compared by value too: a worker may hold an equal vertex from another plan.
        """
        return self.operator is self.vertex.operator or self.operator == self.vertex.operator

    @cached_property
    def types(self) -> tuple[StreamType, ...]:
        """The types of the arguments."""
        return tuple(type_of(a) for a in self.args)

    @cached_property
    def trees(self) -> tuple[Physical, ...]:
        """The trees of its parts."""
        return tuple(trees_of(self.parts, self.types))

    @cached_property
    def spark_parts(self) -> tuple[int, int]:
        """The first and the last number of parts that need Spark; (-1, -1) unless several do."""
        asked = [i for i, tree in enumerate(self.trees) if _asks_spark(tree)]
        return (asked[0], asked[-1]) if len(asked) > 1 else (-1, -1)


Leaf = Ref | Read | Slice
Term = Leaf | Apply


@dataclass(frozen=True, eq=False)
class Materialized:
    """A stream to materialise, and its term. A plan uses the same object in all steps."""

    vertex: Vertex
    term: Term
    nothing: dict[tuple[bool, ...], bool] = field(default_factory=dict, repr=False)
    """Cache: whether the stream is certainly empty, by which leaves are empty."""
    without: dict[frozenset[Leaf], Materialized | None] = field(default_factory=dict, repr=False)
    """Cache: the stream without these empty leaves."""

    @cached_property
    def leaves(self) -> tuple[Leaf, ...]:
        """The leaves that the term reads, each once."""
        return tuple(dict.fromkeys(_leaves(self.term)))

    @staticmethod
    def leaves_of(t: Term) -> tuple[Leaf, ...]:
        """The leaves that a term reads, each once."""
        return tuple(dict.fromkeys(_leaves(t)))

    @cached_property
    def times_read(self) -> Counter[Leaf]:
        """The number of reads of each leaf by the term's query."""
        counts: Counter[Leaf] = Counter()
        for leaf, times in _times_read(self.term):
            counts[leaf] += times
        return counts

    @cached_property
    def inner(self) -> tuple[Vertex, ...]:
        """The vertices within the term, except the stream's own."""
        vertices = dict.fromkeys(n.vertex for n in nodes(self.term))
        return tuple(v for v in vertices if v is not self.vertex)

    @cached_property
    def python(self) -> PythonCall | None:
        """The Python function, if the stream is the result of one."""
        return python_of(self.vertex)

    @cached_property
    def may_make_null(self) -> bool:
        """Whether some function in it may return NULL against its type; copied fields cannot."""
        if isinstance(self.vertex.operator, Fixpoint):
            return True  # the streams in the body of a recursion are checked one by one
        trees = (tree for n in nodes(self.term) for tree in n.trees)
        return not all(_is_copied(e) for n in walk(*trees) for e in n.exprs)

    @cached_property
    def only_projects(self) -> bool:
        """Whether the term only picks and renames fields of another stream."""
        t = self.term
        return isinstance(t, Apply) and only_projects(t.operator) and isinstance(t.args[0], Ref)


@dataclass(frozen=True)
class Stage:
    """Streams that can be materialised together, after the previous stages.

    `projections` come first, in their order: some members wait for them. Small ones need no query.
    """

    members: tuple[Materialized, ...]
    projections: tuple[Materialized, ...] = ()

    @property
    def streams(self) -> tuple[Materialized, ...]:
        """The streams that the stage materialises."""
        return (*self.projections, *self.members)

    @cached_property
    def reads(self) -> tuple[Read, ...]:
        """The reads of registers, each once."""
        return tuple(
            dict.fromkeys(x for m in self.members for x in m.leaves if isinstance(x, Read))
        )


@dataclass(frozen=True, eq=False)
class Selection(PickledByFields):
    """Expressions over the rows of a relation, as columns, prepared for all steps.

    They come `beside` the relation's own columns and diffs, or alone.
    """

    of: Schema
    exprs: tuple[tuple[str, Expr], ...]
    beside: bool = True

    @cached_property
    def schema(self) -> Schema:
        """The columns of the result."""
        added = tuple((n, e.type) for n, e in self.exprs)
        return Schema(self.of.columns + added, self.of.diffs) if self.beside else Schema(added, ())

    @cached_property
    def evaluators(self) -> tuple[Evaluator | None, ...]:
        """The function that computes each expression in Arrow; None if only Spark can."""
        return tuple(evaluator(e) for _, e in self.exprs)

    @cached_property
    def relation(self) -> RelationOf:
        """The function that makes a relation of these columns and diffs."""
        return relation_of(self.schema)

    @classmethod
    def of_key(cls, of: Schema, names: Sequence[str], key: tuple[Expr, ...]) -> Selection:
        """The columns of a key alone, under their names in a register."""
        if key == (ALL,):
            key = tuple(Field(t, (n,)) for n, t in of.columns)
        return cls(of, tuple(zip(names, key, strict=True)), beside=False)


@dataclass(frozen=True)
class RegisterPlan:
    """A register, its stream, and the additional columns that it stores."""

    register: Register
    change: Vertex
    key: tuple[Expr, ...]
    stored: tuple[tuple[str, Expr], ...]  # key columns that are not columns of the stream
    order: Sorting | None = None  # the order of the rows of a key

    @cached_property
    def selection(self) -> Selection:
        """The selection that adds stored columns to the rows of the stream."""
        return Selection(self.change.type.schema, self.stored)


def key_columns(
    schema: Schema, key: tuple[Expr, ...]
) -> tuple[tuple[str, ...], tuple[tuple[str, Expr], ...]]:
    """The columns of a key, and the ones that must be stored in addition to the row."""
    if key == (ALL,):
        return tuple(n for n, _ in schema.columns), ()
    own = {n for n, _ in schema.columns}
    columns, stored = [], []
    for i, part in enumerate(key, 1):
        if isinstance(part, Field) and len(part.path) == 1 and part.path[0] in own:
            columns.append(part.path[0])
            own.remove(
                part.path[0]
            )  # a key may have the same part twice, a relation may not have the same column twice
        else:
            columns.append(f"_key_{i}_")
            stored.append((f"_key_{i}_", part))
    return tuple(columns), tuple(stored)


def other_columns(schema: Schema, key: tuple[Expr, ...]) -> tuple[str, ...]:
    """The columns of rows that are not columns of a key: they decide on the bucket of a row."""
    names, _ = key_columns(schema, key)
    return tuple(n for n, _ in schema.columns if n not in names)


def ordering_of(schema: Schema, by: Sorting) -> tuple[Ordering, tuple[tuple[str, Expr], ...]]:
    """The order of a register, and its column if that must be stored in addition to the row."""
    e = by.expr
    is_own = isinstance(e, Field) and len(e.path) == 1 and e.path[0] in dict(schema.columns)
    column = e.path[0] if isinstance(e, Field) and is_own else "_order_"
    order = Ordering(column, by.ascending, by.nulls_first)
    return order, () if is_own else (("_order_", e),)


def shown_key(key: tuple[Expr, ...]) -> str:
    """A key, for the name of a register."""
    return ", ".join(map(str, key))


def python_of(v: Vertex) -> PythonCall | None:
    """The Python function of a vertex, if it has one."""
    op = v.operator
    return op.f if isinstance(op, RowByRow) and isinstance(op.f, PythonCall) else None


def _is_copied(e: Expr) -> bool:
    """Whether a value is a constant, a field, or made of these."""
    if isinstance(e, Build):
        return all(map(_is_copied, e.fields))
    return isinstance(e, Field | Literal)


def _leaves(t: Term) -> Iterator[Leaf]:
    if isinstance(t, Apply):
        for a in t.args:
            yield from _leaves(a)
    else:
        yield t


def _times_read(t: Term, times: int = 1) -> Iterator[tuple[Leaf, int]]:
    if not isinstance(t, Apply):
        yield t, times
        return
    for i, a in enumerate(t.args):
        yield from _times_read(a, times * times_read(t.trees[0], i))


def refs(t: Term) -> Iterator[Vertex]:
    """The streams that a term reads, with repetitions."""
    return (leaf.vertex for leaf in _leaves(t) if isinstance(leaf, Ref))


def is_nothing(t: Term, empty: Callable[[Leaf], bool]) -> bool:
    """Whether a term is certainly empty if all leaves with a true `empty` are."""
    if not isinstance(t, Apply):
        return empty(t)
    return t.operator.is_nothing(*(is_nothing(a, empty) for a in t.args))


def nodes(t: Term) -> Iterator[Apply]:
    """The operators of a term, inputs first."""
    if isinstance(t, Apply):
        for a in t.args:
            yield from nodes(a)
        yield t


def reads_of(members: Iterable[Materialized], of: Callable[[Operator], bool]) -> set[Read]:
    """The reads of registers whose readers are all operators for which `of` is true."""
    reads: dict[Read, bool] = {}
    for m in members:
        for n in nodes(m.term):
            for a in n.args:
                if isinstance(a, Read):
                    reads[a] = reads.get(a, True) and of(n.operator)
    return {read for read, is_so in reads.items() if is_so}


def is_of_window(op: Operator) -> bool:
    """Whether an operator is the change of a window, which needs few of the rows."""
    return isinstance(op, Haitch) and isinstance(op.of, Window)


def is_of_fold(op: Operator) -> bool:
    """Whether an operator is the change of a fold: in Spark, it groups the rows anyway."""
    return op.change_by_key


def _asks_spark(tree: Physical) -> bool:
    """Whether a linear tree has a function that Arrow cannot evaluate."""
    nodes = list(walk(tree))
    if not all(isinstance(n, Project | Where | Unnest | Argument) for n in nodes):
        return False
    return not all(is_known(e) for n in nodes for e in n.exprs)


def type_of(t: Term) -> StreamType:
    """The type of a term's value."""
    if isinstance(t, Read):
        return t.change.type
    if isinstance(t, Apply) and not t.is_of_vertex:
        return type_of(t.args[0])
    return t.vertex.type


@dataclass(frozen=True)
class Identities:
    """The identities of streams, from their computation before vertices are fused.

    Which vertices are fused depends on their other readers. So a query with one more output keeps
    these identities, and with them its state.
    """

    graph: AnyGraph  # before vertices were fused
    stands_for: Mapping[Vertex, Vertex]  # from vertices of the plan to vertices of that graph

    def unfused(self, v: Vertex) -> Vertex:
        """The vertex that a vertex of the plan stands for."""
        vertex = self.stands_for.get(v)
        if vertex is not None or not v.inputs:
            return v if vertex is None else vertex
        return Vertex(v.operator, *map(self.unfused, v.inputs))  # one that the planner made

    def of(self, v: Vertex) -> str:
        """The digest of a stream's whole computation."""
        return self.graph.signature(self.unfused(v)).digest

    def sums(self, change: Vertex, key: tuple[Expr, ...]) -> Signature:
        """The signature of the register of a stream with a key: see `Register.sums`."""
        return replace(self.graph.signature(self.unfused(change)), key=", ".join(map(str, key)))

    def sums_in_loop(
        self, operator: Fixpoint, inputs: Sequence[Vertex], v: Vertex, key: tuple[Expr, ...]
    ) -> Signature:
        """The signature of the register of a stream in a recursion's body, with these inputs."""
        within = (operator.digest, *map(self.of, inputs))
        return replace(v.signature, key=", ".join(map(str, key)), within=within)

    def moved(self, graph: AnyGraph, to: Callable[[Vertex], Vertex]) -> Identities:
        """The identities of the same streams in a circuit with other vertices."""
        return Identities(graph, {v: to(unfused) for v, unfused in self.stands_for.items()})
