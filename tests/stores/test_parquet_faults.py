"""The Parquet store, when files, disks and processes fail."""

from __future__ import annotations

import errno
import gc
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stepping_spark.base.errors import (
    StoreCorrupt,
    StoreError,
    StoreLocked,
    StoreMismatch,
    StoreUnavailable,
)
from stores.contract.values import BY_WORD, WHOLE, add, as_it_is, content, keys_relation, row
from stores.parquet import directories, fencing, manifest, transaction
from stores.parquet.directories import LocalDirectory
from stores.parquet.store import StoreParquet
from tests.stores.conftest import SmallDisk, fill

ROOT = Path(__file__).resolve().parent.parent.parent
REGISTERS = [BY_WORD, WHOLE]


def step(store: StoreParquet, word: str) -> None:
    """A step that adds a word to both registers."""
    for register in REGISTERS:
        add(store, register, as_it_is, [(word, 1, 1)])
    store.commit(store.last_step() + 1, None)


def words(store: StoreParquet) -> set[str]:
    return {r[1][1].decode() for r in content(store, BY_WORD)}


def files(path: Path, folder: str) -> list[Path]:
    return sorted((path / folder).iterdir())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store after three steps, which are closed: a, b and c."""
    with StoreParquet(tmp_path / "state", REGISTERS, create=True) as store:
        for word in "abc":
            step(store, word)
    return tmp_path / "state"


# -- opening


def test_where_nothing_is_the_error_says_how_to_make_it(tmp_path: Path) -> None:
    for read_only in (False, True):
        with pytest.raises(StoreUnavailable, match=r"create=True"):
            StoreParquet(tmp_path / "nowhere", REGISTERS, read_only=read_only)
    assert not (tmp_path / "nowhere").exists()


def test_create_opens_what_is_there(path: Path) -> None:
    with StoreParquet(path.as_uri(), REGISTERS, create=True) as store:
        assert words(store) == {"a", "b", "c"}


def test_opening_reads_no_rows(path: Path) -> None:
    for file in files(path, "data"):
        file.write_bytes(b"?" * file.stat().st_size)
    with StoreParquet(path, REGISTERS) as store:
        assert store.last_step() == 3


def test_the_last_steps_can_be_opened_and_those_after_them_are_dropped(path: Path) -> None:
    with StoreParquet(path, REGISTERS, read_only=True, at_step=2) as store:
        assert words(store) == {"a", "b"}
    with StoreParquet(path, REGISTERS, at_step=2) as store:
        assert (store.last_step(), words(store)) == (2, {"a", "b"})
    with StoreParquet(path, REGISTERS) as store:
        assert store.last_step() == 2
        step(store, "d")
        assert words(store) == {"a", "b", "d"}
        step(store, "e")
    with pytest.raises(StoreError, match=r"step 1 is not kept; .* 2, 3, 4"):
        StoreParquet(path, REGISTERS, at_step=1)


def test_of_two_manifests_of_a_step_the_one_that_is_whole_is_opened(path: Path) -> None:
    with StoreParquet(path, REGISTERS) as store:
        store.compact()
    before, merged = (manifest.decode(m.read_bytes()) for m in files(path, "manifests")[-2:])
    assert (before.step, merged.step) == (3, 3)
    (path / min({f.name for _, f in merged.files()} - {f.name for _, f in before.files()})).unlink()
    with pytest.raises(StoreCorrupt, match=r"at_step=3"):
        StoreParquet(path, REGISTERS)
    with StoreParquet(path, REGISTERS, at_step=3) as store:
        assert (store.last_step(), words(store)) == (3, {"a", "b", "c"})


# -- damage


@pytest.mark.parametrize("harm", ["cut", "empty", "changed", "no JSON"])
def test_a_damaged_manifest_is_named_and_the_step_before_can_be_opened(
    path: Path, harm: str
) -> None:
    newest = files(path, "manifests")[-1]
    text = newest.read_text()
    harmed = {
        "cut": text[: len(text) // 2],
        "empty": "",
        "changed": text.replace('"rows": 3', '"rows": 4').replace('"rows": 1', '"rows": 2'),
        "no JSON": "\0" * len(text),
    }
    newest.write_text(harmed[harm])
    with pytest.raises(StoreCorrupt, match=rf"{newest.name}.* step 3, .*at_step=2"):
        StoreParquet(path, REGISTERS)
    with StoreParquet(path, REGISTERS, at_step=2) as store:
        assert words(store) == {"a", "b"}
        step(store, "d")
    with StoreParquet(path, REGISTERS) as store:
        assert words(store) == {"a", "b", "d"}


@pytest.mark.parametrize("read_only", [False, True])
def test_a_manifest_of_another_format_is_not_called_damaged(
    path: Path, monkeypatch: pytest.MonkeyPatch, read_only: bool
) -> None:
    with monkeypatch.context() as later, StoreParquet(path, REGISTERS) as store:
        later.setattr(manifest, "FORMAT", manifest.FORMAT + 1)
        step(store, "d")
    newest = files(path, "manifests")[-1].name
    has, reads = manifest.FORMAT + 1, manifest.FORMAT
    said = rf"{newest}, .* step 4, has the format {has}, .* reads {reads}; use the version that"
    with pytest.raises(StoreMismatch, match=said):
        StoreParquet(path, REGISTERS, read_only=read_only)
    with StoreParquet(path, REGISTERS, at_step=3, read_only=read_only) as store:
        assert words(store) == {"a", "b", "c"}


def newest_file(path: Path) -> Path:
    """The data file that step 3 has and step 2 has not."""
    found = [manifest.decode(m.read_bytes()) for m in files(path, "manifests")]
    named = {m.step: {f.name for _, f in m.files()} for m in found}
    return path / min(named[3] - named[2])


@pytest.mark.parametrize("harm", ["missing", "cut short"])
def test_a_data_file_that_is_missing_or_cut_short_is_named_at_opening(
    path: Path, harm: str
) -> None:
    file = newest_file(path)
    if harm == "missing":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-7])
    with pytest.raises(StoreCorrupt, match=rf"step 3 .*{file.name}.*at_step=2"):
        StoreParquet(path, REGISTERS)
    with StoreParquet(path, REGISTERS, at_step=2) as store:
        assert words(store) == {"a", "b"}


@pytest.mark.parametrize("harm", ["missing", "other bytes", "a bit"])
def test_a_data_file_that_is_harmed_under_an_open_store_is_named_when_it_is_read(
    path: Path, harm: str
) -> None:
    with StoreParquet(path, REGISTERS) as store:
        for file in files(path, "data"):
            data = bytearray(file.read_bytes())
            if harm == "missing":
                file.unlink()
            elif harm == "other bytes":
                file.write_bytes(b"?" * len(data))
            else:
                data[30] ^= 1
                file.write_bytes(data)
        for keys in (None, keys_relation(BY_WORD, [("a",)])):
            with pytest.raises(StoreCorrupt, match=r"step 3 .*data/.*\.parquet"):
                store.read(BY_WORD.name, keys)


def test_a_damaged_file_ends_the_step_that_would_merge_it_and_the_steps_before_can_be_opened(
    path: Path,
) -> None:
    with StoreParquet(path, REGISTERS, cache_bytes=0) as store:
        file = newest_file(path)
        file.write_bytes(b"?" * file.stat().st_size)
        step(store, "d")
        for _ in range(2):
            with pytest.raises(StoreCorrupt, match=r"step 4 cannot be read: data/"):
                step(store, "e")
        assert store.last_step() == 4
    with StoreParquet(path, REGISTERS, at_step=2) as store:
        assert words(store) == {"a", "b"}


def test_a_store_without_manifests_is_corrupt_and_not_empty(path: Path) -> None:
    for file in files(path, "manifests"):
        file.unlink()
    with pytest.raises(StoreCorrupt, match="no manifest is left"):
        StoreParquet(path, REGISTERS, create=True)


def test_a_reader_of_a_store_that_is_half_made_is_told_so_and_a_writer_makes_it(
    path: Path,
) -> None:
    for folder in ("manifests", "data", "claims"):
        for file in files(path, folder):
            file.unlink()
    with pytest.raises(StoreUnavailable, match=r"first manifest is not written.*create=True"):
        StoreParquet(path, REGISTERS, read_only=True)
    with StoreParquet(path, REGISTERS, create=True) as store:
        step(store, "a")
    with StoreParquet(path, REGISTERS, read_only=True) as reader:
        assert words(reader) == {"a"}


def test_damaged_descriptions_of_registers_are_named(path: Path) -> None:
    (path / "registers.json").write_text("{")
    with pytest.raises(StoreCorrupt, match=r"registers\.json"):
        StoreParquet(path, REGISTERS)


# -- what is left on disk


def test_files_that_no_manifest_names_are_swept(path: Path) -> None:
    litter = [path / "data" / "0000-x.parquet", path / "manifests" / "tmp-1"]
    for file in litter:
        file.write_bytes(b"half")
    before = set(files(path, "data"))
    StoreParquet(path, REGISTERS).close()
    assert not any(file.exists() for file in litter)
    assert set(files(path, "data")) == before - set(litter)


def test_files_do_not_pile_up_with_steps(path: Path) -> None:
    with StoreParquet(path, REGISTERS) as store:
        counts = []
        for i in range(60):
            step(store, f"w{i}")
            counts.append(len(files(path, "data")) + len(files(path, "manifests")))
    assert len(files(path, "manifests")) == transaction.KEPT
    assert max(counts) < 60
    assert max(f.stat().st_size for f in files(path, "manifests")) < 5_000


def test_an_aborted_step_leaves_no_files(path: Path) -> None:
    before = files(path, "data")
    with StoreParquet(path, REGISTERS) as store:
        add(store, BY_WORD, as_it_is, [("z", 1, 1)])
        with pytest.raises(StoreError):
            store.commit(9, None)
    assert files(path, "data") == before


def test_any_reader_of_parquet_can_read_the_state(path: Path) -> None:
    described = json.loads((path / "registers.json").read_text())
    newest = json.loads(files(path, "manifests")[-1].read_text())["manifest"]
    assert list(described) == [r.name for r in REGISTERS]
    batches = newest["registers"][BY_WORD.name]
    tables = [pq.read_table(path / f["name"]) for batch in batches for f in batch]
    assert {r["word"] for t in tables for r in t.to_pylist()} == {"a", "b", "c"}
    assert tables[0].schema.names == ["word", "length", "_count_", "_place_"]


def test_the_state_is_json_and_parquet_only(path: Path) -> None:
    every = [p for p in path.rglob("*") if p.is_file()]
    for file in every:
        if file.suffix == ".json":
            json.loads(file.read_text())
        else:
            assert file.suffix == ".parquet"
            assert file.read_bytes()[:4] == file.read_bytes()[-4:] == b"PAR1"


# -- one writer


def in_new_process(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the store open, in the middle of step 4."""
    with in_new_process(
        f"""
        from stores.contract.values import BY_WORD, WHOLE, WORDS, relation_of
        from stores.parquet.store import StoreParquet
        store = StoreParquet({str(path)!r}, [BY_WORD, WHOLE])
        store.add(BY_WORD.name, relation_of(WORDS, [("z", 1, 1)]))
        print("open", flush=True)
        input()
        """
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield process
        process.kill()


def test_another_process_is_refused_and_told_who_holds_the_store(
    path: Path, holder: subprocess.Popen[str]
) -> None:
    with pytest.raises(StoreLocked, match=rf"process {holder.pid} on .* since"):
        StoreParquet(path, REGISTERS)
    with StoreParquet(path, REGISTERS, read_only=True) as store:
        assert words(store) == {"a", "b", "c"}


def test_after_the_holder_was_killed_the_next_opens_without_help(
    path: Path, holder: subprocess.Popen[str]
) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with StoreParquet(path, REGISTERS) as store:
        assert words(store) == {"a", "b", "c"}
        step(store, "d")


def test_a_store_that_is_collected_lets_go_of_its_lock(path: Path) -> None:
    store = StoreParquet(path, REGISTERS)
    directory = LocalDirectory(str(path))
    assert f"process {os.getpid()} on" in str(fencing.holder(directory))
    del store
    gc.collect()
    assert fencing.holder(directory) is None


def test_opening_again_and_again_keeps_the_last_steps(path: Path) -> None:
    for _ in range(5):
        StoreParquet(path, REGISTERS).close()
    for number in (1, 2, 3):
        with StoreParquet(path, REGISTERS, read_only=True, at_step=number) as store:
            assert words(store) == set("abc"[:number])


# -- reading beside a writer


def test_a_reader_follows_the_writer_and_may_not_write(path: Path) -> None:
    with (
        StoreParquet(path, REGISTERS) as writer,
        StoreParquet(path, REGISTERS, read_only=True) as reader,
    ):
        for i in range(20):
            step(writer, f"w{i}")
            assert (reader.last_step(), words(reader)) == (4 + i, words(writer))
        with pytest.raises(StoreError, match="read_only"):
            add(reader, BY_WORD, as_it_is, [("z", 1, 1)])
        with pytest.raises(StoreError, match="read_only"):
            reader.commit(5, None)
        with pytest.raises(StoreError, match="read_only"):
            reader.compact()


def test_a_reader_whose_files_were_merged_away_reads_those_that_came_after(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        StoreParquet(path, REGISTERS) as writer,
        StoreParquet(path, REGISTERS, read_only=True, cache_bytes=0) as reader,
    ):
        opened = LocalDirectory.input
        raced: list[str] = []

        def race(directory: LocalDirectory, name: str, nbytes: int) -> pa.NativeFile:
            if not raced:
                raced.append(name)
                writer.compact()
                for i in range(4):
                    step(writer, f"w{i}")
                writer.close()
            return opened(directory, name, nbytes)

        monkeypatch.setattr(LocalDirectory, "input", race)
        assert words(reader) == {"a", "b", "c", "w0", "w1", "w2", "w3"}
        assert not (path / raced[0]).exists()


# -- disks


def failing(code: int) -> OSError:
    return OSError(code, os.strerror(code))


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO])
@pytest.mark.parametrize("where", ["output", "create", "_link"])
def test_what_a_disk_refuses_is_one_error_and_the_next_attempt_works(
    path: Path, monkeypatch: pytest.MonkeyPatch, where: str, code: int
) -> None:
    def refuse(*_: object) -> None:
        raise failing(code)

    with StoreParquet(path, REGISTERS) as store:
        before = files(path, "data"), files(path, "manifests")
        owner = directories if where == "_link" else LocalDirectory
        with monkeypatch.context() as patch:
            patch.setattr(owner, where, refuse)
            with pytest.raises(StoreUnavailable, match=os.strerror(code)) as caught:
                step(store, "d")
        assert "commit step 4" in str(caught.value)
        assert (store.last_step(), words(store)) == (3, {"a", "b", "c"})
        assert files(path, "manifests") == before[1]
        step(store, "d")
    with StoreParquet(path, REGISTERS) as store:
        assert (store.last_step(), words(store)) == (4, {"a", "b", "c", "d"})


def test_an_error_after_the_manifest_has_its_name_does_not_undo_the_step(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StoreParquet(path, REGISTERS) as store:
        synced: Callable[[str], None] = directories._sync

        def refuse(name: str) -> None:
            if len(files(path, "manifests")) > 3 and name.endswith("manifests"):
                raise failing(errno.EIO)
            synced(name)

        monkeypatch.setattr(directories, "_sync", refuse)
        step(store, "d")
        assert (store.last_step(), words(store)) == (4, {"a", "b", "c", "d"})


def test_a_step_that_was_interrupted_after_its_commit_is_found_committed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    linked = directories._link

    def interrupt(source: str, target: str) -> None:
        linked(source, target)
        raise KeyboardInterrupt

    with StoreParquet(path, REGISTERS) as store:
        with monkeypatch.context() as patch:
            patch.setattr(directories, "_link", interrupt)
            with pytest.raises(KeyboardInterrupt):
                step(store, "d")
        assert (store.last_step(), words(store)) == (4, {"a", "b", "c", "d"})
        step(store, "e")
    with StoreParquet(path, REGISTERS) as store:
        assert (store.last_step(), words(store)) == (5, {"a", "b", "c", "d", "e"})


def test_a_full_disk_is_one_error_and_the_step_goes_through_once_there_is_room(
    small_disk: SmallDisk,
) -> None:
    disk = small_disk(1)
    with StoreParquet(disk / "state", REGISTERS, create=True) as store:
        step(store, "a")
        filler = disk / "filler"
        fill(filler)
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match=r"commit step 2: .*make room"):
                step(store, "b")
            assert (store.last_step(), words(store)) == (1, {"a"})
        filler.unlink()
        step(store, "b")
    with StoreParquet(disk / "state", REGISTERS) as store:
        assert words(store) == {"a", "b"}


def test_a_disk_made_read_only_is_one_error_and_readers_go_on(small_disk: SmallDisk) -> None:
    disk = small_disk(1)

    def mount(how: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], check=True)

    state = disk / "state"
    with StoreParquet(state, REGISTERS, create=True) as store:
        step(store, "a")
    mount("ro")
    with pytest.raises(
        StoreUnavailable, match=r"open it for writing: .*let this user read and write"
    ):
        StoreParquet(state, REGISTERS)
    with StoreParquet(state, REGISTERS, read_only=True) as reader:
        assert words(reader) == {"a"}
    mount("rw")
    with StoreParquet(state, REGISTERS) as store:
        step(store, "b")


# -- random deaths


def test_a_writer_killed_at_any_moment_leaves_whole_steps(tmp_path: Path) -> None:
    path = tmp_path / "state"
    code = f"""
        from tests.stores.test_parquet_faults import REGISTERS, step
        from stores.parquet.store import StoreParquet
        store = StoreParquet({str(path)!r}, REGISTERS, create=True)
        print("open", flush=True)
        while True:
            step(store, f"w{{store.last_step() + 1}}")
            print(store.last_step(), flush=True)
        """
    said = 0
    for lines in (1, 3, 7, 8):
        with in_new_process(code) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "open\n"
            for _ in range(lines):
                said = int(process.stdout.readline())
            process.kill()
            said = max([said, *(int(n) for n in process.stdout.read().split()[:-1])])
        with StoreParquet(path, REGISTERS, read_only=True) as store:
            last = store.last_step()
            assert last >= said
            assert words(store) == {f"w{i}" for i in range(1, last + 1)}
            assert content(store, WHOLE) == {row(f"w{i}", 1): (1,) for i in range(1, last + 1)}


def test_a_new_store_is_not_made_among_files_of_other_things(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(StoreUnavailable, match=r"no store, but notes\.txt; a new store needs"):
        StoreParquet(tmp_path, REGISTERS, create=True)
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


def test_old_files_that_cannot_be_removed_stay_and_one_warning_says_so(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(_: LocalDirectory, names: list[str]) -> None:
        if names:
            raise PermissionError(errno.EACCES, "Permission denied")

    with StoreParquet(path, REGISTERS) as store:
        before = set(files(path, "data"))
        with monkeypatch.context() as patch:
            patch.setattr(LocalDirectory, "remove", refuse)
            for word in "defghijk":
                step(store, word)
            store.compact()
            step(store, "l")
        (warning,) = (r.getMessage() for r in caplog.records)
        assert str(path) in warning
        assert "the right to list and remove files" in warning
        assert before <= set(files(path, "data"))
        assert words(store) == set("abcdefghijkl")
    with StoreParquet(path, REGISTERS) as store:  # removes them
        assert not before & set(files(path, "data"))
        assert words(store) == set("abcdefghijkl")
