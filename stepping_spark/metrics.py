"""What a step did: rows, milliseconds and Spark jobs, by vertex."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class VertexMetrics:
    """One vertex in one step.

    Vertices that run inside the query of another have no rows of their own: `within` names it.
    """

    path: str
    rows_in: int | None
    rows_out: int | None
    ms: float
    jobs: int | None
    how: str
    within: str | None = None


@dataclass
class StepMetrics:
    """One step: its number, how long it took, its Spark jobs, its recursions and its vertices."""

    step: int
    ms: float = 0.0
    jobs: int | None = 0
    queries: int = 0
    iterations: dict[str, int] = field(default_factory=dict)  # of each recursion, by its path
    vertices: dict[str, VertexMetrics] = field(default_factory=dict)

    def add_jobs(self, jobs: int | None) -> None:
        """Count the jobs of a query; unknown stays unknown."""
        self.jobs = None if jobs is None or self.jobs is None else self.jobs + jobs
