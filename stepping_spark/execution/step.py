"""The values of one step, as they are computed, and their costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from stepping_spark.base.errors import StepError, SteppingError
from stepping_spark.circuit.graph import Vertex
from stepping_spark.circuit.operators import parts_of
from stepping_spark.execution.arrow.kernels import StateNotes
from stepping_spark.execution.sql_scope import SqlScope
from stepping_spark.plan.metrics import Cost, StepMetrics
from stepping_spark.plan.plan import Plan
from stepping_spark.plan.step_ir import Keys, Leaf, Materialized, Read, Ref, is_nothing
from stepping_spark.relations.relation import Relation
from stepping_spark.relations.store import Now
from stepping_spark.rows.schema import Schema
from stepping_spark.spark.session import first_line

REMEDY = ": correct the rows or the function, and step again"


class InputSize(NamedTuple):
    """The number of rows of a stream's inputs; None if some are in Spark.

    `is_empty`: the stream is certainly empty, because of its empty inputs.
    """

    rows: int | None
    is_empty: bool


@dataclass
class Step:
    """The state of one step while it runs: its values, its reads, its queries and their costs."""

    values: dict[Vertex, Relation]
    now: Now
    since: Now
    new_sources: Callable[[], SqlScope]
    metrics: StepMetrics
    reads: dict[Leaf, tuple[Relation, ...]] = field(default_factory=dict)
    keys: dict[tuple[Keys, ...], Relation] = field(default_factory=dict)  # of several streams
    first: bool = False  # whether all registers are empty
    for_registers: dict[str, Relation] = field(default_factory=dict)  # by the register's name
    left_to_readers: set[Vertex] = field(default_factory=set)  # joins
    state_notes: dict[Leaf, StateNotes] = field(default_factory=dict)  # by the state that is read
    read_whole: dict[Leaf, Callable[[], tuple[Relation, ...]]] = field(
        default_factory=dict
    )  # for reads of some rows of the keys: reads all
    sizes: dict[Materialized, InputSize] = field(default_factory=dict)

    @cached_property
    def sources(self) -> SqlScope:
        """The relations in the queries of the step; made with the first query."""
        return self.new_sources()

    def end(self) -> None:
        """Drop the relations of the queries."""
        if "sources" in self.__dict__:
            self.sources.drop()

    def size(self, m: Materialized) -> InputSize:
        """The size of a stream's inputs.

        A change is counted once, even if the stream reads the new value of its register too.
        """
        if m in self.sizes:
            return self.sizes[m]
        rows, in_spark, empty = 0, False, []
        counted: set[Relation] = set()
        for leaf in m.leaves:
            none = True
            parts = (self.values[leaf.vertex],) if isinstance(leaf, Ref) else self.reads[leaf]
            for p in parts:
                if p.table is None:
                    in_spark, none = True, False
                elif p.table.num_rows:
                    none = False
                    if p not in counted:
                        counted.add(p)
                        rows += p.table.num_rows
            empty.append(none)
        is_empty = m.nothing.get(tuple(empty))
        if is_empty is None:
            of_leaf = dict(zip(m.leaves, empty, strict=True))
            is_empty = m.nothing[tuple(empty)] = is_nothing(m.term, of_leaf.__getitem__)
        size = self.sizes[m] = InputSize(None if in_spark else rows, is_empty)
        return size

    def parts(self, leaf: Leaf) -> tuple[Relation, ...]:
        """The relations whose sum is the value of a leaf."""
        return (self.values[leaf.vertex],) if isinstance(leaf, Ref) else self.reads[leaf]


class Deferred(NamedTuple):
    """The reason why Spark must compute a stream; `many`: it is too large for the driver."""

    why: str
    many: bool = False


class Computed(NamedTuple):
    """A computed stream and its cost."""

    stream: Materialized
    relation: Relation
    cost: Cost
    rows: Mapping[Vertex, tuple[int, int]] = {}  # in and out of the vertices within it
    rows_in: int = 0  # rows read in addition to the inputs of its term


def schema_of(leaf: Leaf) -> Schema:
    """The schema of the value of a leaf."""
    return (leaf.change if isinstance(leaf, Read) else leaf.vertex).type.schema


def failed(plan: Plan, v: Vertex, part: int, error: BaseException) -> StepError:
    """The error about a failed vertex, or about a failed operator that was fused into it."""
    origins = plan.graph.origins[v].parts if v in plan.graph.origins else ()
    path, line = plan.names[v]
    if origins:
        path, line = origins[part].path, origins[part].line
    name = parts_of(v.operator)[part].user_name
    is_ours = isinstance(error, SteppingError)
    row = in_row(error)
    what = f": {error}" if is_ours else f" failed{row}: {first_line(error)}"
    remedy = REMEDY
    if type(error) is SteppingError:  # there is no PySpark, no Java, or no session
        what, remedy = f" asks Spark{row}: {error}", REMEDY if row else ""
    return StepError(
        f"{path} ({line}): {name}{what}\nThe store is as it was before the step{remedy}"
    )


def failed_key(register: str, error: Exception) -> StepError:
    """The error about a key by which the rows of a register are found."""
    return StepError(
        f"{register}: a key of its rows failed{in_row(error)}: {first_line(error)}\nThe store is "
        f"as it was before the step{REMEDY}"
    )


def in_row(error: BaseException) -> str:
    """The row of which an error is, with a space before it; nothing if it is unknown."""
    return "".join(f" {note}" for note in getattr(error, "__notes__", ()))


def null_error(name: str, where: str) -> StepError:
    """The error about a NULL in a field whose type has none."""
    return StepError(
        f"{where}: {name} is NULL, and its type says that it never is; say `| None` in the type, "
        "or give it a value (F.coalesce); the store is as it was before the step"
    )


def rows_of(*parts: Relation) -> int | None:
    """The number of rows; None if some are in Spark."""
    rows = 0
    for p in parts:
        if p.table is None:
            return None
        rows += p.table.num_rows
    return rows
