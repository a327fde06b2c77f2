"""The Parquet store, if the machine loses power: what a manifest names is on the disk before it."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from stores.contract.values import BY_WORD, WHOLE, add, as_it_is
from stores.parquet.manifest import decode
from stores.parquet.store import StoreParquet

STEPS = 12
REGISTERS = [BY_WORD, WHOLE]


class Disk:
    """Knows what is left without power: bytes that were synced, under names whose folder was."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.manifests: list[Path] = []
        self.too_early: list[str] = []
        self._bytes: dict[int, int] = {}
        self._names: dict[int, set[str]] = {}
        self._fsync, self._link = os.fsync, os.link
        monkeypatch.setattr(os, "fsync", self._synced)
        monkeypatch.setattr(os, "link", self._linked)

    def keeps(self, file: Path) -> bool:
        """Whether a file is left, with its name and all its bytes."""
        names = self._names.get(file.parent.stat().st_ino, set())
        return self._keeps_bytes(file) and file.name in names

    def _keeps_bytes(self, file: Path) -> bool:
        found = file.stat()
        return self._bytes.get(found.st_ino) == found.st_size

    def _synced(self, handle: int) -> None:
        found = os.fstat(handle)
        if stat.S_ISDIR(found.st_mode):
            self._names[found.st_ino] = set(os.listdir(handle))
        else:
            self._bytes[found.st_ino] = found.st_size
        self._fsync(handle)

    def _linked(self, source: str, target: str) -> None:
        manifest = Path(target)
        if manifest.parent.name == "manifests":
            self.manifests.append(manifest)
            named = decode(Path(source).read_bytes()).files()
            files = {manifest.parent.parent / f.name for _, f in named}
            self.too_early += [f"{manifest.name}, before {f}" for f in files if not self.keeps(f)]
            if not self._keeps_bytes(Path(source)):
                self.too_early.append(f"{manifest.name}, before its own content")
        self._link(source, target)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(monkeypatch)


def test_a_manifest_gets_its_name_after_all_that_it_names_is_durable_and_is_so_itself(
    tmp_path: Path, disk: Disk
) -> None:
    with StoreParquet(tmp_path / "state", REGISTERS, create=True) as store:
        for n in range(STEPS):
            for register in REGISTERS:
                add(store, register, as_it_is, [(f"w{i}", n, 1) for i in range(n + 1)])
            store.commit(n + 1, None)
            assert disk.keeps(disk.manifests[-1])
    assert disk.too_early == []
    assert len(disk.manifests) == STEPS + 1
    assert disk.keeps(tmp_path / "state" / "registers.json")
