"""What several test files use: rows, limits, and a stepper in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import stepping_spark as st

ROOT = Path(__file__).resolve().parents[1]
Z = st.ZSetPython
LEAST, MOST = -(2**63), 2**63 - 1  # of an int

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


def stepper_of(query: Any, limits: st.Limits | None = None) -> st.Stepper[Any, Any]:
    """A stepper of a query, with an empty store in memory."""
    graph = st.compile(query)
    return st.Stepper(graph, st.StoreMemory.from_graph(graph), limits=limits)
