"""Random relations for the tests of the algebra on the driver."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from stepping_spark.rows.atoms import (
    BOOL,
    BYTES,
    DATE,
    DATETIME,
    DECIMAL,
    FLOAT,
    INT,
    LOCAL_DATETIME,
    STR,
    TIMEDELTA,
    Atom,
    RowType,
)
from stepping_spark.rows.schema import BIG_INT, COUNT, Schema
from stepping_spark.rows.types import ListOf, Optional, Struct, sort_key

Rows = list[tuple[Any, ...]]

FEW_VALUES: dict[Atom, st.SearchStrategy[Any]] = {
    BOOL: st.booleans(),
    INT: st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63)]),
    FLOAT: st.sampled_from([0.0, -0.0, 1.0, math.nan, -math.nan, math.inf]),
    STR: st.sampled_from(["", "a", "a\0", "b", "long enough for several words"]),
    BYTES: st.sampled_from([b"", b"\0", b"\0\0"]),
    DATE: st.sampled_from([dt.date(1, 1, 1), dt.date(2024, 2, 29)]),
    DATETIME: st.sampled_from([dt.datetime(2024, 1, 1, tzinfo=dt.UTC)]),
    LOCAL_DATETIME: st.sampled_from([dt.datetime(2024, 1, 1), dt.datetime(2024, 1, 2)]),
    TIMEDELTA: st.sampled_from([dt.timedelta(0), dt.timedelta(microseconds=-1)]),
    DECIMAL: st.sampled_from([Decimal(0), Decimal("0.5"), Decimal(10**19)]),
}
types: st.SearchStrategy[RowType] = st.recursive(
    st.sampled_from(list(FEW_VALUES)),
    lambda inner: st.one_of(
        inner.map(Optional),
        inner.map(ListOf),
        st.lists(inner, min_size=1, max_size=3).map(
            lambda ts: Struct("s", tuple((f"f{i}", t) for i, t in enumerate(ts)), dict)
        ),
    ),
    max_leaves=4,
)


def values(t: RowType) -> st.SearchStrategy[Any]:
    """Values of a type, few enough to be equal often."""
    if isinstance(t, Optional):
        return st.one_of(st.none(), values(t.inner))
    if isinstance(t, ListOf):
        return st.lists(values(t.inner), max_size=3)
    if isinstance(t, Struct):
        names = [n for n, _ in t.fields]
        fields = st.tuples(*(values(f) for _, f in t.fields))
        return fields.map(lambda found: dict(zip(names, found, strict=True)))
    assert isinstance(t, Atom)
    return FEW_VALUES[t]


@st.composite
def relations(draw: st.DrawFn, most_columns: int = 3) -> tuple[Schema, Rows]:
    """A schema, and rows of it: the values of columns, then of diffs; many of them equal."""
    columns = tuple(
        (f"c{i}", t) for i, t in enumerate(draw(st.lists(types, max_size=most_columns)))
    )
    diffs = draw(st.sampled_from([((COUNT, INT),), (("_rows_", INT), ("_sum_x_", BIG_INT))]))
    pool = draw(st.lists(st.tuples(*(values(t) for _, t in columns)), min_size=1, max_size=6))
    weights = st.tuples(*(st.integers(-2, 2).map(int if t == INT else Decimal) for _, t in diffs))
    rows = draw(st.lists(st.tuples(st.sampled_from(pool), weights), max_size=20))
    return Schema(columns, diffs), [row + weight for row, weight in rows]


def table_of(schema: Schema, rows: Rows) -> pa.Table:
    """The relation of these rows."""
    arrays = [pa.array([r[i] for r in rows], f.type) for i, f in enumerate(schema.arrow)]
    return pa.Table.from_arrays(arrays, schema=schema.arrow)


def in_pieces(table: pa.Table, at: list[int]) -> pa.Table:
    """The same table, as slices of larger ones."""
    around = pa.concat_tables([table, table, table]).combine_chunks()
    n = table.num_rows
    cuts = sorted({0, n, *(a % (n + 1) for a in at)})
    pieces = [around.slice(n + a, b - a) for a, b in itertools.pairwise(cuts)]
    return pa.concat_tables(pieces) if pieces else table


def row_key(values: Any) -> Any:
    """What two rows have in common exactly when they are equal."""
    return sort_key(list(values))
