"""A state that somebody has edited: one clear error or the right answer, and nothing else happens.

No bare error of Python, no hang, no gigabytes, and no file outside the directory is touched.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import shutil
import signal
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal
from unittest import mock
from uuid import uuid4

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql

from stepping_spark.cli import main
from stepping_spark.errors import (
    StoreCorrupt,
    StoreError,
    StoreLocked,
    StoreMismatch,
    StoreUnavailable,
)
from stepping_spark.rows.atoms import INT
from stepping_spark.rows.schema import Schema
from stepping_spark.rows.types import ListOf, Optional
from stepping_spark.store import Register, Store
from stores.checked import MOST_BYTES
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
from stores.parquet import file_writer, locks
from stores.parquet.checks import Content as FileContent
from stores.parquet.checks import place_column
from stores.parquet.files import content_of
from stores.parquet.page_headers import values_of
from stores.parquet.store import StoreParquet
from stores.postgres.store import StorePostgres
from tests.postgres_server import PostgresServer
from tests.stores import edits
from tests.stores.edits import Edit
from tests.stores.two_writers_of_files import Bucket, Late, elsewhere

LISTS = Schema((("items", ListOf(Optional(INT))),))
REGISTERS = [
    BY_WORD, WHOLE, Register("mixed", MIXED, ("i", "s")), Register("number", NUMBER),
    Register("lists", LISTS), Register("other words", WORDS, ("word",)),
]  # fmt: skip
MIXED_ROWS, LIST_ROWS = REGISTERS[2], REGISTERS[4]
STEPS = 5
SECONDS, BYTES = 5, 500 << 20
"""What an operation on an edited state may take, beside what it takes on a whole one."""

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

CAN_BE_ANOTHER_STATE = (edits.sealed_manifest, edits.rows_of_data)
"""Edits that cannot be told from a state that a store has written."""

ERRORS: dict[Edit, tuple[type[StoreError], ...]] = {
    edits.gone: (StoreCorrupt, StoreUnavailable),  # without registers.json there is no state
    edits.other_kind: (StoreCorrupt, StoreUnavailable),
    edits.other_folder: (StoreCorrupt, StoreUnavailable),
    edits.sealed_manifest: (StoreCorrupt, StoreMismatch),  # of another format
}


@contextmanager
def within_bounds(seconds: float = SECONDS, nbytes: int = BYTES) -> Iterator[None]:
    """What is done here ends within some seconds, by the clock, and takes no more memory than said.

    Beside other processes it has more seconds. What hangs is interrupted. The memory is the most
    that this process has at any moment of it, beyond what it has before.
    """
    seconds *= max(1.0, os.getloadavg()[0])
    pa.default_memory_pool().release_unused()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = memory("VmRSS")
    kept = signal.signal(signal.SIGALRM, too_long)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, kept)
    taken = memory("VmHWM") - before
    assert taken < nbytes, f"it took {taken:,} bytes"


class TooLong(BaseException):
    """It took too long; no part of the library may catch this."""


def too_long(*_: object) -> None:
    raise TooLong


def memory(name: str) -> int:
    """What the system says of this process's memory, in bytes."""
    (found,) = re.findall(rf"{name}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found) << 10


def test_the_bounds_of_edits_are_held() -> None:
    ours, theirs = os.pipe()
    with pytest.raises(TooLong), within_bounds(seconds=0.05):
        os.read(ours, 1)
    with within_bounds(nbytes=100 << 20):
        pass
    for _ in range(2):  # the second peak is no higher than the first
        with pytest.raises(AssertionError, match="it took"), within_bounds(nbytes=100 << 20):
            bytearray(b"x" * (150 << 20))
    os.close(ours)
    os.close(theirs)


def use(case: Path, edit: Edit, name: str, known: list[Facts]) -> None:
    """Do something with a state that was edited, and hold what happens to what may."""
    victim = case / "victim"
    said = str(case / "state")
    try:
        with within_bounds():
            found = USES[name](case / "state")
        if name == "read" and edit not in CAN_BE_ANOTHER_STATE:
            assert found in known
    except ERRORS.get(edit, (StoreCorrupt,)) as e:
        said = str(e)
    assert str(case / "state") in said
    assert victim.read_text() == "mine"
    assert {p.name for p in case.iterdir()} <= {"state", "victim", "aside"}


def check_edits(original: Path, known: list[Facts], seed: int) -> None:
    rng = random.Random(seed)
    case = original.parent / "case"
    shutil.rmtree(case, ignore_errors=True)
    shutil.copytree(original, case / "state")
    edit = rng.choice(edits.EDITS)
    (case / "victim").write_text("mine")
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


# -- files of a kilobyte that would take gigabytes


@pytest.fixture
def state(original: Path, tmp_path: Path) -> Path:
    """A state of its own."""
    shutil.copytree(original, tmp_path / "state")
    return tmp_path / "state"


def put(state: Path, register: Register, table: pa.Table, **options: Any) -> str:
    """Put rows in the place of a register's newest file, with all that is said of it right."""
    body = edits.body_of(edits.newest(state))
    said = body["registers"][register.name][-1][-1]
    file: FileContent = content_of(register)
    table = table.append_column(file.place or "", pa.array([1] * table.num_rows, pa.uint64()))
    arrow = b64encode(file.arrow.serialize().to_pybytes()).decode()
    table = table.replace_schema_metadata({**file.footer(said["name"]), "ARROW:schema": arrow})
    options = {"compression": "snappy", "row_group_size": table.num_rows, **options}
    pq.write_table(table, state / said["name"], store_schema=False, **options)
    said |= {"rows": table.num_rows, "first": 1, "last": 1}
    edits.newest(state).write_text(edits.seal(body))
    edits.told(state)
    return str(said["name"])


def one_text(rows: int, length: int) -> pa.Table:
    """Rows that all have one long text, which is in the file once."""
    indices = pa.array([0], pa.int8()).take(pa.array([0] * rows))
    words = pa.DictionaryArray.from_arrays(indices, pa.array(["w" * length]))
    numbers = pa.array([1] * rows)
    return pa.table({"word": words, "length": numbers, "_count_": numbers})


def long_list(items: int) -> pa.Table:
    """A row with a list of NULLs, which take next to nothing in the file."""
    lists: Any = pa.ListArray.from_arrays([0, items], pa.nulls(items, pa.int64()))
    return pa.table({"items": lists, "_count_": pa.array([1])})


BOMBS: dict[str, tuple[Register, Callable[[], pa.Table], dict[str, Any], str]] = {
    "many rows in a row group": (
        BY_WORD, lambda: one_text(1 << 20, 1), {}, r"1,048,576 rows in row group 0, and one has",
    ),
    "one long text in each row": (
        BY_WORD, lambda: one_text(1 << 13, 200_000), {}, r"bytes of memory for row group 0",
    ),
    "a list of many NULLs": (
        LIST_ROWS, lambda: long_list(17 << 20), {}, r"bytes of memory for row group 0",
    ),
    "another compression": (
        BY_WORD, lambda: one_text(3, 1), {"compression": "zstd"}, "compressed by ZSTD, and not by",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ["read", "verify", "compact"])
@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS.keys())
def test_a_small_file_that_would_take_much_memory_is_refused_before_it_does(
    state: Path, bomb: tuple[Register, Callable[[], pa.Table], dict[str, Any], str], name: str
) -> None:
    register, table, options, said = bomb
    file = put(state, register, table(), **options)
    with within_bounds(nbytes=200 << 20):
        if name == "read":
            with pytest.raises(StoreCorrupt, match=f"{file} .*{said}"):
                read(state)
        elif name == "verify":
            done = CliRunner().invoke(main, ["state", "verify", str(state)])
            assert done.exit_code == 1
            assert f"{file} of register {register.name!r}" in " ".join(done.output.split())
        else:
            with suppress(StoreCorrupt):
                USES[name](state)


def test_null_in_a_column_whose_type_has_none_is_damaged(state: Path) -> None:
    length = pa.array([None], pa.int64())
    file = put(state, BY_WORD, pa.table({"word": ["a"], "length": length, "_count_": [1]}))
    with pytest.raises(StoreCorrupt, match=f"{file} has 1 rows with NULL as length"):
        read(state)


def test_pages_with_more_items_than_the_footer_says_are_refused_before_they_are_read(
    state: Path,
) -> None:
    items, claimed = 17 << 20, (1 << 20) + 5
    name = put(state, LIST_ROWS, long_list(items), write_statistics=False)
    data = (state / name).read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    told = data[footer:].replace(varint(2 * items), varint(2 * claimed))
    (state / name).write_bytes(data[:footer] + told)
    said = r"pages of 17,825,792 values in .*says 1,048,581"
    with within_bounds(nbytes=100 << 20), pytest.raises(StoreCorrupt, match=said):
        read(state)


@pytest.mark.parametrize("register", [BY_WORD, LIST_ROWS], ids=["words", "lists"])
@pytest.mark.parametrize("size", [1 << 62, 1 << 34, -5])
def test_a_footer_that_says_columns_are_outside_of_the_file_is_refused(
    state: Path, register: Register, size: int
) -> None:
    name = names_of(state, register)[-1]
    data = (state / name).read_bytes()
    footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    column = pq.read_metadata(state / name).row_group(0).column(0)
    sizes = [column.total_uncompressed_size, column.total_compressed_size]
    before, after = (
        b"".join(b"\x16" + varint(2 * n if n >= 0 else -2 * n - 1) for n in pair)
        for pair in (sizes, [sizes[0], size])
    )
    assert before in data[footer:]
    told = data[footer:-8].replace(before, after, 1)
    told += len(told).to_bytes(4, "little") + b"PAR1"
    (state / name).write_bytes(data[:footer] + told)
    edits.told(state)
    said = rf"{name} has .* row group 0 are {size:,} from byte"
    with within_bounds(nbytes=100 << 20), pytest.raises(StoreCorrupt, match=said):
        read(state)


def varint(number: int) -> bytes:
    """A number in Thrift's compact protocol."""
    more = number >> 7
    return bytes([number & 127 | (128 if more else 0)]) + (varint(more) if more else b"")


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_the_values_of_pages_are_counted_whatever_the_pages_are(
    version: Literal["1.0", "2.0"],
) -> None:
    table = pa.table({"items": [[f"w{i}", None] * (i % 7) for i in range(20_000)]})
    sink = pa.BufferOutputStream()
    pq.write_table(
        table, sink, row_group_size=8_000, data_page_size=2_000, data_page_version=version
    )
    source: Any = pa.BufferReader(sink.getvalue())
    metadata = pq.read_metadata(source)
    columns = [metadata.row_group(i).column(0) for i in range(metadata.num_row_groups)]
    assert [values_of(source, c) for c in columns] == [c.num_values for c in columns]


def test_rows_of_many_bytes_are_written_as_several_row_groups_and_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_writer, "GROUP_BYTES", 1 << 20)
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
        (lambda b: b.update(step="5"), r"step is '5', and must be a whole number from 0 to"),
        (lambda b: b.update(now="then"), r"now: "),
        (lambda b: b.update(outputs="5"), r"outputs is '5', and must be a list"),
        (lambda b: b.pop("offsets"), r"manifest has no entry 'offsets'"),
        (
            lambda b: b["registers"]["words"][0][0].update(rows=-1),
            r"registers\['words'\]\[0\]\[0\]\.rows is -1, and must be a whole number from 1",
        ),
        (
            lambda b: b["registers"]["words"][0][0].update(name="data/../../victim"),
            r"name is 'data/../../victim', and must be a text of the form",
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
    "deep": lambda file: file.write_text("[" * edits.DEEP),
    "a little deep": lambda file: file.write_text("[" * 4_000),
    "no text": lambda file: file.write_bytes(b"\xff"),
    "of other types": lambda file: file.write_text('{"pid": [], "host": {}, "since": null}'),
    "with codes of a terminal": lambda file: file.write_text(
        '{"pid": "\\u001b[31m", "host": "\\u001b[31m", "since": ""}'
    ),
    "mostly a hole": lambda file: os.truncate(file, edits.LONG),
}


@pytest.mark.parametrize("odd", ODD_WHO.values(), ids=ODD_WHO.keys())
def test_a_claim_that_was_edited_is_taken_for_one_that_nobody_made_use_of(
    state: Path, known: list[Facts], odd: Callable[[Path], object]
) -> None:
    claim = state / "claims" / "00000002.json"
    claim.touch()
    odd(claim)
    with within_bounds(nbytes=100 << 20), StoreParquet(state, REGISTERS) as store:
        assert facts(store) == known[-1]


@pytest.mark.parametrize(
    "begins", ["[2, 1e300, 0]", f"[2, {10**300}, 0]", "[2, -5, 0]", "[2, true, 0]", "5", "[2]"]
)
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


@pytest.mark.parametrize(
    "text",
    [b"[" * edits.DEEP, b"\xff", b"", b"[]" * MOST_BYTES],
    ids=["deep", "no text", "", "long"],
)
def test_a_lease_that_was_edited_still_keeps_others_out(text: bytes) -> None:
    bucket = Bucket(Late(0))
    with mock.patch.object(locks, "renewing", return_value=lambda: None):
        lease = locks.Lease(bucket)
        bucket.put(locks.LEASE_FILE, text)
        assert locks.holder(bucket) == "another writer"
        with elsewhere(), pytest.raises(StoreLocked, match="is being written by another writer"):
            locks.Lease(bucket)
        lease.renew()
        with pytest.raises(StoreLocked, match="is being written by another writer"):
            lease.keep()


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
                "'5'", "'[5]'", "'{}'", "'null'", "'[{\"table\": 1}]'", "DEEP", "LONG", "NESTED",
            ),
            "offsets": ("'[]'", "'{\"a\": \"b\"}'", "'{\"a\": 1, \"a\": 2}'", "DEEP", "BIG"),
            "settings": ("'5'", "'{\"a\": 1}'", "DEEP"),
            "now": ("'then'", "'int x'", "'date 5'", "'␀'", "repeat('9', 1000000)"),
            "fingerprint": ("''", "'x'"),
            "format": ("-1", "99"),
        }.items()
        for value in values
    ),
    *(
        f"UPDATE _registers_ SET {column} = {value}"
        for column, values in {
            "described": ("'5'", "'{}'", "DEEP", "'{\"columns\": [], \"diffs\": []}'"),
            "columns": ("'5'", "'[[1, 2, 3]]'", "'[]'", "DEEP"),
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
VALUES = {
    "DEEP": "(repeat('[', 3000) || repeat(']', 3000))::json",
    "LONG": "('[' || repeat('[],', 3000000) || '[]]')::json",
    "NESTED": (
        '(\'[{"table": [], "schema": {"columns": [["a", \' || repeat(\'{"list":\', 180) || '
        '\'"int"\' || repeat(\'}\', 180) || \']], "diffs": [["_count_", "int"]]}}]\')::json'
    ),
    "BIG": "('{\"a\": ' || repeat('9', 5000) || '}')::json",
}


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
    for word, value in VALUES.items():
        statement = statement.replace(f"= {word}", f"= {value}")
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(sql.SQL("SET search_path = {}").format(sql.Identifier(schema)))
        try:
            connection.execute(statement.encode())
        except psycopg.Error:
            return  # the table does not allow this
    with within_bounds():
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
        ("UPDATE _store_ SET outputs = '5'", "table _store_ .*outputs is 5, and must be a list"),
        (
            f"UPDATE _store_ SET outputs = {VALUES['NESTED']}",
            r"table _store_ .*outputs\[0\]\.schema: a value that is nested more than 64 levels",
        ),
        ("UPDATE _store_ SET step = -1", "table _store_ .*step is -1, and must be a whole number"),
        (
            "UPDATE _registers_ SET columns = '[1]' WHERE register = 'words'",
            r"table _registers_ .*of register 'words': columns\[0\] is 1, and must be a list of 3",
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
