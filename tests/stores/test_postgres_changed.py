"""A state in Postgres that somebody has changed by SQL: what is found, and what is not."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from click.testing import CliRunner
from psycopg import sql

from stepping_spark.base.errors import StoreCorrupt
from stepping_spark.cli import main
from stores.contract.values import BY_WORD, WHOLE, WORDS, add, as_it_is, content, relation_of, row
from tests.postgres_server import PostgresServer
from tests.stores.postgres_stores import Stores


@pytest.fixture
def stores(postgres: PostgresServer) -> Iterator[Stores]:
    made = Stores(postgres.url)
    yield made
    made.close()


@pytest.fixture
def schema(stores: Stores) -> str:
    """A state of a step, which nobody has open."""
    store = stores.create([BY_WORD, WHOLE])
    store.open([BY_WORD, WHOLE], [WORDS])
    for register in (BY_WORD, WHOLE):
        add(store, register, as_it_is, [("a", 1, 1), ("b", 2, 1)])
    store.commit(1, None, [relation_of(WORDS, [("a", 1, 1)])])
    store.close()
    return stores.schema(store)


def changed(postgres: PostgresServer, schema: str, text: str) -> None:
    """Change the state; `{s}` is its schema."""
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(text.replace("{s}", sql.Identifier(schema).as_string()))


CHANGES = {
    "table": ("DROP TABLE {s}.words", "register 'words': its table 'words' is missing"),
    "column": (
        "ALTER TABLE {s}.words ALTER COLUMN length TYPE int",
        "register 'words': its table 'words' has the columns .* length integer, .* not .*bigint",
    ),
    "more columns": (
        "ALTER TABLE {s}.words ADD COLUMN more text",
        "'words' has the columns .*more",
    ),
    "index": (
        "DO $$ BEGIN EXECUTE (SELECT format('DROP INDEX %I.%I', schemaname, indexname) "
        "FROM pg_indexes WHERE tablename = 'words' AND format('%I', schemaname) = '{s}'); END $$",
        "the index 'words~.* key' of its table, .* is missing; .*CREATE INDEX",
    ),
    "other registers": (
        "UPDATE {s}._store_ SET fingerprint = '0123456789abcdef'",
        "table _registers_ is not of this state: .* and _store_ says 0123456789abcdef",
    ),
    "output": ("DROP TABLE {s}._output_1_", "output 1: its table '_output_1_' is missing"),
    "several": (
        "DROP TABLE {s}.words; DROP TABLE {s}._output_1_",
        "'words' is missing\n.*'_output_1_' is missing",
    ),
}


@pytest.mark.parametrize(("text", "said"), CHANGES.values(), ids=CHANGES.keys())
def test_opening_compares_all_tables_with_what_was_made(
    stores: Stores, postgres: PostgresServer, schema: str, text: str, said: str
) -> None:
    changed(postgres, schema, text)
    for read_only in (False, True):
        with pytest.raises(StoreCorrupt, match=f"(?s){said}"):
            stores.open(schema, [BY_WORD, WHOLE], read_only=read_only)
    done = CliRunner().invoke(main, ["state", "verify", postgres.url, "--schema", schema])
    assert done.exit_code == 1


def test_an_index_that_is_gone_can_be_made_again_by_what_the_error_says(
    stores: Stores, postgres: PostgresServer, schema: str
) -> None:
    changed(postgres, schema, CHANGES["index"][0])
    with pytest.raises(StoreCorrupt) as caught:
        stores.open(schema, [BY_WORD, WHOLE])
    (line,) = (text for text in str(caught.value).splitlines() if "CREATE INDEX" in text)
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(line.partition("; ")[2])
    store = stores.open(schema, [BY_WORD, WHOLE])
    assert content(store, WHOLE) == {row("a", 1): (1,), row("b", 2): (1,)}


def test_verify_says_that_it_does_not_find_a_weight_that_was_changed(
    postgres: PostgresServer, schema: str
) -> None:
    verify = ["state", "verify", postgres.url, "--schema", schema]
    changed(postgres, schema, "UPDATE {s}.words SET _count_ = 7")
    done = CliRunner().invoke(main, verify)
    assert done.exit_code == 0
    told = " ".join(done.output.split())
    assert "nothing wrong was found; not checked: weights that somebody has changed" in told
    assert "all is as it was written" not in told
