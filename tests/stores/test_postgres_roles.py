"""The Postgres store between roles: which rights it needs, whom it trusts, and what it says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import quote
from uuid import uuid4

import psycopg
import pytest
from click.testing import CliRunner
from psycopg import sql

from stepping_spark.base.errors import StoreError, StoreLocked
from stepping_spark.cli import main
from stores.contract.values import BY_WORD, WHOLE, add, as_it_is
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


def test_only_the_owner_of_the_tables_writes_and_a_member_is_told_how_to_connect_as_it(
    stores: Stores, postgres: PostgresServer
) -> None:
    owner = f"team {uuid4().hex[:8]}"
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        for text in ("CREATE ROLE {}", "GRANT CREATE ON DATABASE postgres TO {}"):
            connection.execute(sql.SQL(text).format(sql.Identifier(owner)))
    grant = sql.SQL("GRANT {} TO {{}}").format(sql.Identifier(owner)).as_string()
    member = role(postgres, "member", grant)
    as_owner = "?options=" + quote(f"-crole={owner}".replace(" ", "\\ "))
    store = stores.create([WHOLE], url=member + as_owner)
    schema = stores.schema(store)
    store.close()
    with pytest.raises(StoreError, match=f"belongs to '{owner}', and only its owner writes") as e:
        stores.open(schema, [WHOLE], url=member)
    (options,) = re.findall(r"with (\?options=\S+) in the address", str(e.value))
    assert stores.open(schema, [WHOLE], url=member + options).last_step() == 0
    assert stores.open(schema, [WHOLE], url=member, read_only=True).last_step() == 0


def test_a_policy_that_would_hide_rows_is_an_error(
    stores: Stores, postgres: PostgresServer
) -> None:
    writer = role(postgres, "writer", MAKES)
    store = stores.create([WHOLE], url=writer)
    add(store, WHOLE, as_it_is, [("a", 1, 1)])
    store.commit(1, None)
    named = sql.Identifier(stores.schema(store)).as_string()
    with psycopg.connect(writer, autocommit=True) as connection:
        for text in (
            "GRANT USAGE ON SCHEMA {s} TO public",
            "GRANT SELECT ON ALL TABLES IN SCHEMA {s} TO public",
            "ALTER TABLE {s}.words ENABLE ROW LEVEL SECURITY",
            "CREATE POLICY p ON {s}.words USING (length = 2)",
        ):
            connection.execute(text.replace("{s}", named))
    url = role(postgres, "reader")
    reader = stores.open(stores.schema(store), [WHOLE], url=url, read_only=True)
    with pytest.raises(StoreError, match="row-level security"):
        reader.read(WHOLE.name)


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
