"""The plan of reductions: how the aggregates of one `aggregate` are computed."""

from __future__ import annotations

from dataclasses import dataclass, field

from stepping_spark.callsite import Line


@dataclass(frozen=True)
class ReducePart:
    """The aggregates that one reduction gives, and the state that it keeps."""

    kind: str
    aggregates: tuple[str, ...]
    keeps: str

    def __str__(self) -> str:
        return f"{self.kind}: {', '.join(self.aggregates)}\n  keeps {self.keeps}"


@dataclass(frozen=True)
class ReducePlan:
    """How the aggregates of one `st.aggregate` are computed; printed, a few lines of text.

    `parts` are the reductions, each with its kind, its aggregates and its state. If there are
    several, `collated` says that their results are joined by key.

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
