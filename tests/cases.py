"""What several test files use: rows, modes, other constants, and a stepper in memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import stepping_spark as st
from stepping_spark.execution.task_executor import TaskExecutor

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("stepping_spark", "circuits", "stores")
Z = st.ZSetPython
LEAST, MOST = -(2**63), 2**63 - 1  # of an int

INTERPRETED = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
"""Settings with which Spark interprets queries. To compile one that runs once takes longer."""

everywhere = pytest.mark.parametrize(
    "local_rows", [st.Limits.local_rows, 0], ids=["driver", "spark"]
)


class A(st.Data):
    x: int
    name: str


class B(st.Data):
    y: int
    name: str


class WithLen(st.Data):
    value: str
    length: int


class Link(st.Data):
    source: int
    target: int


class Order(st.Data):
    id: int
    user: int
    amount: int


class User(st.Data):
    id: int
    name: str


def upper(a: A) -> A:
    return A(x=a.x, name=a.name.upper())


def measured(s: str) -> WithLen:
    return WithLen(value=s, length=len(s))


@contextmanager
def by_queries() -> Iterator[None]:
    """Queries of Spark take large steps, stream by stream, as where its tasks cannot."""
    with patch.object(TaskExecutor, "_why_not", lambda *_: "they are for queries"):
        yield


@contextmanager
def constants(**numbers: int) -> Iterator[None]:
    """Constants of the package have other values within: `constants(cut_rows=2)` sets `CUT_ROWS`.

    In this process only: Spark's Python workers have the package's own values.
    """
    modules = [m for name, m in sys.modules.items() if name.partition(".")[0] in PACKAGES]
    with pytest.MonkeyPatch.context() as patch:
        for name, number in numbers.items():
            constant = name.upper()
            readers = [m for m in modules if constant in vars(m)]
            values = {vars(m)[constant] for m in readers}
            assert len(values) == 1, f"{constant} has no module, or two meanings: {readers}"
            for module in readers:
                patch.setattr(module, constant, number)
        yield


def cached(of: type) -> set[str]:
    """The names of the cached properties of a class."""
    return {n for c in of.__mro__ for n, x in vars(c).items() if isinstance(x, cached_property)}


def stepper_of(query: Any, limits: st.Limits | None = None) -> st.Stepper[Any, Any]:
    """A stepper of a query, with an empty store in memory."""
    graph = st.compile(query)
    return st.Stepper(graph, st.StoreMemory.from_graph(graph), limits=limits)
