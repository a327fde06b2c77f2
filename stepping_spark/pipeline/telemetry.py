"""The metrics of pipelines for OpenTelemetry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakSet, ref

from stepping_spark.errors import InputError
from stepping_spark.pipeline.reporting import LAG, WORDS, Reporting

try:
    import opentelemetry.metrics

    _api: Any = opentelemetry.metrics
except ImportError:
    _api = None

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

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
"""Providers, and the pipelines of each: its instruments are made once, and report all of them."""


def observe(reporting: Reporting, provider: MeterProvider | None) -> None:
    """Have a provider of OpenTelemetry, by default the global one, read what a pipeline counts."""
    if _api is None:
        raise InputError(
            "metrics for OpenTelemetry need opentelemetry-api, which is not installed; install it "
            "with pip install 'stepping-spark[metrics]'"
        )
    reporting.collector()  # from now on the lag is asked for
    at = _api.get_meter_provider() if provider is None else provider
    _observed[:] = [(other, known) for other, known in _observed if other() is not None]
    for other, known in _observed:
        if other() is at:
            known.add(reporting)
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
    """What gives one of the counts of each pipeline."""

    def observed(_: object) -> Iterator[Any]:
        for reporting in list(pipelines):
            counts, _lag = reporting.counted()
            yield _api.Observation(counts[name], {"pipeline": reporting.name})

    return observed


def _lags(pipelines: WeakSet[Reporting]) -> Observe:
    """What gives the lag of each source."""

    def observed(_: object) -> Iterator[Any]:
        for reporting in list(pipelines):
            for source, n in reporting.counted()[1].items():
                if n is not None:
                    yield _api.Observation(n, {"pipeline": reporting.name, "source": source})

    return observed
