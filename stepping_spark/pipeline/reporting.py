"""Reports on steps: the log, progress, and metrics for Prometheus and OpenTelemetry."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakSet, ref

import numpy as np

from stepping_spark.base.packages import module_of_extra
from stepping_spark.report import Report
from stepping_spark.report.progress import Bar, NoBar, bar_of
from stepping_spark.rows.schema import COUNT
from stepping_spark.zsets.spark import ZSetSpark

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider


log = logging.getLogger("stepping_spark.pipeline")

Lag = Mapping[str, "int | None"]


def rows_of(change: ZSetSpark[Any]) -> int | None:
    """The sum of the absolute counts of a change; None if its rows are in Spark."""
    if change.in_spark:
        return None
    counts = change.to_arrow().column(COUNT).to_numpy()
    return int(np.abs(counts).sum())


def signs_of(change: ZSetSpark[Any]) -> tuple[int, int]:
    """The sums of the negative and of the positive counts of a change, without signs."""
    if change.in_spark:
        sums = (f"coalesce(sum({f}({COUNT}, 0L)), 0L)" for f in ("least", "greatest"))
        ((removed, new),) = change.to_dataframe().selectExpr(*sums).collect()
        return -int(removed), int(new)
    counts = change.to_arrow().column(COUNT).to_numpy()
    return -int(counts[counts < 0].sum()), int(counts[counts > 0].sum())


@dataclass(frozen=True)
class StepReport:
    """A step of a pipeline: positions of sources before and after, rows, milliseconds.

    None as a number of rows means rows in Spark, which only a job could count. `rows_out` are the
    rows written to sinks, or None without sinks. `misfits` are the numbers of rows that did not
    fit, by input.
    """

    step: int
    read: tuple[tuple[str, str, str], ...]
    rows_in: tuple[int | None, ...]
    rows_out: tuple[int | None, ...] | None
    ms: float
    misfits: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        read = ", ".join(f"{name} {old} -> {new}" for name, old, new in self.read)
        out = "no sinks" if self.rows_out is None else f"out {_rows_text(self.rows_out)}"
        misfits = ", ".join(f"{n:,} of {name}" for name, n in self.misfits.items())
        return (
            f"step {self.step}: {read or 'no changes'}; rows in {_rows_text(self.rows_in)}, {out}; "
            + (f"rows that do not fit: {misfits}; " if misfits else "")
            + f"{self.ms:.0f} ms"
        )


@dataclass(eq=False)
class Reporting:
    """Counts the steps of a process and their rows, and logs each step.

    `lag` is called in the thread of the steps, and only for progress or metrics.
    """

    name: str
    lag: Callable[[], Lag]
    steps: int = 0
    rows_in: int = 0
    rows_out: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    retries: int = 0
    seconds: float = 0.0
    last_step: int = 0
    last_time: float = 0.0
    behind: Lag = field(default_factory=dict)
    _wanted: bool = False
    _bar: Bar = field(default_factory=NoBar)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def tell(self, report: StepReport) -> None:
        """Log a step, and count it."""
        log.info("%s", report)
        self.count(report)

    def note(self, text: str) -> None:
        """Log the current part of a long step, and show it in the line of progress."""
        log.info("%s", text)
        self._bar.show(f"{self.name}: {text}")

    def count(self, report: StepReport) -> None:
        """Count a step."""
        with self._lock:
            self.steps += 1
            self.rows_in += sum(n or 0 for n in report.rows_in)
            self.rows_out += sum(n or 0 for n in report.rows_out or ())
            self.rejected.update(report.misfits)
            self.seconds += report.ms / 1e3
            self.last_step, self.last_time = report.step, time.time()

    def retry(self, error: Exception, pause: float) -> None:
        """Log a transient error, and count the retry."""
        log.warning("%s; trying again in %g s", str(error), pause)
        with self._lock:
            self.retries += 1

    def look(self) -> None:
        """Update the lag of the views, if it is wanted."""
        if self._wanted:
            behind = self.lag()
            with self._lock:
                self.behind = behind

    def told_in(self, report: Report) -> Report:
        """A report of the steps with the numbers of rows that did not fit their input."""
        if not self.rejected:
            return report
        rows = ", ".join(f"{n:,} of {name}" for name, n in self.rejected.items())
        sentence = f"{report.numbers['sentence']} Rows that did not fit: {rows}."
        numbers = {**report.numbers, "sentence": sentence, "rejected": dict(self.rejected)}
        return replace(report, numbers=numbers)

    @contextmanager
    def progress_line(self, progress: bool) -> Iterator[Callable[[], None]]:
        """A context with a line of progress, if wanted: the last step and the lag.

        The pipeline calls the yielded function after each round.
        """
        if not progress:
            yield self.look
            return
        self._wanted = True
        with bar_of(f"{self.name}: reading", count=False) as bar:
            self._bar = bar

            def show() -> None:
                self.look()
                behind = ", ".join(f"{n} {'?' if k is None else k}" for n, k in self.behind.items())
                text = f"{self.name}: step {self.last_step:,}, behind: {behind}"
                bar.show(text)

            try:
                yield show
            finally:
                self._bar = NoBar()

    def collector(self) -> PipelineCollector:
        """The metrics of this process, for Prometheus' client."""
        self._wanted = True
        return PipelineCollector(self)

    def counted(self) -> tuple[Mapping[str, float], Lag]:
        """The counts so far, and the lag of the views after the last round."""
        with self._lock:
            return {
                "steps": self.steps,
                "rows_in": self.rows_in,
                "rows_out": self.rows_out,
                "rows_rejected": self.rejected.total(),
                "retries": self.retries,
                "step_seconds": self.seconds,
                "last_step": self.last_step,
                "last_step_time_seconds": self.last_time,
            }, self.behind


WORDS = {
    "steps": "Steps that this process took.",
    "rows_in": "Rows of changes that were read, as far as the driver has them.",
    "rows_out": "Rows of changes that were written into sinks.",
    "rows_rejected": "Rows that sources gave and that do not fit the row class of their input.",
    "retries": "Attempts that failed, and were made again.",
    "step_seconds": "Seconds that the steps took, reading and writing included.",
    "last_step": "The number of the last step.",
    "last_step_time_seconds": "When the last step ended, in seconds since 1970.",
}
LAG = "How far a source is ahead of the views: versions, files or rows of a log."


class PipelineCollector:
    """A collector of metrics for `prometheus_client`; see `Pipeline.collector`."""

    def __init__(self, reporting: Reporting) -> None:
        self._reporting = reporting

    def collect(self) -> Iterator[Any]:
        """The metrics as they are now."""
        core = _prometheus(".core")
        counts, behind = self._reporting.counted()
        for name, value in counts.items():
            last = name.startswith("last")
            family = core.GaugeMetricFamily if last else core.CounterMetricFamily
            metric = family(f"stepping_spark_{name}", WORDS[name], labels=["pipeline"])
            metric.add_metric([self._reporting.name], value)
            yield metric
        lag = core.GaugeMetricFamily(
            "stepping_spark_lag",
            LAG,
            labels=["pipeline", "source"],
        )
        for source, n in behind.items():
            if n is not None:
                lag.add_metric([self._reporting.name, source], n)
        yield lag


def _prometheus(module: str = "") -> Any:
    return module_of_extra(_CLIENT + module, "metrics for Prometheus", "metrics", (_CLIENT,))


_CLIENT, _API = "prometheus_client", "opentelemetry"


def _opentelemetry() -> Any:
    return module_of_extra(f"{_API}.metrics", "metrics for OpenTelemetry", "metrics", (_API,))


def text_of(collector: PipelineCollector) -> str:
    """The metrics in the text format of Prometheus."""
    client = _prometheus()
    registry = client.CollectorRegistry()
    registry.register(collector)
    text: bytes = client.generate_latest(registry)
    return text.decode()


def serve(collector: PipelineCollector, port: int) -> Callable[[], None]:
    """Serve the metrics at a port of this machine; returns a function that ends it."""
    client = _prometheus()
    registry = client.CollectorRegistry()
    registry.register(collector)
    server, thread = client.start_http_server(port, addr="127.0.0.1", registry=registry)

    def end() -> None:
        server.shutdown()
        server.server_close()
        thread.join()

    return end


def _rows_text(rows: Iterable[int | None]) -> str:
    counts = list(rows)
    total = sum(n for n in counts if n is not None)
    return f"{total:,}" + (" and more, in Spark" if None in counts else "")


METER = "stepping_spark"
UNITS = {
    "steps": "{step}",
    "rows_in": "{row}",
    "rows_out": "{row}",
    "rows_rejected": "{row}",
    "retries": "{attempt}",
    "step_seconds": "s",
    "last_step": "{step}",
    "last_step_time_seconds": "s",
}

Observe: TypeAlias = "Callable[[object], Iterable[Any]]"

_observed: list[tuple[ref[Any], WeakSet[Reporting]]] = []
"""Providers, and the pipelines of each, whose instruments are made once for all of them."""


def observe(reporting: Reporting, provider: MeterProvider | None) -> None:
    """Let a provider of OpenTelemetry, by default the global one, read a pipeline's counts."""
    api = _opentelemetry()
    reporting.collector()  # from now on the lag is updated
    at = api.get_meter_provider() if provider is None else provider
    _observed[:] = [(other, reportings) for other, reportings in _observed if other() is not None]
    for other, reportings in _observed:
        if other() is at:
            reportings.add(reporting)
            return
    pipelines = WeakSet([reporting])
    _observed.append((ref(at), pipelines))
    _make_instruments(at.get_meter(METER), pipelines)


def _make_instruments(meter: Any, pipelines: WeakSet[Reporting]) -> None:
    for name, description in WORDS.items():
        last = name.startswith("last")
        make = meter.create_observable_gauge if last else meter.create_observable_counter
        observed = _counts(name, pipelines)
        make(f"{METER}.{name}", [observed], unit=UNITS[name], description=description)
    meter.create_observable_gauge(f"{METER}.lag", [_lags(pipelines)], description=LAG)


def _counts(name: str, pipelines: WeakSet[Reporting]) -> Observe:
    """A callback that yields one of the counts of each pipeline."""
    observation = _opentelemetry().Observation

    def observed(_: object) -> Iterator[Any]:
        for reporting in list(pipelines):
            counts, _lag = reporting.counted()
            yield observation(counts[name], {"pipeline": reporting.name})

    return observed


def _lags(pipelines: WeakSet[Reporting]) -> Observe:
    """A callback that yields the lag of each source."""
    observation = _opentelemetry().Observation

    def observed(_: object) -> Iterator[Any]:
        for reporting in list(pipelines):
            for source, n in reporting.counted()[1].items():
                if n is not None:
                    yield observation(n, {"pipeline": reporting.name, "source": source})

    return observed
