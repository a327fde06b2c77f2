"""Batches in files that are mapped into memory, so that any process of a machine reads them.

A file has the rows of a batch and their places in Arrow's memory layout: a read of a few keys
touches only the pages with their rows.
"""

from __future__ import annotations

import itertools
import os
import tempfile
import uuid
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pyarrow as pa

from stepping_spark.base.scratch import ScratchFolder
from stepping_spark.relations.codec import conform
from stepping_spark.relations.relation import DriverRelation, Relation
from stepping_spark.relations.store import AddedRows, Register
from stores.base import BeforeStep, checked_beside
from stores.batches.driver import DriverBatch, Ranges, built, wanted_buckets, wanted_places


@dataclass(frozen=True, eq=False)
class MappedBatch(DriverBatch):
    """A batch whose rows are in files."""

    paths: tuple[str, ...] = ()


_WRITERS = 4


class MappedFiles:
    """The files of a store, in a folder that is removed with the store.

    A file without a batch is removed when the next step asks for the folder: so are the files that
    failed tasks leave behind.
    """

    def __init__(self) -> None:
        self._scratch: ScratchFolder | None = None
        self._batches: weakref.WeakSet[MappedBatch] = weakref.WeakSet()

    @property
    def are_there(self) -> bool:
        """Whether the folder exists: a step in tasks has asked for it."""
        return self._scratch is not None

    def close(self) -> None:
        """Remove the folder."""
        if self._scratch is not None:
            self._scratch.remove()

    @property
    def folder(self) -> str:
        """The folder; removes files that belong to no batch."""
        folder = self._folder()
        names = {os.path.basename(p) for b in self._batches for p in b.paths}
        _remove([entry.path for entry in os.scandir(folder) if entry.name not in names])
        return folder

    def moved(self, batches: Sequence[DriverBatch]) -> list[MappedBatch]:
        """Batches in memory, moved to one file each. Threads write the files at the same time."""
        folder = self._folder()
        paths = [new_path(folder) for _ in batches]
        with ThreadPoolExecutor(max_workers=_WRITERS) as writers:
            list(writers.map(save, batches, paths))
        return [batch for path in paths for batch in self.batches([path])]

    def _folder(self) -> str:
        if self._scratch is None:
            self._scratch = ScratchFolder()
        return str(self._scratch.path)

    def batches(self, paths: Sequence[str]) -> tuple[MappedBatch, ...]:
        """The batches in files: one, if the ranges of places of the files do not overlap."""
        parts = sorted(((load(p), p) for p in paths), key=lambda part: part[0].places[0])
        pairs = itertools.pairwise(b for b, _ in parts)
        result: tuple[MappedBatch, ...]
        if all(a.places[-1] < b.places[0] for a, b in pairs):
            whole = joined([b for b, _ in parts])
            result = (MappedBatch(whole.pieces, whole.places, tuple(p for _, p in parts)),)
        else:
            result = tuple(MappedBatch(b.pieces, b.places, (p,)) for b, p in parts)
        self._batches.update(result)
        return result


def joined(parts: Sequence[DriverBatch]) -> DriverBatch:
    """One batch of several, whose ranges of places do not overlap and are in order."""
    if len(parts) == 1:
        return parts[0]
    pieces = tuple(piece for b in parts for piece in b.pieces)
    return DriverBatch(pieces, np.concatenate([b.places for b in parts]))


def _remove(paths: Iterable[str]) -> None:
    for path in paths:
        with suppress(OSError):
            os.unlink(path)


def new_path(folder: str) -> str:
    """The path of a new file, with a unique name."""
    return os.path.join(folder, f"{uuid.uuid4().hex}.arrow")


def save(batch: DriverBatch, path: str) -> None:
    """Write the rows of a batch, in one piece if possible."""
    place = pa.field("_place_", pa.uint64(), nullable=False)
    table = batch.table.append_column(place, pa.array(batch.places)).combine_chunks()
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def load(path: str) -> DriverBatch:
    """The batch in a file."""
    reader: Any = pa.ipc.open_file(pa.memory_map(path))
    pieces = [reader.get_batch(i) for i in range(reader.num_record_batches)]
    last = len(reader.schema) - 1
    places = [p.column(last).to_numpy() for p in pieces]
    whole = places[0] if len(places) == 1 else np.concatenate(places)
    return DriverBatch(tuple(p.select(range(last)) for p in pieces), whole)


def nameless(batch: DriverBatch) -> DriverBatch:
    """The batch in a mapped temporary file without a name: no other process can open it."""
    handle, path = tempfile.mkstemp(prefix="stepping-spark-", suffix=".arrow")
    os.close(handle)
    try:
        save(batch, path)
        return load(path)
    finally:
        os.unlink(path)


_OPEN: dict[str, DriverBatch] = {}
"""The files that this process has mapped, in a task."""


@dataclass
class TaskReads(BeforeStep, ABC):
    """The state before a step as tasks read it, with the additions of one attempt of a task.

    `files` has the files of each register, by its name in the circuit.
    """

    registers: Mapping[str, Register]
    files: Mapping[str, Sequence[Any]]

    @contextmanager
    def attempt(self) -> Iterator[Self]:
        """The same state for an attempt of a task."""
        wanted = {self.path_of(f) for files in self.files.values() for f in files}
        for path in _OPEN.keys() - wanted:
            del _OPEN[path]
        yield replace(self, added=[])

    def read(self, register: str, keys: Relation | None = None) -> tuple[Relation, ...]:
        """The committed value, as parts that add up to it; with `keys`, only the rows of those."""
        of = self.registers[register]
        if keys is None:
            return self._read(register, None)
        assert keys.table is not None
        return self._read(register, wanted_places(conform(keys.table, of.keys), of))

    def read_beside(self, register: str, rows: Relation, buckets: int) -> tuple[Relation, ...]:
        """The rows in the same buckets as some rows."""
        of = self.registers[register]
        return self._read(register, wanted_buckets(checked_beside(of, rows), of, buckets))

    def _read(self, register: str, places: Ranges | None) -> tuple[Relation, ...]:
        of = self.registers[register]
        parts = []
        for file in self.files.get(register, ()):
            if places is not None and not self.may_have(file, places):
                continue
            batch = self._opened(file, of)
            rows = batch.table if places is None else batch.at(places)
            if rows is not None:
                parts.append(DriverRelation(rows, of.schema, consolidated=True))
        return tuple(parts)

    def add(self, register: str, change: Relation) -> None:
        """Write the rows of a change to files."""
        assert isinstance(change, DriverRelation)
        of = self.registers[register]
        batch = built(change, of)
        if batch.rows:
            self.added.append(AddedRows(register, batch.rows, self.written(batch, of)))

    def _opened(self, file: Any, register: Register) -> DriverBatch:
        path = self.path_of(file)
        if path not in _OPEN:
            _OPEN[path] = self.opened(path, file, register)
        return _OPEN[path]

    def may_have(self, file: Any, wanted: Ranges) -> bool:
        """Whether a file may have rows in some ranges of places."""
        return True

    @abstractmethod
    def path_of(self, file: Any) -> str:
        """The path of the file to map, with the rows of a file of the state."""

    @abstractmethod
    def opened(self, path: str, file: Any, register: Register) -> DriverBatch:
        """The batch in the file at this path."""

    @abstractmethod
    def written(self, batch: DriverBatch, register: Register) -> object:
        """Write a batch; returns its files in the form that the store's `add_written` expects."""


@dataclass
class MappedState(TaskReads):
    """The state of a memory store, in mapped files of a folder."""

    folder: str = ""

    def path_of(self, file: Any) -> str:
        """The path itself."""
        return str(file)

    def opened(self, path: str, file: Any, register: Register) -> DriverBatch:
        """The batch in a file."""
        return load(path)

    def written(self, batch: DriverBatch, register: Register) -> str:
        """The path of the file."""
        path = new_path(self.folder)
        save(batch, path)
        return path
