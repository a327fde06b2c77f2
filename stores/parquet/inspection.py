"""Inspects a state in Parquet files, and compares the files with the manifest."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from stepping_spark.base.errors import StoreUnavailable
from stepping_spark.plan.difference import names_in
from stepping_spark.relations.arrow import nonzero
from stepping_spark.relations.codec import conform
from stepping_spark.relations.hashing import Hashes
from stepping_spark.relations.store import Register, fingerprint
from stepping_spark.rows.schema import Schema
from stores.base import read_registers
from stores.batches.driver import places_of, settled
from stores.inspection import InspectedState, KeptRegister, Summary, Verification, other_kind
from stores.parquet.description import (
    CIRCUITS,
    check_may_write,
    check_no_others,
    first_registers,
    kept_at,
    newest,
)
from stores.parquet.directories import Directory, LocalDirectory, directory_of, reaching
from stores.parquet.fencing import CLAIMS, holder, lock
from stores.parquet.file_validation import Content, Damaged
from stores.parquet.files import FileReader, content_of, output_content
from stores.parquet.manifest import (
    DATA,
    FOLDER,
    FORMAT,
    REGISTERS,
    File,
    FileBatch,
    FileOrder,
    Log,
    Manifest,
    damages,
    instead,
    name_of,
)
from stores.parquet.store import StoreParquet
from stores.step_lock import is_written_here

SHOWN = 3  # names of other files that a message lists if there is no state
_PIECE = 1 << 20  # bytes of a file that are copied at a time
TRIES = 3  # attempts to check a state while its writer goes on


class ParquetState:
    """The state in a directory, or under a prefix of an object store; see `StoreParquet`."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        filesystem: pafs.FileSystem | None = None,
    ) -> None:
        self._path = path
        self._filesystem = filesystem
        self._directory = directory_of(path, filesystem)
        self._log = Log(self._directory)

    def summary(self) -> Summary:
        """The summary of the state, from its newest manifest."""
        with self._reaching():
            manifest = self._newest()
            registers = self._registers(manifest)
            return Summary(
                self._directory.shown,
                "Parquet files",
                FORMAT,
                manifest.fingerprint,
                manifest.step,
                manifest.last.now,
                manifest.last.offsets,
                holder(self._directory),
                tuple(_register_size(r, manifest.registers.get(r.name, ())) for r in registers),
            )

    def other_writer(self) -> str | None:
        """The other process that writes the state now; None if there is none."""
        with self._reaching():
            if is_written_here(self._directory.identity):
                return None
            return holder(self._directory)

    def exists(self) -> bool:
        """Whether there is a committed state."""
        with self._reaching():
            return bool(self._log.orders())

    def copy_from(self, source: InspectedState, offsets: Mapping[str, int]) -> None:
        """Make this a copy of another state, with other offsets for some."""
        if not isinstance(source, ParquetState):
            raise other_kind(self._directory.shown, source.summary().place)
        source.summary()  # raises an error if there is no state
        _duplicate(source._directory, self._directory, offsets)

    def reader(self, registers: Sequence[Register], *, evolve: bool = False) -> StoreParquet | None:
        """A store that reads the state; None if there is no state and a writer can make one."""
        with reaching(self._directory.shown, "open it for writing"):
            check_no_others(self._directory)
            check_may_write(self._directory)
            described = first_registers(self._directory)
            if described is None:
                return None
            if not self._log.orders() and not self._directory.sizes(DATA):
                names_in(described, registers, evolves=evolve)
                return None  # its first writer has died: the next writer completes it
        return StoreParquet(
            self._path,
            registers,
            read_only=True,
            filesystem=self._filesystem,
            evolve=evolve,
        )

    def verify(self) -> Verification:
        """Check every file of the newest step, and the files that only older steps have."""
        with self._reaching():
            for _ in range(TRIES):
                manifest = self._newest()
                verification = self._look_at(manifest)
                # A writer may have removed the checked files: then their absence is no problem.
                if not verification.problems or manifest.order in self._log.orders():
                    return verification
        raise StoreUnavailable(
            f"{self._directory.shown}: its writer went on {TRIES} times, and removed files that "
            "were being read; verify it while nobody writes"
        )

    def _look_at(self, manifest: Manifest) -> Verification:
        look = StepsCheck(self._directory, self._registers)
        registers = self._registers(manifest)
        shown = manifest.circuit or REGISTERS
        problems = [*_of_registers(manifest, registers, shown), *look.at(manifest)]
        older = {
            order: self._of_older(order, look)
            for order in reversed(self._log.orders())
            if order < manifest.order
        }
        orders = self._log.orders()
        older = {order: damage for order, damage in older.items() if order in orders}
        steps = ", ".join(dict.fromkeys(str(s) for _, s, _ in (*reversed(older), manifest.order)))
        verification = Verification(
            f"{look.files:,} files of {len(registers):,} registers, at step {steps}"
        )
        verification.problems += problems
        for order, damage in older.items():
            verification.problems += _older_step_text(order, damage, problems)
        if problems:
            verification.remedy = instead(
                order
                for order, damage in older.items()
                if not damage and self._log.of_step(order[1], orders) == order
            )
        elif verification.problems:
            verification.remedy = "the last step is whole, and may go on"
        return verification

    def compact(self) -> str:
        """Merge each register into one batch, without Spark."""
        with (
            self._reaching(),
            # The driver merges any number of rows: Spark merges only for a store with a circuit.
            StoreParquet(
                self._path,
                self._registers(self._newest()),
                driver_rows=sys.maxsize,
                filesystem=self._filesystem,
            ) as store,
        ):
            store.compact()
        return (
            "Files that were merged stay until the next steps are committed: until then the last "
            "steps can be opened again."
        )

    def rewind(self, to: int) -> None:
        """Open the state at an earlier step, which becomes the last one."""
        with self._reaching():
            order = self._log.of_step(to, self._log.orders())
            manifest = None if order is None else self._log.read_or_none(order)
            store = StoreParquet(
                self._path,
                self._registers(manifest or self._newest()),
                at_step=to,
                filesystem=self._filesystem,
            )
            store.close()

    def _newest(self) -> Manifest:
        if first_registers(self._directory) is None:
            raise StoreUnavailable(
                f"{self._directory.shown}: there is no state here: {self._instead()}; check the "
                "path"
            )
        return newest(self._directory, self._log)

    def _registers(self, manifest: Manifest) -> list[Register]:
        description = kept_at(self._directory, manifest)
        where = f"{self._directory.shown}: {description.shown}"
        return [
            description.of(register) for register in read_registers(description.registers, where)
        ]

    def _instead(self) -> str:
        """The contents of a directory without a state, for a message."""
        if isinstance(self._directory, LocalDirectory) and not os.path.exists(self._directory.root):
            return "there is no such directory"
        names = sorted(n.removeprefix("/") for n in self._directory.sizes(""))
        more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
        text = f"but {', '.join(names[:SHOWN])}{more}" if names else "and nothing else"
        return f"no {REGISTERS}, {text}"

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        with reaching(self._directory.shown, "look at its files"):
            yield

    def _of_older(self, order: FileOrder, look: StepsCheck) -> list[str]:
        """The problems of an older step."""
        manifest = self._log.read_or_none(order)
        if manifest is None:
            return [f"its manifest, {name_of(order)}, is damaged, or in another format"]
        return look.at(manifest)


def _older_step_text(
    order: FileOrder, damage: Sequence[str], newest: Sequence[str]
) -> Iterator[str]:
    """The messages about an older step, beyond the problems of the newest one."""
    step = f"step {order[1]}, an older one, cannot be opened again"
    own = [d for d in damage if d not in newest]
    yield from (f"{step}: {d}" for d in own)
    if damage and not own:
        yield f"{step}, for the same reason"


def _register_size(register: Register, batches: Sequence[FileBatch]) -> KeptRegister:
    rows, nbytes = (sum(n) for n in ([b.rows for b in batches], [b.nbytes for b in batches]))
    return KeptRegister(register, rows, len(batches), nbytes)


def _of_registers(manifest: Manifest, registers: Sequence[Register], shown: str) -> Iterator[str]:
    if manifest.fingerprint != fingerprint(registers):
        yield (
            f"{shown} is not of this state: it describes {fingerprint(registers)}, and the "
            f"manifest of step {manifest.step} is of {manifest.fingerprint}"
        )
    for name in manifest.registers.keys() - {r.name for r in registers}:
        yield f"register {name!r} has files, and {shown} does not know it"


class StepsCheck:
    """A check of the steps of a state that opens no file twice."""

    def __init__(
        self, directory: Directory, registers: Callable[[Manifest], Sequence[Register]]
    ) -> None:
        self._directory = directory
        self._registers = registers
        self._known: dict[tuple[str, FileBatch], list[str]] = {}

    @property
    def files(self) -> int:
        """The number of files that were checked."""
        return len({f for _, batch in self._known for f in batch.files})

    def at(self, manifest: Manifest) -> list[str]:
        """The problems of the files of a step."""
        sizes = self._directory.sizes("data")
        problems = [*damages(manifest, self._directory)]
        for register in self._registers(manifest):
            check = FileCheck(self._directory, content_of(register), register)
            for batch in manifest.registers.get(register.name, ()):
                problems += self._of(batch, check, sizes, f"register {register.name!r}")
        for i, (kinds, batch) in enumerate(manifest.outputs or ()):
            try:
                schema = Schema.of_kinds(kinds)
            except ValueError as e:
                problems.append(f"output {i}: its schema cannot be read: {e}")
            else:
                check = FileCheck(self._directory, output_content(i, schema), None)
                problems += self._of(batch, check, sizes, f"output {i}")
        return problems

    def _of(
        self, batch: FileBatch, check: FileCheck, sizes: Mapping[str, int], whose: str
    ) -> list[str]:
        if (whose, batch) not in self._known:
            self._known[whose, batch] = list(check.batch(batch, sizes, whose))
        return self._known[whose, batch]


@dataclass(frozen=True)
class FileCheck:
    """Compares files with their descriptions; files of a register are in order of place."""

    directory: Directory
    content: Content
    register: Register | None

    def batch(self, batch: FileBatch, sizes: Mapping[str, int], whose: str) -> Iterator[str]:
        """The problems of the files of a batch."""
        before = 0
        for f in batch.files:
            if sizes.get(f.name) != f.nbytes:
                continue  # `damages` reports this
            try:
                yield from (f"{f.name} of {whose} {what}" for what in self.file(f, before))
            except Damaged as e:
                yield f"{f.name} of {whose}{str(e).removeprefix(f.name)}"
            before = f.last

    def file(self, f: File, before: int) -> Iterator[str]:
        """The problems of a file whose places begin after `before`."""
        reader = FileReader(self.directory, 0)
        metadata = reader.metadata(f, self.content)
        schema, place = self.content.schema, self.content.place
        counts: dict[str, int] = {}
        ends: list[int] = []
        for i in range(metadata.num_row_groups):
            table = reader.load(f, [i], metadata, self.content)
            places = None
            if place is not None:
                places = table.column(place).to_numpy()
                before = ends[-1] if ends else before
                ends += [int(places[0]), int(places[-1])]
                if not _are_the_ends(metadata.row_group(i), places):
                    yield f"has a row group, number {i}, whose statistics are not of its rows"
            for what, n in self._wrong(conform(table, schema), places, before):
                counts[what] = counts.get(what, 0) + n
        if ends and (ends[0], ends[-1]) != (f.first, f.last):
            yield "has other first and last places than the manifest says"
        yield from (f"has {n:,} rows {what}" for what, n in counts.items() if n)

    def _wrong(
        self, rows: pa.Table, places: Hashes | None, before: int
    ) -> Iterator[tuple[str, int]]:
        """The number of wrong rows of a row group, by problem."""
        if self.register is None or places is None:
            return
        mask = nonzero(rows, self.content.schema)
        zeros = 0 if mask is None else int((~mask).sum())
        yield "with a weight of zero", zeros
        astray = int((places_of(rows, self.register) != places).sum())
        yield "that stand where their key is not looked for", astray
        after = np.append(np.uint64(before), places[:-1])
        disordered = int((places < after).sum())
        yield "that are not in order of their key", disordered
        if not (zeros or astray or disordered):
            apart = rows.num_rows - settled(rows, places, self.register)[0].num_rows
            yield "that are equal to others, and not added to them", apart


def _are_the_ends(group: pq.RowGroupMetaData, places: Hashes) -> bool:
    statistics = group.column(group.num_columns - 1).statistics
    if statistics is None or not len(places):
        return statistics is not None or not len(places)
    return bool(statistics.min == int(places.min()) and statistics.max == int(places.max()))


def _duplicate(source: Directory, to: Directory, offsets: Mapping[str, int]) -> None:
    """Copy a state, with other offsets for some. Its writer may go on meanwhile.

    The manifest comes last, so a copy that ended in between is no state, and is made again.
    """
    with reaching(to.shown, "copy a state to it"):
        check_no_others(to)
        to.make((DATA, FOLDER, CLAIMS, CIRCUITS))
        target_lock = lock(to)
        try:
            _copy(source, to, offsets)
        finally:
            target_lock.release()


def _copy(source: Directory, to: Directory, offsets: Mapping[str, int]) -> None:
    log = Log(source)
    for _ in range(TRIES):
        manifest = newest(source, log)
        names = [f.name for _, f in manifest.files()]
        names += [] if manifest.circuit is None else [manifest.circuit]
        to.remove([*to.sizes(DATA), *to.sizes(CIRCUITS)])
        try:
            kept_at(source, manifest)
            for name in names:
                _copy_file(source, to, name)
        except FileNotFoundError:
            if manifest.order in log.orders():
                log.check(manifest)  # raises an error with the missing file
                raise
            continue  # the writer has removed it
        to.write(REGISTERS, source.read(REGISTERS))
        Log(to).write(_with(manifest, offsets), [*names, REGISTERS])
        return
    raise StoreUnavailable(
        f"{source.shown}: its writer went on {TRIES} times, and removed files that were being "
        "copied; "
        "copy it while nobody writes"
    )


def _copy_file(source: Directory, to: Directory, name: str) -> None:
    with source.input(name) as read, to.output(name) as written:
        shutil.copyfileobj(read, written, _PIECE)


def _with(manifest: Manifest, offsets: Mapping[str, int]) -> Manifest:
    last = replace(manifest.last, offsets={**manifest.last.offsets, **offsets})
    return replace(manifest, last=last)
