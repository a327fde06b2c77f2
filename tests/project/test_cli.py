"""The commands on a state, as somebody calls them who has no circuit and no Spark."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result
from psycopg import sql

from stepping_spark.cli import main
from stepping_spark.relations.arrow import Array
from stepping_spark.relations.store import Register, Store, fingerprint
from stores.contract.values import BY_WORD, WHOLE, WORDS, add, as_it_is, content, relation_of
from stores.inspection import Summary
from stores.location import place_of
from stores.parquet.inspection import ParquetState
from stores.parquet.manifest import File, Manifest, decode
from stores.parquet.store import StoreParquet
from stores.postgres.store import StorePostgres
from tests.cases import ROOT, constants
from tests.postgres_server import PostgresServer
from tests.stores.postgres_stores import as_another_process

REGISTERS = [BY_WORD, WHOLE]
STEPS = 5


def steps(store: Store, first: int = 1) -> None:
    """Steps of two rows each, of which one comes again and again, and one leaves in the end."""
    for step in range(first, first + STEPS):
        for register in REGISTERS:
            rows = [(f"w{step}", step, 1), ("again", 0, 1), ("gone", 0, 1 if step < STEPS else -4)]
            add(store, register, as_it_is, rows)
        store.commit(step, step, offsets={"orders": step * 10})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A state in files, of which each step has left its own."""
    with StoreParquet(tmp_path / "state", REGISTERS, create=True) as store:
        steps(store)
    return tmp_path / "state"


@pytest.fixture
def schema() -> str:
    return f"s{uuid4().hex}"


@pytest.fixture
def url(postgres: PostgresServer, schema: str) -> str:
    """A state in Postgres, as a URL that says its schema."""
    with StorePostgres(postgres.url, REGISTERS, schema=schema, create=True) as store:
        steps(store)
    return f"{postgres.url}?schema={schema}"


@pytest.fixture(params=["parquet", "postgres"])
def place(request: pytest.FixtureRequest) -> str:
    """A state of each kind."""
    return str(request.getfixturevalue({"parquet": "path", "postgres": "url"}[request.param]))


def call(*arguments: str) -> Result:
    """Call the program, without letting an error of Python pass for one of its own."""
    done = CliRunner().invoke(main, ["state", *arguments], catch_exceptions=False)
    assert "Traceback" not in done.output
    return done


# -- show


def test_show_says_what_is_kept_and_how_far_it_is(place: str) -> None:
    done = call("show", place)
    assert (done.exit_code, done.stderr) == (0, "")
    assert f"Step {STEPS}, now {STEPS} · " in done.output
    assert fingerprint(REGISTERS) in done.output
    assert f"orders up to {STEPS * 10}" in done.output
    assert "Nobody is writing it" in done.output
    assert re.search(r"words by word +word +\d+ +\d", done.output)
    columns = ", ".join(f"{name} {t}" for name, t in WORDS.all)
    assert f"columns {columns}" in " ".join(done.output.split())
    assert max(map(len, done.output.splitlines())) <= 80


def test_show_counts_the_rows_of_a_table(url: str) -> None:
    assert re.search(rf"words by word +word +{STEPS + 1} +1 ", call("show", url).output)


def test_show_and_verify_work_beside_a_writer_and_show_says_who_it_is(
    path: Path, postgres: PostgresServer, url: str, schema: str
) -> None:
    with StoreParquet(path, REGISTERS), StorePostgres(postgres.url, REGISTERS, schema=schema):
        for place in (str(path), url):
            done = call("show", place)
            assert done.exit_code == 0
            assert re.search(rf"Being written by .*process {os.getpid()} on ", done.output)
            assert call("verify", place).exit_code == 0


def test_who_looks_does_not_keep_a_writer_out(path: Path) -> None:
    for _ in range(20):
        call("show", str(path))
        StoreParquet(path, REGISTERS).close()


def test_show_tells_what_a_register_sums_in_words_without_digests(tmp_path: Path) -> None:
    code = (
        "import stepping_spark as st\n"
        "class Edge(st.Data):\n    a: int\n    b: int\n"
        "def paths(edges: st.ZSet[Edge]) -> st.ZSet[st.Pair[int, int]]:\n"
        "    pairs = st.map(edges, f=lambda e: st.Pair(left=e.a, right=e.b))\n"
        "    return st.transitive_closure(pairs)\n"
        "graph = st.compile(paths)\n"
        "st.StoreParquet.from_graph(graph, 'state', create=True).close()\n"
    )
    (tmp_path / "made.py").write_text(code)
    subprocess.run(
        [sys.executable, "made.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
        timeout=120,
    )
    done = call("show", str(tmp_path / "state"))
    assert ", in a recursion" in " ".join(done.output.split())
    assert not re.search(r"sum of [^\n]*\b[0-9a-f]{16}\b", done.output)


LONG = "delays_of_carriers.group_reduce_flatten.accumulate by destination_of_route"


@pytest.mark.parametrize("command", ["show", "compact"])
def test_long_names_are_broken_between_their_words(tmp_path: Path, command: str) -> None:
    register = Register(LONG, WORDS, ("word", "length"))
    with StoreParquet(tmp_path / "state", [register], create=True) as store:
        add(store, register, as_it_is, [("a", 1, 1)])
        store.commit(1, 1)
    lines = call(command, str(tmp_path / "state")).output.splitlines()
    assert max(map(len, lines)) <= 80
    (first,) = (i for i, line in enumerate(lines) if line.startswith("delays_of"))
    parts = [re.split("  +", line)[0] for line in lines[first : first + 3] if line.strip()]
    assert "".join(parts).replace(" ", "") == LONG.replace(" ", "")
    assert all(part.endswith((".", "_", "by")) for part in parts[:-1])


def test_a_table_takes_the_width_that_the_terminal_has(tmp_path: Path) -> None:
    StoreParquet(tmp_path / "state", [Register(LONG, WORDS)], create=True).close()
    wide, narrow = (
        CliRunner(env={"COLUMNS": columns}).invoke(main, ["state", "show", str(tmp_path / "state")])
        for columns in ("140", "40")
    )
    assert LONG in wide.output
    assert max(map(len, narrow.output.splitlines()[4:])) <= 40


# -- verify: what is wrong is found


def test_verify_finds_nothing_wrong_with_what_a_store_has_written(place: str) -> None:
    done = call("verify", place)
    assert (done.exit_code, done.stderr) == (0, "")
    assert re.search("all is as it was written|nothing wrong was found; not checked:", done.output)


Harm = Callable[[pa.Table], pa.Table]


def largest(path: Path, register: str) -> tuple[Manifest, File]:
    """The newest manifest, and the largest file of a register."""
    newest = decode(max((path / "manifests").iterdir()).read_bytes())
    return newest, max((b.files[0] for b in newest.registers[register]), key=lambda f: f.rows)


def harmed(path: Path, harm: Harm) -> str:
    """Other rows under the name of a file, of which the manifest knows no more than the size."""
    newest, file = largest(path, BY_WORD.name)
    table = harm(pq.read_table(path / file.name))
    pq.write_table(table, path / file.name)
    size = (path / file.name).stat().st_size
    text = newest.encode().decode()
    body = json.loads(text)["manifest"]
    for batch in body["registers"][BY_WORD.name]:
        for f in batch:
            if f["name"] == file.name:
                f["bytes"] = size
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    (path / newest.name).write_text(json.dumps({"manifest": body, "sha256": digest}))
    return file.name


def with_column(table: pa.Table, name: str, values: Array | pa.ChunkedArray[Any]) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), name, values)


HARMS: dict[str, tuple[Harm, str]] = {
    "fewer rows": (lambda t: t.slice(1), r"has \d rows, and was written with \d"),
    "a weight of zero": (
        lambda t: with_column(t, "_count_", pa.array([0] * len(t))),
        r"has \d rows with a weight of zero",
    ),
    "no weight": (
        lambda t: with_column(t, "_count_", pa.nulls(len(t), pa.int64())),
        r"has \d rows with NULL as _count_",
    ),
    "another key": (
        lambda t: with_column(t, "word", pa.array(["other"] * len(t))),
        r"has \d rows that stand where their key is not looked for",
    ),
    "another order": (
        lambda t: t.take(list(reversed(range(len(t))))),
        r"has \d rows that are not in order of their key",
    ),
    "a row twice": (
        lambda t: pa.concat_tables([t.slice(0, 1), t.slice(0, len(t) - 1)]),
        r"has 1 rows that are equal to others",
    ),
    "another column": (
        lambda t: t.rename_columns(["other", *t.schema.names[1:]]),
        r"has the columns other string, .* was written with word string",
    ),
    "another type": (
        lambda t: with_column(t, "length", t.column("length").cast(pa.int32())),
        r"has the columns .*length int32",
    ),
}


@pytest.mark.parametrize(("harm", "said"), HARMS.values(), ids=HARMS.keys())
def test_verify_names_the_file_whose_rows_are_not_what_is_said_of_them(
    path: Path, harm: Harm, said: str
) -> None:
    name = harmed(path, harm)
    done = call("verify", str(path))
    assert done.exit_code == 1
    assert re.search(rf"{name} of register 'words by word' {said}", " ".join(done.output.split()))
    assert "problem" in done.stderr


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        pytest.param(lambda f: f.unlink(), "is missing", id="missing"),
        pytest.param(lambda f: f.write_bytes(f.read_bytes()[:-5]), "was written with", id="cut"),
        pytest.param(
            lambda f: f.write_bytes(b"\1" * f.stat().st_size), "cannot be read", id="overwritten"
        ),
    ],
)
def test_verify_names_a_file_that_is_not_as_it_was_left(
    path: Path, harm: Callable[[Path], object], said: str
) -> None:
    _, file = largest(path, BY_WORD.name)
    harm(path / file.name)
    done = call("verify", str(path))
    assert done.exit_code == 1
    assert re.search(rf"{file.name} .*{said}", " ".join(done.output.split()))


def test_verify_finds_one_bit_that_has_turned(path: Path) -> None:
    _, file = largest(path, BY_WORD.name)
    content = bytearray((path / file.name).read_bytes())
    where = content.index(b"again")
    content[where] ^= 1
    (path / file.name).write_bytes(content)
    done = call("verify", str(path))
    assert (done.exit_code, file.name in done.output) == (1, True)


def test_verify_says_that_an_older_step_cannot_be_opened_again(path: Path) -> None:
    sorted((path / "manifests").iterdir())[0].write_text("{")
    done = call("verify", str(path))
    assert done.exit_code == 1
    assert f"step {STEPS - 2}, an older one" in done.output
    assert "the last step is whole" in done.stderr


def test_verify_says_which_step_can_be_opened_instead(path: Path) -> None:
    with StoreParquet(path, REGISTERS) as store:
        steps(store, STEPS + 1)
    manifests = sorted((path / "manifests").iterdir())
    names = [{f.name for _, f in decode(m.read_bytes()).files()} for m in manifests]
    (path / min(names[-1] - names[-2])).unlink()
    done = call("verify", str(path))
    assert done.exit_code == 1
    assert f"at_step={2 * STEPS - 1}" in done.stderr


def test_verify_looks_into_files_that_only_an_older_step_has(path: Path) -> None:
    with StoreParquet(path, REGISTERS) as store:
        store.compact()
    manifests = [decode(m.read_bytes()) for m in sorted((path / "manifests").iterdir())]
    names = [{f.name for _, f in m.files()} for m in manifests]
    old = min(names[-2] - names[-1])
    content = bytearray((path / old).read_bytes())
    content[len(content) // 8] ^= 1  # of its rows: the footer is longer than they are
    (path / old).write_bytes(content)
    done = call("verify", str(path))
    assert done.exit_code == 1
    told = " ".join(done.output.split())
    assert re.search(rf"step {STEPS}, an older one, cannot be opened again: .*{old}", told)
    assert "the last step is whole" in done.stderr


def test_verify_advises_only_steps_whose_files_are_right_within(path: Path) -> None:
    with StoreParquet(path, REGISTERS) as store:
        steps(store, STEPS + 1)
    manifests = [decode(m.read_bytes()) for m in sorted((path / "manifests").iterdir())]
    oldest, middle, newest = ({f.name for _, f in m.files()} for m in manifests)
    shared = path / min((middle & newest) - oldest)
    content = bytearray(shared.read_bytes())
    content[len(content) // 3] ^= 1
    shared.write_bytes(content)
    done = call("verify", str(path))
    assert done.exit_code == 1
    told = " ".join(done.output.split())
    assert f"step {2 * STEPS - 1}, an older one, cannot be opened again, for the same" in told
    assert f"at_step={2 * STEPS - 2}" in done.stderr


def test_descriptions_of_another_state_are_found(path: Path, tmp_path: Path) -> None:
    with StoreParquet(tmp_path / "other", [WHOLE], create=True):
        shutil.copy(tmp_path / "other" / "registers.json", path / "registers.json")
    done = call("verify", str(path))
    assert done.exit_code == 1
    assert "registers.json is not of this state" in done.output
    assert "register 'words by word' has files" in done.output


STATEMENTS = {
    'DROP TABLE {}."words by word"': "its table 'words by word' is missing",
    "DROP INDEX {}.{index}": "by which keys are found, is missing",
    'ALTER TABLE {}."words by word" ADD more int': "has the columns .*more integer, not ",
    'UPDATE {}."words by word" SET _count_ = 0': "rows with a weight of zero",
    'ALTER TABLE {}."words by word" ALTER length TYPE int': "length integer",
    'UPDATE {}."words by word" SET _count_ = NULL': "rows with NULL as a weight",
    "UPDATE {}.\"words by word\" SET word = 'x' WHERE length = 0": (
        "has 1 rows whose hashes are not those of their key"
    ),
    'INSERT INTO {0}."words by word" SELECT * FROM {0}."words by word"': (
        f"has {STEPS + 1} rows that are equal to others"
    ),
    "UPDATE {}._store_ SET fingerprint = 'x'": "and _store_ says x",
    "DROP TABLE {}._output_1_": "output 1: its table '_output_1_' is missing",
    "DROP VIEW {}.kept": "its view 'kept' is missing",
}


@pytest.mark.parametrize(("statement", "said"), STATEMENTS.items(), ids=STATEMENTS.values())
def test_verify_names_the_table_that_is_not_what_is_said_of_it(
    postgres: PostgresServer, schema: str, statement: str, said: str
) -> None:
    cache = Register("cache.kept", WORDS)
    with StorePostgres(postgres.url, schema=schema, create=True) as store:
        store.open([*REGISTERS, cache], [WORDS])
        rows = [(f"w{i}", i, 1) for i in range(STEPS + 1)]
        add(store, BY_WORD, as_it_is, rows)
        store.commit(1, None, [relation_of(WORDS, rows)])
    with psycopg.connect(postgres.url) as connection:
        index = connection.execute(
            "SELECT indexname FROM pg_indexes WHERE schemaname = %s AND tablename = %s",
            [schema, BY_WORD.name],
        ).fetchone()
        assert index is not None
        names = [sql.Identifier(n) for n in (schema, index[0])]
        connection.execute(sql.SQL(statement).format(names[0], index=names[1]))
    done = call("verify", f"{postgres.url}?schema={schema}")
    assert done.exit_code == 1
    assert re.search(said, " ".join(done.output.split()))


# -- compact


def test_compact_merges_and_says_what_that_saved(path: Path) -> None:
    done = call("compact", str(path))
    assert (done.exit_code, done.stderr) == (0, "")
    assert re.search(r"words by word +\d → 1 .* → .* kB", done.output)
    assert re.search(r"kB saved, of", done.output)
    with StoreParquet(path, REGISTERS) as store:
        assert [store.batches(r.name) for r in REGISTERS] == [1, 1]
        assert len(content(store, BY_WORD)) == STEPS + 1
        steps(store, STEPS + 1)
    assert call("verify", str(path)).exit_code == 0


def test_a_second_compaction_has_nothing_to_do(path: Path) -> None:
    call("compact", str(path))
    done = call("compact", str(path))
    assert (done.exit_code, "Nothing saved" in done.output) == (0, True)


def test_compact_of_tables_changes_nothing_that_is_read(
    postgres: PostgresServer, url: str, schema: str
) -> None:
    done = call("compact", url)
    assert (done.exit_code, done.stderr) == (0, "")
    with StorePostgres(postgres.url, REGISTERS, schema=schema) as store:
        assert len(content(store, BY_WORD)) == STEPS + 1


def test_compact_takes_the_lock(
    path: Path, postgres: PostgresServer, url: str, schema: str
) -> None:
    with StoreParquet(path, REGISTERS), StorePostgres(postgres.url, REGISTERS, schema=schema):
        for place in (str(path), url):
            with as_another_process():
                done = call("compact", place)
            assert done.exit_code == 2
            assert f"process {os.getpid()}" in done.stderr


def test_a_large_register_is_compacted_without_spark(path: Path) -> None:
    with constants(merged_here_rows=1):
        assert "merged" in ParquetState(path).compact()


# -- no state


def test_what_is_no_state_is_said_clearly(tmp_path: Path, path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("?")
    for command in ("show", "verify", "compact"):
        for place, said in {
            "nowhere": "no such directory",
            "empty": "no registers.json, and nothing else",
            "other": "no registers.json, but thesis.txt",
            "state/registers.json": "Not a directory",
        }.items():
            done = call(command, str(tmp_path / place))
            assert (done.exit_code, said in done.stderr) == (2, True), done.stderr
            assert str(tmp_path / place) in done.stderr
    assert not (tmp_path / "nowhere").exists()
    assert [p.name for p in (tmp_path / "empty").iterdir()] == []


def test_a_state_that_is_only_being_made_is_not_taken_for_a_damaged_one(tmp_path: Path) -> None:
    StoreParquet(tmp_path / "state", REGISTERS, create=True).close()
    for folder in ("claims", "manifests"):
        for file in (tmp_path / "state" / folder).iterdir():
            file.unlink()
    for command in ("show", "verify", "compact"):
        done = call(command, str(tmp_path / "state"))
        assert (done.exit_code, "first manifest is not written" in done.stderr) == (2, True)
    StoreParquet(tmp_path / "state", REGISTERS, create=True).close()
    assert call("show", str(tmp_path / "state")).exit_code == 0


def test_a_schema_without_a_state_is_said_with_those_that_have_one(
    postgres: PostgresServer, url: str, schema: str
) -> None:
    for command in ("show", "verify", "compact"):
        for other, said in {"nowhere": "empty, or not there", "public": "."}.items():
            done = call(command, postgres.url, "--schema", other)
            assert (done.exit_code, said in done.stderr) == (2, True)
            assert repr(schema) in done.stderr
    assert call("show", postgres.url, "--schema", schema).exit_code == 0
    assert call("show", url, "--schema", schema).exit_code == 0


def test_damaged_descriptions_and_manifests_are_corrupt(path: Path) -> None:
    for folder, name in (("manifests", max((path / "manifests").iterdir()).name), ("", "x")):
        file = path / folder / name if folder else path / "registers.json"
        before = file.read_text()
        for text in ("", "[]", '{"a": 1}', '{"a": {"key": [], "sums": ""}}'):
            file.write_text(text)
            for command in ("show", "verify", "compact"):
                done = call(command, str(path))
                assert (done.exit_code, file.name in done.stderr) == (1, True), done.output
        file.write_text(before)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["show"], id="no place"),
        pytest.param(["show", ""], id="an empty place"),
        pytest.param(["show", "state", "--schema", "s"], id="a schema of files"),
        pytest.param(["show", "postgres:state"], id="no URL"),
        pytest.param(["show", "postgresql://h/d?schema=a", "--schema", "b"], id="two schemas"),
        pytest.param(["show", "memory"], id="memory"),
        pytest.param(["look", "state"], id="no command"),
    ],
)
def test_wrong_use_is_told_from_a_wrong_state(arguments: list[str]) -> None:
    assert call(*arguments).exit_code == 2


# -- output that nobody takes


def with_output(output: int, *arguments: str, errors: int = subprocess.PIPE) -> tuple[int, str]:
    """The exit code of the program with a standard output, and what it says elsewhere."""
    done = subprocess.run(
        [sys.executable, "-m", "stepping_spark.cli", "state", *arguments],
        cwd=ROOT,
        stdout=output,
        stderr=errors,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stderr


@pytest.mark.turn(3)
@pytest.mark.parametrize("arguments", [["show", "{}"], ["verify", "{}"], ["show", "--help"]])
def test_output_that_cannot_be_written_is_not_taken_for_a_wrong_state(
    path: Path, arguments: list[str]
) -> None:
    arguments = [a.format(path) for a in arguments]
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert with_output(writer, *arguments) == (2, "")
    finally:
        os.close(writer)
    with open("/dev/full", "w") as full:
        code, said = with_output(full.fileno(), *arguments)
    assert (code, said) == (
        2,
        "Error: the output could not be written: No space left on device\n",
    )


@pytest.mark.turn(2)
@pytest.mark.parametrize("arguments", [["show"], ["show", "nowhere"]])
def test_an_error_that_nobody_reads_has_its_exit_code(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert with_output(writer, *arguments, errors=writer)[0] == 2
    finally:
        os.close(writer)


# -- passwords

PASSWORD = "s3cr@t/w:rd"
QUOTED = quote(PASSWORD, safe="")


@pytest.mark.turn(2)
@pytest.mark.parametrize(
    "place",
    [
        f"postgresql://stepping:{QUOTED}@127.0.0.1:{{port}}/postgres",
        f"postgres:postgresql://stepping:{QUOTED}@127.0.0.1:1/postgres",
        f"postgresql://stepping:{PASSWORD}@127.0.0.1:{{port}}/postgres?schema=a",
        f"postgresql://127.0.0.1:{{port}}/postgres?user=stepping&password={QUOTED}&schema=a",
        f"postgresql//stepping:{QUOTED}@127.0.0.1/postgres",
        f"postgresq://stepping:{QUOTED}@127.0.0.1/postgres",
        f"postgres:stepping:{QUOTED}@127.0.0.1/postgres",
        f"stepping:{QUOTED}@127.0.0.1/postgres",
        f"s3://key:{QUOTED}@bucket/state?endpoint_override=127.0.0.1:1&scheme=http",
        f"parquet:s3a://key:{QUOTED}@/state",
        f"host=127.0.0.1 password = {PASSWORD} dbname=postgres",
        "host=127.0.0.1 password='s3cr@t and a s3cret tail' dbname=postgres",
        r"host=127.0.0.1 password='s3cr@t, \'s3cret\' tail' dbname=postgres",
        "host=127.0.0.1 password='s3cr@t with s3cret tail, and no end",
    ],
)
def test_no_command_shows_a_password(
    postgres: PostgresServer, place: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    place = place.format(port=postgres.port)
    for command in ("show", "verify", "compact"):
        done = call(command, place)
        assert done.exit_code == 2
        said = [done.output, done.stderr, caplog.text, repr(done.exception)]
        assert not [t for t in said for secret in (PASSWORD, QUOTED, "s3cr") if secret in t]


@pytest.mark.parametrize(
    "words",
    [
        ["show", "--{}"],
        ["show", "-{}"],
        ["--{}"],
        ["--{}", "show", "state"],
        ["show", "state", "--schema=a", "--{}"],
        ["--", "--{}"],
    ],
)
def test_an_option_that_there_is_not_may_be_an_address_and_is_not_shown(words: list[str]) -> None:
    done = call(*(word.format(f"postgresql://stepping:{QUOTED}@h/db") for word in words))
    assert (done.exit_code, "s3cr" in done.output) == (2, False)
    assert "it may hold a password; the options are " in done.stderr
    assert "--help" in done.stderr


def test_nor_is_it_shown_by_the_demo() -> None:
    done = CliRunner().invoke(main, ["demo", f"--postgresql://u:{QUOTED}@h/db"])
    assert (done.exit_code, "s3cr" in done.output) == (2, False)
    assert "it may hold a password; the options are --days" in done.stderr


@pytest.mark.parametrize("before", ["", "parquet:", "file://"])
def test_a_path_with_a_colon_and_an_at_sign_is_shown_as_it_is(tmp_path: Path, before: str) -> None:
    there = tmp_path / "run:e@1"
    done = call("show", f"{before}{there}")
    assert done.stderr.startswith(f"Error: {there}: there is no state here: there is no such")
    assert str(place_of(f"{before}{there}")).endswith(str(there))


def test_neither_what_a_state_shows_nor_a_place_has_the_password(
    postgres: PostgresServer, url: str
) -> None:
    done = call("show", url)
    place = place_of(url)
    state = place.state()
    shown = [done.output, repr(place), str(place), repr(state), repr(state.summary())]
    assert not [text for text in shown if postgres.password in text]
    assert "stepping@127.0.0.1" in done.output


def test_the_program_starts_no_java(path: Path) -> None:
    code = (
        "import sys\n"
        "from pyspark import SparkContext\n"
        "from stepping_spark.cli import main\n"
        "for command in ('show', 'compact', 'verify'):\n"
        "    main(['state', command, sys.argv[1]], standalone_mode=False)\n"
        "assert SparkContext._gateway is None, 'a JVM was started'\n"
    )
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (RuntimeError("what nobody has thought of"), "an error of stepping-spark itself: Runtime"),
        (MemoryError(), "there was not enough memory"),
    ],
)
def test_an_error_of_the_programs_own_is_not_taken_for_one_of_the_state(
    path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, said: str
) -> None:
    def fail(_: ParquetState) -> Summary:
        raise error

    monkeypatch.setattr(ParquetState, "summary", fail)
    done = CliRunner().invoke(main, ["state", "show", str(path)])
    assert done.exit_code == 2
    assert said in done.stderr
