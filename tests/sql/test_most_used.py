"""Of the functions that occur most in views that people have written, the driver knows most."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from importlib import import_module
from typing import Annotated, NoReturn

import pytest

import stepping_spark as st
from tests.sql.most_used import listed

LEAST = 85


class A(st.Data):
    k: int
    n: int | None
    x: float | None
    s: str | None
    d: dt.date | None
    t: st.LocalDateTime | None
    b: bool | None
    p: Annotated[Decimal, st.Precision(10, 2)] | None


class Asked(st.SteppingError):
    """A session is wanted."""


def refuse() -> NoReturn:
    raise Asked


def asks(call: str) -> bool:
    text = call if call.startswith("SELECT") else f"SELECT k, {call} AS v FROM a"
    try:
        st.compile(st.sql(text, a=A))
    except st.SteppingError:
        return True
    return False


def test_the_driver_knows_the_functions_that_occur_most(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("spark.types", "spark.column_made", "sql.values"):
        monkeypatch.setattr(import_module(f"stepping_spark.{module}"), "get_session", refuse)
    known = [name for name, _, call in listed() if not asks(call)]
    assert len(known) >= LEAST, sorted({name for name, _, _ in listed()} - {*known})
