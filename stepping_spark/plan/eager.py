"""Terms whose rows can be summed before a join, and joins that their readers can compute."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stepping_spark.circuit.graph import Fixpoint, Vertex
from stepping_spark.circuit.physical import (
    Argument,
    Contributions,
    EquiJoin,
    Negate,
    Physical,
    Project,
    Union,
    Where,
)
from stepping_spark.circuit.physical.eager import eager_join
from stepping_spark.plan.step_ir import Apply, Leaf, Materialized, Ref, Term, refs


@dataclass(frozen=True)
class Branch:
    """A join of a term, and the trees above it."""

    args: tuple[Leaf, Leaf]
    join: EquiJoin
    chain: tuple[Physical, ...]

    @property
    def is_eager(self) -> bool:
        """Whether the rows of both sides can be summed before they are joined."""
        return all(eager_join(self.join, self.chain, side) is not None for side in (0, 1))


_LINEAR = (Contributions, Negate, Project, Where)


def branches_of(t: Term) -> tuple[Branch, ...]:
    """The joins of a term that is a sum of joins, each with the trees above it; else none.

    f(a ⋈ b + c ⋈ d) = f(a ⋈ b) + f(c ⋈ d) for maps, filters and sums.
    """
    if not isinstance(t, Apply) or isinstance(t.operator, Fixpoint):
        return ()  # a recursion has no trees
    first, *rest = t.trees
    is_join = isinstance(first, EquiJoin)
    is_sum = isinstance(first, Union) and all(isinstance(i, Argument) for i in first.inputs)
    after = tuple(rest if is_join or is_sum else t.trees)
    if not all(isinstance(tree, _LINEAR) for tree in after):
        return ()
    if isinstance(first, EquiJoin):
        left, *right = t.args
        if isinstance(left, Apply) or len(right) != 1 or isinstance(right[0], Apply):
            return ()
        return (Branch((left, right[0]), first, after),)
    if not is_sum and len(t.args) != 1:
        return ()
    below = [branches_of(a) for a in t.args]
    if not all(below):
        return ()
    return tuple(Branch(b.args, b.join, (*b.chain, *after)) for some in below for b in some)


def eager_branches(t: Term) -> tuple[Branch, ...]:
    """`branches_of` a term if the rows of all sides can be summed before the joins; else none."""
    branches = branches_of(t)
    return branches if all(b.is_eager for b in branches) else ()


def columns_read(t: Term) -> Mapping[Leaf, frozenset[str]]:
    """The columns that an eager term reads of each leaf; a leaf that is read whole is left out."""
    columns: dict[Leaf, frozenset[str] | None] = {}
    for b in eager_branches(t):
        e = eager_join(b.join, b.chain, None)
        assert e is not None
        for leaf, side in zip(b.args, e.sides, strict=True):
            so_far, read = columns.get(leaf, frozenset()), side.reads()
            columns[leaf] = None if so_far is None or read is None else so_far.union(read)
    return {leaf: names for leaf, names in columns.items() if names is not None}


def joined_by_readers(
    streams: Iterable[Materialized], needed: frozenset[Vertex]
) -> Mapping[Vertex, Mapping[Materialized, Materialized]]:
    """Joins that their readers can compute: for each, its readers, with the join in their terms.

    All readers of such a join sum its rows, and nothing else needs it (`needed`).
    """
    streams = tuple(streams)
    joins = {}
    for m in streams:
        if m.vertex in needed or not branches_of(m.term):
            continue
        readers = [r for r in streams if m.vertex in set(refs(r.term))]
        within = {r: Materialized(r.vertex, _with(r.term, m)) for r in readers}
        if readers and all(eager_branches(r.term) for r in within.values()):
            joins[m.vertex] = within
    return joins


def _with(t: Term, m: Materialized) -> Term:
    """The term, in which the term of a stream replaces the reference to it."""
    if isinstance(t, Apply):
        return Apply(t.vertex, t.operator, tuple(_with(a, m) for a in t.args))
    return m.term if t == Ref(m.vertex) else t
