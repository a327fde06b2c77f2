"""Evaluates the terms of a plan on Arrow tables, if they read few rows.

A term is prepared once, as the nodes that it is made of are, and run by each step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from stepping_spark.engines.arrow.kernels import Context, NeedsPrefix
from stepping_spark.engines.arrow.nodes import prepared
from stepping_spark.graph.graph import Vertex
from stepping_spark.graph.operators import Operator
from stepping_spark.plan.terms import Leaf, Node, Term
from stepping_spark.rows.schema import StreamType
from stepping_spark.spark.fetch import FanOut

Rows: TypeAlias = dict[Vertex, tuple[int, int]]
Chain = Callable[[pa.Table, StreamType, Sequence[Operator]], pa.Table]


class Failed(Exception):
    """A vertex, and the part of it, that could not be computed. The cause has the reason."""

    def __init__(self, vertex: Vertex, part: int) -> None:
        super().__init__(vertex, part)
        self.vertex, self.part = vertex, part


@dataclass
class Evaluation:
    """The inputs of an evaluation: relations and context."""

    table: Callable[[Leaf], pa.Table]
    chain: Chain  # asks Spark for what several linear operators make of a relation
    context: Context
    rows: Rows = field(default_factory=dict)  # what vertices read and gave, as they are evaluated


Compute: TypeAlias = Callable[[Evaluation], pa.Table]


def compute(t: Term) -> Compute:
    """A function that computes a term. Its result may have equal rows several times."""
    if not isinstance(t, Node):
        return lambda run: run.table(t)
    args, parts = [compute(a) for a in t.args], _parts(t)
    is_told = t.operator is t.vertex.operator

    def node(run: Evaluation) -> pa.Table:
        tables = [arg(run) for arg in args]
        made = parts(run, tables)
        if is_told:
            run.rows[t.vertex] = (sum(map(len, tables)), len(made))
        return made

    return node


def _parts(t: Node) -> Callable[[Evaluation, list[pa.Table]], pa.Table]:
    """A function that applies the operators of a vertex, one after the other."""
    kernels = list(map(prepared, t.trees))
    asked, last = t.asked

    def parts(run: Evaluation, tables: list[pa.Table]) -> pa.Table:
        first, done = asked, 0
        while done < len(kernels):
            try:
                if done == first:  # one question to Spark, and not one for each part
                    tables = [_chained(run, t, first, last, tables[0])]
                    done = last
                else:
                    run.context.args = tables
                    tables = [kernels[done](run.context)]
                done += 1
            except (FanOut, NeedsPrefix):
                raise
            except Exception as e:
                if done != first:
                    raise Failed(t.vertex, done) from e
                first = -1  # which part fails is seen when each is asked by itself
        return tables[0]

    return parts


def _chained(run: Evaluation, t: Node, first: int, last: int, table: pa.Table) -> pa.Table:
    """Applies several operators to a relation in one query of Spark."""
    types = t.types
    for p in t.parts[:first]:
        types = (p.type_of(*types),)
    return run.chain(table, types[0], t.parts[first : last + 1])
