"""`Report`: the numbers of a circuit's steps, in one HTML file and in one sentence.

Users' text (names, lines of source, errors) is data: JSON that the page shows as text. A content
security policy has the digest of the page's only script, so that no other script runs.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import html
import json
import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from rich.filesize import decimal

from stepping_spark.base.errors import SteppingError
from stepping_spark.base.packages import metadata
from stepping_spark.circuit.graph import AnyGraph
from stepping_spark.plan.metrics import StepMetrics
from stepping_spark.plan.plan import Plan
from stepping_spark.relations.store import Register, Size, SizedStore, Store
from stepping_spark.report.circuit import CircuitTold, Drawing, circuit_of, drawings_of
from stepping_spark.report.history import (
    by_step,
    first_load,
    known_total,
    lines_of,
    measured,
    percentile,
)

_NUMBERS = re.compile(r'<script type="application/json" id="numbers">(.*?)</script>', re.DOTALL)

PageData = Mapping[str, object]


@cache
def _part(name: str) -> str:
    return files("stepping_spark.report").joinpath("page", name).read_text(encoding="utf-8")


def page_of(numbers: PageData, beside: PageData | None, pictures: Sequence[str]) -> str:
    """The page, as HTML."""
    script = _part("report.js")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return Template(_part("report.html")).substitute(
        title=html.escape(f"{numbers['name']}: report of its steps"),
        sentence=html.escape(str(numbers["sentence"])),
        name=html.escape(str(numbers["name"])),
        digest=digest,
        style=_part("report.css"),
        script=script,
        numbers=as_json(numbers),
        beside=as_json(beside),
        pictures="".join(f"<template class=picture>{svg}</template>" for svg in pictures),
    )


def as_json(value: PageData | None) -> str:
    """JSON that is safe inside a script element: `<` is escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def numbers_in(text: str, where: str) -> PageData:
    """The numbers of a report, from its page or from their JSON."""
    match = _NUMBERS.search(text)
    try:
        numbers = json.loads(match[1] if match else text)
    except ValueError:
        numbers = None
    if not isinstance(numbers, dict) or numbers.get("format") != FORMAT:
        raise SteppingError(
            f"{where} is no report, or one of another version; give a file that "
            "stepper.write_report(path) has written"
        )
    return numbers


FORMAT = 1
"""The version of the format of the numbers, for their readers."""


def sentence_of(
    circuit: CircuitTold, steps: Sequence[StepMetrics], sizes: Mapping[str, Size]
) -> str:
    """The summary of steps: rows in and out, times, jobs, state, and full recomputations."""
    state, full = _state(circuit, sizes), _full(circuit)
    if not steps:
        return f"{circuit.name} has taken no step in this process; {state}; {full}."
    jobs = [m.jobs for m in steps]
    counted = "unknown" if None in jobs else f"{sum(n or 0 for n in jobs):,}"
    facts = [_rows(steps, "inputs") + " in", _rows(steps, "outputs") + " out", *_times(steps)]
    return (
        f"{circuit.name} took {_plural(len(steps), 'step')}: {', '.join(facts)}; Spark jobs: "
        f"{counted}; {state}; {full}."
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
    texts = [] if first is None else [f"{_time(steps[first].ms)} for the first load"]
    if after:
        median, most = _time(percentile(after, 0.5)), _time(percentile(after, 0.95))
        then = "then " if texts else ""
        texts.append(f"{then}{median} a step (median; 95% took at most {most})")
    return texts


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


def _plural(n: int, noun: str) -> str:
    return f"{n:,} {noun}" + ("" if n == 1 else "s")


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
        """The page in its own frame, which separates its styles from the notebook's."""
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
    origin = {
        "at": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "stepping_spark": _version(),
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "store": state.kept_as,
        "profile": profile,
    }
    missing = (undrawn, state.missing)
    return report_from(
        circuit_of(graph, plan), tuple(metrics), state.sizes, origin, drawings, missing
    )


def report_from(
    circuit: CircuitTold,
    steps: Sequence[StepMetrics],
    sizes: Mapping[str, Size],
    origin: PageData,
    drawings: Sequence[Drawing],
    missing: Sequence[str] = (),
) -> Report:
    """A report from the description of a circuit, its steps, and its registers."""
    statistics = measured(steps)
    paths = [v.path for v in circuit.vertices]
    names = [r.name for r in circuit.registers]
    numbers = {
        "format": FORMAT,
        "name": circuit.name,
        "sentence": sentence_of(circuit, steps, sizes),
        "made": dict(origin),
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
        "measured": {path: asdict(m) for path, m in statistics.items()},
        "lines": asdict(lines_of(steps, [p for p in paths if p in statistics], names)),
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
        sizes = sizes_of(store, registers)
    except SteppingError as e:
        return KeptState(name, {}, f"The size of the state is not known: {e}")
    silent = f"{name} does not say how large registers are." if registers and not sizes else ""
    return KeptState(name, sizes, silent)


def _other(beside: Report | str | os.PathLike[str] | None) -> PageData | None:
    """The numbers to compare with, without lines and pictures, which comparisons do not use."""
    if beside is None:
        return None
    if isinstance(beside, Report):
        numbers: PageData = beside.numbers
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
        return metadata.version("stepping-spark")
    except metadata.PackageNotFoundError:
        return "of a checkout"
