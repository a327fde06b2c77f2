"""The order of rows on the driver: what comes first of each key, and Spark's order of values."""

from __future__ import annotations

import datetime as dt
import math
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from stepping_spark.execution.arrow import groups
from stepping_spark.execution.arrow.groups import (
    by_numbers,
    foremost,
    foremost_of,
    in_order,
    key_ids,
)
from stepping_spark.relations.arrow import ArrowColumn

LAST = dt.datetime(9999, 12, 31, 23, 59, 59, 999999)
VALUES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.int64(), [None, -(2**63), 2**63 - 1, 0, 1, -1]),
    (pa.float64(), [None, math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5]),
    (pa.date32(), [None, dt.date.min, dt.date.max, dt.date(1970, 1, 1)]),
    (pa.timestamp("us"), [None, dt.datetime.min, LAST, dt.datetime(1970, 1, 1)]),
    (pa.duration("us"), [None, dt.timedelta(-1), dt.timedelta(0), dt.timedelta(3)]),
    (pa.bool_(), [None, True, False]),
    (pa.string(), [None, "", "a", "b"]),
]


@some.composite
def rows(draw: Any) -> tuple[ArrowColumn, list[tuple[ArrowColumn, bool]]]:
    """The keys of some rows, and the columns by which these are ordered."""
    n = draw(some.integers(1, 20))
    keys = draw(some.lists(some.sampled_from([None, 1, 2]), min_size=n, max_size=n))
    order = []
    for _ in range(draw(some.integers(1, 3))):
        t, values = draw(some.sampled_from(VALUES))
        column = draw(some.lists(some.sampled_from(values), min_size=n, max_size=n))
        order.append((pa.array(column, t), draw(some.booleans())))
    return pa.array(keys, pa.int64()), order


def place(value: Any, up: bool) -> tuple[int, Any]:
    """Where a value stands in Spark's order: NULL first and NaN last, or the other way round."""
    if value is None:
        return (-1 if up else 1, 0)
    if isinstance(value, float) and math.isnan(value):
        return (1 if up else -1, 0)
    if isinstance(value, str):
        return (0, [ord(c) if up else -ord(c) for c in value] + [0 if up else 1])
    if isinstance(value, dt.date):  # a datetime is one, too
        value = value - type(value).min
    number = value // dt.timedelta(microseconds=1) if isinstance(value, dt.timedelta) else value
    return (0, number if up else -number)


@given(rows())
@example((pa.array([2, 1, 2, 1, 1, 2]), [(pa.array([0] * 6), True)]))
def test_the_foremost_rows_of_each_key_are_those_that_none_comes_before(
    given_rows: tuple[ArrowColumn, list[tuple[ArrowColumn, bool]]],
) -> None:
    keys, order = given_rows
    columns = [(c.to_pylist(), up) for c, up in order]
    places = [[place(c[i], up) for c, up in columns] for i in range(len(keys))]
    first: dict[Any, Any] = {}
    for key, at in zip(keys.to_pylist(), places, strict=True):
        first[key] = min(first.get(key, at), at)
    wanted = {i for i, k in enumerate(keys.to_pylist()) if places[i] == first[k]}
    ids = key_ids([keys])
    assert set(foremost(ids, order).tolist()) == wanted
    for several, different in product(
        ([keys], [keys, pc.negate(keys)], [keys, keys, keys]), (False, True)
    ):
        with pytest.MonkeyPatch.context() as patch:  # whatever a sample says
            patch.setattr(groups, "are_mostly_different", lambda some, rows, d=different: d)
            found_at, own = foremost_of(several, order)
        assert set(found_at.tolist()) == wanted
        pairs = {
            (keys[i].as_py(), number) for i, number in zip(found_at.tolist(), own, strict=True)
        }
        assert len(pairs) == len({k for k, _ in pairs}) == len({n for _, n in pairs})
    row = [7 * i % 5 for i in range(len(keys))]
    sorted_at, differ = in_order(ids, order, [pa.array(row)])
    assert sorted(sorted_at.tolist()) == list(range(len(keys)))
    for key in set(ids.tolist()):
        found = [(places[i], row[i]) for i in sorted_at.tolist() if ids[i] == key]
        assert found == sorted(found)
    whole = [(ids[i], places[i], row[i]) for i in sorted_at.tolist()]
    assert differ.tolist() == [i == 0 or whole[i] != whole[i - 1] for i in range(len(whole))]


@given(
    some.integers(0, 12).flatmap(
        lambda n: some.lists(
            some.one_of(
                some.lists(some.integers(-2, 2), min_size=n, max_size=n),
                some.lists(some.integers(-(2**63), 2**63 - 1), min_size=n, max_size=n),
                some.lists(some.integers(-(2**40), 2**40), min_size=n, max_size=n),
            ),
            min_size=1,
            max_size=5,
        )
    )
)
@example([[2**62 - 1, 2**62], [0, 1]])
@example([[0, 1], [2**63 - 2, 2**63 - 1]])
def test_numbers_of_few_and_of_many_bits_have_the_order_of_their_tuples(
    columns: list[list[int]],
) -> None:
    at, begins = by_numbers([np.array(c, np.int64) for c in columns])
    tuples = list(zip(*columns, strict=True))
    found = [tuples[i] for i in at.tolist()]
    assert sorted(at.tolist()) == list(range(len(tuples)))
    assert found == sorted(tuples)
    assert begins.tolist() == [i == 0 or found[i] != found[i - 1] for i in range(len(found))]
