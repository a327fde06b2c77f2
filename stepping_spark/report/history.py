"""The numbers of steps, by step, by vertex and by register, reduced to fit on a page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from stepping_spark.plan.metrics import StepMetrics, VertexMetrics

MOST_POINTS = 20_000
"""The limit of points in the lines of all vertices, and again in those of all registers."""

Point: TypeAlias = "int | float | None"
Points: TypeAlias = "list[int | float | None]"


@dataclass
class Stats:
    """Statistics of a vertex over some steps.

    `timed` is the number of steps with a time of the vertex itself; `p50`, `p95`, `p99` and `most`
    are over these. `counted` is the number of steps whose rows are known; rows in Spark are not
    counted.
    """

    steps: int = 0
    timed: int = 0
    ms: float = 0.0
    jobs: int | None = 0
    rows_in: int = 0
    rows_out: int = 0
    counted: int = 0
    p50: Point = None
    p95: Point = None
    p99: Point = None
    most: Point = None


@dataclass
class VertexStatistics:
    """A vertex's statistics after the first load and in it, where it ran, and within which."""

    after: Stats
    first: Stats | None
    where: list[tuple[str, int, str]] = field(default_factory=list)
    within: list[tuple[str, int]] = field(default_factory=list)


def by_step(steps: Sequence[StepMetrics]) -> dict[str, Points]:
    """For each kind of number, the list of its values in all steps."""
    return {
        "step": [m.step for m in steps],
        "ms": [_ms(m.ms) for m in steps],
        "jobs": [m.jobs for m in steps],
        "queries": [m.queries for m in steps],
        "rows_in": [total(m.inputs.values()) for m in steps],
        "rows_out": [total(m.outputs.values()) for m in steps],
        "rows_kept": [total(m.kept.values()) for m in steps],
        "iterations": [sum(m.iterations.values()) for m in steps],
        "rest_ms": [_ms(max(0.0, m.ms - sum(v.ms for v in m.vertices.values()))) for m in steps],
        "bytes": [sum(s.nbytes for s in m.sizes.values()) if m.sizes else None for m in steps],
    }


def first_load(steps: Sequence[StepMetrics]) -> int | None:
    """The index of the state's first step, if it is one of these steps."""
    return 0 if steps and steps[0].step == 1 else None


def measured(steps: Sequence[StepMetrics]) -> dict[str, VertexStatistics]:
    """The measurements, by the path of each vertex; for inputs only their rows."""
    paths = dict.fromkeys(p for m in steps for p in (*m.inputs, *m.vertices))
    first = first_load(steps)
    after = steps if first is None else steps[first + 1 :]
    statistics = {}
    for path in paths:
        of_first = _stats(steps[:1], path) if first is not None else None
        statistics[path] = VertexStatistics(_stats(after, path), of_first, _where(steps, path))
        statistics[path].within = _within(steps, path)
    return statistics


def _stats(steps: Sequence[StepMetrics], path: str) -> Stats:
    stats, times = Stats(), []
    for m in steps:
        v = m.vertices.get(path)
        if v is None:
            if path in m.inputs:
                stats.steps += 1
                _count(stats, m.inputs[path], m.inputs[path])
            continue
        stats.steps += 1
        _count(stats, v.rows_in, v.rows_out)
        if v.within is None:
            times.append(v.ms)
            stats.ms += v.ms
            stats.jobs = None if stats.jobs is None or v.jobs is None else stats.jobs + v.jobs
    stats.ms, stats.timed = _ms(stats.ms), len(times)
    if times:
        times.sort()
        stats.p50, stats.p95, stats.p99 = (_ms(percentile(times, q)) for q in (0.5, 0.95, 0.99))
        stats.most = _ms(times[-1])
    return stats


def _count(stats: Stats, rows_in: int | None, rows_out: int | None) -> None:
    if rows_in is not None and rows_out is not None:
        stats.rows_in += rows_in
        stats.rows_out += rows_out
        stats.counted += 1


def _where(steps: Sequence[StepMetrics], path: str) -> list[tuple[str, int, str]]:
    """The places where a vertex ran, the number of steps of each, and the last reason."""
    places: dict[str, tuple[int, str]] = {}
    for m in steps:
        v = m.vertices.get(path)
        if v is not None:
            places[v.how] = places.get(v.how, (0, ""))[0] + 1, v.why
    return [(how, n, why) for how, (n, why) in sorted(places.items(), key=lambda x: -x[1][0])]


def _within(steps: Sequence[StepMetrics], path: str) -> list[tuple[str, int]]:
    """The vertices that a vertex ran within, and the number of steps of each."""
    hosts: dict[str, int] = {}
    for m in steps:
        v = m.vertices.get(path)
        if v is not None and v.within is not None:
            hosts[v.within] = hosts.get(v.within, 0) + 1
    return sorted(hosts.items(), key=lambda x: -x[1])


@dataclass
class StepLines:
    """Lines over the steps after the first load. A point is the mean of `each` steps."""

    each: int
    steps: list[int]
    ms: dict[str, Points]
    rows: dict[str, Points]
    kept: dict[str, Points]
    nbytes: dict[str, Points]


def lines_of(
    steps: Sequence[StepMetrics], paths: Sequence[str], registers: Sequence[str]
) -> StepLines:
    """The lines of vertices and of registers."""
    after = list(steps[1:] if first_load(steps) is not None else steps)
    each = max(1, math.ceil(len(after) * max(len(paths), len(registers), 1) / MOST_POINTS))
    parts = [after[i : i + each] for i in range(0, len(after), each)]

    def vertex(path: str, of: str) -> Points:
        return [_mean(getattr(v, of) for v in _of_vertex(part, path)) for part in parts]

    return StepLines(
        each,
        [part[0].step for part in parts],
        {p: vertex(p, "ms") for p in paths},
        {p: vertex(p, "rows_in") for p in paths},
        {r: [total(m.kept.get(r, 0) for m in part) for part in parts] for r in registers},
        {r: _sizes(parts, r) for r in registers} if any(m.sizes for m in after) else {},
    )


def _of_vertex(part: Iterable[StepMetrics], path: str) -> Iterable[VertexMetrics]:
    return (m.vertices[path] for m in part if path in m.vertices)


def _sizes(parts: Sequence[Sequence[StepMetrics]], register: str) -> Points:
    """The bytes of a register after the last step of each part."""
    return [
        part[-1].sizes[register].nbytes if register in part[-1].sizes else None for part in parts
    ]


def _mean(values: Iterable[Point]) -> Point:
    numbers = [v for v in values if v is not None]
    return _short(sum(numbers) / len(numbers)) if numbers else None


def total(rows: Iterable[int | None]) -> int | None:
    """The sum, if all numbers are known."""
    count = 0
    for n in rows:
        if n is None:
            return None
        count += n
    return count


def known_total(steps: Iterable[StepMetrics], of: str) -> tuple[int, bool]:
    """The counted input or output rows, and whether there were more, in Spark."""
    count, more = 0, False
    for m in steps:
        rows: Mapping[str, int | None] = getattr(m, of)
        count += sum(n or 0 for n in rows.values())
        more = more or None in rows.values()
    return count, more


def percentile(ordered: Sequence[float], q: float) -> float:
    """The percentile q of sorted values: always one of the values."""
    return ordered[max(0, math.ceil(len(ordered) * q) - 1)]


def _ms(value: float) -> float:
    return round(value, 3)


def _short(value: float) -> Point:
    """The number with the few digits that a line needs."""
    if value == int(value):
        return int(value)
    return round(value, 3) if value < 10 else round(value, 1)
