"""The widest row of a table: never less than a row takes, and exact where nothing is nested."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

from stepping_spark.relations.arrow import widest_row


def test_a_row_is_as_wide_as_the_longest_value_of_each_column() -> None:
    table = pa.table({"n": [1, 2], "text": ["a", None], "raw": [None, b"\0" * 100]})
    assert widest_row(table) == 8 + (1 + 4) + (100 + 4)
    assert widest_row(table.slice(0, 1)) == 8 + (1 + 4) + (0 + 4)
    assert widest_row(table.slice(0, 0)) == 0


def test_lists_and_structs_are_as_wide_as_what_they_hold() -> None:
    inner = pa.struct([("k", pa.int64()), ("v", pa.string())])
    rows = [[{"k": 1, "v": "abc"}, None], [], [{"k": 2, "v": None}]]
    assert widest_row(pa.table({"x": pa.array(rows, pa.list_(inner))})) == 2 * (8 + 3 + 4)
    nothing = pa.array([None, []], pa.list_(pa.string()))
    assert widest_row(pa.table({"x": nothing})) == 0
    flags = pa.table({"b": [True, None], "d": [Decimal("1.5"), None]})
    assert widest_row(flags) == 1 + 16


def test_a_long_value_in_a_later_chunk_counts() -> None:
    parts = [pa.table({"x": [text]}) for text in ("a", "b" * 1000)]
    assert widest_row(pa.concat_tables(parts)) == 1004
