"""Hashes of keys: equal for equal keys, spread for others, and never another."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepping_spark.relations.hashing import key_hashes
from stepping_spark.rows.schema import Schema
from tests.relation_cases import Rows, in_pieces, relations, row_key, table_of


@given(relation=relations(), at=st.lists(st.integers(0, 99), max_size=3))
def test_hashes_are_equal_exactly_where_keys_are(
    relation: tuple[Schema, Rows], at: list[int]
) -> None:
    schema, rows = relation
    names = [n for n, _ in schema.columns]
    hashes = key_hashes(in_pieces(table_of(schema, rows), at), names)
    by_key: dict[Any, set[int]] = {}
    for row, h in zip(rows, hashes.tolist(), strict=True):
        by_key.setdefault(row_key(row[: len(names)]), set()).add(h)
    assert all(len(found) == 1 for found in by_key.values())
    assert len({h for (h,) in by_key.values()}) == len(by_key)


GOLDEN: list[tuple[pa.Array[Any], tuple[int, ...]]] = [
    (pa.array([1, -1, None]), (6791897765849424158, 6755974106381971767, 13898507668257350876)),
    (
        pa.array(["", "a", "a longer string", None]),
        (
            12035550249420947055,
            3287874053039225664,
            11329320889109637751,
            13898507668257350876,
        ),
    ),
    (
        pa.array([0.5, float("nan"), 0.0]),
        (18301007836532562287, 6009531555643646463, 12035550249420947055),
    ),
    (
        pa.array([Decimal("1.50"), Decimal(-(10**30))], pa.decimal128(38, 2)),
        (2933716263865910363, 4882425525966849487),
    ),
    (pa.array([[1, None], []], pa.list_(pa.int64())), (11006213410371562366, 12035550249420947055)),
    (
        pa.array([{"x": 1, "y": "a"}, {"x": None, "y": None}]),
        (6138359763409225124, 9899935388540718928),
    ),
    (pa.array([True, False]), (6791897765849424158, 12035550249420947055)),
]


@pytest.mark.parametrize(("values", "expected"), GOLDEN, ids=[str(v.type) for v, _ in GOLDEN])
def test_hashes_never_change(values: pa.Array[Any], expected: tuple[int, ...]) -> None:
    hashes = key_hashes(pa.table({"k": values}), ["k"])
    assert tuple(hashes.tolist()) == expected


@pytest.mark.parametrize(
    "column",
    [
        pytest.param(pa.array(np.arange(300_000)), id="small ints"),
        pytest.param(pa.array(np.arange(300_000) << 40), id="ints that differ in upper bits"),
        pytest.param(pa.array([f"{i}" for i in range(300_000)]), id="short strings"),
        pytest.param(pa.array([f"a long prefix, {i}" for i in range(300_000)]), id="long strings"),
        pytest.param(
            pa.array([[i, 0] for i in range(1_000)] + [[0, i] for i in range(1, 1_000)]), id="lists"
        ),
    ],
)
def test_distinct_keys_have_distinct_and_evenly_spread_hashes(column: pa.Array[Any]) -> None:
    hashes = key_hashes(pa.table({"k": column}), ["k"])
    assert len(np.unique(hashes)) == len(column)
    for shift in (0, 32, 60):
        buckets = np.bincount(((hashes >> np.uint64(shift)) & np.uint64(15)).astype(np.int64))
        assert buckets.min() > 0.7 * len(column) / 16
        assert buckets.max() < 1.3 * len(column) / 16


def test_the_order_of_columns_and_the_cut_between_them_matter() -> None:
    table = pa.table({"a": ["x", "xy", "z"], "b": ["yz", "z", "xy"]})
    one = key_hashes(table, ["a", "b"])
    other = key_hashes(table, ["b", "a"])
    assert len({*one.tolist(), *other.tolist()}) == 4  # (xy, z) and (z, xy) are in both


def test_a_table_without_rows_or_without_key_columns_has_hashes_too() -> None:
    assert len(key_hashes(pa.table({"a": pa.array([], pa.string())}), ["a"])) == 0
    hashes = key_hashes(pa.table({"a": [1, 2]}), [])
    assert hashes.tolist() == [0, 0]
