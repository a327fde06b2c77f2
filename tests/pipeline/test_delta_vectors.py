"""Steps that a Delta sink writes as deletion vectors: the same table as by merges, in few bytes."""

from __future__ import annotations

import random
import socket
import struct
import subprocess
import sys
import time
import uuid
import zlib
from base64 import b85encode
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from deltalake import DeltaTable, write_deltalake
from pyroaring import BitMap64

import stepping_spark as st
from stepping_spark.base.errors import InputError, SinkError
from stepping_spark.pipeline.changes import ByKey
from stepping_spark.pipeline.delta import files, sink, writing
from tests.cases import Z
from tests.pipeline.delta_writers import B85, Z85, actions_of, add, commit, metadata, protocol
from tests.pipeline.shop import Note, View, as_it_is, pipeline, read
from tests.strategies import POOLS

TYPES = sorted(set(POOLS) - {"float", "timedelta", "UUID"})  # as keys, or as columns, refused


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups, files and merges as those of millions of rows, with a few."""
    monkeypatch.setattr(files, "GROUP_ROWS", 4)
    monkeypatch.setattr(writing, "GROUP_ROWS", 4)
    monkeypatch.setattr(writing, "FILE_ROWS", 10)
    monkeypatch.setattr(writing, "MOST_GONE", 5)
    monkeypatch.setattr(sink, "MERGED_EVERY", 3)
    monkeypatch.setattr(sink, "MERGED_BYTES", 4_000)


def steps_of(made: Any, values: list[Any], seed: int) -> Iterator[tuple[Any, Any]]:
    """Changes of a table by key, and the table after each."""
    rng, there = random.Random(seed), dict[Any, Any]()
    for number in range(14):
        change = Z[Any]({})
        picked = values if not number else rng.sample(values, min(3, len(values)))
        for key in picked:
            if key in there:
                change += Z({there.pop(key): -1})
            if not number or rng.random() < 0.6:
                there[key] = made(k=key, at=(number, rng.randrange(5)), tags=[str(number)])
                change += Z({there[key]: 1})
        yield change, Z(dict.fromkeys(there.values(), 1))


def followed(table: Any, of: Any, store: str, view: View, diff: str) -> None:
    """Bring what follows a table up to its newest version."""
    source = st.DeltaTable(table.path, diff=diff)
    with st.Pipeline(as_it_is(of), store=store, rows=source, into={"view": view}) as running:
        running.run()


@pytest.mark.turn(3)
@pytest.mark.parametrize("whole", [True, False], ids=["one process", "a process each"])
@pytest.mark.parametrize("kind", TYPES)
def test_random_steps_give_the_table_and_a_feed_that_others_follow(
    tmp_path: Path, small: None, kind: str, whole: bool
) -> None:
    t: Any = getattr(st, kind, None) or {type(x).__name__: type(x) for x in POOLS[kind]}[kind]
    made: Any = type(
        "Row",
        (st.Data,),
        {"__annotations__": {"k": t | None, "at": tuple[int, int], "tags": list[str]}},
    )
    values = [*POOLS[kind], None]
    if kind in ("int", "str"):
        values += [t(i) for i in range(100, 130)]
    table = st.DeltaTable(tmp_path / "table", key="k", deletion_vectors=True)
    steps = list(steps_of(made, values, seed=len(kind)))
    items = [(i, change) for i, (change, _) in enumerate(steps, 1)]
    views = {diff: View() for diff in ("feed", "snapshot")}
    if whole:
        running = pipeline(made, items, table)
    for i, (_, expected) in enumerate(steps, 1):
        if not whole:
            running = pipeline(made, items[:i], table, store=f"parquet:{tmp_path / 'state'}")
        running.run(max_steps=1)
        if not whole:
            running.close()
        for diff, view in views.items():
            followed(table, made, f"parquet:{tmp_path / diff}", view, diff)
            assert view.rows == expected, (i, diff)
    marked = [
        action["add"]["deletionVector"]
        for version in range(1, DeltaTable(table.path).version() + 1)
        for action in actions_of(tmp_path / "table", version)
        if action.get("add", {}).get("deletionVector")
    ]
    assert marked


class Word(st.Data):
    text: str | None
    n: int


@pytest.mark.parametrize("seed", range(3))
def test_rows_without_a_key_have_their_counts(tmp_path: Path, small: None, seed: int) -> None:
    rng = random.Random(seed)
    words = [Word(text=x, n=n) for x in ("a", "b", "ä", "", None) for n in range(4)]
    total, items, sums = Z[Word]({}), [], []
    for i in range(1, 12):
        change = Z({w: rng.randrange(1, 4) for w in rng.sample(words, 6)})
        there = dict(total.iter())
        gone = rng.sample(sorted(there, key=repr), min(4, len(there)))
        change += Z({w: -rng.randrange(1, there[w] + 1) for w in gone})
        total = total + change
        items.append((i, change))
        sums.append(total)
    table = st.DeltaTable(tmp_path / "table", deletion_vectors=True)
    running = pipeline(Word, items, table)
    for expected in sums:
        running.run(max_steps=1)
        rows = pa.RecordBatchReader.from_stream(DeltaTable(table.path).scan()).read_all()
        found = {Word(text=r["text"], n=r["n"]): r["_count_"] for r in rows.to_pylist()}
        assert len(found) == rows.num_rows
        assert Z(found) == expected


def test_ten_rows_of_many_write_little_and_read_little(tmp_path: Path) -> None:
    many = 60_000
    items = [(1, Z({Note(id=i, text=f"note {i}"): 1 for i in range(many)}))]
    for n in range(2, 6):
        changed = range(n, many, many // 10)
        old = {Note(id=i, text=f"note {i}"): -1 for i in changed}
        items.append((n, Z({**old, **{Note(id=i, text="new"): 1 for i in changed}})))
    table = st.DeltaTable(tmp_path / "table", key="id", deletion_vectors=True)
    running = pipeline(Note, items, table)
    running.run(max_steps=1)

    def size() -> int:
        return sum(f.stat().st_size for f in (tmp_path / "table").rglob("*") if f.is_file())

    whole = size()
    running.run()
    assert (size() - whole) / 4 < whole / 50
    assert len(DeltaTable(table.path).file_uris()) == 5
    assert dict(read(table, Note).iter())[Note(id=2, text="new")] == 1


def test_a_commit_of_others_that_changes_no_row_is_no_hindrance_and_one_that_does_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = [Note(id=i, text=str(i)) for i in range(6)]
    items = [(i, Z({n: 1})) for i, n in enumerate(notes[:4], 1)]
    items += [(5, Z({notes[0]: -1, notes[4]: 1})), (6, Z({notes[1]: -1, notes[5]: 1}))]
    table = st.DeltaTable(tmp_path / "table", key="id", deletion_vectors=True)
    put = obstore.put
    before: list[Callable[[], object]] = []

    def late(store: Any, path: str, *args: Any, **given: Any) -> Any:
        if path.startswith("_delta_log") and before:
            before.pop()()
        return put(store, path, *args, **given)

    monkeypatch.setattr(obstore, "put", late)
    with pipeline(Note, items, table, store=f"parquet:{tmp_path / 'state'}") as running:
        running.run(max_steps=4)
        before.append(lambda: DeltaTable(table.path).optimize.compact())
        running.run(max_steps=1)
        expected = Z(dict.fromkeys([*notes[1:5]], 1))
        assert read(table, Note) == expected
        before.append(lambda: DeltaTable(table.path).delete("id = 2"))
        with pytest.raises(SinkError, match="somebody else wrote it at the same time"):
            running.run()
    DeltaTable(table.path).restore(DeltaTable(table.path).version() - 1)
    with pipeline(Note, items, table, store=f"parquet:{tmp_path / 'state'}") as running:
        running.run()
    assert read(table, Note) == Z(dict.fromkeys([*notes[2:6]], 1))


def test_a_checkpoint_is_written_and_is_read_by_the_next_process(tmp_path: Path) -> None:
    state, path = f"parquet:{tmp_path / 'state'}", tmp_path / "table"
    notes = [Note(id=i, text=str(i)) for i in range(9)]
    items = [(1, Z(dict.fromkeys(notes, 1))), *((i, Z({notes[i]: -1})) for i in range(2, 9))]
    table = st.DeltaTable(path, key="id", deletion_vectors=True)
    with pipeline(Note, items, table, store=state) as running:
        running.run(max_steps=1)
    DeltaTable(path).alter.set_table_properties({"delta.checkpointInterval": "3"})
    for n in range(2, 9):
        with pipeline(Note, items[:n], table, store=state) as running:
            running.run()
    made = {int(f.name[:20]) for f in (path / "_delta_log").glob("*.checkpoint.parquet")}
    assert made == {2, 3, 6, 9}  # that of version 2 is deltalake's
    assert read(table, Note) == Z(dict.fromkeys(notes[:2], 1))


def test_a_log_that_is_cleaned_up_meanwhile_is_read_from_its_checkpoint(tmp_path: Path) -> None:
    path = tmp_path / "table"
    notes = [Note(id=i, text=str(i)) for i in range(9)]
    items = [(1, Z(dict.fromkeys(notes, 1))), *((i, Z({notes[i]: -1})) for i in range(2, 5))]
    table = st.DeltaTable(path, key="id", deletion_vectors=True)
    running = pipeline(Note, items, table)
    running.run(max_steps=2)
    for _ in range(3):
        DeltaTable(path).alter.set_table_properties({"delta.checkpointInterval": "100"})
    DeltaTable(path).create_checkpoint()
    (path / "_delta_log" / f"{4:020d}.json").unlink()
    running.run()
    assert read(table, Note) == Z({notes[i]: 1 for i in (0, 1, 5, 6, 7, 8)})


def marked_elsewhere(path: Path) -> Path:
    """A table as Spark writes it: rows that are gone, named in a file of their own."""
    fields = metadata(
        {"id": "long", "text": "string"}, properties={"delta.enableDeletionVectors": "true"}
    )
    added = add(path, pa.table({"id": pa.array(range(8)), "text": list("abcdefgh")}))
    data = struct.pack("<i", 1681511377) + BitMap64([1, 6]).serialize()
    name = uuid.uuid4()
    framed = struct.pack(">bi", 1, len(data)) + data + struct.pack(">I", zlib.crc32(data))
    (path / f"deletion_vector_{name}.bin").write_bytes(framed)
    vector = {
        "storageType": "u",
        "pathOrInlineDv": b85encode(name.bytes).decode().translate(str.maketrans(B85, Z85)),
        "offset": 1,
        "sizeInBytes": len(data),
        "cardinality": 2,
    }
    there = {"add": {**added["add"], "deletionVector": vector}}
    commit(path, protocol(["deletionVectors"], ["changeDataFeed"]), fields, there)
    return path


def test_vectors_that_others_wrote_are_read_and_go_on(tmp_path: Path) -> None:
    path = marked_elsewhere(tmp_path / "table")
    table = DeltaTable(path)
    columns = pa.table({"id": pa.array([7]), "text": ["h"]}).schema
    given = st.DeltaTable(path, key="id").sink()
    marked = writing.MarkedTable(given._log, None, columns, ["id"])
    keys = pa.table({"id": pa.array([0, 1, 6, 7])})
    assert marked.find(table, keys).to_pydict() == {"id": [0, 7]}
    rows = pa.table({"id": pa.array([7]), "text": ["h"]})
    none = rows.slice(0, 0)
    marked.by_key(table, ByKey(none, none, none, rows), {})
    left = {Note(id=i, text="abcdefgh"[i]): 1 for i in (0, 2, 3, 4, 5)}
    assert read(st.DeltaTable(path), Note) == Z(left)


REASONS = {
    "no vectors": "enableDeletionVectors is not set: set it to true",
    "partitions": "it has partitions",
    "a feature": "features that are not known here: rowTracking",
}


@pytest.mark.parametrize("why", REASONS)
def test_a_table_that_cannot_have_them_is_merged_or_refused_with_the_reason(
    tmp_path: Path, why: str
) -> None:
    path = tmp_path / "table"
    on = {"delta.enableChangeDataFeed": "true"}
    if why != "no vectors":
        on["delta.enableDeletionVectors"] = "true"
    if why == "a feature":
        fields = metadata({"id": "long", "text": "string"}, properties=on)
        commit(path, protocol(["deletionVectors"], ["changeDataFeed", "rowTracking"]), fields)
    else:
        empty = pa.table({"id": pa.array([], pa.int64()), "text": pa.array([], pa.string())})
        by = ["text"] if why == "partitions" else None
        write_deltalake(path, empty, configuration=on, partition_by=by)
    a, b = Note(id=1, text="a"), Note(id=1, text="b")
    items = [(1, Z({a: 1})), (2, Z({a: -1, b: 1}))]
    table = st.DeltaTable(path, key="id", deletion_vectors=True)
    with pytest.raises(SinkError, match=f"{REASONS[why]}.* leave out deletion_vectors=True"):
        pipeline(Note, items, table).dry_run()
    if why != "a feature":  # deltalake knows no rows with ids
        pipeline(Note, items, st.DeltaTable(path, key="id")).run()
        assert read(st.DeltaTable(path), Note) == Z({b: 1})


def test_a_sink_of_changes_has_no_rows_to_mark(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"test_delta_vectors.py:\d+.* leave one of them out"):
        st.DeltaTable(tmp_path / "table", changes=True, deletion_vectors=True)


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    """An S3 with a bucket, and the options of deltalake for it.

    It is a process of its own: deltalake keeps the lock of this one while it waits for an answer.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        host, port = free.getsockname()
    command = [sys.executable, "-m", "moto.server", "-H", host, "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(host, port)
    filesystem = pafs.S3FileSystem(
        access_key="key",
        secret_key="secret",
        region="us-east-1",
        scheme="http",
        endpoint_override=f"{host}:{port}",
        allow_bucket_creation=True,
    )
    filesystem.create_dir("bucket")
    yield {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }
    server.terminate()
    server.wait()


def wait_for(host: str, port: int) -> None:
    """Wait until a server listens."""
    for _ in range(300):
        with suppress(OSError), socket.create_connection((host, port)):
            return
        time.sleep(0.1)
    raise AssertionError("the server has not started in 30 seconds")


def test_a_table_on_s3_is_written_with_the_options_of_deltalake(
    tmp_path: Path, s3: dict[str, str]
) -> None:
    notes = [Note(id=i, text=str(i)) for i in range(4)]
    items = [(1, Z(dict.fromkeys(notes, 1))), (2, Z({notes[1]: -1})), (3, Z({notes[3]: -1}))]
    path = "s3://bucket/lake/table"
    table = st.DeltaTable(path, options=s3, key="id", deletion_vectors=True)
    for n in range(1, 4):
        with pipeline(Note, items[:n], table, store=f"parquet:{tmp_path / 'state'}") as running:
            running.run()
    assert read(st.DeltaTable(path, options=s3), Note) == Z({notes[0]: 1, notes[2]: 1})
    last = DeltaTable(path, storage_options=s3)
    assert len(pa.table(last.deletion_vectors()).column("filepath")) == 1
