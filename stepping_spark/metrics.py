"""What a step did: rows, milliseconds and Spark jobs, by vertex."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class VertexMetrics:
    """One vertex in one step.

    `rows_in` and `rows_out` count the rows that it read (of changes, and of state) and gave; None
    where that is not known: for rows that are in Spark, and for vertices that run inside a query.
    `how` is "driver", "spark", "python", "loop" (of a recursion), or "nothing to do" (what it reads
    has not changed). Where vertices share one computation, the first of them has its milliseconds
    and jobs, and the others say `within` which vertex that is.
    """

    path: str
    rows_in: int | None
    rows_out: int | None
    ms: float
    jobs: int | None
    how: str
    within: str | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """What a computation took, and where; `within` the vertex that has the cost, if another has."""

    ms: float
    jobs: int | None
    how: str
    within: str | None = None


@dataclass
class StepMetrics:
    """One step: its number, how long it took, its Spark jobs, its recursions and its vertices.

    `jobs` are those of the whole step, reading inputs and keeping state included; None on Spark
    Connect, which does not tell. `queries` counts what Spark was asked, with or without a job,
    `iterations` those of each recursion, by its path.
    """

    step: int
    ms: float = 0.0
    jobs: int | None = 0
    queries: int = 0
    iterations: dict[str, int] = field(default_factory=dict)  # of each recursion, by its path
    vertices: dict[str, VertexMetrics] = field(default_factory=dict)

    def add_jobs(self, jobs: int | None) -> None:
        """Count the jobs of a query; unknown stays unknown."""
        self.jobs = None if jobs is None or self.jobs is None else self.jobs + jobs

    def note(
        self,
        path: str,
        cost: Cost,
        rows_in: int | None,
        rows_out: int | None,
        inner: Mapping[str, tuple[int | None, int | None]],
    ) -> None:
        """Note what a vertex took; `inner` are those that ran within it, with rows in and out."""
        self.vertices[path] = VertexMetrics(
            path, rows_in, rows_out, cost.ms, cost.jobs, cost.how, cost.within
        )
        for name, (read, gave) in inner.items():
            within = VertexMetrics(name, read, gave, 0.0, 0, cost.how, path)
            self.vertices.setdefault(name, within)
