"""Values that tests of stores put into registers, and the fixtures of these tests."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from stepping_spark.relations.codec import conform
from stepping_spark.relations.relation import DriverRelation, Relation
from stepping_spark.relations.store import Register, Store
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
    UUID,
    RowType,
)
from stepping_spark.rows.schema import BIG_INT, Schema
from stepping_spark.rows.types import ListOf, Optional, Struct, ZSetOf, sort_key

Create = Callable[[Sequence[Register]], Store]
Reopen = Callable[[Store, Sequence[Register]], Store]
Hold = Callable[[DriverRelation], Relation]
Content = dict[Any, tuple[Any, ...]]

WORDS = Schema((("word", Optional(STR)), ("length", INT)))
BY_WORD = Register("words by word", WORDS, ("word",))
WHOLE = Register("words", WORDS)
NUMBER = Schema((), (("_value_", BIG_INT),))
POINT = Struct("tuple", (("_1", INT), ("_2", Optional(STR))), tuple)
UTC = dt.UTC
LATE = dt.datetime(9999, 12, 31, 23, 59, 59, 999999)

# For each type, values that are easily damaged: the ends of its range, empty and unusual values.
VALUES: Sequence[tuple[RowType, Sequence[Any]]] = (
    (BOOL, (True, False)),
    (INT, (0, -1, 2**63 - 1, -(2**63))),
    (FLOAT, (0.0, 1.5, -1e308, 5e-324, math.inf, -math.inf, math.nan)),
    (STR, ("", " ", "a'b\"c\\d`e", "line\nline\r\t", "\0", "é", "e\u0301", "\U0001f600", "NULL")),
    (BYTES, (b"", b"\0", b"\xff\xfe")),
    (DECIMAL, (Decimal(0), Decimal("-0.000000000000000001"), Decimal("9" * 20))),
    (DATE, (dt.date(1, 1, 1), dt.date(1582, 10, 4), dt.date(9999, 12, 31))),
    (DATETIME, (dt.datetime(1, 1, 2, tzinfo=UTC), dt.datetime(1969, 7, 20, 20, 17, 40, 1, UTC))),
    (LOCAL_DATETIME, (dt.datetime(1, 1, 1), dt.datetime(2024, 3, 31, 2, 30), LATE)),
    (TIMEDELTA, (dt.timedelta(0), dt.timedelta(microseconds=-1), dt.timedelta(days=10**6))),
    (UUID, ("00000000-0000-0000-0000-000000000000", "ffffffff-ffff-4fff-bfff-ffffffffffff")),
    (POINT, ({"_1": 1, "_2": None}, {"_1": -1, "_2": ""})),
    (ListOf(Optional(INT)), ([], [None], [1, None], [1, 2])),
    (ListOf(ListOf(STR)), ([], [[]], [["a"], []], [["a", "b"]])),
    (ZSetOf(STR, dict), ([], [{"_value_": "a", "_count_": 2}])),
)


MIXED = Schema(
    (
        ("i", INT),
        ("s", Optional(STR)),
        ("f", Optional(FLOAT)),
        ("d", DATE),
        ("n", Optional(DECIMAL)),
        ("p", Optional(POINT)),
        ("l", ListOf(Optional(INT))),
    )
)


def mixed_row(i: int) -> tuple[Any, ...]:
    """A row with values of many types, also such as are error-prone in keys: NULL, NaN, -0.0."""
    return (
        i % 20_011,
        None if i % 11 == 0 else f"s{i % 15_013}",
        (None, math.nan, -0.0, 0.0, 0.5, float(i))[i % 6],
        dt.date(2000, 1, 1) + dt.timedelta(days=i % 400),
        None if i % 13 == 0 else Decimal(i % 1_009) / 4,
        None if i % 17 == 0 else {"_1": i % 1_013, "_2": None if i % 3 else f"{i % 5}"},
        [None, i % 101][: i % 3],
    )


def relation_of(schema: Schema, rows: Iterable[Sequence[Any]]) -> DriverRelation:
    """The relation of rows; each row has the values of its columns, then of its diffs."""
    listed = list(rows)
    arrays = [pa.array([r[i] for r in listed], f.type) for i, f in enumerate(schema.arrow)]
    return DriverRelation(pa.Table.from_arrays(arrays, schema=schema.arrow), schema)


def keys_relation(register: Register, keys: Iterable[Sequence[Any]]) -> DriverRelation:
    """The relation of keys to read a register by."""
    types = dict(register.schema.columns)
    schema = Schema(tuple((k, types[k]) for k in register.key), ())
    return relation_of(schema, keys)


def add(store: Store, register: Register, hold: Hold, rows: Iterable[Sequence[Any]]) -> None:
    """Add rows to a register in the step under way."""
    store.add(register.name, hold(relation_of(register.schema, rows)))


def as_it_is(relation: DriverRelation) -> Relation:
    """A change or keys, passed to a store unchanged, on the driver."""
    return relation


def content(store: Store, register: Register, keys: Relation | None = None) -> Content:
    """The result of a read, added up."""
    return summed(store.read(register.name, keys), register.schema)


def summed(parts: Iterable[Relation], schema: Schema) -> Content:
    """The summed diffs of each row of a relation in parts, by the row as `row` encodes it."""
    sums: dict[Any, tuple[Any, ...]] = {}
    for part in parts:
        for r in as_table(part).to_pylist():
            key = row(*(r[n] for n, _ in schema.columns))
            diffs = tuple(r[n] for n, _ in schema.diffs)
            old = sums.get(key)
            sums[key] = diffs if old is None else tuple(map(sum, zip(old, diffs, strict=True)))
    return {r: n for r, n in sums.items() if any(n)}


def row(*values: Any) -> Any:
    """A row's values as they compare: NaN equal to itself, lists and structs hashable."""
    return sort_key(list(values))


def as_table(relation: Relation) -> pa.Table:
    """The rows, fetched to the driver if necessary, with the columns of the relation's schema."""
    return conform(relation.fetched().table, relation.schema)


class StoreFixtures:
    """The fixtures of tests of a store; a subclass defines `create`, and others if they apply."""

    commits = 500
    """The number of small steps in the test that batches do not pile up."""

    @pytest.fixture(autouse=True)
    def nothing_is_logged(self, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
        """Fail if the store logs anything, such as a failed merge or a file that may not last."""
        yield
        # An S3 server that a test has started may log its own messages.
        ours = [r for r in caplog.get_records("call") if r.name.startswith("stepping_spark")]
        assert not ours

    @pytest.fixture
    def create(self) -> Create:
        """A function that makes a new, empty store for the registers, and opens it."""
        raise NotImplementedError("give a fixture `create`: see StoreContract")

    @pytest.fixture
    def reopen(self) -> Reopen:
        """A function that gives up a store, and opens its state with another one."""
        pytest.skip("this store does not outlive its process")

    @pytest.fixture
    def reopen_or_not(self, request: pytest.FixtureRequest) -> Reopen:
        """`reopen` if the store outlives its process; otherwise the same store continues."""
        # Do not compare `type(self).reopen`: some versions of pytest build it anew at each access.
        if next(c for c in type(self).__mro__ if "reopen" in vars(c)) is StoreFixtures:
            return lambda store, _: store
        fixture: Reopen = request.getfixturevalue("reopen")
        return fixture

    @pytest.fixture
    def rival(self) -> Reopen:
        """A function that opens the state of a store a second time, while the store is in use."""
        pytest.skip("what this store keeps cannot be opened twice")

    @pytest.fixture
    def hold(self) -> Hold:
        """The form in which the store gets changes and keys: unchanged, or as DataFrames."""
        return as_it_is
