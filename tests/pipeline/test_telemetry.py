"""The metrics of pipelines, as OpenTelemetry's own reader gets them."""

from __future__ import annotations

import gc
import logging
import sys
import time
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint

import stepping_spark as st
from stepping_spark.base.errors import InputError
from tests.cases import User, Z
from tests.pipeline.shop import View, names

USERS = [(i, Z({User(id=i, name=f"n{i}"): 1})) for i in range(1, 4)]
Read = dict[tuple[str, ...], float]


def pipeline(**given: Any) -> st.Pipeline:
    return st.Pipeline(names, store="memory", users=USERS, into={"names": View()}, **given)


def read(reader: InMemoryMetricReader) -> Read:
    """Each metric with its attributes, and its value."""
    found = reader.get_metrics_data()
    assert found is not None
    return {
        (metric.name, *map(str, (point.attributes or {}).values())): point.value
        for resource in found.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
        if isinstance(point, NumberDataPoint)
    }


@pytest.fixture
def reader() -> InMemoryMetricReader:
    return InMemoryMetricReader()


def test_a_provider_reads_steps_rows_seconds_and_lag(reader: InMemoryMetricReader) -> None:
    provider = MeterProvider([reader])
    running = pipeline()
    running.to_opentelemetry(provider)
    running.to_opentelemetry(provider)  # once more changes nothing
    running.run(max_steps=2)
    found = read(reader)
    counted = {
        ("stepping_spark.steps", "names"): 2,
        ("stepping_spark.rows_in", "names"): 2,
        ("stepping_spark.rows_out", "names"): 2,
        ("stepping_spark.rows_rejected", "names"): 0,
        ("stepping_spark.retries", "names"): 0,
        ("stepping_spark.last_step", "names"): 2,
        ("stepping_spark.lag", "names", "users"): 1,
    }
    assert {key: found.pop(key) for key in counted} == counted
    assert 0 < found.pop(("stepping_spark.step_seconds", "names")) < 600
    assert 0 <= time.time() - found.pop(("stepping_spark.last_step_time_seconds", "names")) < 600
    assert not found
    running.run()
    found = read(reader)
    assert found["stepping_spark.steps", "names"] == 3
    assert found["stepping_spark.lag", "names", "users"] == 0
    provider.shutdown()


def test_counters_are_sums_with_units_and_the_rest_are_gauges(
    reader: InMemoryMetricReader,
) -> None:
    provider = MeterProvider([reader])
    running = pipeline()
    running.to_opentelemetry(provider)
    running.run()
    found = reader.get_metrics_data()
    assert found is not None
    (scope,) = found.resource_metrics[0].scope_metrics
    assert scope.scope.name == "stepping_spark"
    kinds = {m.name: (type(m.data).__name__, m.unit) for m in scope.metrics}
    assert kinds["stepping_spark.rows_in"] == ("Sum", "{row}")
    assert kinds["stepping_spark.step_seconds"] == ("Sum", "s")
    assert kinds["stepping_spark.lag"] == ("Gauge", "")
    assert all(m.description for m in scope.metrics)
    provider.shutdown()


def test_two_pipelines_of_one_provider_are_told_apart_and_one_that_is_gone_is_not_reported(
    reader: InMemoryMetricReader, caplog: pytest.LogCaptureFixture
) -> None:
    provider = MeterProvider([reader])
    one = pipeline()
    other: st.Pipeline | None = st.Pipeline(
        {"ids": ids}, store="memory", users=USERS, into={"ids": View()}
    )
    assert other is not None
    for running, steps in ((one, 1), (other, 3)):
        running.to_opentelemetry(provider)
        running.run(max_steps=steps)
    found = read(reader)
    assert found["stepping_spark.steps", "names"] == 1
    assert found["stepping_spark.steps", "pipeline"] == 3
    # The SDK warns of an instrument that is made twice.
    assert [r for r in caplog.records if r.levelno >= logging.WARNING] == []
    del other, running
    gc.collect()
    assert ("stepping_spark.steps", "pipeline") not in read(reader)
    provider.shutdown()


def ids(users: st.ZSet[User]) -> st.ZSet[int]:
    return st.map(users, f=lambda u: u.id)


def test_without_opentelemetry_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.metrics", None)
    with pytest.raises(InputError, match=r"pip install 'stepping-spark\[metrics\]'"):
        pipeline().to_opentelemetry()
