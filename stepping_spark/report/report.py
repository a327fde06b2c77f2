"""`Report`: the numbers of a circuit's steps, and the page that shows them."""

from __future__ import annotations

import datetime as dt
import html
import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from stepping_spark.errors import SteppingError
from stepping_spark.execution.metrics import StepMetrics
from stepping_spark.graph.graph import AnyGraph
from stepping_spark.plan.plan import Plan
from stepping_spark.report.circuit import CircuitTold, circuit_of
from stepping_spark.report.history import (
    by_step,
    first_load,
    lines_of,
    measured,
)
from stepping_spark.report.page import FORMAT, Json, numbers_in, page_of
from stepping_spark.report.sentence import sentence_of
from stepping_spark.report.svg import Drawing, drawings_of
from stepping_spark.store import Register, Size, SizedStore, Store


@dataclass(frozen=True)
class Report:
    """The costs of a circuit's steps, and the sizes of its state: as `numbers` and as a page.

    Made by `stepper.report()`. A notebook shows the page.

    >>> def query(a: st.ZSet[str]) -> st.ZSet[str]:
    ...     return st.distinct(a)
    >>> graph = st.compile(query)
    >>> stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    >>> _ = stepper.step((st.ZSetPython({"a": 2}),))
    >>> report = stepper.report()
    >>> report.numbers["steps"]["rows_in"], report.numbers["steps"]["rows_out"]
    ([1], [1])
    """

    numbers: Mapping[str, Any]
    pictures: tuple[str, ...]

    def __str__(self) -> str:
        return str(self.numbers["sentence"])

    def to_json(self) -> str:
        """The numbers as JSON."""
        return json.dumps(self.numbers, ensure_ascii=False, allow_nan=False)

    def html(self, beside: Report | str | os.PathLike[str] | None = None) -> str:
        """The page as HTML. `beside` is a report to compare with."""
        return page_of(self.numbers, _other(beside), self.pictures)

    def write(
        self, path: str | os.PathLike[str], *, beside: Report | str | os.PathLike[str] | None = None
    ) -> None:
        """Write the page to a file. `beside` is a report to compare with, or the file of one.

        Raises `SteppingError` for a path that does not end in .html or cannot be written, and if
        `beside` is not a report.
        """
        if Path(path).suffix.lower() not in (".html", ".htm"):
            raise SteppingError(
                f"a report is a page for a browser; {os.fspath(path)!r} does not end in .html"
            )
        page = self.html(beside)
        try:
            Path(path).write_text(page, encoding="utf-8")
        except OSError as e:
            raise SteppingError(
                f"cannot write {os.fspath(path)}: {e.strerror or e}; give a file in a folder that "
                "is there, and that may be written"
            ) from e

    def _repr_html_(self) -> str:
        """The page in its own frame, which separates its styles from those of the notebook."""
        return (
            f'<iframe srcdoc="{html.escape(self.html())}" title="Report" sandbox="allow-scripts" '
            'style="width: 100%; height: 720px; border: 1px solid #8886; border-radius: 8px">'
            "</iframe>"
        )


@dataclass(frozen=True)
class KeptState:
    """The sizes of the registers of a state; `missing` is the reason if they are unknown."""

    kept_as: str
    sizes: Mapping[str, Size]
    missing: str = ""


def report_of(
    plan: Plan, graph: AnyGraph, metrics: Iterable[StepMetrics], state: KeptState, profile: bool
) -> Report:
    """The report of the steps taken by a circuit, and of its state."""
    drawings, undrawn = drawings_of(graph)
    made = {
        "at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "stepping_spark": _version(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "store": state.kept_as,
        "profile": profile,
    }
    missing = (undrawn, state.missing)
    return report_from(
        circuit_of(graph, plan), tuple(metrics), state.sizes, made, drawings, missing
    )


def report_from(
    circuit: CircuitTold,
    steps: Sequence[StepMetrics],
    sizes: Mapping[str, Size],
    made: Json,
    drawings: Sequence[Drawing],
    missing: Sequence[str] = (),
) -> Report:
    """A report from the description of a circuit, its steps, and its registers."""
    found = measured(steps)
    paths = [v.path for v in circuit.vertices]
    names = [r.name for r in circuit.registers]
    numbers = {
        "format": FORMAT,
        "name": circuit.name,
        "sentence": sentence_of(circuit, steps, sizes),
        "made": dict(made),
        "missing": [text for text in missing if text],
        "vertices": [asdict(v) for v in circuit.vertices],
        "registers": [
            {**asdict(r), "size": asdict(sizes[r.name]) if r.name in sizes else None}
            for r in circuit.registers
        ],
        "in_full": [{"path": path, "why": why} for path, why in circuit.in_full],
        "hints": circuit.hints,
        "first_load": first_load(steps),
        "steps": by_step(steps),
        "measured": {path: asdict(m) for path, m in found.items()},
        "lines": asdict(lines_of(steps, [p for p in paths if p in found], names)),
        "pictures": [asdict(d.told) for d in drawings],
    }
    return Report(numbers, tuple(d.svg for d in drawings))


def sizes_of(store: Store, registers: Sequence[Register]) -> dict[str, Size]:
    """The sizes of the registers, if the store knows them."""
    if not isinstance(store, SizedStore):
        return {}
    return {r.name: store.size(r.name) for r in registers}


def state_of_store(store: Store, registers: Sequence[Register]) -> KeptState:
    """The sizes of the registers of a store, or the reason why they are unknown."""
    name = type(store).__name__
    try:
        found = sizes_of(store, registers)
    except SteppingError as e:
        return KeptState(name, {}, f"The size of the state is not known: {e}")
    silent = f"{name} does not say how large registers are." if registers and not found else ""
    return KeptState(name, found, silent)


def _other(beside: Report | str | os.PathLike[str] | None) -> Json | None:
    """The numbers to compare with, without those that a comparison does not use."""
    if beside is None:
        return None
    if isinstance(beside, Report):
        numbers: Json = beside.numbers
    else:
        try:
            text = Path(beside).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as e:
            raise SteppingError(
                f"cannot read {os.fspath(beside)}: {getattr(e, 'strerror', None) or e}; give a "
                "report that stepper.write_report(path) has written"
            ) from e
        numbers = numbers_in(text, os.fspath(beside))
    return {k: v for k, v in numbers.items() if k not in ("lines", "pictures")}


def _version() -> str:
    try:
        return version("stepping-spark")
    except PackageNotFoundError:
        return "of a checkout"
