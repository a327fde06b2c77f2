"""The algebra of relations on the driver, against dictionaries of sums."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stepping_spark.base.errors import StepError
from stepping_spark.relations import arrow, hashing
from stepping_spark.relations.arrow import (
    concat,
    consolidate,
    distinct_numbers,
    distinct_rows,
    empty,
    negate,
)
from stepping_spark.relations.hashing import consolidate_few_equal
from stepping_spark.rows.atoms import FLOAT, INT, STR
from stepping_spark.rows.schema import BIG_INT, COUNT, Schema
from stepping_spark.rows.types import ListOf, Optional, Struct
from tests import relation_cases
from tests.relation_cases import Rows, in_pieces, row_key, table_of

MOST = 2**63 - 1


@pytest.fixture(autouse=True, scope="module", params=[0, arrow.FEW], ids=["in Arrow", "few"])
def few(request: pytest.FixtureRequest) -> Iterator[None]:
    """Few rows are grouped by Python, where their types are simple."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow, "FEW", request.param)
        yield


WORDS = Schema((("word", Optional(STR)),))
TOTAL = Schema((), (("_value_", BIG_INT),))


def sums(schema: Schema, rows: Rows) -> dict[Any, tuple[Any, ...]]:
    """The diffs of each row, added up; none that are all zero."""
    n = len(schema.columns)
    found: dict[Any, tuple[Any, ...]] = {}
    for row in rows:
        key = row_key(row[:n])
        zero = (0,) * len(schema.diffs)
        found[key] = tuple(a + b for a, b in zip(found.get(key, zero), row[n:], strict=True))
    return {key: diffs for key, diffs in found.items() if any(diffs)}


def rows_of(table: pa.Table) -> Rows:
    return [tuple(r.values()) for r in table.to_pylist()]


def read(schema: Schema, table: pa.Table) -> dict[Any, tuple[Any, ...]]:
    n = len(schema.columns)
    found = {row_key(r[:n]): r[n:] for r in rows_of(table)}
    assert len(found) == table.num_rows
    return found


def consolidate_by_hashes(table: pa.Table, schema: Schema) -> pa.Table:
    """What is done where few of many rows are equal, whatever a sample says."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashing, "are_mostly_different", lambda some, rows: True)
        return consolidate_few_equal(table, schema)


def consolidate_by_some_columns(table: pa.Table, schema: Schema) -> pa.Table:
    """The same where a sample of two rows says which columns to compare first."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow, "_SAMPLE", 2)
        return consolidate_by_hashes(table, schema)


@pytest.mark.parametrize(
    "consolidate",
    [consolidate, consolidate_few_equal, consolidate_by_hashes, consolidate_by_some_columns],
)
@given(relation=relation_cases.relations(), at=st.lists(st.integers(0, 99), max_size=3))
def test_consolidation_adds_up_equal_rows_of_any_type(
    consolidate: Callable[[pa.Table, Schema], pa.Table],
    relation: tuple[Schema, Rows],
    at: list[int],
) -> None:
    schema, rows = relation
    found = consolidate(in_pieces(table_of(schema, rows), at), schema)
    assert found.schema.equals(schema.arrow)
    assert read(schema, found) == sums(schema, rows)
    assert read(schema, consolidate(found, schema)) == read(schema, found)


@given(numbers=st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3)))
def test_distinct_numbers_are_sorted(numbers: list[int]) -> None:
    assert distinct_numbers(np.array(numbers, np.int64)).tolist() == sorted(set(numbers))


def test_a_relation_is_consolidated_once() -> None:
    words = table_of(WORDS, [("a", 1), ("a", 2), ("b", 1)])
    once = consolidate(words, WORDS)
    assert concat([empty(WORDS), once], WORDS) is once
    other = Schema((), WORDS.diffs)
    assert rows_of(consolidate(once, other)) == [(4,)]
    twice = concat([once, once], WORDS)
    assert sorted(rows_of(consolidate(twice, WORDS))) == [("a", 6), ("b", 2)]


@given(relation=relation_cases.relations())
def test_a_relation_and_its_negation_add_up_to_nothing(relation: tuple[Schema, Rows]) -> None:
    schema, rows = relation
    table = table_of(schema, rows)
    both = concat([table, negate(table, schema)], schema)
    assert both.num_rows == 2 * len(rows)
    assert consolidate(both, schema).num_rows == 0


@given(
    relation=relation_cases.relations(),
    drop=st.booleans(),
    at=st.lists(st.integers(0, 99), max_size=3),
)
def test_distinct_rows_are_each_row_once(
    relation: tuple[Schema, Rows], drop: bool, at: list[int]
) -> None:
    schema, rows = relation
    n = len(schema.columns)
    table = in_pieces(table_of(schema, rows), at).select([name for name, _ in schema.columns])
    kept = [r[:n] for r in rows if not (drop and None in r[:n])]
    found = [row_key(r) for r in rows_of(distinct_rows(table, drop_nulls=drop))]
    if n:
        assert len(found) == len(set(found))
        assert set(found) == {row_key(r) for r in kept}


def test_the_sum_of_no_relations_is_empty_and_has_the_schema() -> None:
    assert concat([], WORDS).equals(empty(WORDS))
    assert consolidate(empty(WORDS), WORDS).equals(empty(WORDS))


def test_relations_that_differ_in_the_names_of_list_items_can_be_added() -> None:
    schema = Schema((("l", ListOf(INT)),))
    item = pa.list_(pa.field("element", pa.int64(), nullable=False))
    spark = pa.table({"l": pa.array([[1]], item), COUNT: [1]})
    both = concat([spark, table_of(schema, [([1], 2)])], schema)
    assert consolidate(both, schema).to_pylist() == [{"l": [1], COUNT: 3}]


def test_zeros_and_nans_are_one_value_at_any_depth() -> None:
    inner = Struct("s", (("x", FLOAT),), dict)
    schema = Schema((("f", FLOAT), ("s", inner), ("l", ListOf(Optional(FLOAT)))))
    odd_nan = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000123))[0]
    rows: Rows = []
    for a, b in ((0.0, -0.0), (-0.0, 0.0), (odd_nan, math.nan), (math.nan, odd_nan)):
        rows += [(a, {"x": b}, [b, None, a], 1), (b, {"x": a}, [a, None, b], 1)]
    found = consolidate(table_of(schema, rows), schema).to_pylist()
    shown = {f"{r['f']} {r['s']['x']} {r['l'][0]}": r[COUNT] for r in found}
    assert shown == {"0.0 0.0 0.0": 4, "nan nan nan": 4}


def test_null_and_the_empty_are_different_rows() -> None:
    inner = Struct("s", (("x", Optional(INT)),), dict)
    schema = Schema((("s", Optional(inner)), ("l", Optional(ListOf(Optional(INT))))))
    rows: Rows = [
        (None, None, 1),
        ({"x": None}, None, 1),
        (None, [], 1),
        (None, [None], 1),
        ({"x": None}, [None, None], 1),
    ]
    table = table_of(schema, [*rows, *rows])
    assert [r[2] for r in rows_of(consolidate(table, schema))] == [2] * 5


def test_the_rows_of_a_number_are_one_row_or_none() -> None:
    rows: Rows = [(Decimal(5),), (Decimal(-3),)]
    assert rows_of(consolidate(table_of(TOTAL, rows), TOTAL)) == [(Decimal(2),)]
    assert rows_of(consolidate(table_of(TOTAL, [*rows, (Decimal(-2),)]), TOTAL)) == []
    assert rows_of(consolidate(table_of(TOTAL, [(Decimal(0),)]), TOTAL)) == []


@pytest.mark.parametrize("sign", [1, -1])
def test_a_weight_beyond_64_bits_is_an_error_that_names_the_row(sign: int) -> None:
    rows: Rows = [("b", 1), ("a", sign * MOST), ("a", sign * 2)]
    with pytest.raises(StepError, match=r"_count_ of the row \(word='a'\).*9223372036854775809"):
        consolidate(table_of(WORDS, rows), WORDS)


def test_a_sum_beyond_38_digits_is_an_error() -> None:
    most = Decimal("9" * 38)
    with pytest.raises(StepError, match=r"_value_ adds up to 1.*DECIMAL\(38, 0\)"):
        consolidate(table_of(TOTAL, [(most,), (Decimal(1),)]), TOTAL)
    with pytest.raises(StepError, match="_value_"):
        consolidate(table_of(TOTAL, [(most,)] * 4), TOTAL)


def test_a_sum_that_only_passes_the_bounds_on_its_way_is_exact() -> None:
    assert rows_of(consolidate(table_of(WORDS, [("a", MOST), ("a", 5), ("a", -7)]), WORDS)) == [
        ("a", MOST - 2)
    ]
    most = Decimal("9" * 38)
    least = most.copy_negate()
    rows: Rows = [(most,), (most,), (most,), (least,), (least,)]
    assert rows_of(consolidate(table_of(TOTAL, rows), TOTAL)) == [(most,)]


def test_the_negation_of_the_least_weight_is_an_error() -> None:
    with pytest.raises(StepError, match=r"word='a'.*BIGINT"):
        negate(table_of(WORDS, [("b", 1), ("a", -(2**63))]), WORDS)


def test_distinct_rows_may_be_without_null() -> None:
    schema = Schema((("a", Optional(INT)), ("b", Optional(STR)), ("c", INT)))
    rows: Rows = [
        (1, "x", 1, 1),
        (1, "x", 2, 1),
        (None, "x", 1, 1),
        (2, None, 1, 1),
        (2, "y", 1, 1),
    ]
    keys = table_of(schema, rows).select(["b", "a"])
    assert set(rows_of(distinct_rows(keys, drop_nulls=True))) == {("x", 1), ("y", 2)}
    with_nulls = {("x", 1), ("x", None), (None, 2), ("y", 2)}
    assert set(rows_of(distinct_rows(keys, drop_nulls=False))) == with_nulls
