"""The plan of a step: the streams to materialise, their order, and the reads of registers.

A stream is materialised if a register stores it, a read needs its keys, it is an output, or several
readers would compute it again. The operators between materialised streams are one term. Terms that
wait for the same streams make a stage. `stepping_spark.plan.planner` makes a plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from stepping_spark.base.callsite import Line
from stepping_spark.base.signature import Signature
from stepping_spark.circuit.graph import AnyGraph, Path, Vertex
from stepping_spark.circuit.operators import IdentityPrint, Input, Temporal
from stepping_spark.circuit.physical import (
    Argument,
    Contributions,
    Negate,
    Project,
    Union,
    Unnest,
    Where,
    walk,
)
from stepping_spark.plan.eager import eager_branches, joined_by_readers
from stepping_spark.plan.loop import LoopPlan
from stepping_spark.plan.step_ir import (
    Apply,
    Identities,
    Leaf,
    Materialized,
    Read,
    Ref,
    RegisterPlan,
    Stage,
    Term,
    nodes,
    refs,
)
from stepping_spark.relations.store import Register
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.schema import Schema


@dataclass(frozen=True)
class Plan:
    """The plan of a circuit's steps."""

    graph: AnyGraph
    stages: tuple[Stage, ...]
    states: tuple[RegisterPlan, ...]
    outputs: tuple[Vertex, ...]  # the vertices that compute the graph's outputs
    loops: dict[Vertex, LoopPlan]  # by recursive stream; streams of one body share a plan
    names: dict[Vertex, tuple[Path, Line]] = field(repr=False)
    summed: dict[Vertex, Vertex] = field(repr=False)  # of I, z⁻¹ and D, the streams that they sum
    identities: Identities = field(repr=False)

    @cached_property
    def times(self) -> dict[RowType, tuple[Path, Line]]:
        """The types that `now` is compared with, each with a vertex that compares."""
        return {
            v.operator.time: self.names[v]
            for v in self.graph.walk()
            if isinstance(v.operator, Temporal)
        }

    @property
    def output_schemas(self) -> tuple[Schema, ...]:
        """The schemas of the outputs."""
        return tuple(v.type.schema for v in self.outputs)

    @property
    def registers(self) -> tuple[Register, ...]:
        """The registers that a store keeps for the circuit."""
        in_loops = [s for loop in dict.fromkeys(self.loops.values()) for s in loop.states]
        return tuple(s.register for s in (*self.states, *in_loops))

    def sums_by(self, identities: Identities) -> dict[str, Signature]:
        """The signature of each register, by its name, under other identities of streams."""
        sums = {s.register.name: identities.sums(s.change, s.key) for s in self.states}
        for loop in dict.fromkeys(self.loops.values()):
            for s in loop.states:
                sums[s.register.name] = identities.sums_in_loop(
                    loop.operator, loop.inputs, s.change, s.key
                )
        return sums

    @cached_property
    def printed(self) -> tuple[Vertex, ...]:
        """The streams that are printed."""
        streams = (m.vertex for m in self._streams)
        return tuple(v for v in streams if isinstance(v.operator, IdentityPrint))

    @cached_property
    def joined_by_readers(self) -> Mapping[Vertex, Mapping[Materialized, Materialized]]:
        """Joins that are only needed by streams that can compute them: see `joined_by_readers`."""
        needed = {*self._materialized, *self._looked_up, *self._looked_at}
        return joined_by_readers(self._streams, frozenset(needed))

    def is_added_up_by_joins(self, leaf: Leaf) -> bool:
        """Whether only joins read a stream or a register, which can add up the rows themselves.

        A read of the new value counts as a read of the old one, too.
        """
        if isinstance(leaf, Read):
            return not self._added_up.intersection((leaf, replace(leaf, new=True)))
        return leaf not in self._added_up

    @cached_property
    def _added_up(self) -> frozenset[Leaf]:
        """The streams and the register reads that have other readers than such joins."""
        needed = {*self._materialized, *self._looked_at, *self._marks}
        leaves: set[Leaf] = {Ref(v) for v in needed}
        for m in self._streams:
            if m.vertex not in self.joined_by_readers and not eager_branches(m.term):
                leaves.update(m.leaves)
        return frozenset(leaves)

    @cached_property
    def _looked_at(self) -> frozenset[Vertex]:
        """Streams whose rows the step refuses or prints."""
        late = (x.late for x in self.graph.lateness.values())
        return frozenset([*self.graph.strict.values(), *late, *self.printed])

    @cached_property
    def read_once(self) -> frozenset[Vertex]:
        """Inputs whose only reader is the query of one stream, which reads them once and whole.

        A join is no such query: if one side is empty, it may read no rows of the other.
        """
        once = {v for v in self.graph.inputs if self._times_read[v] == 1}
        once -= self._materialized | self._looked_up
        return frozenset(
            v
            for m in self._streams
            for v in once.intersection(refs(m.term))
            if isinstance(v.operator, Input) and not v.operator.append_only
            if _needs_all_rows(m.term)
        )

    @cached_property
    def _streams(self) -> tuple[Materialized, ...]:
        return tuple(m for stage in self.stages for m in stage.streams)

    @cached_property
    def _materialized(self) -> frozenset[Vertex]:
        """Streams that are outputs, that loops compute, or that registers, loops or Python read."""
        called = [m for m in self._streams if m.vertex in self.loops or m.python is not None]
        read = (v for m in called for v in m.vertex.inputs)
        return frozenset([*self.outputs, *(s.change for s in self.states), *self.loops, *read])

    @cached_property
    def _looked_up(self) -> frozenset[Vertex]:
        """Streams by whose keys or times registers are read."""
        keys = (keys.of for stage in self.stages for read in stage.reads for keys in read.by)
        return frozenset([*keys, *self._marks])

    @cached_property
    def _marks(self) -> frozenset[Vertex]:
        """The streams of greatest times of inputs by which registers are read."""
        clocks = (read.due for stage in self.stages for read in stage.reads)
        return frozenset(v for due in clocks if due is not None for v, _ in due.marks)

    @cached_property
    def _times_read(self) -> Counter[Vertex]:
        """The number of reads of each stream by other streams."""
        times: Counter[Vertex] = Counter()
        for m in self._streams:
            read = Counter(m.leaves) if m.vertex in self.loops else m.times_read
            for leaf, often in read.items():
                if isinstance(leaf, Ref):
                    times[leaf.vertex] += often
        return times

    def state_of(self, read: Read) -> RegisterPlan:
        """The register that serves a read."""
        same = [s for s in self.states if s.change is read.change]
        return next((s for s in same if s.key == read.key), same[0])

    def __str__(self) -> str:
        lines = []
        for i, stage in enumerate(self.stages, 1):
            lines.append(f"stage {i}")
            for m in stage.streams:
                lines.append(f"  {self.names[m.vertex][0]} = {self._term_text(m.term)}")
        for s in self.states:
            lines.append(f"register {s.register.name} += {self.names[s.change][0]}")
        for loop in dict.fromkeys(self.loops.values()):
            lines += str(loop).splitlines()
            for s in loop.states:
                lines.append(f"  register {s.register.name} += {loop.names[s.change][0]}")
        return "\n".join(lines)

    def _term_text(self, t: Term) -> str:
        if isinstance(t, Ref):
            return str(self.names[t.vertex][0])
        if isinstance(t, Read):
            streams = " and ".join(str(self.names[keys.of][0]) for keys in t.by)
            keys = f" at keys of {streams}, added up" if streams else ""
            keys = " at times that have come, added up" if t.due else keys
            with_change = f" + {self.names[t.change][0]}" if t.new else ""
            return f"{{{self.state_of(t).register.name}{keys}{with_change}}}"
        assert isinstance(t, Apply)
        return f"{t.operator.name}({', '.join(self._term_text(a) for a in t.args)})"


_ROW_BY_ROW = (Argument, Contributions, Negate, Project, Union, Unnest, Where)


def _needs_all_rows(t: Term) -> bool:
    """Whether a term processes rows one by one, and so reads all of them."""
    trees = (tree for node in nodes(t) for tree in node.trees)
    return all(isinstance(n, _ROW_BY_ROW) for tree in trees for n in walk(tree))
