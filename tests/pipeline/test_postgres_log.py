"""The log of a table of Postgres: it is ours, it breaks nothing, and it lacks nothing silently."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import deltalake
import psycopg
import pyarrow as pa
import pytest
from click.testing import CliRunner

import stepping_spark as st
from stepping_spark.base.errors import SourceError
from stepping_spark.cli import main
from tests.pipeline.following import Database, Follower
from tests.postgres_server import PostgresServer
from tests.stores.postgres_stores import role

INT, TEXT = pa.int64(), pa.string()
AGAIN = r"Install it again: stepping-spark source install --again postgresql://"


def plain(db: Database, table: str = "t", columns: str = "id, name") -> Counter[tuple[Any, ...]]:
    return Counter(db.run(f"SELECT {columns} FROM {table}"))


def followed(db: Database, name: str = "t") -> Follower:
    """A table of two columns with two rows, which is followed."""
    db.run(f"CREATE TABLE {name} (id bigint PRIMARY KEY, name text, more text)")
    db.run(f"INSERT INTO {name} VALUES (1, 'a'), (2, 'b')")
    db.table(name).install()
    return Follower(db.table(name), id=INT, name=TEXT)


# -- what is the application's  # finding 1


@pytest.mark.parametrize(
    "taken",
    [
        "CREATE TABLE t_changes (id int); INSERT INTO t_changes VALUES (7)",
        "CREATE TABLE t_changes (_id bigint, _xid xid8, _shape integer, _part oid, "
        "_count_ bigint, _row json); COMMENT ON TABLE t_changes IS 'mine'",
        "CREATE VIEW t_changes AS SELECT 7",
        "CREATE SEQUENCE t_changes",
        "CREATE TYPE t_changes AS ENUM ('a')",
        "CREATE FUNCTION t_changes() RETURNS int LANGUAGE sql AS 'SELECT 7'",
        "CREATE FUNCTION own() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'; "
        "CREATE TRIGGER t_changes AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION own()",
    ],
)
def test_what_the_application_has_is_not_taken_for_the_log(db: Database, taken: str) -> None:
    db.run("CREATE TABLE t (id int)")
    db.run(taken)
    everything = (
        "SELECT count(*) FROM pg_depend UNION ALL SELECT count(*) FROM pg_class "
        "UNION ALL SELECT count(*) FROM pg_trigger UNION ALL SELECT count(*) FROM pg_proc"
    )
    before = db.run(everything)
    for again in (False, True):
        with pytest.raises(
            SourceError, match=r"a .* of that name exists that is no such log; nothing was"
        ):
            db.table("t").install(again=again)
    if "TRIGGER" not in taken and "TYPE" not in taken:
        with pytest.raises(SourceError, match="that is no such log; nothing was changed"):
            db.table("t").uninstall()
    else:
        db.table("t").uninstall()
    with pytest.raises(SourceError):
        Follower(db.table("t"), id=INT).read()
    assert db.run(everything) == before


def test_uninstalling_leaves_nothing_of_ours_even_where_the_table_is_gone(db: Database) -> None:
    ours = (
        f"SELECT (SELECT count(*) FROM pg_class WHERE relnamespace = '{db.schema}'::regnamespace), "
        f"(SELECT count(*) FROM pg_proc WHERE pronamespace = '{db.schema}'::regnamespace)"
    )
    followed(db)
    db.table("t").uninstall()
    db.run("INSERT INTO t VALUES (3, 'c')")
    db.run("DROP TABLE t")
    assert db.run(ours) == [(0, 0)]
    followed(db)
    db.run("DROP TABLE t")
    db.table("t").uninstall()
    assert db.run(ours) == [(0, 0)]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ("VIEW t AS SELECT 1 AS id", "it is a view: follow the tables that it reads"),
        ("MATERIALIZED VIEW t AS SELECT 1 AS id", "it is a materialized view"),
        ("SEQUENCE t", "it is no table"),
    ],
)
def test_what_is_no_table_is_called_by_its_name(db: Database, made: str, said: str) -> None:
    # finding 21
    db.run(f"CREATE {made}")
    with pytest.raises(SourceError, match=said):
        db.table("t").install()


def test_a_table_that_a_crash_empties_is_refused_until_it_is_logged(db: Database) -> None:
    db.run("CREATE UNLOGGED TABLE t (id bigint, name text)")
    with pytest.raises(SourceError, match=r"t is unlogged.*SET LOGGED") as told:
        db.table("t").install()
    db.run(str(told.value).partition("sees it: ")[2])
    db.table("t").install()
    follower = Follower(db.table("t"), id=INT, name=TEXT)
    db.run("ALTER TABLE t SET UNLOGGED")
    with pytest.raises(SourceError, match=r"t is unlogged.*SET LOGGED"):
        follower.read()


@pytest.mark.parametrize("name", ['We"ird {t} %s', "it's $1", "ü" * 27])
def test_a_table_may_have_any_name(db: Database, name: str) -> None:
    quoted = '"' + name.replace('"', '""') + '"'
    db.connection.execute(f"CREATE TABLE {quoted} (id bigint, name text)".encode())
    db.table(name).install()
    follower = Follower(db.table(name), id=INT, name=TEXT)
    db.connection.execute(f"INSERT INTO {quoted} VALUES (1, 'a'), (2, 'b')".encode())
    db.connection.execute(f"DELETE FROM {quoted} WHERE id = 1".encode())
    follower.read()
    db.connection.execute(f"TRUNCATE {quoted}; ALTER TABLE {quoted} ADD more int".encode())
    db.table(name).install(again=True)
    db.connection.execute(f"INSERT INTO {quoted} VALUES (3, 'c')".encode())
    follower.read()
    assert follower.left == {(3, "c"): 1}
    db.table(name).uninstall()


def test_the_command_line_installs_mends_and_removes(db: Database) -> None:
    follower = followed(db)
    db.run("ALTER TABLE t DISABLE TRIGGER ALL; DELETE FROM t")
    given = [db.url, "t", "--schema", db.schema]
    done = CliRunner().invoke(main, ["source", "install", *given])
    assert done.exit_code == 2
    assert "--again" in done.output
    done = CliRunner().invoke(main, ["source", "install", "--again", *given])
    assert done.exit_code == 0, done.output
    follower.read()
    assert not follower.left
    assert CliRunner().invoke(main, ["source", "uninstall", *given]).exit_code == 0


# -- the application's statements go on  # finding 2


KINDS = """
    j json, x text, p point, g polygon, js json[], b bytea, n numeric, f float8, i interval,
    ts timestamptz, r int4range, h text, d date
"""


def test_no_statement_of_the_application_fails_for_its_types(db: Database) -> None:
    db.run(f"CREATE TABLE t (id bigint PRIMARY KEY, name text, {KINDS})")
    db.table("t").install()
    follower = Follower(db.table("t"), id=INT, name=TEXT)
    db.run(
        r"""INSERT INTO t VALUES (1, 'a', '{"a": "\u0000 \ud800"}', 'a', '(1,2)',
        '((0,0),(1,1))', array['{"b": 1e999999}'::json], '\x00', 'NaN', 'infinity',
        '1 mon -1 day', 'infinity', '[1,5)', repeat('x', 3000000), '4713-01-01 BC')"""
    )
    follower.read()
    db.run("UPDATE t SET name = 'b', n = '-Infinity'")
    db.run("UPDATE t SET j = '{}'; UPDATE t SET name = name")
    db.run("INSERT INTO t (id, name) VALUES (2, 'c') ON CONFLICT (id) DO NOTHING")
    db.run("INSERT INTO t (id) VALUES (2) ON CONFLICT (id) DO UPDATE SET name = 'd'")
    db.run(
        "MERGE INTO t USING (VALUES (1, 'e'), (3, 'f')) v (id, name) ON t.id = v.id "
        "WHEN MATCHED THEN UPDATE SET name = v.name WHEN NOT MATCHED THEN INSERT (id, name) "
        "VALUES (v.id, v.name)"
    )
    db.run("WITH gone AS (DELETE FROM t WHERE id = 2 RETURNING *) INSERT INTO t SELECT * FROM gone")
    follower.read()
    assert follower.left == plain(db)
    assert not follower.unfit


def test_who_writes_needs_no_rights_on_the_log_and_settings_of_sessions_do_not_matter(
    db: Database, server: PostgresServer
) -> None:
    # finding 5
    db.run("CREATE TABLE t (id bigint PRIMARY KEY, f float8, s interval, r tstzrange, m money)")
    db.table("t").install()
    rights = (
        f"GRANT USAGE ON SCHEMA {db.schema} TO {{0}}; "
        f"GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON {db.schema}.t TO {{0}}"
    )
    writer = role(server, "writer", rights)
    follower = Follower(db.table("t"), id=INT, f=pa.float64(), s=pa.duration("us"), r=TEXT, m=TEXT)
    odd = (
        "extra_float_digits = 0", "IntervalStyle = sql_standard", "DateStyle = 'SQL, DMY'",
        "TimeZone = 'Asia/Tokyo'", "row_security = off", "plpgsql.extra_errors = 'all'",
        "session_replication_role = replica", "search_path = ''", "check_function_bodies = off",
    )  # fmt: skip
    for i, setting in enumerate(odd):
        url = server.url if "replica" in setting else writer
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"SET {setting}")
            connection.execute(
                f"INSERT INTO {db.schema}.t VALUES ({i}, 0.1::float8 + 0.2::float8, "
                "'-1 day -2 hours', tstzrange('2024-02-01 00:00Z', '2024-02-03 00:00Z'), 1.5)"
            )
    follower.read()
    assert len(follower.left) == len(odd)
    assert {row[1:3] for row in follower.left} == set(db.run("SELECT DISTINCT f, s FROM t"))
    with psycopg.connect(writer, autocommit=True) as connection:
        connection.execute("SET IntervalStyle = iso_8601; SET TimeZone = 'America/Lima'")
        connection.execute(f"DELETE FROM {db.schema}.t WHERE id < 5")
        connection.execute(f"TRUNCATE {db.schema}.t")
    follower.read()
    assert not follower.left


def test_an_update_to_an_equal_value_is_seen(db: Database) -> None:
    # finding 4
    try:
        db.run(
            "CREATE COLLATION nocase (provider = icu, locale = 'und-u-ks-level2', "
            "deterministic = false)"
        )
    except psycopg.errors.FeatureNotSupported:
        db.run('CREATE COLLATION nocase FROM "C"')
    db.run("CREATE TABLE t (id bigint, name text COLLATE nocase, b jsonb)")
    db.run("""INSERT INTO t VALUES (1, 'ann', '1.0')""")
    db.table("t").install()
    follower = Follower(db.table("t"), id=INT, name=TEXT, b=TEXT)
    follower.read()
    db.run("UPDATE t SET name = 'Ann'")
    db.run("UPDATE t SET b = '1.00'")
    follower.read()
    assert follower.left == {(1, "Ann", "1.00"): 1}
    db.run("DELETE FROM t")
    follower.read()
    assert not follower.left


def test_a_truncation_that_cannot_be_logged_goes_through_and_is_told(
    db: Database, server: PostgresServer
) -> None:
    follower = followed(db)
    follower.read()
    name = role(server, "owner", f"GRANT ALL ON SCHEMA {db.schema} TO {{0}}")
    owner = name.split("//")[1].split(":")[0].replace("%20", " ")
    db.run(
        f'ALTER FUNCTION t_changes() OWNER TO "{owner}"; ALTER TABLE t_changes OWNER TO "{owner}"'
    )
    db.run("INSERT INTO t VALUES (3, 'c')")
    db.run("TRUNCATE t")
    with pytest.raises(SourceError, match=rf"TRUNCATE: permission denied.*{AGAIN}"):
        follower.read()
    db.table("t").install(again=True)
    db.run("INSERT INTO t VALUES (4, 'd')")
    follower.read()
    assert follower.left == {(4, "d"): 1}


def test_a_log_that_somebody_drops_breaks_no_statement(db: Database) -> None:
    follower = followed(db)
    db.run("DROP TABLE t_changes")
    db.run("INSERT INTO t VALUES (3, 'c')")
    db.run("TRUNCATE t")
    with pytest.raises(SourceError, match="it has no log of changes"):
        follower.read()
    assert db.table("t").install()
    follower.read()
    assert not follower.left


# -- DDL  # findings 6 and 8

CAN_BE_MENDED = {
    "triggers disabled": "ALTER TABLE t DISABLE TRIGGER ALL; INSERT INTO t VALUES (3, 'c'); "
    "ALTER TABLE t ENABLE TRIGGER ALL",
    "disabled, and made as they were": "ALTER TABLE t DISABLE TRIGGER t_changes; "
    "INSERT INTO t VALUES (3, 'c'); ALTER TABLE t ENABLE ALWAYS TRIGGER t_changes",
    "a trigger dropped": "DROP TRIGGER t_changes ON t; DELETE FROM t WHERE id = 1",
    "made again": "DROP TABLE t; CREATE TABLE t (id bigint, name text); "
    "INSERT INTO t VALUES (2, 'b'), (9, 'z')",
    "swapped": "CREATE TABLE u (name text, id bigint); INSERT INTO u VALUES ('b', 2), ('y', 8); "
    "ALTER TABLE t RENAME TO old; ALTER TABLE u RENAME TO t; INSERT INTO old VALUES (4, 'x')",
    "the same type anew": "ALTER TABLE t ALTER name TYPE text USING name || '!'",
    "another type": "ALTER TABLE t ALTER id TYPE int; UPDATE t SET id = id + 10",
    "renamed back": "ALTER TABLE t RENAME name TO x; INSERT INTO t VALUES (3, 'c'); "
    "ALTER TABLE t RENAME more TO name; ALTER TABLE t RENAME name TO more; "
    "ALTER TABLE t RENAME x TO name; ALTER TABLE t DISABLE TRIGGER USER",
    "another key": "ALTER TABLE t DROP CONSTRAINT t_pkey; ALTER TABLE t DISABLE TRIGGER USER; "
    "INSERT INTO t VALUES (1, 'a'), (1, 'a'), (1, NULL)",
}


@pytest.mark.parametrize("ddl", CAN_BE_MENDED.values(), ids=CAN_BE_MENDED)
def test_what_no_trigger_saw_is_told_and_mended_by_installing_again(db: Database, ddl: str) -> None:
    follower = followed(db)
    follower.read()
    db.run("UPDATE t SET name = 'aa' WHERE id = 1")
    db.run(ddl)
    with pytest.raises(SourceError, match=AGAIN):
        follower.read()
    if "DROP TABLE" not in ddl:
        with pytest.raises(SourceError, match=AGAIN):
            follower.look()
    assert db.table("t").install(again=True)
    assert not db.table("t").install()
    db.run("INSERT INTO t (id, name) VALUES (77, 'new'); DELETE FROM t WHERE id = 2")
    fresh = Follower(db.table("t"), id=INT, name=TEXT)
    for one in (follower, fresh):
        one.read()
        assert one.left == plain(db)
        assert not one.unfit


@pytest.mark.parametrize(
    "ddl",
    [
        (
            "ADD COLUMN age int DEFAULT 7",
            "RENAME more TO less",
            "DROP COLUMN less",
            "ADD COLUMN less float8 NOT NULL DEFAULT random()",
            "ALTER age TYPE text USING age::text",
            "ADD CHECK (id > 0)",
            "SET (fillfactor = 50)",
        ),
        (
            "ALTER name SET NOT NULL",
            "ALTER name SET STATISTICS 10",
            "ALTER name SET DEFAULT 'y'",
            "DROP CONSTRAINT t_pkey",
            "RENAME name TO x; ALTER TABLE t RENAME x TO name",
        ),
    ],
    ids=["columns that are not read", "columns that are read"],
)
def test_ddl_that_changes_no_value_that_is_read_is_followed(
    db: Database, ddl: tuple[str, ...]
) -> None:
    follower = followed(db)
    for i, statement in enumerate(ddl):
        db.run(f"ALTER TABLE t {statement}")
        db.run("INSERT INTO t (id, name) VALUES (%s, 'x')", 10 + i)
        db.run("UPDATE t SET name = name || '.'")
        if i % 2:
            db.run("DELETE FROM t WHERE id = %s", 10 + i)
        follower.read()
        assert follower.left == plain(db)
    db.run("DELETE FROM t")
    follower.read()
    assert not follower.left


def test_a_column_that_was_added_later_is_read_once_it_is_installed_again(db: Database) -> None:
    follower = followed(db)
    follower.read()
    db.run("ALTER TABLE t ADD age int NOT NULL DEFAULT 7")
    db.run("UPDATE t SET age = 8 WHERE id = 1; DELETE FROM t WHERE id = 2")
    wide = Follower(db.table("t"), id=INT, age=INT)
    with pytest.raises(SourceError, match=f"column age was added after the log was made.*{AGAIN}"):
        wide.read()
    db.table("t").install(again=True)
    db.run("INSERT INTO t VALUES (3, 'c', '', 9)")
    follower.read()
    assert follower.left == plain(db)
    wide.read()
    assert (wide.left, wide.unfit) == ({(1, 8): 1, (3, 9): 1}, [])


def test_a_column_that_is_renamed_goes_on_under_its_new_name(db: Database) -> None:
    db.run("CREATE TABLE t (id bigint PRIMARY KEY, name text)")
    db.run("INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    db.table("t").install()
    follower = Follower(db.table("t"), id=INT, name=TEXT)
    follower.read()
    db.run("INSERT INTO t VALUES (3, 'c')")
    db.run("ALTER TABLE t RENAME name TO title")
    db.run("DELETE FROM t WHERE id = 1")
    named = pa.field("name", TEXT, metadata={"column": "title"})
    follower.columns = follower.columns.set(1, named)
    with pytest.raises(SourceError, match=f"column title was renamed; it was name.*{AGAIN}"):
        follower.read()
    db.table("t").install(again=True)
    follower.read()
    assert follower.left == plain(db, columns="id, title")
    assert not follower.unfit


CHANGED = {
    "added": ("ALTER TABLE t ADD z int", {}),
    "added with a default": ("ALTER TABLE t ADD z int NOT NULL DEFAULT 7", {}),
    "wider": ("ALTER TABLE t ALTER price TYPE numeric(14, 2)", {}),
    "of another scale": ("ALTER TABLE t ALTER price TYPE numeric(14, 4)", {}),
    "renamed": ("ALTER TABLE t RENAME price TO preis", {"price": "preis"}),
    "dropped and added": ("ALTER TABLE t DROP price, ADD price numeric(10, 2) DEFAULT 3", {}),
    "made anew": (
        "CREATE TABLE u (id bigint, price numeric(10, 2), name text NOT NULL, y date); "
        "INSERT INTO u SELECT id, price, name FROM t WHERE id > 3; DROP TABLE t; "
        "ALTER TABLE u RENAME TO t",
        {},
    ),
    "not at all": ("ALTER TABLE t ALTER price SET DEFAULT 3", {}),
}


@pytest.mark.parametrize("read", [False, True], ids=["not read", "read"])
@pytest.mark.parametrize(("ddl", "columns"), CHANGED.values(), ids=CHANGED)
def test_a_table_is_read_again_after_ddl_and_a_new_installation(
    db: Database, ddl: str, columns: dict[str, str], *, read: bool, tmp_path: Path
) -> None:
    """A sink that was removed needs all rows as of the committed position, from before the DDL."""
    db.run("CREATE TABLE t (id bigint PRIMARY KEY, name text NOT NULL, price numeric(10, 2))")
    db.run("INSERT INTO t SELECT i, 'n' || i, i / 4.0 FROM generate_series(1, 9) i")
    db.table("t").install()
    kept, sums = str(tmp_path / "kept"), str(tmp_path / "sums")

    def run(**given: Any) -> None:
        text = (
            "CREATE VIEW kept AS SELECT * FROM t WHERE id > 2; "
            "CREATE VIEW sums AS SELECT id % 3 AS k, sum(price) AS price FROM t GROUP BY 1"
        )
        into = {"kept": st.DeltaTable(kept, key="id"), "sums": st.DeltaTable(sums, key="k")}
        with st.Pipeline(
            st.sql(text), store=f"parquet:{tmp_path}/state", into=into, evolve=True, **given
        ) as pipeline:
            pipeline.run()

    run(t=db.table("t"))
    db.run("INSERT INTO t VALUES (20, 'new', 5)")
    db.run(ddl)
    db.run("DELETE FROM t WHERE id = 5; UPDATE t SET name = 'x' WHERE id = 6")
    db.table("t").install(again=True)
    if read and ddl in (CHANGED["renamed"][0], CHANGED["not at all"][0]):  # the query is as it was
        run(t=db.table("t", columns=columns))
    shutil.rmtree(kept)
    shutil.rmtree(sums)
    run(t=db.table("t", columns=columns))
    for last in (False, True):
        table = deltalake.DeltaTable(kept).to_pyarrow_table()
        names = ", ".join(columns.get(name, name) for name in table.column_names)
        rows = Counter(tuple(row.values()) for row in table.to_pylist())
        assert rows == plain(db, "t WHERE id > 2", names)
        price = columns.get("price", "price")
        table = deltalake.DeltaTable(sums).to_pyarrow_table().select(["k", "price"])
        rows = Counter(tuple(row.values()) for row in table.to_pylist())
        assert rows == plain(db, "t GROUP BY 1", f"id % 3, sum({price})")
        if not last:
            db.run(f"INSERT INTO t (id, name, {price}) VALUES (30, 'y', 2)")
            run(t=db.table("t", columns=columns))


def test_a_log_that_lacks_rows_is_told_before_a_changed_query(db: Database, tmp_path: Path) -> None:
    """The plan of the evolution was told first, and the evolution raised this error."""
    db.run('CREATE TABLE "t u" (id bigint PRIMARY KEY, price numeric(10, 2))')
    db.run('INSERT INTO "t u" VALUES (7, 1)')
    table, store = db.table("t u"), f"parquet:{tmp_path}/state"
    table.install()
    text = "SELECT id % 3 AS k, sum(price) AS price FROM t GROUP BY 1"
    st.Pipeline(st.sql(text), store=store, t=table, into=print).run()
    db.run('INSERT INTO "t u" VALUES (1, 2); ALTER TABLE "t u" ALTER price TYPE numeric(14, 2)')
    pipeline = st.Pipeline(st.sql(text), store=store, t=table, into=print)
    with pytest.raises(SourceError, match=rf"{AGAIN}\S+ 't u' --schema {db.schema}, or"):
        pipeline.run()
    table.install(again=True)
    with pytest.raises(st.StoreMismatch, match="run with --evolve"):
        pipeline.run()


@pytest.mark.parametrize("ddl", CAN_BE_MENDED.values(), ids=CAN_BE_MENDED)
def test_who_has_read_an_installation_is_where_one_is_who_begins_with_it(
    db: Database, ddl: str
) -> None:
    follower = followed(db)
    follower.read()
    before = follower.position
    db.run(ddl)
    db.table("t").install(again=True)
    new = Follower(db.table("t"), id=INT, name=TEXT)
    for number in (50, 51):
        follower.read()
        new.read()
        assert follower.position == new.position
        assert follower.left == new.left == plain(db)
        db.run(f"INSERT INTO t (id, name) VALUES ({number}, 'z'); DELETE FROM t WHERE id = 2")
    new.read()
    assert before is not None
    assert new.position is not None
    # An earlier version kept the installation with which a pipeline had begun.
    new.position = (*new.position[:3], before[3])  # type: ignore[index]
    rows = new.left
    new.read()
    assert new.left == rows
    follower.read()
    assert new.position == follower.position


@pytest.mark.parametrize("rows", [None, 2])
@pytest.mark.parametrize(
    "meanwhile",
    ["UPDATE t SET id = 9 - id", "DELETE FROM t WHERE id = 1", "INSERT INTO t VALUES (3)"],
)
def test_a_column_that_had_another_name_for_a_while_is_told_and_mended(
    db: Database, meanwhile: str, rows: int | None
) -> None:
    follower = followed(db)
    follower.read()
    db.run(f"ALTER TABLE t RENAME name TO x; {meanwhile}; ALTER TABLE t RENAME x TO name")
    for one in (follower, Follower(db.table("t"), id=INT, name=TEXT)):
        with pytest.raises(SourceError, match=f"column name had another name.*{AGAIN}"):
            one.read()
    db.table("t").install(again=True)
    db.run("INSERT INTO t VALUES (77, 'new'); DELETE FROM t WHERE id = 2")
    for one in (follower, Follower(db.table("t"), id=INT, name=TEXT)):
        one.read(st.Portion(rows=rows))
        assert one.left == plain(db)
        assert not one.unfit


def test_a_label_of_an_enum_may_be_added_and_not_renamed(db: Database) -> None:
    db.run("CREATE TYPE mood AS ENUM ('good'); CREATE TABLE t (id bigint, name mood)")
    db.run("INSERT INTO t VALUES (1, 'good')")
    db.table("t").install()
    follower = Follower(db.table("t"), id=INT, name=TEXT)
    follower.read()
    db.run("ALTER TYPE mood ADD VALUE 'bad'")
    db.run("INSERT INTO t VALUES (2, 'bad')")
    follower.read()
    assert follower.left == plain(db)
    db.run("ALTER TYPE mood RENAME VALUE 'good' TO 'fine'")
    with pytest.raises(SourceError, match=f"column name has another type.*{AGAIN}"):
        follower.read()
    db.table("t").install(again=True)
    follower.read()
    assert follower.left == plain(db)


def test_a_renamed_table_goes_on_with_its_log_as_the_message_says(db: Database) -> None:
    follower = followed(db)
    follower.read()
    db.run("ALTER TABLE t RENAME TO u")
    db.run("INSERT INTO u VALUES (3, 'c')")
    with pytest.raises(SourceError, match="as the table was renamed or moved") as told:
        db.table("u").install()
    message = str(told.value)
    start = message.index("ALTER TABLE")
    db.run(message[start : message.index(" (and SET")])
    db.run("INSERT INTO u VALUES (4, 'd')")
    moved = Follower(db.table("u"), id=INT, name=TEXT)
    moved.position, moved.rows = follower.position, follower.rows
    with pytest.raises(SourceError, match=f"it was renamed or moved.*{AGAIN}"):
        moved.read()
    db.table("u").install(again=True)
    db.run("INSERT INTO u VALUES (5, 'e')")
    moved.read()
    assert moved.left == plain(db, "u")


def test_a_virtual_column_is_refused_and_a_stored_one_is_read(db: Database) -> None:
    # finding 9
    kinds = ["STORED"] + (["VIRTUAL"] if db.connection.info.server_version >= 180_000 else [])
    for kind in kinds:
        db.run(f"CREATE TABLE {kind} (id bigint, twice bigint GENERATED ALWAYS AS (id * 2) {kind})")
        db.table(kind.lower()).install()
        follower = Follower(db.table(kind.lower()), id=INT, twice=INT)
        if kind == "VIRTUAL":
            with pytest.raises(
                SourceError, match=r"twice is generated and virtual.*make it STORED"
            ):
                follower.read()
            follower = Follower(db.table(kind.lower()), id=INT)
            assert follower.schema().names == ["id"]
        db.run(f"INSERT INTO {kind} VALUES (1); UPDATE {kind} SET id = 3")
        follower.read()
        assert follower.left == plain(db, kind, ", ".join(follower.columns.names))


# -- partitions and inheritance  # finding 7


def test_partitions_are_followed_and_what_comes_or_goes_with_rows_is_told(db: Database) -> None:
    db.run("CREATE TABLE t (id bigint, name text) PARTITION BY RANGE (id)")
    db.run("CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (10)")
    db.run("CREATE TABLE t2 (more int, name text, id bigint); ALTER TABLE t2 DROP more")
    db.run("ALTER TABLE t ATTACH PARTITION t2 FOR VALUES FROM (10) TO (20)")
    db.run("INSERT INTO t VALUES (1, 'a'), (11, 'b')")
    db.table("t").install()
    follower = Follower(db.table("t"), id=INT, name=TEXT)

    def agree() -> None:
        follower.read()
        assert follower.left == plain(db)

    def told_and_mended(said: str) -> None:
        with pytest.raises(SourceError, match=f"{said}.*{AGAIN}"):
            follower.read()
        db.table("t").install(again=True)
        assert not db.table("t").install()
        agree()
        fresh = Follower(db.table("t"), id=INT, name=TEXT)
        fresh.read()
        assert fresh.left == plain(db)

    agree()
    db.run("UPDATE t SET id = id + 10 WHERE id = 1; INSERT INTO t1 VALUES (2, 'c')")
    agree()
    db.run("TRUNCATE t2")
    agree()
    db.run("CREATE TABLE t3 PARTITION OF t FOR VALUES FROM (20) TO (30)")
    db.run("INSERT INTO t3 VALUES (20, 'd'), (21, 'e'); DELETE FROM t WHERE id = 20")
    agree()
    db.run("TRUNCATE t3")
    told_and_mended("its part .*t3, .*was attached with rows")
    db.run("INSERT INTO t VALUES (25, 'f'), (12, 'g')")
    agree()
    db.run("TRUNCATE t3")
    agree()
    db.run("ALTER TABLE t DETACH PARTITION t2")
    told_and_mended("1 of its parts were detached or dropped")
    db.run("INSERT INTO t2 (id, name) VALUES (13, 'h'); DELETE FROM t2 WHERE id = 12; TRUNCATE t2")
    agree()
    db.run("INSERT INTO t2 (id, name) VALUES (14, 'i')")
    db.run("ALTER TABLE t ATTACH PARTITION t2 FOR VALUES FROM (10) TO (20)")
    told_and_mended("its part .*t2, .*was attached with rows")
    db.run("DROP TABLE t1")
    told_and_mended("1 of its parts were detached or dropped")
    db.run("TRUNCATE t")
    agree()


def test_inheriting_tables_are_followed(db: Database) -> None:
    db.run("CREATE TABLE t (id bigint, name text); CREATE TABLE c (age int) INHERITS (t)")
    db.run("INSERT INTO t VALUES (1, 'a'); INSERT INTO c VALUES (2, 'b', 7)")
    db.table("t").install()
    follower = Follower(db.table("t"), id=INT, name=TEXT)
    follower.read()
    assert follower.left == plain(db)
    db.run("INSERT INTO c VALUES (3, 'c', 8); UPDATE t SET name = name || '!'; DELETE FROM c")
    follower.read()
    assert follower.left == plain(db)
    db.run("CREATE TABLE d () INHERITS (t)")
    with pytest.raises(SourceError, match=AGAIN):
        follower.read()
    db.run("INSERT INTO d VALUES (4, 'd')")
    db.table("t").install(again=True)
    db.run("TRUNCATE c; INSERT INTO d VALUES (5, 'e')")
    follower.read()
    assert follower.left == plain(db)


# -- rows that do not fit  # finding 17


def test_a_row_that_was_corrected_stops_nothing_and_one_that_is_wrong_is_named(
    db: Database,
) -> None:
    db.run("CREATE TABLE t (id bigint PRIMARY KEY, price numeric, day date, more text)")
    db.table("t").install()
    follower = Follower(db.table("t"), id=INT, price=pa.decimal128(12, 2), day=pa.date32())
    db.run("INSERT INTO t VALUES (5, 'NaN', 'infinity'), (6, 1.25, '2024-05-01'), (7, 1.255, NULL)")
    db.run("UPDATE t SET more = 'x'")
    follower.read()
    assert len(follower.left) == 1
    assert follower.unfit == [
        "id = 5: column price: 'NaN' does not fit decimal128(12, 2); column day: 'infinity' does "
        "not fit date32[day]",
        "id = 7: column price: '1.255' does not fit decimal128(12, 2)",
    ]
    db.run("UPDATE t SET price = 1, day = '2024-05-01'")
    follower.read()
    assert follower.left == plain(db, columns="id, price, day")
    assert not follower.unfit
