"""A worker that is lost within a step: this step goes another way, and later ones do not."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException, PythonException
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark.execution import task_executor
from tests.cases import Z
from tests.elsewhere import IN_TASKS
from tests.every_store import MakeStore


class Dying:
    """A function of rows that once ends the process that calls it, if a file is there."""

    def __init__(self, wanted: Path) -> None:
        self._wanted = wanted

    def __call__(self, x: int) -> int:
        if self._wanted.exists():
            self._wanted.unlink()
            os._exit(1)
        return x + 1


def test_a_step_whose_worker_dies_is_computed_by_queries_and_the_next_one_in_tasks(
    spark: SparkSession, make_store: MakeStore, tmp_path: Path
) -> None:
    wanted = tmp_path / "wanted"
    dying = Dying(wanted)

    def query(a: st.ZSet[int]) -> st.ZSet[int]:
        return st.distinct(st.map(a, f=st.python(dying, to=int)))

    graph: Any = st.compile(query)
    stepper: Any = st.Stepper(graph, make_store(graph), limits=IN_TASKS)
    for n in range(4):
        if n == 1:
            wanted.touch()
        numbers = range(10 * n, 10 * n + 10)
        (out,) = stepper.step((Z(dict.fromkeys(numbers, 1)),))
        assert out.to_python() == Z({x + 1: 1 for x in numbers})
        metrics = stepper.metrics[-1]
        ways = {v.how for v in metrics.vertices.values()}
        assert (metrics.not_in_tasks == "", "tasks" in ways) == ((n != 1,) * 2)
        if n == 1:
            assert "Python worker exited unexpectedly" in metrics.not_in_tasks
    assert not wanted.exists()


class OfJava(Py4JJavaError):  # type: ignore[misc]
    """An error that only Java knows, with its text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __str__(self) -> str:
        return f"An error occurred while calling o1.getResult.\n: {self._text}\n\tat x.y.z(z.scala)"


WAITED = "org.apache.spark.SparkException: Exception thrown in awaitResult: "
LOST = "org.apache.spark.SparkException: Job aborted due to stage failure: ExecutorLostFailure"


@pytest.mark.parametrize(
    ("error", "why", "comes_again"),
    [
        (PySparkException("the executor is lost"), "the executor is lost", False),
        (AnalysisException("no such table"), "no such table", False),
        (OfJava(f"{WAITED}\nCaused by: {LOST}\nCaused by: java.io.EOFException"), LOST, False),
        (OfJava(LOST), LOST, False),
        (PythonException("No module named 'stepping_spark'"), "No module named", True),
    ],
)
def test_only_an_error_of_python_ends_later_steps_in_tasks(
    error: Exception,
    why: str,
    comes_again: bool,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def query(a: st.ZSet[int]) -> st.ZSet[int]:
        return st.distinct(a)

    graph = st.compile(query)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), limits=IN_TASKS)
    fetched: Callable[..., Any] = task_executor._fetched

    class Failing:
        def toArrow(self) -> None:  # noqa: N802
            raise error

    reasons = []
    for n, frame in enumerate((Failing(), None, None)):
        monkeypatch.setattr(
            task_executor, "_fetched", lambda given, frame=frame: fetched(frame or given)
        )
        stepper.step((Z({n: 1}),))
        reasons.append(stepper.metrics[-1].not_in_tasks)
    assert why in reasons[0]
    assert "awaitResult" not in reasons[0]
    assert reasons[1:] == ([reasons[0]] * 2 if comes_again else [""] * 2)
