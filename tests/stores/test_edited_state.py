"""A state that somebody has edited: one clear error or the right answer, and nothing else happens.

No bare error of Python, no hang, no gigabytes, and no file outside the directory is touched.
"""

from __future__ import annotations

import itertools
import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import uuid4

import psycopg
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql

from stepping_spark.base.errors import StoreCorrupt, StoreError, StoreLocked, StoreUnavailable
from stepping_spark.cli import main
from stepping_spark.relations.store import Register, Store
from stepping_spark.rows.atoms import INT
from stepping_spark.rows.schema import Schema
from stepping_spark.rows.types import ListOf, Optional
from stores.contract.values import (
    BY_WORD,
    MIXED,
    NUMBER,
    WHOLE,
    WORDS,
    Content,
    add,
    as_it_is,
    as_table,
    content,
    keys_relation,
    mixed_row,
    relation_of,
)
from stores.parquet import fencing, files
from stores.parquet.file_validation import place_column
from stores.parquet.store import StoreParquet
from stores.postgres.store import StorePostgres
from tests.postgres_server import PostgresServer
from tests.stores import edits
from tests.stores.edits import Edit
from tests.stores.two_writers_of_files import Bucket, elsewhere

LISTS = Schema((("items", ListOf(Optional(INT))),))
REGISTERS = [
    BY_WORD, WHOLE, Register("mixed", MIXED, ("i", "s")), Register("number", NUMBER),
    Register("lists", LISTS), Register("other words", WORDS, ("word",)),
]  # fmt: skip
MIXED_ROWS, LIST_ROWS = REGISTERS[2], REGISTERS[4]
STEPS = 5

Facts = tuple[object, ...]


def take_steps(store: Store, many: int) -> None:
    """Steps that fill all registers, the first with so many rows."""
    store.open(REGISTERS, [WORDS, WORDS])
    for step in range(1, STEPS + 1):
        words = [(f"w{i}", i, 1) for i in range(many if step == 1 else step)]
        for register in (BY_WORD, REGISTERS[5]):
            add(store, register, as_it_is, words)
        add(store, WHOLE, as_it_is, words[:20])
        add(store, MIXED_ROWS, as_it_is, [(*mixed_row(i * step), 1) for i in range(20)])
        add(store, REGISTERS[3], as_it_is, [(step,)])
        add(store, LIST_ROWS, as_it_is, [([1, None, step], 1)])
        given_ = [relation_of(WORDS, [(name, step, 1)]) for name in "ab"]
        store.commit(step, step, given_, {"orders": step}, {"zone": "UTC"})


def facts(store: Store) -> Facts:
    """All that a store says."""
    store.open(REGISTERS, [WORDS, WORDS])
    kept: dict[str, Content] = {r.name: content(store, r) for r in REGISTERS}
    asked = keys_relation(BY_WORD, [("w1",), ("w8000",), ("w3",)])
    found = {k: n for k, n in content(store, BY_WORD, asked).items() if k[1] == (1, b"w1")}
    outputs = [as_table(held).to_pylist() for held in store.last_outputs() or ()]
    rest = store.last_now(), dict(store.last_offsets()), dict(store.last_settings())
    return store.last_step(), kept, found, outputs, *rest


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state in files: of several batches, one of which has two row groups."""
    path = tmp_path_factory.mktemp("edited") / "state"
    with StoreParquet(path, create=True) as store:
        take_steps(store, 9_000)
    return path


@pytest.fixture(scope="module")
def known(original: Path) -> list[Facts]:
    """What the state says at each of its steps that are kept."""
    found = []
    for step in range(STEPS - 2, STEPS + 1):
        with StoreParquet(original, REGISTERS, read_only=True, at_step=step) as store:
            found.append(facts(store))
    return found


# -- what is done with a state


def read(state: Path) -> Facts:
    with StoreParquet(state, REGISTERS, read_only=True) as store:
        return facts(store)


def write(state: Path) -> None:
    with StoreParquet(state, REGISTERS) as store:
        add(store, BY_WORD, as_it_is, [("z", 1, 1)])
        store.commit(store.last_step() + 1, None)
        facts(store)


def command(name: str) -> Callable[[Any], None]:
    def called(place: object) -> None:
        done = CliRunner().invoke(main, ["state", name, str(place)], catch_exceptions=False)
        assert done.exit_code in (0, 1, 2)
        assert "Traceback" not in done.output
        assert bool(done.exit_code) == bool(done.stderr)

    return called


USES: dict[str, Callable[[Path], Facts | None]] = {
    "read": read, "write": write,
    "show": command("show"), "verify": command("verify"), "compact": command("compact"),
}  # fmt: skip

ERRORS: dict[Edit, tuple[type[StoreError], ...]] = {
    edits.gone: (StoreCorrupt, StoreUnavailable),  # without registers.json there is no state
}


def use(case: Path, edit: Edit, name: str, known: list[Facts]) -> None:
    """Do something with a state that was edited, and hold what happens to what may."""
    said = str(case / "state")
    try:
        found = USES[name](case / "state")
        if name == "read":
            assert found in known
    except ERRORS.get(edit, (StoreCorrupt,)) as e:
        said = str(e)
    assert str(case / "state") in said


def check_edits(original: Path, known: list[Facts], seed: int) -> None:
    rng = random.Random(seed)
    case = original.parent / "case"
    shutil.rmtree(case, ignore_errors=True)
    shutil.copytree(original, case / "state")
    edit = rng.choice(edits.EDITS)
    edit(case / "state", rng)
    use(case, edit, rng.choice(sorted(USES)), known)


seeds = st.integers(0, 2**64)
LONG_FACTS = pytest.mark.filterwarnings("ignore:Generating overly large repr")
relaxed = settings(suppress_health_check=list(HealthCheck), deadline=None)


@LONG_FACTS
@settings(relaxed, max_examples=100)
@given(seed=seeds)
def test_an_edited_state_gives_a_clear_error_or_the_right_answer(
    original: Path, known: list[Facts], seed: int
) -> None:
    check_edits(original, known, seed)


@pytest.mark.long
@LONG_FACTS
@settings(relaxed, max_examples=4_000)
@given(seed=seeds)
def test_an_edited_state_gives_a_clear_error_or_the_right_answer_in_thousands_of_cases(
    original: Path, known: list[Facts], seed: int
) -> None:
    check_edits(original, known, seed)


@pytest.fixture
def state(original: Path, tmp_path: Path) -> Path:
    """A state of its own."""
    shutil.copytree(original, tmp_path / "state")
    return tmp_path / "state"


def test_rows_of_many_bytes_are_written_as_several_row_groups_and_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "GROUP_BYTES", 1 << 20)
    words = [(f"{i:03d}" * 20_000, i, 1) for i in range(50)]
    with StoreParquet(tmp_path / "state", [BY_WORD], create=True, cache_bytes=0) as store:
        add(store, BY_WORD, as_it_is, words)
        store.commit(1, None)
        assert sorted(content(store, BY_WORD).values()) == [(1,)] * len(words)
    (file,) = (tmp_path / "state" / "data").iterdir()
    assert pq.read_metadata(file).num_row_groups > 1
    command("verify")(tmp_path / "state")


# -- files in each other's place


def names_of(state: Path, register: Register) -> list[str]:
    batches = edits.body_of(edits.newest(state))["registers"][register.name]
    return [f["name"] for batch in batches for f in batch]


def test_a_file_with_the_content_of_another_is_named_when_it_is_first_read(state: Path) -> None:
    one, other = (state / names_of(state, r)[-1] for r in (BY_WORD, REGISTERS[5]))
    shutil.copyfile(other, one)
    edits.told(state)
    said = f"data/{one.name} has the content of another file, data/{other.name}"
    with pytest.raises(StoreCorrupt, match=said):
        read(state)


@pytest.mark.parametrize("read_only", [False, True])
def test_files_that_a_manifest_gives_to_another_register_are_named_when_the_state_is_opened(
    state: Path, read_only: bool
) -> None:
    body = edits.body_of(edits.newest(state))
    of = body["registers"]
    of[BY_WORD.name], of["other words"] = of["other words"], of[BY_WORD.name]
    edits.newest(state).write_text(edits.seal(body))
    said = r"manifests/.* says that data/0005-.* is of register 'words by word', and by its number"
    with pytest.raises(StoreCorrupt, match=said):
        StoreParquet(state, REGISTERS, read_only=read_only)


def test_outputs_in_each_others_place_are_named_when_they_are_read(state: Path) -> None:
    body = edits.body_of(edits.newest(state))
    body["outputs"].reverse()
    edits.newest(state).write_text(edits.seal(body))
    with pytest.raises(StoreCorrupt, match=r"is a file of output 1, and not of output 0"):
        read(state)


def test_a_manifest_under_the_name_of_another_step_is_damaged(state: Path) -> None:
    *_, before, newest = edits.files(state, "manifests")
    shutil.copyfile(before, newest)
    with pytest.raises(StoreCorrupt, match=rf"{newest.name}, .* it is manifests/{before.name}"):
        read(state)


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda b: b.update(step="5"), r"Expected `int`, got `str` - at `\$.step`"),
        (lambda b: b.update(outputs="5"), r"Expected `array \| null`, got `str` - at `\$.outputs`"),
        (lambda b: b.pop("offsets"), r"missing required field `offsets`"),
        (
            lambda b: b["registers"]["words"][0][0].update(rows=-1),
            r"Expected `int` >= 1 - at `\$.registers\[\.\.\.\]\[0\]\[0\].rows`",
        ),
        (
            lambda b: b["registers"]["words"][0][0].update(name="data/../../victim"),
            r"Expected `str` matching regex .*\.name`",
        ),
    ],
)
def test_what_is_wrong_in_a_manifest_is_said_with_its_place(
    state: Path, edit: Callable[[Any], None], said: str
) -> None:
    body = edits.body_of(edits.newest(state))
    edit(body)
    edits.newest(state).write_text(edits.seal(body))
    with pytest.raises(StoreCorrupt, match=f"{edits.newest(state).name}.*is damaged: .*{said}"):
        read(state)


def test_descriptions_of_other_registers_are_not_taken_for_another_circuit(state: Path) -> None:
    file = state / "registers.json"
    file.write_text(file.read_text().replace('"length"', '"width"'))
    for use_ in (read, write):
        with pytest.raises(StoreCorrupt, match=r"registers\.json is not of this state"):
            use_(state)


def test_numbers_of_manifests_that_leave_no_next_one_are_refused(state: Path) -> None:
    body = edits.body_of(edits.newest(state))
    edits.newest(state).unlink()
    body["step"] = 10**12 - 1
    name = f"{body['generation']:08d}-{body['step']}-0000.json"
    (state / "manifests" / name).write_text(edits.seal(body))
    with pytest.raises(StoreError, match=r"step 1000000000000 was not committed: .*numbers"):
        write(state)


# -- claims, locks and leases

ODD_WHO: dict[str, Callable[[Path], object]] = {
    "no text": lambda file: file.write_bytes(b"\xff"),
    "of other types": lambda file: file.write_text('{"pid": [], "host": {}, "since": null}'),
    "with codes of a terminal": lambda file: file.write_text(
        '{"pid": "\\u001b[31m", "host": "\\u001b[31m", "since": ""}'
    ),
}


@pytest.mark.parametrize("odd", ODD_WHO.values(), ids=ODD_WHO.keys())
def test_a_claim_that_was_edited_is_taken_for_one_that_nobody_made_use_of(
    state: Path, known: list[Facts], odd: Callable[[Path], object]
) -> None:
    claim = state / "claims" / "00000002.json"
    claim.touch()
    odd(claim)
    with StoreParquet(state, REGISTERS) as store:
        assert facts(store) == known[-1]


@pytest.mark.parametrize("begins", ["[2, 1e300, 0]", "[2, -5, 0]", "[2, true, 0]", "5", "[2]"])
def test_a_claim_with_numbers_that_no_manifest_can_have_is_not_followed(
    state: Path, known: list[Facts], begins: str
) -> None:
    (state / "claims" / "00000002.json").write_text(f'{{"begins": {begins}, "written": true}}')
    with StoreParquet(state, REGISTERS) as store:
        assert facts(store) == known[-1]


@pytest.mark.parametrize("odd", ODD_WHO.values(), ids=ODD_WHO.keys())
def test_a_lock_file_that_was_edited_still_keeps_others_out(
    state: Path, odd: Callable[[Path], object]
) -> None:
    with StoreParquet(state, REGISTERS):
        odd(state / "lock.json")
        with elsewhere(), pytest.raises(StoreLocked, match="is being written by another writer"):
            StoreParquet(state, REGISTERS)
        shown = CliRunner().invoke(main, ["state", "show", str(state)], catch_exceptions=False)
    assert shown.exit_code == 0
    assert "another writer" in shown.output
    assert "\x1b" not in shown.output


@pytest.mark.parametrize("text", [b"\xff", b""], ids=["no text", ""])
def test_a_lease_that_was_edited_still_keeps_others_out(text: bytes) -> None:
    bucket = Bucket()
    with mock.patch.object(fencing, "renewing", return_value=lambda: None):
        lease = fencing.Lease(bucket)
        bucket.put(fencing.LEASE_FILE, text)
        assert fencing.holder(bucket) == "another writer"
        with elsewhere(), pytest.raises(StoreLocked, match="is being written by another writer"):
            fencing.Lease(bucket)
        lease.renew()
        with pytest.raises(StoreLocked, match="is being written by another writer"):
            lease.keep(lambda: None)


def test_messages_show_the_codes_of_a_terminal_as_text(state: Path) -> None:
    said = {"pid": 7, "host": "\x1b[31mred", "since": "\r" + "x" * 1_000}
    with StoreParquet(state, REGISTERS):
        (state / "lock.json").write_text(json.dumps(said))
        with elsewhere(), pytest.raises(StoreLocked) as refused:
            StoreParquet(state, REGISTERS)
    assert r"process 7 on \x1b[31mred since \rxxx" in str(refused.value)
    assert len(str(refused.value)) < 700
    assert str(refused.value).isprintable()


# -- tables of Postgres


SPOILT: list[str] = [
    *(
        f"ALTER TABLE {table} {change}"
        for table, column in [
            ("_store_", "step"), ("_store_", "outputs"), ("_store_", "offsets"),
            ("_store_", "now"), ("_store_", "fingerprint"), ("_store_", "format"),
            ("_registers_", "described"), ("_registers_", "columns"), ('_registers_', '"table"'),
            ('"words by word"', "length"), ('"words by word"', "word"), ("mixed", "l"),
            ("mixed", "d"), ("_output_1_", "length"),
        ]
        for change in (
            f"DROP COLUMN {column} CASCADE",
            f"RENAME COLUMN {column} TO odd",
            f"ALTER COLUMN {column} DROP NOT NULL, ALTER COLUMN {column} TYPE text "
            f"USING {column}::text || 'x'",
        )
    ),
    *(
        f"UPDATE _store_ SET {column} = {value}"
        for column, values in {
            "step": ("-1", "9223372036854775807"),
            "outputs": (
                "'5'", "'[5]'", "'{}'", "'null'",
            ),
            "offsets": ("'[]'", "'{\"a\": \"b\"}'"),
            "settings": ("'5'", "'{\"a\": 1}'"),
            "now": ("'then'", "'int x'", "'date 5'", "'␀'", "repeat('9', 1000000)"),
            "fingerprint": ("''", "'x'"),
            "format": ("-1", "99"),
        }.items()
        for value in values
    ),
    *(
        f"UPDATE _registers_ SET {column} = {value}"
        for column, values in {
            "described": ("'5'", "'{}'", "'{\"columns\": [], \"diffs\": []}'"),
            "columns": ("'5'", "'[[1, 2, 3]]'", "'[]'"),
            '"table"': ("'nothing'", "'_store_'"),
            '"view"': ("'nothing'",),
        }.items()
        for value in values
    ),
    "DELETE FROM _store_", "INSERT INTO _store_ SELECT * FROM _store_", "DELETE FROM _registers_",
    "DELETE FROM _registers_ WHERE register = 'words'",
    "UPDATE _registers_ SET register = 'odd' WHERE register = 'words'",
    "DROP TABLE _registers_", "DROP TABLE words", "DROP TABLE _output_1_",
    'ALTER TABLE "words by word" RENAME TO odd', "ALTER TABLE _store_ RENAME TO odd",
    "ALTER TABLE mixed ALTER COLUMN _count_ DROP NOT NULL", "UPDATE mixed SET _count_ = 0",
    "UPDATE mixed SET l = '5'", "UPDATE mixed SET l = '{}'", "UPDATE mixed SET l = '[\"a\"]'",
    "UPDATE mixed SET l = '[[1]]'", "UPDATE mixed SET d = '5000-01-01 BC'",
    "UPDATE mixed SET d = 'infinity'", "UPDATE mixed SET n = 'NaN'",
]  # fmt: skip


@pytest.fixture(scope="module")
def schemas(postgres: PostgresServer) -> Iterator[str]:
    """Schemas with a state each, made as they are asked for."""
    return (spoilt_schema(postgres, number) for number in itertools.count())


def spoilt_schema(postgres: PostgresServer, number: int) -> str:
    name = f"edited_{number}_{uuid4().hex[:8]}"
    with StorePostgres(postgres.url, schema=name, create=True) as store:
        take_steps(store, 20)
    return name


def use_tables(postgres: PostgresServer, schema: str, statement: str) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(sql.SQL("SET search_path = {}").format(sql.Identifier(schema)))
        try:
            connection.execute(statement.encode())
        except psycopg.Error:
            return  # the table does not allow this
    use_schema(postgres, schema)


def use_schema(postgres: PostgresServer, schema: str) -> None:
    for read_only in (True, False):
        try:
            with StorePostgres(
                postgres.url, REGISTERS, schema=schema, read_only=read_only
            ) as store:
                facts(store)
                if not read_only:
                    add(store, BY_WORD, as_it_is, [("z", 1, 1)])
                    outputs = [relation_of(WORDS, [("a", 1, 1)])] * 2
                    store.commit(store.last_step() + 1, None, outputs)
        except StoreError:
            pass
    for name in ("show", "verify", "compact"):
        command(name)(f"{postgres.url}?schema={schema}")


@settings(relaxed, max_examples=8)
@given(statement=st.sampled_from(SPOILT))
def test_edited_tables_give_a_clear_error_or_the_right_answer(
    postgres: PostgresServer, schemas: Iterator[str], statement: str
) -> None:
    use_tables(postgres, next(schemas), statement)


@pytest.mark.long
@pytest.mark.parametrize("statement", SPOILT)
def test_edited_tables_give_a_clear_error_or_the_right_answer_in_all_cases(
    postgres: PostgresServer, schemas: Iterator[str], statement: str
) -> None:
    use_tables(postgres, next(schemas), statement)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE _store_ SET outputs = '5'", r"table _store_ .*got `int` - at `\$.outputs`"),
        ("UPDATE _store_ SET step = -1", r"table _store_ .*Expected `int` >= 0 - at `\$.step`"),
        (
            "UPDATE _registers_ SET columns = '[1]' WHERE register = 'words'",
            r"table _registers_ .*Expected `array`, got `int` - at `\$.columns\[0\]`",
        ),
        (
            "UPDATE _registers_ SET described = '{\"a\": 1}' WHERE register = 'words'",
            "_registers_ is not of this state",
        ),
        ("UPDATE mixed SET l = '{\"a\": 1}'", "table 'mixed' has a value that its register"),
    ],
)
def test_what_is_wrong_in_a_table_is_said_with_its_place(
    postgres: PostgresServer, schemas: Iterator[str], statement: str, said: str
) -> None:
    schema = next(schemas)
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(sql.SQL("SET search_path = {}").format(sql.Identifier(schema)))
        connection.execute(statement.encode())
    with (
        pytest.raises(StoreCorrupt, match=said),
        StorePostgres(postgres.url, REGISTERS, schema=schema, read_only=True) as store,
    ):
        facts(store)


def test_the_column_of_places_is_none_of_the_rows_own() -> None:
    schema = Schema((("_place_", INT),))
    assert place_column(schema) == "_place__"
