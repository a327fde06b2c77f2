"""The SQL of docs/guide/security.md gives each role what it needs, and no more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner
from psycopg import errors

from stepping_spark.base.errors import StoreError, StoreUnavailable
from stepping_spark.cli import main
from stepping_spark.relations.store import Register
from stores.contract.values import BY_WORD, NUMBER, WORDS, add, as_it_is, content, relation_of, row
from stores.postgres.store import StorePostgres
from tests.postgres_server import PostgresServer

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "security.md").read_text(encoding="utf-8")
WRITER, READER, ANALYST, MEMBER = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
TOTALS = Register("cache.totals", WORDS)
REGISTERS = [BY_WORD, TOTALS]


@dataclass(frozen=True)
class Database:
    """A database of its own, in which the page is followed."""

    superuser: str

    def runs(self, block: str) -> str:
        """The address of the role that a block makes; runs it, as the superuser of the tests."""
        with psycopg.connect(self.superuser, autocommit=True) as connection:
            connection.execute(block)
        match = re.search(r"CREATE ROLE (\w+) LOGIN PASSWORD '(.*)'", block)
        assert match is not None
        return self.url(*match.groups())

    def url(self, role: str, password: str) -> str:
        return re.sub("//.*@", f"//{role}:{password.replace(' ', '%20')}@", self.superuser)


@pytest.fixture
def database(postgres: PostgresServer) -> Iterator[Database]:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE followed")
        yield Database(postgres.url.replace("/postgres", "/followed"))


def opened(url: str, *, create: bool = False, read_only: bool = False) -> StorePostgres:
    store = StorePostgres(url, schema="flights", create=create, read_only=read_only)
    try:
        store.open(REGISTERS, [WORDS])
    except BaseException:
        store.close()
        raise
    return store


def steps(url: str, *sizes: int) -> None:
    """Take steps of so many rows."""
    with opened(url, create=True) as store:
        for size in sizes:
            number = store.last_step() + 1
            for register in REGISTERS:
                add(store, register, as_it_is, [(f"w{number}", i, 1) for i in range(size)])
            given = relation_of(WORDS, [(f"o{number}", i, 1) for i in range(size)])
            store.commit(number, None, [given])
        store.compact()


def test_each_role_of_the_page_can_do_what_it_says_and_no_more(database: Database) -> None:
    writer = database.runs(WRITER)
    steps(writer, 60_000, 3_000, 3)

    reader = database.runs(READER)
    with opened(reader, read_only=True) as store:
        assert content(store, BY_WORD).keys() >= {row("w3", i) for i in range(3)}
        assert len(store.last_outputs() or ()) == 1
    for command in ("show", "verify"):
        done = CliRunner().invoke(main, ["state", command, reader, "--schema", "flights"])
        assert done.exit_code == 0, done.output
    refused = "'flights_reader' has not the right CREATE .*needed to write.*read_only=True"
    with pytest.raises(StoreUnavailable, match=refused):
        opened(reader)
    steps(writer, 3)
    with StorePostgres(writer, schema="flights") as store:
        store.open(REGISTERS, [NUMBER])
        store.commit(5, None, [relation_of(NUMBER, [(7,)])])
    with StorePostgres(reader, schema="flights", read_only=True) as store:
        store.open(REGISTERS, [NUMBER])
        assert store.last_outputs() is not None

    analyst = database.runs(ANALYST)
    with psycopg.connect(analyst, autocommit=True) as connection:
        (rows,) = connection.execute("SELECT count(*) FROM flights.totals").fetchone() or (0,)
        assert rows == 63_006
        for other in ('flights."words by word"', "flights._store_", 'flights."cache.totals"'):
            with pytest.raises(errors.InsufficientPrivilege):
                connection.execute(f"SELECT * FROM {other}")
    refused = "'flights_analyst' has not the right SELECT .*needed to read.*GRANT SELECT ON ALL"
    with pytest.raises(StoreUnavailable, match=refused):
        opened(analyst, read_only=True)

    member = f"{database.runs(MEMBER)}?options=-crole%3Dflights_writer"
    with opened(member) as store:
        add(store, BY_WORD, as_it_is, [("Ann's", 1, 1)])
        store.commit(6, None, [relation_of(WORDS, [])])
    steps(writer, 3, 3_000)


def test_a_role_without_rights_is_told_which_when_it_opens_the_state(
    postgres: PostgresServer,
) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("CREATE ROLE stranger LOGIN PASSWORD 'stranger'")
        connection.execute("CREATE ROLE partner LOGIN PASSWORD 'partner'")
    with StorePostgres(postgres.url, REGISTERS, schema="closed", create=True):
        pass
    role = Database(postgres.url).url
    said = r'\'stranger\' has not the right USAGE .*GRANT USAGE ON SCHEMA "closed" TO "stranger"'
    with pytest.raises(StoreUnavailable, match=said):
        StorePostgres(role("stranger", "stranger"), REGISTERS, schema="closed", read_only=True)
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("GRANT ALL ON SCHEMA closed TO partner")
        connection.execute("GRANT ALL ON ALL TABLES IN SCHEMA closed TO partner")
    for _ in range(2):
        with pytest.raises(StoreError, match="only its owner writes a state, which 'partner'"):
            StorePostgres(role("partner", "partner"), REGISTERS, schema="closed")
        with StorePostgres(postgres.url, REGISTERS, schema="closed"):
            pass
