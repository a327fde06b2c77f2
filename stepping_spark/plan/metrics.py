"""The metrics of a step: rows, milliseconds and Spark jobs, by vertex."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from textwrap import wrap
from typing import NamedTuple

from stepping_spark.relations.store import Size
from stepping_spark.rows.boxes import html_table

HOW = ("nothing to do", "driver", "tasks", "python", "spark", "loop")
"""The places where a vertex runs. If it ran in several of them, over the iterations of a loop, the
metrics have the last one in this order, with its first reason."""

WIDTH = 99  # of printed lines
MANY = 10  # vertices, beyond which the slowest come first


class VertexMetrics(NamedTuple):
    """One vertex in one step.

    `rows_in` counts the rows that it read, of changes and of state, and `rows_out` the rows of its
    result; None if unknown: for rows in Spark, and for vertices inside a query. `how` is "driver",
    "tasks" (tasks of Spark, with Arrow), "spark", "python", "loop" (of a recursion), or "nothing to
    do". `why` is the reason, such as the number of rows, an input that is in Spark, or a join with
    too many rows. If vertices share one computation, the first of them has its milliseconds and
    jobs, and `within` of the others names that vertex. Vertices in the body of a recursion have the
    sums over its iterations; the recursion itself has the time to read and write its state.
    Inputs, integrals and delays have no metrics of their own: their readers count their rows.
    """

    path: str
    rows_in: int | None
    rows_out: int | None
    ms: float
    jobs: int | None
    how: str
    why: str
    within: str | None = None

    def __str__(self) -> str:
        rows = " -> ".join("?" if n is None else f"{n:,}" for n in (self.rows_in, self.rows_out))
        where = f"within {self.within}" if self.within else f"{self.ms:.1f} ms"
        jobs = f", {_plural(self.jobs, 'job')}" if self.jobs else ""
        return f"{self.path}: {self.how}, {where}{jobs}, rows {rows}"

    def plus(self, other: VertexMetrics) -> VertexMetrics:
        """The sums of this iteration and another one."""
        first = max(self, other, key=lambda v: HOW.index(v.how))
        return VertexMetrics(
            first.path,
            _sum(self.rows_in, other.rows_in),
            _sum(self.rows_out, other.rows_out),
            self.ms + other.ms,
            _sum(self.jobs, other.jobs),
            first.how,
            first.why,
            first.within if self.within and other.within else None,
        )


class Cost(NamedTuple):
    """The cost of a computation, where it ran and why; `within`: a vertex that has the cost."""

    ms: float
    jobs: int | None
    how: str
    why: str
    within: str | None = None


@dataclass
class StepMetrics:
    """One step: its number, its duration, its Spark jobs, its recursions and its vertices.

    `jobs` counts the jobs of the whole step, including reads of inputs and the store; it is None on
    Spark Connect, which does not report them. `queries` counts Spark queries, with or without a
    job, and `iterations` has the number of each recursion's iterations, by its path. `inputs` and
    `outputs` count the rows of changes, and `kept` the rows added to each register; None for rows
    in Spark that were not counted, such as rows of files that a single query reads and no register
    keeps. `read` counts the rows of old registers that an evolution read whole, by their names in
    the previous state; its `inputs` count the inputs that were read again. If a vertex on the
    driver needs Spark, its `why` names the function and your line; `asked` names such functions of
    keys. `not_in_tasks` is the reason why Spark's tasks did not take a large step as one job.
    `sizes` has the size of each register after the step, if the stepper was made with
    `profile=True`. Printed, it is a page of text; with many vertices, it first names the slowest.

    >>> def query(numbers: st.ZSet[int]) -> st.ZSet[int]:
    ...     return st.distinct(numbers)
    >>> graph = st.compile(query)
    >>> stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    >>> _ = stepper.step((st.ZSetPython({1: 2}),))
    >>> found = stepper.metrics[-1]
    >>> found.step, found.jobs, [v.rows_out for v in found.vertices.values()]
    (1, 0, [1])
    """

    step: int
    ms: float = 0.0
    jobs: int | None = 0
    queries: int = 0
    iterations: dict[str, int] = field(default_factory=dict)  # of each recursion, by its path
    vertices: dict[str, VertexMetrics] = field(default_factory=dict)
    inputs: dict[str, int | None] = field(default_factory=dict)
    outputs: dict[str, int | None] = field(default_factory=dict)
    kept: dict[str, int | None] = field(default_factory=dict)
    read: dict[str, int | None] = field(default_factory=dict)
    sizes: dict[str, Size] = field(default_factory=dict)
    not_in_tasks: str = ""
    asked: tuple[str, ...] = ()  # functions of keys that Spark evaluated
    _inner: set[str] = field(default_factory=set, repr=False)  # only noted within others

    def __str__(self) -> str:
        jobs = "?" if self.jobs is None else f"{self.jobs:,}"
        lines = [
            f"step {self.step}: {self.ms:.1f} ms; Spark: jobs {jobs}, queries {self.queries:,}"
        ]
        if self.not_in_tasks:
            lines += _wrapped(f"not in Spark's tasks: {self.not_in_tasks}")
        timed = sorted((v for v in self.vertices.values() if v.ms), key=lambda v: -v.ms)
        if len(timed) > MANY:
            slowest = ", ".join(f"{v.path} {v.ms:.1f} ms" for v in timed[:3])
            lines += _wrapped(f"slowest: {slowest}")
        lines += [f"  {path}: {_plural(n, 'iteration')}" for path, n in self.iterations.items()]
        for register, rows in self.read.items():
            lines.append(
                f"  read {register}: {'?' if rows is None else f'{rows:,}'} rows as stored"
            )
        for v in self.vertices.values():
            if self._is_part(v):
                continue
            lines.append(f"  {v}")
            host = self.vertices.get(v.within) if v.within else None
            if host is None or host.why != v.why:
                lines += _wrapped(v.why)
            parts = [
                p.path for p in self.vertices.values() if p.within == v.path and self._is_part(p)
            ]
            lines += _wrapped("with it: " + ", ".join(parts) if parts else "")
        ms = self.ms - sum(v.ms for v in self.vertices.values())
        if self.vertices and ms > 0:
            rest = (self.jobs or 0) - sum(v.jobs or 0 for v in self.vertices.values())
            jobs = f", {_plural(rest, 'job')}" if rest > 0 else ""
            lines.append(f"  inputs, reading and keeping state: {ms:.1f} ms{jobs}")
            if self.asked:
                lines += _wrapped(f"keys ask Spark for {', '.join(self.asked)}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """The page as a table, for a notebook."""
        heading = html.escape(str(self).partition("\n")[0])
        shown = [v for v in self.vertices.values() if not self._is_part(v)]
        rows = [
            (
                v.path,
                "" if v.within else f"{v.ms:.1f}",
                "?" if v.jobs is None else "" if v.within else f"{v.jobs:,}",
                *("?" if n is None else f"{n:,}" for n in (v.rows_in, v.rows_out)),
                f"within {v.within}" if v.within else v.how,
                v.why,
            )
            for v in shown
        ]
        heads = ("vertex", "ms", "jobs", "rows in", "rows out", "where", "why")
        numeric = (False, True, True, True, True, False, False)
        return f"<div><strong>{heading}</strong>{html_table(heads, numeric, rows)}</div>"

    def _is_part(self, v: VertexMetrics) -> bool:
        """Whether a vertex only ran within another one, with unknown rows."""
        return v.path in self._inner and (v.rows_in, v.rows_out) == (None, None)

    def add_jobs(self, jobs: int | None) -> None:
        """Count the jobs of a query; None, for an unknown number, stays None."""
        self.jobs = _sum(self.jobs, jobs)

    def keep(self, register: str, rows: int | None) -> None:
        """Count rows added to a register."""
        before = self.kept.get(register, 0)
        self.kept[register] = None if before is None or rows is None else before + rows

    def read_whole(self, register: str, rows: Iterable[int | None]) -> None:
        """Count the rows of a register that was read whole, in parts."""
        self.read[register] = 0
        for n in rows:
            self.read[register] = _sum(self.read[register], n)

    def note(
        self,
        path: str,
        cost: Cost,
        rows_in: int | None,
        rows_out: int | None,
        inner: Mapping[str, tuple[int | None, int | None]],
    ) -> None:
        """Note the cost of a vertex; `inner` are vertices within it, with their rows in and out.

        The costs of iterations are added up. A vertex may run within several vertices, and by
        itself: the metrics have its own run, or else the run within the first of them.
        """
        own = VertexMetrics(
            path, rows_in, rows_out, cost.ms, cost.jobs, cost.how, cost.why, cost.within
        )
        before = None if path in self._inner else self.vertices.get(path)
        self.vertices[path] = own if before is None else before.plus(own)
        self._inner.discard(path)
        for name, (read, gave) in inner.items():
            before = self.vertices.get(name)
            if before is None or (name in self._inner and before.within == path):
                part = VertexMetrics(name, read, gave, 0.0, 0, cost.how, cost.why, path)
                self.vertices[name] = part if before is None else before.plus(part)
                self._inner.add(name)


def _wrapped(text: str) -> list[str]:
    """The lines of a text below the line of a vertex."""
    first, further = " " * 6, " " * 8
    return wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=further, break_long_words=False
    )


def _sum(a: int | None, b: int | None) -> int | None:
    return None if a is None or b is None else a + b


def _plural(n: int, what: str) -> str:
    return f"{n:,} {what}" + ("" if n == 1 else "s")
