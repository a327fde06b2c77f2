"""The first sentence of a report, its summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.filesize import decimal

from stepping_spark.execution.metrics import StepMetrics
from stepping_spark.report.circuit import CircuitTold
from stepping_spark.report.history import first_load, known_total, percentile
from stepping_spark.store import Size


def sentence_of(
    circuit: CircuitTold, steps: Sequence[StepMetrics], sizes: Mapping[str, Size]
) -> str:
    """Rows in and out, times, jobs, state, and what is recomputed in full."""
    kept, full = _state(circuit, sizes), _full(circuit)
    if not steps:
        return f"{circuit.name} has taken no step in this process; {kept}; {full}."
    jobs = [m.jobs for m in steps]
    counted = "unknown" if None in jobs else f"{sum(n or 0 for n in jobs):,}"
    facts = [_rows(steps, "inputs") + " in", _rows(steps, "outputs") + " out", *_times(steps)]
    return (
        f"{circuit.name} took {_plural(len(steps), 'step')}: {', '.join(facts)}; Spark jobs: "
        f"{counted}; {kept}; {full}."
    )


def _full(circuit: CircuitTold) -> str:
    if not circuit.in_full:
        return "nothing is recomputed in full"
    (path, how), more = circuit.in_full[0], len(circuit.in_full) - 1
    others = f", and so {'are' if more > 1 else 'is'} {more} more" if more else ""
    return f"{path} is {how}{others}"


def _times(steps: Sequence[StepMetrics]) -> list[str]:
    first = first_load(steps)
    after = sorted(m.ms for m in steps[0 if first is None else 1 :])
    found = [] if first is None else [f"{_time(steps[first].ms)} for the first load"]
    if after:
        median, most = _time(percentile(after, 0.5)), _time(percentile(after, 0.95))
        then = "then " if found else ""
        found.append(f"{then}{median} a step (median; 95% took at most {most})")
    return found


def _state(circuit: CircuitTold, sizes: Mapping[str, Size]) -> str:
    if not circuit.registers:
        return "it keeps no state"
    registers = _plural(len(circuit.registers), "register")
    if not sizes:
        return f"its state is {registers} of unknown size"
    return f"its state is {decimal(sum(s.nbytes for s in sizes.values()))} in {registers}"


def _rows(steps: Sequence[StepMetrics], of: str) -> str:
    rows, more = known_total(steps, of)
    return _plural(rows, "row") + (" (and more in Spark, not counted)" if more else "")


def _time(ms: float) -> str:
    if ms >= 10_000:
        return f"{ms / 1e3:,.1f} s"
    return f"{ms:,.0f} ms" if ms >= 10 else f"{ms:.1f} ms"


def _plural(n: int, what: str) -> str:
    return f"{n:,} {what}" + ("" if n == 1 else "s")
