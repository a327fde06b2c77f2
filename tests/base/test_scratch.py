"""Temporary folders: when they are removed, and by whom."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stepping_spark.base.scratch import ScratchFolder

PROGRAM = """
import os, sys, time
from stepping_spark.base.scratch import ScratchFolder
folder = ScratchFolder()
(folder.path / "file").write_text("rows")
if "fork" in sys.argv:
    if os.fork() == 0:
        folder.remove()
        sys.exit()
    os.wait()
    assert (folder.path / "file").exists()
print(folder.path, flush=True)
if "wait" in sys.argv:
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for temporary files, of this process and of others."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


@contextmanager
def other_process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Another process, and its folder."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def test_a_folder_is_for_its_user_alone_and_is_removed_with_its_object(temporary: Path) -> None:
    folder = ScratchFolder()
    assert folder.path.parent == temporary
    assert folder.path.stat().st_mode & 0o777 == 0o700
    (folder.path / "file").write_text("rows")
    folder.remove()
    assert not list(temporary.iterdir())
    path = ScratchFolder().path
    assert not path.exists()


@pytest.mark.parametrize("arguments", [(), ("fork",)])
def test_a_process_removes_its_folder_at_its_end_and_a_fork_does_not(
    temporary: Path, arguments: tuple[str, ...]
) -> None:
    with other_process(*arguments) as (process, _):
        assert process.wait(60) == 0
    assert not list(temporary.iterdir())


def test_the_folder_of_a_killed_process_is_removed_by_the_next_one_and_no_other(
    temporary: Path,
) -> None:
    others = temporary / "stepping-scratch-of-another-kind"
    others.write_text("a file")
    with other_process("wait") as (killed, lost), other_process("wait") as (_, alive):
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert lost.exists()
        with other_process() as (process, _):
            assert process.wait(60) == 0
        assert not lost.exists()
        assert (alive / "file").read_text() == "rows"
        assert others.exists()
