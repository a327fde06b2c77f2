"""The Postgres store, against a real server: the contract, and what is its own."""

from __future__ import annotations

import datetime as dt
import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pytest
from psycopg import sql
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark.base.errors import StepError, StoreError, StoreMismatch, StoreUnavailable
from stepping_spark.relations.relation import DriverRelation, Relation
from stepping_spark.relations.store import Register
from stepping_spark.rows.atoms import DATE, INT, STR, UUID
from stepping_spark.rows.schema import BIG_INT, COUNT, Schema
from stepping_spark.rows.types import Optional, Struct
from stores.contract.store import StoreContract
from stores.contract.values import (
    BY_WORD,
    MIXED,
    NUMBER,
    POINT,
    WHOLE,
    WORDS,
    Create,
    Hold,
    Reopen,
    add,
    as_it_is,
    content,
    keys_relation,
    mixed_row,
    relation_of,
    row,
    summed,
)
from stores.postgres import statements
from stores.postgres.store import StorePostgres
from tests.cases import MOST
from tests.postgres_server import PostgresServer
from tests.stores.model import torn_reads
from tests.stores.postgres_stores import Stores


@pytest.fixture
def stores(postgres: PostgresServer) -> Iterator[Stores]:
    made = Stores(postgres.url)
    yield made
    made.close()


class TestOnTheDriver(StoreContract):
    @pytest.fixture
    def create(self, stores: Stores) -> Create:
        return stores.create

    @pytest.fixture
    def reopen(self, stores: Stores) -> Reopen:
        return stores.reopen

    @pytest.fixture
    def rival(self, stores: Stores) -> Reopen:
        return stores.again


@pytest.mark.long
class TestInSpark(TestOnTheDriver):
    """Nothing fits the driver: workers send changes, and read what is read whole."""

    commits = 10

    @pytest.fixture
    def stores(self, postgres: PostgresServer, spark: SparkSession) -> Iterator[Stores]:
        made = Stores(postgres.socket_url, driver_bytes=0)
        yield made
        made.close()

    @pytest.fixture
    def hold(self, spark: SparkSession) -> Hold:
        def as_frame(relation: DriverRelation) -> Relation:
            few_keys = not relation.schema.diffs and relation.rows <= 100
            return relation if few_keys else relation.in_spark(lambda: spark)

        return as_frame


# -- what `psql` shows


def rows_of(postgres: PostgresServer, *names: str, query: str = "SELECT * FROM {}") -> list[Any]:
    """The rows of a query on a table, or a view."""
    with psycopg.connect(postgres.url) as connection:
        text = sql.SQL(query).format(sql.Identifier(*names))
        return connection.execute(text).fetchall()


class Person(st.Data):
    id: int
    name: str
    born: dt.date | None
    friends: list[str]


def test_a_cache_is_a_view_with_the_columns_of_its_rows(
    postgres: PostgresServer, spark: SparkSession
) -> None:
    cache = st.Cache[Person](name="people")

    def query(people: st.ZSet[Person]) -> st.ZSet[Person]:
        _ = cache[people](
            lambda p: st.integrate_indexed(p, indexes=(lambda r: r.name, lambda r: -r.id))
        )
        return people

    ann = Person(id=1, name="Ann", born=dt.date(1999, 12, 31), friends=["Bob", "a, b"])
    bob = Person(id=2, name="Bob", born=None, friends=[])
    graph = st.compile(query)
    with st.StorePostgres.from_graph(graph, postgres.url, schema="my town", create=True) as store:
        st.iteration(store, graph, (st.ZSetPython({ann: 2, bob: 1}),))
        st.iteration(store, graph, (st.ZSetPython({bob: -1}),))
        assert rows_of(postgres, "my town", "people") == [
            (1, "Ann", dt.date(1999, 12, 31), ["Bob", "a, b"], 2)
        ]
        assert cache.zset(store) == st.ZSetPython({ann: 2})
        assert rows_of(postgres, "my town", "_output_1_")[0][0] == 2
    step, now = rows_of(postgres, "my town", "_store_", query="SELECT step, now FROM {}")[0]
    assert (step, now) == (2, "int 2")


def test_a_view_hides_the_computed_keys_of_a_cache(
    stores: Stores, postgres: PostgresServer
) -> None:
    keyed = Schema((("x", INT), ("_key_1_", INT)))
    store = stores.create([Register("cache.squares", keyed, ("_key_1_",))])
    add(store, Register("cache.squares", keyed), as_it_is, [(3, 9, 1)])
    store.commit(1, None)
    assert rows_of(postgres, stores.schema(store), "squares") == [(3, 1)]
    (shown,) = rows_of(postgres, stores.schema(store), "cache.squares")
    assert shown[-3:] == (3, 9, 1)


def test_the_parts_of_structs_are_columns_and_a_missing_one_comes_back_missing(
    stores: Stores, postgres: PostgresServer
) -> None:
    pair = Struct("tuple", (("point", POINT), ("far", Optional(POINT))), tuple)
    schema = Schema((("p", Optional(pair)),))
    register = Register("cache.points", schema)
    store = stores.create([register])
    near = {"_1": 1, "_2": None}
    values = [
        None,
        {"point": near, "far": None},
        {"point": near, "far": near},
        {"point": near, "far": {"_1": 2, "_2": ""}},
    ]
    for step in (1, 2):
        add(store, register, as_it_is, [(v, 1) for v in values])
        store.commit(step, None)
    assert content(store, register) == {row(v): (2,) for v in values}
    query = 'SELECT "p", "p.point._1", "p.far", "p.far._1" FROM {} ORDER BY 1, 2, 3, 4'
    assert rows_of(postgres, stores.schema(store), "points", query=query) == [
        (False, None, False, None),
        (True, 1, False, None),
        (True, 1, True, 1),
        (True, 1, True, 2),
    ]


def test_long_and_odd_names_are_cut_and_told_apart(
    stores: Stores, postgres: PostgresServer
) -> None:
    columns = tuple((f'{"é" * 40}{i}%s"', INT) for i in range(3))
    registers = [Register(f"{'a' * 70}.{i}", Schema(columns), (columns[i][0],)) for i in range(3)]
    store = stores.create(registers)
    for i, register in enumerate(registers):
        add(store, register, as_it_is, [(i, 2, 3, 1)])
    store.commit(1, None)
    again = stores.reopen(store, registers)
    assert [content(again, r) for r in registers] == [{row(i, 2, 3): (1,)} for i in range(3)]
    tables = rows_of(
        postgres, stores.schema(again), "_registers_", query='SELECT register, "table" FROM {}'
    )
    assert {name for name, _ in tables} == {r.name for r in registers}
    assert all(len(table.encode()) <= 63 for _, table in tables)
    comment = "SELECT obj_description('{}'::regclass)"
    ((said,),) = rows_of(postgres, stores.schema(again), tables[0][1], query=comment)
    assert tables[0][0] in said


def test_a_register_may_be_called_as_the_stores_own_tables(stores: Stores) -> None:
    registers = [Register(name, WORDS) for name in ("_store_", "_registers_", "cache._store_", "")]
    store = stores.create(registers)
    for i, register in enumerate(registers):
        add(store, register, as_it_is, [("a", i, 1)])
    store.commit(1, None)
    assert [content(store, r) for r in registers] == [{row("a", i): (1,)} for i in range(4)]


def test_a_register_may_be_called_as_tables_that_are_swept_or_made_anew(stores: Stores) -> None:
    names = [f"cache._staging_{'0' * 32}", f"_staging_{'f' * 32}", "_staging_a", "cache._output_1_"]
    registers = [Register(name, WORDS) for name in (*names, "_output_2_")]
    store = stores.create(registers)
    store.open(registers, [WORDS, WORDS])
    for i, register in enumerate(registers):
        add(store, register, as_it_is, [("a", i, 1)])
    store.commit(1, None, [relation_of(WORDS, [("b", 1, 1)]), relation_of(WORDS, [])])
    store = stores.reopen(store, registers)
    assert [content(store, r) for r in registers] == [{row("a", i): (1,)} for i in range(5)]


def test_only_tables_that_a_step_has_left_behind_are_swept(
    stores: Stores, postgres: PostgresServer
) -> None:
    store = stores.create([BY_WORD])
    schema = stores.schema(store)
    left, others = f"_staging_{'a' * 32}", ["_staging_mine", f"_staging_{'b' * 32}"]
    with psycopg.connect(postgres.url) as connection:
        for text, name in (
            ("CREATE TABLE {} (x int)", left),
            ("CREATE TABLE {} (x int)", others[0]),
            ("CREATE VIEW {} AS SELECT 1", others[1]),
        ):
            connection.execute(sql.SQL(text).format(sql.Identifier(schema, name)))
    stores.reopen(store, [BY_WORD])
    query = "SELECT relname FROM pg_class WHERE relname LIKE '%staging%' AND relnamespace = {}"
    with psycopg.connect(postgres.url) as connection:
        space = sql.SQL("{}::regnamespace").format(sql.Literal(f'"{schema}"'))
        found = {name for (name,) in connection.execute(sql.SQL(query).format(space))}
    assert found == set(others)


def test_nothing_of_python_is_in_the_tables(stores: Stores, postgres: PostgresServer) -> None:
    store = stores.create([Register("mixed", MIXED, ("p", "l")), BY_WORD])
    store.open([Register("mixed", MIXED, ("p", "l")), BY_WORD], [MIXED])
    store.commit(1, None, [relation_of(MIXED, [(*mixed_row(1), 1)])])
    query = "SELECT DISTINCT data_type FROM information_schema.columns WHERE table_schema = %s"
    with psycopg.connect(postgres.url) as connection:
        found = {t for (t,) in connection.execute(query, [stores.schema(store)])}
    assert "numeric" in found
    assert "bytea" not in found


def test_nul_and_the_mark_that_stands_for_it_come_back(
    stores: Stores, postgres: PostgresServer
) -> None:
    words = ["\0", "␀", "␀0", "\0\0", "a\0b␀c", "␀\0", "␀␀0", "0", "\\0", "\\N", "\\."]
    store = stores.create([BY_WORD])
    add(store, BY_WORD, as_it_is, [(w, i, 1) for i, w in enumerate(words)])
    store.commit(1, None)
    assert content(store, BY_WORD) == {row(w, i): (1,) for i, w in enumerate(words)}
    for i, word in enumerate(words):
        asked = keys_relation(BY_WORD, [(word,)])
        assert content(store, BY_WORD, asked) == {row(word, i): (1,)}
    shown = rows_of(postgres, stores.schema(store), BY_WORD.name, query="SELECT word FROM {}")
    assert ("a␀0b␀␀c",) in shown


# -- rows


def test_rows_of_equal_hashes_are_not_merged(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statements, "key_hashes", lambda t, _: np.zeros(t.num_rows, np.uint64))
    store = stores.create([BY_WORD])
    values: list[tuple[Any, ...]] = [(None, 1), ("", 1), ("a", 1), ("a", 2)]
    for step in (1, 2):
        add(store, BY_WORD, as_it_is, [(*v, step) for v in values])
        store.commit(step, None)
    assert content(store, BY_WORD) == {row(*v): (3,) for v in values}
    add(store, BY_WORD, as_it_is, [(None, 1, -3), ("a", 2, -1)])
    store.commit(3, None)
    assert content(store, BY_WORD) == {row("", 1): (3,), row("a", 1): (3,), row("a", 2): (2,)}


@pytest.mark.parametrize("rows", [1, 5_000])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_sum_that_no_column_can_hold_is_an_error_that_names_the_register(
    stores: Stores, rows: int, sign: int
) -> None:
    store = stores.create([WHOLE, BY_WORD])
    given = [(f"w{i}", 1, sign * MOST) for i in range(rows)]
    add(store, BY_WORD, as_it_is, given)
    store.commit(1, None)
    add(store, WHOLE, as_it_is, [("a", 1, 1)])
    add(store, BY_WORD, as_it_is, [(w, n, sign * 2) for w, n, _ in given])
    with pytest.raises(StepError, match="'words by word'"):
        store.commit(2, None)
    assert store.last_step() == 1
    assert content(store, WHOLE) == {}
    add(store, BY_WORD, as_it_is, [(w, n, -sign) for w, n, _ in given])
    store.commit(2, None)
    assert content(store, BY_WORD) == {row(w, n): (sign * (MOST - 1),) for w, n, _ in given}


def test_the_rows_of_a_large_output_are_not_looked_at_by_all_steps_after_it(
    stores: Stores, postgres: PostgresServer
) -> None:
    store = stores.create([BY_WORD])
    store.open([BY_WORD], [WORDS])
    sizes = []
    for step, rows in enumerate((40_000, 3, 3, 3), 1):
        given = [(f"w{step}", i, 1) for i in range(rows)]
        store.commit(step, None, [relation_of(WORDS, given)])
        (output,) = store.last_outputs() or ()
        assert output.table is not None
        assert output.rows == rows
        with psycopg.connect(postgres.url) as connection:
            found = connection.execute(
                "SELECT pg_relation_size(oid) FROM pg_class WHERE relname = '_output_1_' "
                "AND relnamespace::regnamespace::text = quote_ident(%s)",
                [stores.schema(store)],
            ).fetchone()
        assert found is not None
        sizes.append(found[0])
    assert sizes[0] > 1 << 20
    assert sizes[2] < 1 << 16


def test_a_large_change_of_a_larger_table_reads_no_table_whole(
    stores: Stores, postgres: PostgresServer
) -> None:
    def change(begin: int, end: int) -> pa.Table:
        words = [f"w{i}" for i in range(begin, end)]
        lengths, counts = pa.array(range(begin, end)), pa.array([1] * len(words))
        return pa.table({"word": words, "length": lengths, COUNT: counts})

    def seen() -> tuple[int, int]:
        """The rows that were read in turn, and those that were found by an index."""
        time.sleep(1.1)  # a process tells what it has done once a second at most
        store.read(BY_WORD.name, keys_relation(BY_WORD, [("w1",)]))
        query = "SELECT seq_tup_read, idx_tup_fetch FROM pg_stat_all_tables WHERE schemaname = {}"
        with psycopg.connect(postgres.url) as connection:
            text = sql.SQL(query).format(sql.Literal(stores.schema(store)))
            found = [row for row in connection.execute(text) if row[1] is not None]
        return max(row[0] for row in found), sum(row[1] for row in found)

    store = stores.create([BY_WORD])
    store.add(BY_WORD.name, DriverRelation(change(0, 200_000), WORDS))
    store.commit(1, None)
    before = seen()
    store.add(BY_WORD.name, DriverRelation(change(199_000, 202_000), WORDS))
    store.commit(2, None)
    words = [(f"w{i}",) for i in range(0, 200_000, 100)]
    (found,) = store.read(BY_WORD.name, keys_relation(BY_WORD, words))
    assert found.table is not None
    assert found.rows == 2_000
    in_turn, by_index = (after - b for after, b in zip(seen(), before, strict=True))
    assert by_index >= 3_000
    assert in_turn < 100


def test_a_number_that_grows_beyond_its_digits_is_an_error(stores: Stores) -> None:
    register = Register("total", NUMBER)
    store = stores.create([register])
    for _ in range(9):
        add(store, register, as_it_is, [(Decimal(10**37),)])
    store.commit(1, None)
    add(store, register, as_it_is, [(Decimal(10**37),)])
    with pytest.raises(StepError, match="total"):
        store.commit(2, None)


@pytest.mark.parametrize(
    ("t", "value", "said"),
    [
        (UUID, "FFFFFFFF-FFFF-4FFF-BFFF-FFFFFFFFFFFF", "lower case"),
        (DATE, pa.scalar(-800_000, pa.int32()).cast(pa.date32()), "year 1"),
        (Struct("tuple", (("_1", POINT),), tuple), {"_1": None}, "value._1 is NULL"),
    ],
    ids=["UUID", "date", "struct"],
)
def test_a_value_that_no_column_takes_is_an_error_that_names_its_column(
    stores: Stores, t: Any, value: Any, said: str
) -> None:
    register = Register("r", Schema((("value", t),)))
    store = stores.create([register])
    arrays = [pa.array([value], t.arrow), pa.array([1])]
    table = pa.Table.from_arrays(arrays, schema=register.schema.arrow)
    store.add("r", DriverRelation(table, register.schema))
    with pytest.raises(StoreError, match=f"(?s)'value'.*{said}"):
        store.commit(1, None)
    assert store.last_step() == 0


def test_a_table_of_other_types_under_the_same_names_is_refused(stores: Stores) -> None:
    texts, uuids = (Register("r", Schema((("x", t),))) for t in (STR, UUID))
    store = stores.create([texts])
    with pytest.raises(StoreMismatch, match=r"'r'.*'x' is str .* UUID"):
        stores.reopen(store, [uuids])


def test_what_a_large_read_gave_stays_as_it_was(
    postgres: PostgresServer, spark: SparkSession
) -> None:
    large = Stores(postgres.url, driver_bytes=50_000)
    store = large.create([BY_WORD])
    add(store, BY_WORD, as_it_is, [(f"w{i}", i, 1) for i in range(3_000)])
    store.commit(1, None)
    (part,) = store.read(BY_WORD.name)
    assert part.frame is not None
    assert part.frame.rdd.getNumPartitions() >= 2
    add(store, BY_WORD, as_it_is, [(f"w{i}", i, 1) for i in range(1_000, 4_000)])
    store.commit(2, None)
    large.close()
    assert summed([part], WORDS) == {row(f"w{i}", i): (1,) for i in range(3_000)}


# -- opening


def test_nothing_there_is_an_error_with_the_remedy(stores: Stores) -> None:
    with pytest.raises(StoreUnavailable, match="create=True"):
        stores.open("nowhere", [BY_WORD])


def test_after_a_mismatch_the_state_can_be_opened_by_its_own_circuit(stores: Stores) -> None:
    store = stores.create([BY_WORD])
    schema = stores.schema(store)
    store.close()
    with pytest.raises(StoreMismatch) as caught:
        stores.open(schema, [WHOLE])
    assert stores.open(schema, [BY_WORD]).last_step() == 0
    assert "'words'" in str(caught.value)


def test_a_reader_needs_no_lock_and_sees_each_step(stores: Stores) -> None:
    store = stores.create([BY_WORD])
    store.open([BY_WORD], [WORDS])
    reader = stores.open(stores.schema(store), [BY_WORD], read_only=True)
    reader.open([BY_WORD], [WORDS])
    for step in (1, 2):
        add(store, BY_WORD, as_it_is, [("a", 1, 1)])
        store.commit(step, step, [relation_of(WORDS, [("o", step, 1)])], {"s": step})
        assert content(reader, BY_WORD) == {row("a", 1): (step,)}
        assert (reader.last_step(), reader.last_now()) == (step, step)
        assert reader.last_offsets() == {"s": step}
        outputs = reader.last_outputs()
        assert outputs is not None
        assert summed(outputs, WORDS) == {row("o", step): (1,)}
    with pytest.raises(StoreError, match="read_only"):
        add(reader, BY_WORD, as_it_is, [("a", 1, 1)])
    with pytest.raises(StoreError, match="read_only"):
        reader.commit(3, None)


def test_a_store_that_is_not_open_says_so(postgres: PostgresServer) -> None:
    store = StorePostgres(postgres.url)
    for use in (store.last_step, store.last_outputs, lambda: store.read("words")):
        with pytest.raises(StoreError, match="never opened; make it"):
            use()


def test_other_threads_read_while_one_steps(stores: Stores) -> None:
    store = stores.create([BY_WORD])
    assert not torn_reads(store, steps=29)


def test_a_user_without_rights_is_told_what_is_missing(
    stores: Stores, postgres: PostgresServer
) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("CREATE ROLE guest LOGIN PASSWORD 'guest'")
    url = postgres.url.replace(f"stepping:{postgres.password}", "guest:guest")
    with pytest.raises(StoreUnavailable, match=r"permission denied.*give the user the right"):
        stores.open("guests", [BY_WORD], create=True, url=url)


# -- the password


def shown_by(error: BaseException | None) -> list[str]:
    found = []
    while error is not None:
        found += [str(error), repr(error)]
        error = error.__cause__ or error.__context__
    return found


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://stepping:s%C3%A9cret%40word@127.0.0.1:{port}/postgres",
        "postgresql://stepping:s%C3%A9cret%40word@127.0.0.1:1/postgres",
        "postgresql://127.0.0.1:{port}/sécret@word?user=stepping&password=sécret@word",
        "host=127.0.0.1 port={port} user=stepping password=sécret@word dbname=postgres",
        "postgresql://stepping:sécret%4word@127.0.0.1:{port}/postgres",
        "postgresql://stepping:sécret@word@127.0.0.1:{port}/postgres",
        "host=127.0.0.1 sécret@word",
        "sécret@word",
    ],
)
def test_no_error_shows_the_password(
    postgres: PostgresServer, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(StoreUnavailable) as caught:
        StorePostgres(url.format(port=postgres.port), [BY_WORD], create=True)
    texts = [*shown_by(caught.value), caplog.text]
    secrets = ("sécret@word", "s%C3%A9cret%40word", "sécret%4word", "sécret")
    assert not [text for text in texts for secret in secrets if secret in text]


def test_no_repr_and_no_metric_shows_the_password(
    postgres: PostgresServer, spark: SparkSession
) -> None:
    graph = st.compile(_distinct)
    with st.StorePostgres.from_graph(graph, postgres.url, schema="quiet", create=True) as store:
        stepper = st.Stepper(graph, store)
        stepper.step((st.ZSetPython({1: 1}),))
        shown = [repr(store), str(store), repr(stepper.metrics), str(st.explain(graph))]
        shown += [repr(value) for value in vars(store).values()]
    assert not [text for text in shown if postgres.password in text]
    assert "stepping@127.0.0.1" in shown[0]


def _distinct(a: st.ZSet[int]) -> st.ZSet[int]:
    return st.distinct(a)


# -- without psycopg


def test_without_psycopg_the_library_works_and_the_store_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "import stepping_spark as st\n"
        "st.StoreMemory()\n"
        "for use in (st.StorePostgres, lambda url: st.StorePostgres.from_graph(None, url)):\n"
        "    try: use('postgresql://h/d')\n"
        "    except st.StoreUnavailable as e: print(e)\n"
    )
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.count("stepping-spark[postgres]") == 2


def test_sums_of_many_columns_are_one_row_of_the_table(
    stores: Stores, postgres: PostgresServer
) -> None:
    sums = Schema((("_key_", STR),), (("_rows_", INT), ("_sum_x_", BIG_INT)))
    register = Register("sums", sums, ("_key_",))
    store = stores.create([register])
    for step in (1, 2):
        add(store, register, as_it_is, [("a", 1, Decimal(10**37)), ("b", 1, Decimal(-1))])
        store.commit(step, None)
    query = "SELECT _key_, _rows_, _sum_x_ FROM {} ORDER BY 1"
    assert rows_of(postgres, stores.schema(store), "sums", query=query) == [
        ("a", 2, Decimal(2 * 10**37)),
        ("b", 2, Decimal(-2)),
    ]
