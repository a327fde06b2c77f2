"""Tables of Postgres as sources and sinks."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import unquote, urlsplit

import psycopg
import pytest

import stepping_spark as st
from stepping_spark.base.errors import InputError, SinkError, SourceError
from tests.cases import Z
from tests.pipeline.following import Database
from tests.pipeline.shop import Note, Shop, Total, amounts, names, numbered, totals
from tests.postgres_server import PostgresServer
from tests.stores.postgres_stores import role


class Shopping(Database):
    """The tables of a shop, which are followed."""

    def shop(self) -> None:
        self.run("CREATE TABLE orders (id bigint PRIMARY KEY, user_ int, amount bigint)")
        self.run('ALTER TABLE orders RENAME user_ TO "user"')
        self.run("CREATE TABLE users (id bigint PRIMARY KEY, name text)")
        for name in ("orders", "users"):
            assert self.table(name).install()

    def put(self, name: str, change: Z[Any]) -> None:
        """Change a table in one transaction."""
        with self.connection.transaction():
            for row, n in change.iter():
                if n < 0:
                    self.run(f"DELETE FROM {name} WHERE id = %s", row.id)
            for row, n in change.iter():
                if n > 0:
                    values = [getattr(row, f) for f in type(row).__annotations__]
                    marks = ", ".join(["%s"] * len(values))
                    self.run(f"INSERT INTO {name} VALUES ({marks})", *values)

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        return self.run(f"SELECT * FROM {name}")


@pytest.fixture
def db(postgres: PostgresServer) -> Iterator[Shopping]:
    made = Shopping(postgres.url)
    yield made
    made.connection.close()


def following(db: Shopping, tmp_path: Path, **given: Any) -> st.Pipeline:
    """A pipeline of the names of users."""
    place = given.pop("store", f"parquet:{tmp_path / 'state'}")
    source = given.pop("source", db.table("users"))
    into = given.pop("into", {"names": db.table("names", key="_value_")})
    return st.Pipeline(names, store=place, users=source, into=into, **given)


def names_in(db: Shopping) -> list[str]:
    return sorted(name for (name,) in db.rows("names"))


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 8))]
)
def test_views_of_tables_that_change_at_random_equal_the_plain_query(
    db: Shopping, tmp_path: Path, seed: int
) -> None:
    shop = Shop(seed)
    db.run("CREATE TABLE users (id bigint PRIMARY KEY, name text)")
    db.run('CREATE TABLE orders (id bigint PRIMARY KEY, "user" int, amount bigint)')
    for name, change in zip(("orders", "users"), shop.change(), strict=True):
        db.put(name, change)
        assert db.table(name).install()
        assert not db.table(name).install()
    for round_ in range(5):
        with st.Pipeline(
            {"totals": totals, "amounts": amounts},
            store=f"{db.url}?schema=state_{db.schema}"
            if seed == 1
            else f"parquet:{tmp_path / 's'}",
            orders=db.table("orders", trim=round_ > 1),
            users=db.table("users"),
            into={"totals": db.table("totals", key="name"), "amounts": db.table("amounts")},
            max_rows=3 if round_ % 2 else 1_000,
        ) as running:
            running.run()
            assert running.lag() == {"orders": 0, "users": 0}
        assert {Total(name=n, orders=o, total=t) for n, o, t in db.rows("totals")} == shop.totals
        assert Counter(dict(db.rows("amounts"))) == shop.amounts
        for _ in range(3):
            for name, change in zip(("orders", "users"), shop.change(), strict=True):
                db.put(name, change)


def test_a_transaction_that_commits_late_is_not_missed_and_one_that_is_undone_is_not_read(
    db: Shopping, tmp_path: Path
) -> None:
    db.shop()
    with psycopg.connect(db.url) as early, following(db, tmp_path) as running:
        early.execute(f"INSERT INTO {db.schema}.users VALUES (1, 'early')")
        db.run("INSERT INTO users VALUES (2, 'late')")
        running.run()  # it may read neither
        early.commit()
        with psycopg.connect(db.url) as undone:
            undone.execute(f"INSERT INTO {db.schema}.users VALUES (3, 'undone')")
            undone.rollback()
        running.run()
        assert names_in(db) == ["early", "late"]


def test_an_update_a_truncation_and_a_row_that_stays_as_it_is(db: Shopping, tmp_path: Path) -> None:
    db.shop()
    db.run("INSERT INTO users VALUES (1, 'a'), (2, 'b')")
    with following(db, tmp_path) as running:
        running.run()
        db.run("UPDATE users SET name = 'c' WHERE id = 1; UPDATE users SET name = name")
        assert running.lag() == {"users": 2}
        running.run()
        assert names_in(db) == ["b", "c"]
        db.run("TRUNCATE users")
        db.run("INSERT INTO users VALUES (3, 'd')")
        running.run()
    assert names_in(db) == ["d"]


def test_a_large_transaction_is_taken_in_pieces_also_by_another_process(
    db: Shopping, tmp_path: Path
) -> None:
    db.shop()
    db.run("INSERT INTO users SELECT i, 'n' || i FROM generate_series(1, 100) i")
    steps = 0
    while True:
        with following(db, tmp_path, max_rows=30) as running:
            if not running.run(max_steps=1):
                break
            steps += 1
    assert steps == 4
    assert len(names_in(db)) == 100


class Kinds(st.Data):
    id: int
    price: Annotated[Decimal, st.Precision(12, 2)]
    at: dt.datetime
    local: st.LocalDateTime
    day: dt.date | None
    took: dt.timedelta
    raw: bytes
    ratio: float
    ok: bool
    more: list[int]


def test_values_of_every_type_come_and_go(db: Shopping) -> None:
    db.run(
        "CREATE TABLE kinds (id bigint, price numeric, at timestamptz, local timestamp, day date, "
        "took interval, raw bytea, ratio double precision, ok boolean, more jsonb)"
    )
    db.run(
        "INSERT INTO kinds VALUES (9007199254740993, 1.25, '2024-05-01 10:00+02', "
        "'2024-05-01 10:00', NULL, '90 seconds', '\\x00ff', 0.1, true, '[1, 2]')"
    )
    db.table("kinds").install()

    def kinds(kinds: st.ZSet[Kinds]) -> st.ZSet[Kinds]:
        return kinds

    seen: list[Any] = []
    into = {"kinds": lambda step, change: seen.extend(change.iter())}
    with st.Pipeline(kinds, store="memory", kinds=db.table("kinds"), into=into) as running:
        running.run()
    ((row, n),) = seen
    assert (n, row.id, row.price, row.raw) == (1, 2**53 + 1, Decimal("1.25"), b"\x00\xff")
    assert (row.took, row.day, row.more) == (dt.timedelta(seconds=90), None, (1, 2))
    into_table = {"kinds": db.table("out", key="id")}
    with st.Pipeline(kinds, store="memory", kinds=db.table("kinds"), into=into_table) as running:
        running.run()
    assert db.rows("out") == db.rows("kinds")


# -- what is not as it should be


def test_a_table_without_a_log_and_one_that_is_not_there_say_what_to_do(
    db: Shopping, tmp_path: Path
) -> None:
    db.run("CREATE TABLE users (id bigint, name text)")
    with following(db, tmp_path) as running:
        with pytest.raises(
            SourceError, match=r"source install postgresql://\S+ users --schema \w+, or"
        ):
            running.run()
        db.table("users").install()
        assert running.run() == 0
        db.table("users").uninstall()
        db.table("users").install()
        db.run("INSERT INTO users VALUES (1, 'a')")
        assert running.run() == 1
        db.table("users").uninstall()
        db.table("users").install()
        with pytest.raises(SourceError, match="another one than the one that was read"):
            running.run()
    with pytest.raises(SourceError, match="it is not there; check the name"):
        db.table("nowhere").install()


def test_a_column_more_is_right_and_one_that_is_gone_is_an_error(
    db: Shopping, tmp_path: Path
) -> None:
    db.shop()
    db.run("INSERT INTO users VALUES (1, 'a')")
    with following(db, tmp_path) as running:
        running.run()
        db.run("ALTER TABLE users ADD age int")
        db.run("INSERT INTO users VALUES (2, 'b', 7)")
        assert running.run() == 1
        db.run("ALTER TABLE users RENAME name TO title")
        db.run("INSERT INTO users VALUES (3, 'c', 8)")
        with pytest.raises(SourceError, match="there is no column name; the columns are id, title"):
            running.run()
        db.run("ALTER TABLE users RENAME title TO name")
        db.run("DELETE FROM users WHERE id = 3")
    assert names_in(db) == ["a", "b"]


def test_a_log_that_was_trimmed_is_refused_to_those_who_have_not_read_it(
    db: Shopping, tmp_path: Path
) -> None:
    db.shop()
    db.run("INSERT INTO users VALUES (1, 'a')")
    with following(db, tmp_path, source=db.table("users", trim=True)) as running:
        assert running.run() == 1
        db.run("INSERT INTO users VALUES (2, 'b')")
        assert running.run() == 1
    ((left,),) = db.run("SELECT count(*) FROM users_changes WHERE _row IS NOT NULL")
    assert left == 0
    into = {"names": db.table("other", key="_value_")}
    with (
        pytest.raises(SourceError, match="was trimmed"),
        following(db, tmp_path, store="memory", into=into) as running,
    ):
        running.run()


def test_a_wrong_password_and_a_server_that_is_not_there_show_no_password(
    db: Shopping, tmp_path: Path
) -> None:
    wrong = db.url.replace("@", "SECRET@")
    for url, said in (
        (wrong, "the server has refused them"),
        (away(wrong), "check the server"),
    ):
        with (
            pytest.raises(SourceError, match=said) as told,
            following(db, tmp_path, source=db.table("users", url=url), into={}) as running,
        ):
            running.run()
        assert "SECRET" not in "".join(map(str, chain(told.value)))


def away(url: str) -> str:
    """The same at a port where nobody is."""
    return url.rpartition(":")[0] + ":1/postgres"


def chain(e: BaseException | None) -> Iterator[BaseException]:
    while e is not None:
        yield e
        e = e.__cause__ or e.__context__


def test_a_second_pipeline_on_a_table_is_refused(db: Shopping, tmp_path: Path) -> None:
    db.shop()
    db.run("INSERT INTO users VALUES (1, 'a')")
    one, two = (following(db, tmp_path, store=f"parquet:{tmp_path / s}") for s in ("one", "two"))
    with one, two:
        assert two.lag() == {"users": 1}  # it has opened the empty table
        assert one.lag() == {"users": 1}  # and this one too, behind it
        one.run()
        with pytest.raises(
            SinkError, match="another pipeline or view writes it, and has written step 1"
        ):
            two.run()
    assert names_in(db) == ["a"]


@pytest.mark.parametrize("ddl", ["DROP TABLE names", "ALTER TABLE names RENAME TO older"])
def test_a_table_that_was_dropped_may_be_written_by_another_pipeline(
    db: Shopping, tmp_path: Path, ddl: str
) -> None:
    """The entry of a dropped table refused each pipeline, and its user had to delete it by hand."""
    db.shop()
    db.run("INSERT INTO users VALUES (1, 'a')")
    with following(db, tmp_path, store=f"parquet:{tmp_path / 'one'}") as one:
        one.run()
    db.run(ddl)
    with following(db, tmp_path, store=f"parquet:{tmp_path / 'two'}") as two:
        if "RENAME" in ddl:
            with pytest.raises(SinkError, match="another pipeline or view writes it"):
                two.run()
            return
        two.run()
        assert names_in(db) == ["a"]
    with (
        following(db, tmp_path, store=f"parquet:{tmp_path / 'one'}") as one,
        pytest.raises(SinkError, match=r"another pipeline or view writes it.*drop it, and run"),
    ):
        one.run()


def test_a_dry_run_refuses_a_sink_that_a_run_refuses_and_makes_nothing(
    db: Shopping, tmp_path: Path
) -> None:
    db.shop()
    db.run("INSERT INTO users VALUES (1, 'a')")
    wrong = db.table("names", key="_value_", url=db.url.replace("@", "SECRET@"))
    with pytest.raises(SinkError, match="the server has refused them"):
        following(db, tmp_path, into={"names": wrong}).dry_run()
    with following(db, tmp_path) as running:
        running.dry_run()
        tables = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        assert not {("names",), ("stepping_spark_steps",)} & set(db.run(tables))
        running.run()
        running.dry_run()
    with pytest.raises(
        SinkError, match="another pipeline or view writes it, and has written step 1"
    ):
        following(db, tmp_path, store="memory").dry_run()
    db.run("CREATE TABLE other (x int)")
    into = {"names": db.table("other", key="_value_")}
    with pytest.raises(SinkError, match="it has the columns x"):
        following(db, tmp_path, store="memory", into=into).dry_run()


def test_a_table_that_is_a_source_is_no_sink() -> None:
    def table(url: str) -> st.Postgres:
        return st.Postgres(url, table="users", schema="public")

    one, same = "postgresql://a@localhost/shop", "postgresql://b@localhost:5432/shop"
    with pytest.raises(InputError, match="is the source of input 'users' too"):
        st.Pipeline(names, store="memory", users=table(one), into={"names": table(same)})
    elsewhere = table("postgresql://a@localhost/other")
    st.Pipeline(names, store="memory", users=table(one), into={"names": elsewhere})


def test_rows_of_others_in_a_view_are_refused(db: Shopping, tmp_path: Path) -> None:
    db.shop()
    db.run("CREATE TABLE names (_value_ text)")
    db.run("INSERT INTO names VALUES ('mine')")
    with (
        pytest.raises(SinkError, match="it has rows that no pipeline wrote"),
        following(db, tmp_path) as running,
    ):
        running.run()
    db.run("DROP TABLE names")
    db.run("INSERT INTO users VALUES (1, 'a')")
    with following(db, tmp_path) as running:
        running.run()
        db.run("DELETE FROM names")
        db.run("DELETE FROM users")
        with pytest.raises(SinkError, match="of 1 rows that it got up to step 1, 0 are there"):
            running.run()
        db.run("INSERT INTO names VALUES ('a')")
        running.run()
        db.run("INSERT INTO users VALUES (1, 'b')")
        db.run("INSERT INTO names VALUES ('b')")
        with pytest.raises(SinkError, match="several rows with the key _value_"):
            running.run()


def test_those_who_write_read_and_keep_views_need_no_more_rights_than_the_page_says(
    db: Shopping, postgres: PostgresServer, tmp_path: Path
) -> None:
    db.shop()
    writer, reader, views = (
        role(postgres, name, f"GRANT USAGE ON SCHEMA {db.schema} TO {{0}};" + rights)
        for name, rights in (
            ("writer", f"GRANT INSERT ON {db.schema}.users TO {{0}}"),
            ("reader", f"GRANT SELECT ON {db.schema}.users, {db.schema}.users_changes TO {{0}}"),
            ("views", f"GRANT CREATE ON SCHEMA {db.schema} TO {{0}}"),
        )
    )
    with psycopg.connect(writer) as connection:
        connection.execute(f"INSERT INTO {db.schema}.users VALUES (1, 'a')")
    into = {"names": db.table("names", url=views, key="_value_")}
    with following(db, tmp_path, source=db.table("users", url=reader), into=into) as running:
        assert running.run() == 1
    assert names_in(db) == ["a"]
    refused = db.table("users", url=reader, trim=True)
    db.run("INSERT INTO users VALUES (2, 'b')")
    with (
        pytest.raises(SourceError, match=r"permission denied.*give the user the right"),
        following(db, tmp_path, source=refused, into=into) as running,
    ):
        running.run()
    with pytest.raises(SourceError, match=r"permission denied|must be owner"):
        db.table("users", url=writer).uninstall()


def test_pipelines_of_two_roles_write_tables_of_one_schema(
    db: Shopping, postgres: PostgresServer, tmp_path: Path
) -> None:
    """As docs/guide/security.md says."""
    db.shop()
    db.run("INSERT INTO users VALUES (1, 'a')")
    with following(db, tmp_path, store=f"parquet:{tmp_path / 'one'}") as one:
        one.run()
    rights = f"GRANT CREATE, USAGE ON SCHEMA {db.schema} TO {{0}}"
    url = role(postgres, "other views", rights)
    into = {"names": db.table("others", key="_value_", url=url)}
    store = f"parquet:{tmp_path / 'two'}"
    with (
        following(db, tmp_path, store=store, into=into) as two,
        pytest.raises(
            SinkError, match=r"permission denied for table stepping_spark_steps.*security"
        ),
    ):
        two.run()
    user = unquote(urlsplit(url).username or "")
    db.run(f'GRANT SELECT, INSERT, UPDATE ON {db.schema}.stepping_spark_steps TO "{user}"')
    with following(db, tmp_path, store=store, into=into) as two:
        two.run()
        db.run("INSERT INTO users VALUES (2, 'b')")
        two.run()
        assert sorted(db.run(f"SELECT * FROM {db.schema}.others")) == [("a",), ("b",)]


@pytest.mark.parametrize("side", ["source", "sink"])
def test_a_password_that_is_wrong_for_a_while_loses_nothing(
    db: Shopping, postgres: PostgresServer, tmp_path: Path, side: str
) -> None:
    db.shop()
    db.run("INSERT INTO users VALUES (1, 'a')")
    url = role(postgres, "views", f"GRANT ALL ON SCHEMA {db.schema} TO {{0}}")
    name = unquote(urlsplit(url).username or "")
    db.run(f'GRANT SELECT ON {db.schema}.users, {db.schema}.users_changes TO "{name}"')
    source = db.table("users", url=url if side == "source" else db.url)
    into = {"names": db.table("names", key="_value_", url=url if side == "sink" else db.url)}

    def have_password(password: str) -> None:
        db.run(f"ALTER ROLE \"{name}\" PASSWORD '{password}'")

    with following(db, tmp_path, source=source, into=into) as running:
        assert running.run() == 1
        db.run("INSERT INTO users VALUES (2, 'b')")
        have_password("another")
        db.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = %s", name)
        for _ in range(2):  # the connection is lost, and then it is refused
            with pytest.raises((SourceError, SinkError)) as told:
                running.run()
            assert postgres.password not in str(told.value)
        assert "the server has refused them" in str(told.value)
        have_password(postgres.password)
        running.run()
        assert sorted(names_in(db)) == ["a", "b"]
        db.run("INSERT INTO users VALUES (3, 'c')")
        have_password("another")
    other = following(db, tmp_path, source=source, into=into)
    with pytest.raises((SourceError, SinkError), match="the server has refused them"), other:
        other.run()
    have_password(postgres.password)
    with other:
        assert other.run() == 1
    assert sorted(names_in(db)) == ["a", "b", "c"]


def test_a_change_feed_and_rows_with_null_keys(db: Shopping) -> None:
    def notes(notes: st.ZSet[Note]) -> st.ZSet[Note]:
        return notes

    a, b = Note(id=1, text=None), Note(id=1, text="x")
    items = numbered([Z({a: 1}), Z({a: -1, b: 1}), Z({b: -1, a: 2}), Z({a: -1})])
    into = {
        "feed": db.table("feed", changes=True),
        "counted": db.table("counted"),
        "keyed": db.table("keyed", key=("text",)),
    }
    with st.Pipeline(
        {"feed": notes, "counted": notes, "keyed": keyed}, store="memory", notes=items, into=into
    ) as running:
        running.run()
    assert db.rows("counted") == [(1, None, 1)]
    assert db.rows("keyed") == [(1, None)]
    kinds = Counter(kind for _, _, kind, _ in db.rows("feed"))
    assert kinds == {"insert": 4, "delete": 3}


def keyed(notes: st.ZSet[Note]) -> st.ZSet[Note]:
    return st.distinct(notes)
