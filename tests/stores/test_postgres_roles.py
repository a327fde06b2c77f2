"""The Postgres store between roles: which rights it needs, whom it trusts, and what it says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import quote, unquote, urlsplit
from uuid import uuid4

import psycopg
import pytest
from click.testing import CliRunner
from psycopg import sql

from stepping_spark.cli import main
from stepping_spark.errors import StoreCorrupt, StoreError, StoreLocked
from stores.contract.values import BY_WORD, WHOLE, add, as_it_is, content, row
from stores.postgres.store import StorePostgres
from tests.postgres_server import PostgresServer
from tests.stores.postgres_stores import Stores, as_another_process, role


@pytest.fixture
def stores(postgres: PostgresServer) -> Iterator[Stores]:
    made = Stores(postgres.url)
    yield made
    made.close()


MAKES = "GRANT CREATE ON DATABASE postgres TO {0}"

# -- who writes, as far as a role may know


def test_a_role_that_may_not_see_who_writes_is_told_what_it_may_see(
    stores: Stores, postgres: PostgresServer
) -> None:
    writer = role(postgres, "writer", MAKES)
    store = stores.open("looked at", [BY_WORD], create=True, url=writer)
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute('GRANT ALL ON SCHEMA "looked at" TO public')
        connection.execute('GRANT ALL ON ALL TABLES IN SCHEMA "looked at" TO public')
    other = role(postgres, "other")
    said = (
        r"'stepping_spark writer, process \d+ on .*' \(user writer .*, "
        r"server process \d+; .*pg_read_all_stats"
    )
    done = CliRunner().invoke(main, ["state", "show", other, "--schema", "looked at"])
    assert done.exit_code == 0, done.output
    assert re.search(rf"Being written by {said}", " ".join(done.output.split()))
    store.close()


def test_a_writer_of_another_role_is_refused_by_who_writes(
    stores: Stores, postgres: PostgresServer
) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("CREATE ROLE team")
        connection.execute("GRANT CREATE ON DATABASE postgres TO team")
    one, two = (role(postgres, name, "GRANT team TO {}") for name in ("one", "two"))
    as_team = "?options=-crole%3Dteam"
    store = stores.open("team's", [BY_WORD], create=True, url=one + as_team)
    said = r"process \d+ on .* \(user one .* is writing this state"
    with as_another_process(), pytest.raises(StoreLocked, match=said):
        stores.open("team's", [BY_WORD], url=two + as_team)
    store.close()
    assert stores.open("team's", [BY_WORD], url=two + as_team).last_step() == 0


# -- code of others

PLANTS = {
    "view": (
        "ALTER TABLE {s}._store_ RENAME TO kept; CREATE VIEW {s}._store_ AS SELECT kept.* FROM "
        "{s}.kept WHERE {s}.takes(1) = 1; GRANT SELECT ON {s}._store_ TO public"
    ),
    "view of registers": (
        "ALTER TABLE {s}._registers_ RENAME TO kept; CREATE VIEW {s}._registers_ AS SELECT kept.* "
        "FROM {s}.kept WHERE {s}.takes(1) = 1; GRANT SELECT ON {s}._registers_ TO public"
    ),
    "view of rows": (
        "ALTER TABLE {s}.words RENAME TO kept; CREATE VIEW {s}.words AS SELECT kept.* FROM "
        "{s}.kept WHERE {s}.takes(1) = 1; GRANT SELECT ON {s}.words TO public"
    ),
    "policy": (
        "ALTER TABLE {s}.words ENABLE ROW LEVEL SECURITY; "
        "CREATE POLICY p ON {s}.words USING ({s}.takes(1) = 1)"
    ),
    "rule": "CREATE RULE r AS ON UPDATE TO {s}._store_ DO ALSO SELECT {s}.takes(1)",
    "trigger": (
        "CREATE TRIGGER t AFTER INSERT OR UPDATE ON {s}.words FOR EACH STATEMENT "
        "EXECUTE FUNCTION {s}.triggered()"
    ),
    "constraint": "ALTER TABLE {s}.words ADD CONSTRAINT c CHECK ({s}.takes(1) = 1)",
    "index": "CREATE INDEX ON {s}.words (length) WHERE {s}.takes(1) = 2",
    "statistics": "CREATE STATISTICS {s}.e ON ({s}.takes(length::int)) FROM {s}.words",
    "child": "CREATE TABLE {s}.more (CHECK ({s}.takes(1) = 1)) INHERITS ({s}.words)",
    "computed": "ALTER TABLE {s}.words ADD COLUMN g int GENERATED ALWAYS AS ({s}.takes(1)) STORED",
    "default": "ALTER TABLE {s}.words ADD COLUMN g int DEFAULT {s}.takes(1)",
    "domain": (
        "CREATE DOMAIN {s}.d AS text CHECK ({s}.takes(1) = 1); "
        "ALTER TABLE {s}.words ADD COLUMN g {s}.d"
    ),
}
TAKES = """
CREATE TABLE IF NOT EXISTS public.loot (taker text);
GRANT ALL ON public.loot TO public;
"""
CODE = """
CREATE FUNCTION {s}.takes_it() RETURNS int LANGUAGE plpgsql VOLATILE AS
    'BEGIN INSERT INTO public.loot VALUES (current_user); RETURN 1; END';
CREATE FUNCTION {s}.takes(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
    'BEGIN RETURN {s}.takes_it(); END';
CREATE FUNCTION {s}.triggered() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM {s}.takes_it(); RETURN NULL; END';
GRANT USAGE ON SCHEMA {s} TO public;
GRANT ALL ON ALL TABLES IN SCHEMA {s} TO public;
"""


@pytest.fixture
def planted(
    request: pytest.FixtureRequest, stores: Stores, postgres: PostgresServer
) -> tuple[str, str]:
    """The schema of a state that one role has made, with code in it, and that role."""
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(TAKES)
        connection.execute("TRUNCATE public.loot")
    url = role(postgres, "mallory", MAKES)
    store = stores.create([WHOLE], url=url)
    add(store, WHOLE, as_it_is, [("a", 1, 1)])
    store.commit(1, None)
    schema = stores.schema(store)
    store.close()
    with psycopg.connect(url, autocommit=True) as connection:
        named = sql.Identifier(schema).as_string()
        for text in (CODE, request.param):
            connection.execute(text.replace("{s}", named))
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("TRUNCATE public.loot")
    return schema, url


def taken(postgres: PostgresServer) -> set[str]:
    """Who has run the code that was planted."""
    with psycopg.connect(postgres.url) as connection:
        return {name for (name,) in connection.execute("SELECT taker FROM public.loot")}


@pytest.mark.parametrize("planted", PLANTS.values(), ids=PLANTS.keys(), indirect=True)
def test_who_looks_at_a_state_or_opens_it_does_not_run_code_that_others_have_put_there(
    planted: tuple[str, str], postgres: PostgresServer, request: pytest.FixtureRequest
) -> None:
    schema, _ = planted
    for url in (postgres.url, role(postgres, "reader")):
        for command in ("show", "verify"):
            done = CliRunner().invoke(main, ["state", command, url, "--schema", schema])
            if "[trigger]" not in request.node.name:  # which runs where somebody writes
                assert done.exit_code in (1, 2), done.output
                told = "could run code of others with your rights|with the rights of a superuser"
                assert re.search(told, done.output)
        for read_only in (True, False):
            with suppress(StoreError):
                StorePostgres(url, [WHOLE], schema=schema, read_only=read_only).close()
    assert taken(postgres) == set()


def test_a_trigger_that_others_have_put_on_a_table_of_the_writer_is_not_run(
    stores: Stores, postgres: PostgresServer
) -> None:
    writer, mallory = role(postgres, "writer", MAKES), role(postgres, "mallory", MAKES)
    store = stores.create([WHOLE], url=writer)
    named = sql.Identifier(stores.schema(store)).as_string()
    schema = stores.schema(store)
    store.close()
    with psycopg.connect(writer, autocommit=True) as connection:
        connection.execute(f"GRANT USAGE ON SCHEMA {named} TO public")
        connection.execute(f"GRANT TRIGGER ON {named}.words TO public")
    with psycopg.connect(mallory, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA hers")
        connection.execute(
            "CREATE FUNCTION hers.f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'"
        )
        connection.execute(
            f"CREATE TRIGGER t AFTER INSERT ON {named}.words FOR EACH ROW EXECUTE FUNCTION hers.f()"
        )
    with pytest.raises(StoreCorrupt, match=r"the trigger t, whose function belongs to .*mallory"):
        stores.open(schema, [WHOLE], url=writer)


def test_the_writer_may_have_indexes_and_triggers_of_its_own_and_readers_read_on(
    stores: Stores, postgres: PostgresServer
) -> None:
    writer = role(postgres, "writer", MAKES)
    store = stores.create([WHOLE], url=writer)
    schema = stores.schema(store)
    named = sql.Identifier(schema).as_string()
    with psycopg.connect(writer, autocommit=True) as connection:
        for text in (
            "CREATE INDEX ON {s}.words (lower(word)) WHERE length > 1",
            "CREATE FUNCTION {s}.told() RETURNS trigger LANGUAGE plpgsql AS "
            "'BEGIN PERFORM pg_notify(''steps'', ''x''); RETURN NULL; END'",
            "CREATE TRIGGER t AFTER UPDATE ON {s}._store_ EXECUTE FUNCTION {s}.told()",
            "GRANT USAGE ON SCHEMA {s} TO public",
            "GRANT SELECT ON ALL TABLES IN SCHEMA {s} TO public",
        ):
            connection.execute(text.replace("{s}", named))
    store.close()
    store = stores.open(schema, [WHOLE], url=writer)
    add(store, WHOLE, as_it_is, [("a", 1, 1)])
    store.commit(1, None)
    reader = stores.open(schema, [WHOLE], url=role(postgres, "reader"), read_only=True)
    assert content(reader, WHOLE) == {row("a", 1): (1,)}


@pytest.mark.parametrize("planted", [""], ids=["nothing"], indirect=True)
def test_a_superuser_does_not_touch_the_tables_of_others(
    planted: tuple[str, str], postgres: PostgresServer
) -> None:
    schema, mallory = planted
    done = CliRunner().invoke(main, ["state", "verify", postgres.url, "--schema", schema])
    assert done.exit_code == 2
    assert re.search("belongs to 'mallory.*superuser.*connect as 'mallory", done.output)
    for url in (role(postgres, "reader"), mallory):
        done = CliRunner().invoke(main, ["state", "verify", url, "--schema", schema])
        assert done.exit_code == 0, done.output


@pytest.mark.parametrize("planted", [""], ids=["nothing"], indirect=True)
@pytest.mark.parametrize(
    ("plant", "said"), [("policy", "row-level security"), ("view of rows", "restricted")]
)
def test_a_table_that_becomes_another_while_it_is_read_runs_nothing(
    planted: tuple[str, str], postgres: PostgresServer, plant: str, said: str
) -> None:
    schema, mallory = planted
    with StorePostgres(role(postgres, "reader"), [WHOLE], schema=schema, read_only=True) as reader:
        assert content(reader, WHOLE) == {row("a", 1): (1,)}
        with psycopg.connect(mallory, autocommit=True) as connection:
            connection.execute(PLANTS[plant].replace("{s}", sql.Identifier(schema).as_string()))
        with pytest.raises(StoreError, match=said):
            reader.read(WHOLE.name)
    assert taken(postgres) == set()


def test_nobody_writes_in_a_schema_of_somebody_who_could_change_its_tables(
    postgres: PostgresServer,
) -> None:
    mallory, victim = role(postgres, "mallory", MAKES), role(postgres, "victim")
    with psycopg.connect(mallory, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA open; GRANT ALL ON SCHEMA open TO public")
    with pytest.raises(StoreError, match=r"schema belongs to 'mallory .*run code with its rights"):
        StorePostgres(victim, [BY_WORD], schema="open", create=True)


def test_a_role_that_somebody_has_made_the_writer_a_member_of_is_not_trusted_for_that(
    stores: Stores, postgres: PostgresServer
) -> None:
    """Whoever makes a role may make anybody a member of it, who need not know."""
    victim = role(postgres, "victim")
    mallory = role(postgres, "mallory", MAKES + "; ALTER ROLE {0} CREATEROLE")
    its, hers = (unquote(str(urlsplit(url).username)) for url in (victim, mallory))
    group, schema = f"evil {uuid4().hex[:8]}", f"hers {uuid4().hex[:8]}"
    with psycopg.connect(mallory, autocommit=True) as connection:
        for text in ("CREATE ROLE {g}", "GRANT {g} TO {m}", "GRANT {g} TO {v}"):
            names = {"g": group, "v": its, "m": hers}
            with suppress(psycopg.errors.InvalidGrantOperation):  # she is one already
                connection.execute(
                    sql.SQL(text).format(**{n: sql.Identifier(v) for n, v in names.items()})
                )
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        grant = sql.SQL("GRANT CREATE ON DATABASE postgres TO {}").format(sql.Identifier(group))
        connection.execute(grant)
    as_group = "?options=" + quote(f"-crole={group}".replace(" ", "\\ "))
    stores.open(schema, [WHOLE], create=True, url=mallory + as_group).close()
    with pytest.raises(StoreError, match=r"schema belongs to 'evil .*, who could have") as refused:
        stores.open(schema, [WHOLE], url=victim)
    store = stores.open(schema, [WHOLE], url=victim, read_only=True)
    assert store.last_step() == 0
    (told,) = re.findall(r"with (\?options=\S+) in the address", str(refused.value))
    assert stores.open(schema, [WHOLE], url=victim + told).last_step() == 0


def test_a_role_that_cannot_write_at_all_is_refused_when_it_opens_the_state(
    stores: Stores, postgres: PostgresServer
) -> None:
    idle = role(postgres, "idle", MAKES + "; ALTER ROLE {0} SET default_transaction_read_only = on")
    store = stores.create([BY_WORD], url=idle + "?options=-cdefault_transaction_read_only%3Doff")
    schema = stores.schema(store)
    store.close()
    with pytest.raises(StoreError, match=r"transaction_read_only is on.*read_only=True"):
        stores.open(schema, [BY_WORD], url=idle)
    assert stores.open(schema, [BY_WORD], url=idle, read_only=True).last_step() == 0


# -- names that the server would cut


@pytest.mark.parametrize("schema", ["x" * 64, "é" * 32, "", "a\0b"])
def test_a_schema_that_the_server_would_call_otherwise_is_refused(
    postgres: PostgresServer, schema: str
) -> None:
    for registers in ([BY_WORD], None):
        with pytest.raises(StoreError, match=r"schema of Postgres .*63 bytes.*give another name"):
            StorePostgres(postgres.url, registers, schema=schema, create=True)


def test_a_schema_may_have_all_the_bytes_that_the_server_takes(stores: Stores) -> None:
    for schema in ("x" * 63, "é" * 31):
        store = stores.open(schema, [BY_WORD], create=True)
        assert stores.reopen(store, [BY_WORD]).last_step() == 0
