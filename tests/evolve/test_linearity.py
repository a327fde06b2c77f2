"""What a condition implies holds for each row, and is all that is made use of."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import Any

import pytest

import stepping_spark as st
from stepping_spark.circuit.operators import Filter
from stepping_spark.stepper.evolve.linearity import implies


def condition(f: Any, row: Any = int) -> Any:
    def query(a: Any) -> Any:
        return st.filter(a, f=f)

    query.__annotations__ = {"a": st.ZSet[row]}
    (found,) = [v.operator for v in st.compile(query).walk() if isinstance(v.operator, Filter)]
    return found.f


COMPARED: list[Any] = [
    lambda n, c: n >= c,
    lambda n, c: n > c,
    lambda n, c: n <= c,
    lambda n, c: n < c,
    lambda n, c: n == c,
    lambda n, c: n != c,
]


def test_a_comparison_implies_another_if_it_does_so_for_each_number() -> None:
    conditions = [condition(lambda n, f=f, c=c: f(n, c)) for f in COMPARED for c in range(-1, 2)]
    numbers = range(-3, 4)
    found = 0
    for a, b in itertools.product(conditions, repeat=2):
        holds = all(b.value(n) for n in numbers if a.value(n))
        assert not implies(a, b) or holds, (a, b)
        found += implies(a, b)
    assert found > 60


@pytest.mark.parametrize(
    ("known", "to", "holds"),
    [
        (dt.date(2024, 1, 2), dt.date(2024, 1, 1), True),
        (dt.date(2024, 1, 1), dt.date(2024, 1, 2), False),
        ("b", "a", False),  # the order of text is Spark's
        (2.0, 1.0, False),  # and of doubles, NaN
    ],
)
def test_only_constants_whose_order_is_known_imply_others(known: Any, to: Any, holds: bool) -> None:
    row: Any = type(known)
    of = [condition(lambda n, c=c: n >= c, row) for c in (known, to)]
    assert implies(*of) is holds
    assert implies(of[0], of[0])
    assert not implies(of[0], condition(lambda n: n < to, row))
