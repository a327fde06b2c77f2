"""Values on their way to a Postgres store and back, by each way of sending and reading them.

A change goes to the server in the parameters of a statement, or by COPY into a staging table. A
read by key gets whole columns, and a read of all rows is a COPY.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from unittest import mock

import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from stepping_spark.base.errors import StepError, StoreCorrupt
from stepping_spark.relations.store import Register
from stepping_spark.rows.atoms import DATE, DATETIME, DECIMAL, INT, Atom
from stepping_spark.rows.schema import Schema
from stepping_spark.rows.types import ListOf, Optional
from stores.contract.values import (
    VALUES,
    WORDS,
    add,
    as_it_is,
    content,
    keys_relation,
    relation_of,
    row,
)
from stores.postgres import changes
from stores.postgres.copy import few_rows, put
from stores.postgres.statements import Layout
from stores.postgres.types import literal_of
from tests.cases import MOST, constants
from tests.postgres_server import PostgresServer
from tests.stores.postgres_stores import Stores

NINES = "9" * 38
TYPES = [*VALUES, (Atom("Decimal", Decimal, 38, 0), (Decimal(NINES), Decimal(f"-{NINES}")))]
ALL = Schema((("n", INT), *((f"c{i}", Optional(t)) for i, (t, _) in enumerate(TYPES))))
ROWS = [
    (n, *((*values, None)[n % (len(values) + 1)] for _, values in TYPES), 1)
    for n in range(1 + max(len(values) for _, values in TYPES))
]
"""Rows of all types at once, in which each value occurs, and NULL too."""

WAYS = {"in a statement": changes.STATEMENT_ROWS, "by COPY": 0}


@pytest.fixture
def stores(postgres: PostgresServer) -> Iterator[Stores]:
    made = Stores(postgres.url)
    yield made
    made.close()


@pytest.mark.parametrize(("first", "then"), [tuple(WAYS), tuple(reversed(WAYS))])
def test_rows_of_all_types_that_one_way_has_added_are_read_and_the_other_way_deletes_them(
    stores: Stores, postgres: PostgresServer, first: str, then: str
) -> None:
    keyed, whole = Register("keyed", ALL, ("n",)), Register("whole", ALL)
    schema = f"by {first}"
    store = stores.open(schema, [keyed, whole], create=True)
    for register in (keyed, whole):
        add(store, register, as_it_is, ROWS)
    with constants(statement_rows=WAYS[first]):
        store.commit(1, None)
    expected = {row(*values): (n,) for *values, n in ROWS}
    assert content(store, whole) == expected
    assert content(store, keyed) == expected
    keys = keys_relation(keyed, [(n,) for n, *_ in ROWS])
    assert content(store, keyed, keys) == expected
    with store.snapshot() as pinned:
        assert content(pinned, keyed, keys) == expected
    store.close()
    store = stores.open(schema, [keyed, whole])
    for register in (keyed, whole):
        add(store, register, as_it_is, [(*values, -n) for *values, n in ROWS])
    with constants(statement_rows=WAYS[then]):
        store.commit(2, None)
    with psycopg.connect(postgres.url) as connection:
        for register in (keyed, whole):
            left = sql.SQL("SELECT count(*) FROM {}").format(sql.Identifier(schema, register.name))
            assert connection.execute(left).fetchone() == (0,)


@pytest.mark.parametrize("way", WAYS)
def test_an_output_of_all_types_is_read_as_it_was_written(stores: Stores, way: str) -> None:
    register = Register("keyed", ALL, ("n",))
    store = stores.open(f"outputs {way}", [register], create=True)
    store.open([register], [ALL, WORDS])
    with constants(statement_rows=WAYS[way]):
        store.commit(1, None, [relation_of(ALL, ROWS), relation_of(WORDS, [])])
    full, empty = store.last_outputs() or ()
    assert {row(*r.values()) for r in full.fetched().table.to_pylist()} == {row(*r) for r in ROWS}
    assert empty.is_empty


@pytest.mark.parametrize("way", WAYS)
def test_a_sum_beyond_its_column_names_the_register_and_the_step_is_not_committed(
    stores: Stores, way: str
) -> None:
    register = Register("words", WORDS, ("word",))
    store = stores.open(f"sums {way}", [register], create=True)
    given = [(f"w{i}", i, MOST) for i in range(20)]
    with constants(statement_rows=WAYS[way]):
        add(store, register, as_it_is, given)
        store.commit(1, None)
        add(store, register, as_it_is, [(w, i, 1) for w, i, _ in given])
        with pytest.raises(StepError, match="register 'words': a sum of its rows is beyond"):
            store.commit(2, None)
    assert store.last_step() == 1
    assert content(store, register) == {row(w, i): (n,) for w, i, n in given}


def test_rows_of_more_bytes_than_a_statement_may_have_go_by_copy(stores: Stores) -> None:
    register = Register("words", WORDS, ("word",))
    store = stores.open("long words", [register], create=True)
    long = [("x" * (1 << 19) + str(i), i, 1) for i in range(4)]
    add(store, register, as_it_is, long)
    with (
        constants(statement_bytes=1 << 20),
        mock.patch("stores.postgres.changes.put", side_effect=put) as copied,
    ):
        store.commit(1, None)
    assert copied.call_count == 1
    assert content(store, register) == {row(w, n): (c,) for w, n, c in long}


@pytest.mark.parametrize(
    "odd", ["NULL", "null", "", " ", "{", "}", ",", '"', "\\", '\\"', "a\nb", "ä,☃"]
)
def test_a_text_in_an_array_is_what_it_was(postgres: PostgresServer, odd: str) -> None:
    given: list[str | None] = [odd, None, f"{odd}{odd}", f"x{odd}", None]
    text = literal_of(pa.array(given), "text")
    with psycopg.connect(postgres.url) as connection:
        assert connection.execute("SELECT %s::text[]", [text]).fetchone() == (given,)


@pytest.mark.parametrize(
    ("pg", "given"),
    [
        ("bigint", ["1", None, "-9223372036854775808"]),
        ("boolean", ["true", "false", None]),
        ("double precision", ["NaN", "-Infinity", "5e-324"]),
        ("date", [None]),
    ],
)
def test_an_array_of_values_without_quotes_has_its_nulls(
    postgres: PostgresServer, pg: str, given: list[Any]
) -> None:
    text = literal_of(pa.array(given, pa.string()), pg)
    query = f"SELECT (%s::{pg}[])::text[]"
    with psycopg.connect(postgres.url) as connection:
        found = connection.execute(query.encode(), [text]).fetchone()
    assert found == (given,)


ODD = Schema(
    (("k", INT), ("d", DATE), ("t", DATETIME), ("n", Optional(DECIMAL)), ("l", ListOf(INT)))
)


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ("d = NULL", "d is NULL, and its type, date, has no NULL"),
        ("d = 'infinity'", "before the year 1 or after the year 9999"),
        ("d = '-infinity'", "before the year 1 or after the year 9999"),
        ("d = '0001-12-31 BC'", "before the year 1 or after the year 9999"),
        ("t = 'infinity'", "before the year 1 or after the year 9999"),
        ("t = '10000-01-01'", "before the year 1 or after the year 9999"),
        ("n = 'NaN'", "ArrowInvalid"),
        ("l = '[[1]]'", "ArrowInvalid|TypeError"),
    ],
)
def test_a_read_by_key_names_the_table_of_a_value_that_others_have_made_invalid(
    stores: Stores, postgres: PostgresServer, edit: str, said: str
) -> None:
    register = Register("odd", ODD, ("k",))
    store = stores.create([register])
    noon = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)
    add(store, register, as_it_is, [(1, noon.date(), noon, Decimal("0.5"), [1], 1)])
    store.commit(1, None)
    place = sql.Identifier(stores.schema(store), "odd")
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        change = sql.SQL("ALTER TABLE {0} ALTER COLUMN d DROP NOT NULL; UPDATE {0} SET ")
        connection.execute(change.format(place) + sql.SQL(edit))
    with pytest.raises(StoreCorrupt, match=f"'odd' has a value .*({said})"):
        store.read("odd", keys_relation(register, [(1,)]))


@pytest.mark.long
def test_a_column_that_is_too_large_for_one_value_of_postgres_is_for_spark_to_read(
    stores: Stores, postgres: PostgresServer
) -> None:
    register = Register("words", WORDS, ("length",))
    store = stores.create([register])
    add(store, register, as_it_is, [("a", 1, 1)])
    store.commit(1, None)
    layout = Layout(stores.schema(store), "words", WORDS, ("length",))
    with psycopg.connect(postgres.url, cursor_factory=psycopg.RawCursor) as connection:
        connection.execute(
            sql.SQL(
                "INSERT INTO {} (_key_hash_, _rest_hash_, word, length, _count_) "
                "SELECT 0, i, repeat('x', 100 << 20), i, 1 FROM generate_series(1, 12) i"
            ).format(layout.place)
        )
        assert few_rows(connection, layout, sql.SQL(" WHERE true"), 100) is None
        found = few_rows(connection, layout, sql.SQL(" WHERE length = 1 AND word = 'a'"), 100)
        assert found is not None
        assert found.rows == 1
        connection.rollback()
