"""Evaluates the terms of a plan on Arrow tables, where all that they read is few rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from stepping_spark.engines.arrow.nodes import Ask, Context
from stepping_spark.graph.graph import Vertex
from stepping_spark.graph.operators import Operator
from stepping_spark.plan.terms import Leaf, Node, Term
from stepping_spark.rows.schema import Schema, StreamType
from stepping_spark.spark.fetch import FanOut
from stepping_spark.store import Now

Rows: TypeAlias = dict[Vertex, tuple[int, int]]
Chain = Callable[[pa.Table, StreamType, Sequence[Operator]], pa.Table]


class Failed(Exception):
    """A vertex could not be computed, and which part of it; the cause says why."""

    def __init__(self, vertex: Vertex, part: int) -> None:
        super().__init__(vertex, part)
        self.vertex, self.part = vertex, part


@dataclass(frozen=True)
class Evaluation:
    """Evaluates terms on the driver."""

    table: Callable[[Leaf], pa.Table]
    project: Ask  # asks Spark for the values of expressions that are not plain
    chain: Chain  # asks Spark for what several linear operators make of a relation
    is_once: Callable[[pa.Table, Schema], bool] = lambda *_: False  # of what a leaf is
    now: Now = None
    rows: Rows = field(default_factory=dict)  # what vertices read and gave, as they are evaluated

    def term(self, t: Term) -> pa.Table:
        """The relation of a term; equal rows may stand in it several times."""
        if not isinstance(t, Node):
            return self.table(t)
        args = [self.term(a) for a in t.args]
        made = self._parts(t, args)
        if t.operator is t.vertex.operator:
            self.rows[t.vertex] = (sum(a.num_rows for a in args), made.num_rows)
        return made

    def _parts(self, t: Node, args: list[pa.Table]) -> pa.Table:
        """What the operators that a vertex is made of give, one after the other."""
        trees = t.trees
        context = Context(self.project, self.now, self.is_once)
        first, last = t.asked
        done = 0
        while done < len(trees):
            try:
                if done == first:  # one question to Spark, and not one for each part
                    args = [self._chained(t, first, last, args[0])]
                    done = last
                else:
                    args = [context.run(trees[done], args)]
                done += 1
            except FanOut:
                raise
            except Exception as e:
                if done != first:
                    raise Failed(t.vertex, done) from e
                first = -1  # which part fails is seen when each is asked by itself
        return args[0]

    def _chained(self, t: Node, first: int, last: int, table: pa.Table) -> pa.Table:
        """What Spark makes of a relation by several parts at once."""
        types = t.types
        for p in t.parts[:first]:
            types = (p.type_of(*types),)
        return self.chain(table, types[0], t.parts[first : last + 1])
