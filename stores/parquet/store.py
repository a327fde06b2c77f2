"""The Parquet store: state in files that outlive the process, committed by a manifest a step."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Self, TypeVar, cast

import pyarrow.fs as pafs

from stepping_spark.base.errors import StoreLocked
from stepping_spark.base.limits import Limits, checked_limits
from stepping_spark.base.packages import SparkSession
from stepping_spark.circuit.graph import AnyGraph
from stepping_spark.plan.difference import Described
from stepping_spark.plan.planner import registers_of
from stepping_spark.relations.codec import conform
from stepping_spark.relations.placement import (
    ALWAYS_SEARCHED,
    COPIES,
    LOOKED_UP_KEYS,
    bytes_given,
    resources,
)
from stepping_spark.relations.relation import DriverRelation, Relation, SparkRelation
from stepping_spark.relations.store import AddedRows, Register, fingerprint_of, now_to_text
from stepping_spark.rows.schema import Schema
from stepping_spark.spark.session import get_session, quarter_of_memory
from stores.base import LastStep, Served, check_are_registers, checked_beside, checked_since, no_key
from stores.batches.compaction import BatchStore, Tiers, Work
from stores.batches.driver import Ranges, wanted_buckets, wanted_places, wanted_since
from stores.parquet import spark_files
from stores.parquet.description import StateDescription
from stores.parquet.directories import directory_of, reaching
from stores.parquet.file_validation import GROUP_ROWS, Content, Damaged
from stores.parquet.files import FileReader, Group, Pick, content_of, output_content
from stores.parquet.manifest import File, FileBatch, Manifest, batches_of, next_revision
from stores.parquet.transaction import Committed
from stores.parquet.writer import Added, BatchFiles, drop, ended
from stores.step_lock import Pins, Turns
from stores.threads import side_by_side

T = TypeVar("T")
FileBatches = tuple[FileBatch, ...]

SEARCHED_ROWS = 1 << 24
"""Rows that the driver reads to find keys, which takes about two seconds on two cores.

Beyond: Spark reads the files, and joins them with the keys. Spark also reads fewer rows if that is
estimated to take less time.
"""

_TRIES = 5


class Reading:
    """Reads committed rows: small batches on the driver, large ones with Spark.

    `state` is the manifest of the last step, and the batches of each register, some of them merged
    since; a thread within a snapshot reads its pinned manifest.
    """

    def __init__(
        self,
        reader: FileReader,
        committed: Committed,
        turns: Turns,
        session: Callable[[], SparkSession],
        driver_rows: int,
        limits: Limits,
    ) -> None:
        self.state: tuple[Manifest, Mapping[str, FileBatches]] = (Manifest(0), {})
        self.pins: Pins[tuple[Manifest, Mapping[str, FileBatches]]] = Pins()
        self._reader = reader
        self._directory = reader.directory
        self._committed = committed
        self._turns = turns
        self._session = session
        self._driver_rows = driver_rows
        self._limits = limits

    def current(self) -> tuple[Manifest, Mapping[str, FileBatches]]:
        """The last step, or the pinned step of this thread, and the batches of registers."""
        self._turns.check_open()
        pinned = self.pins.pinned
        if pinned is not None:
            return pinned
        manifest = self._committed.newest()
        if manifest is not self.state[0]:
            self.state = manifest, manifest.registers
            self._reader.keep_only({f.name for _, f in manifest.files()})
        return self.state

    def batches_of(self, register: Register) -> FileBatches:
        """The batches of a register."""
        return self.current()[1].get(register.name, ())

    def whole(self, register: Register, most: int = 0) -> tuple[Relation, ...]:
        """All rows of a register, in parts that add up to it.

        The driver reads batches of up to `most` rows, if that is more than its usual limit.
        """
        most = max(most, self._driver_rows)
        return self._retried(register, lambda batches: self._whole(register, batches, most))

    def at_keys(self, register: Register, keys: Relation) -> tuple[Relation, ...]:
        """The rows of a register that have one of the keys; further rows, for too many keys."""
        wanted = keys.table
        if keys.frame is not None:
            wanted = keys.frame.limit(LOOKED_UP_KEYS + 1).toArrow()
            if wanted.num_rows > LOOKED_UP_KEYS:
                return self.whole(register)
        assert wanted is not None
        if not wanted.num_rows:
            return ()
        return self.at(register, wanted_places(conform(wanted, register.keys), register))

    def at(self, register: Register, places: Ranges) -> tuple[Relation, ...]:
        """The rows of a register in some ranges of places."""
        return self._picked(register, places, lambda group: group.at(places))

    def since(
        self, register: Register, keys: Relation, since: Sequence[int]
    ) -> tuple[Relation, ...]:
        """The rows of a register that have one of the keys, from a position in the order on."""
        order, wanted = checked_since(register, keys)
        places, numbers = wanted_since(wanted, since, register)
        return self._picked(register, places, lambda group: group.since(places, numbers, order))

    def _picked(self, register: Register, places: Ranges, pick: Pick) -> tuple[Relation, ...]:
        """The rows that `pick` selects from the row groups that may have rows with these keys.

        If these are too many row groups, Spark reads the files of large batches. The reader of the
        rows joins them with the keys.
        """

        def at(batches: FileBatches) -> tuple[Relation, ...]:
            groups = [g for b in batches for g in self._reader.groups_with(b, places)]
            here, in_spark = groups, list[Group]()
            if self._are_for_spark(groups):
                large = {f for b in batches if b.rows > self._driver_rows for f in b.files}
                here = [g for g in groups if g[0] not in large]
                in_spark = [g for g in groups if g[0] in large]
            tables = self._reader.at(here, pick, register, self._limits)
            if tables is None:
                return (self._in_spark(register, groups),)
            parts = tuple(DriverRelation(t, register.schema) for t in tables)
            return (*parts, self._in_spark(register, in_spark)) if in_spark else parts

        return self._retried(register, at)

    def _are_for_spark(self, groups: Sequence[Group]) -> bool:
        """Whether Spark finds keys in these row groups sooner; the driver has cached some."""
        if len(groups) * GROUP_ROWS <= ALWAYS_SEARCHED:
            return False
        rows = self._reader.missing(groups) * GROUP_ROWS
        few = rows <= SEARCHED_ROWS and resources(self._limits).searched(rows).on_driver
        return rows > ALWAYS_SEARCHED and not few

    def output(self, batch: FileBatch, content: Content) -> Relation:
        """The output of a step."""
        if batch.rows <= self._driver_rows:
            return DriverRelation(self._reader.plain(batch, content), content.schema)
        return self._read_by_spark(batch.files, content)

    def _retried(self, register: Register, read: Callable[[FileBatches], T]) -> T:
        """The result of reading a register's batches; retried if a merge has removed them."""
        with self.trying():
            for _ in range(_TRIES):
                batches = self.batches_of(register)
                try:
                    return read(batches)
                except Damaged:
                    if self.batches_of(register) == batches:
                        raise
            return read(self.batches_of(register))

    @contextmanager
    def trying(self) -> Iterator[None]:
        """Turn errors of reading files into one error with the reason."""
        try:
            with reaching(self._directory.shown, "read its files"):
                yield
        except Damaged as e:
            self._turns.check_open()
            pinned = self.pins.pinned
            if pinned is not None:
                self._committed.check_there(pinned[0])
            raise self._committed.damaged(self.state[0].step, e) from e
        except StoreLocked:
            self._turns.check_open()  # its error names the other store of this process
            raise

    def _whole(self, register: Register, batches: FileBatches, most: int) -> tuple[Relation, ...]:
        most_bytes = bytes_given(self._limits) // COPIES  # files take less than rows in memory
        small = [b for b in batches if b.rows <= most and b.nbytes <= most_bytes]
        files = [f for b in batches if b not in small for f in b.files]
        parts: list[Relation] = [
            DriverRelation(self._reader.table(b, register), register.schema, consolidated=True)
            for b in small
        ]
        if files:
            parts.append(self._read_by_spark(files, content_of(register)))
        return tuple(parts)

    def _in_spark(self, register: Register, groups: Sequence[Group]) -> SparkRelation:
        """All rows of the files with these row groups, as a DataFrame."""
        return self._read_by_spark(list(dict.fromkeys(f for f, _ in groups)), content_of(register))

    def _read_by_spark(self, files: Sequence[File], content: Content) -> SparkRelation:
        """Files as a DataFrame; only their footers are checked before."""
        side_by_side(lambda f: self._reader.check(f, content), files)
        frame = spark_files.read(files, content.schema, self._directory, self._session())
        return SparkRelation(frame, content.schema)


DRIVER_BATCH_ROWS = 100_000
"""The rows of the largest batch that the driver reads and writes itself."""

CACHE_BYTES = 256 << 20
"""The memory of the cache of reads, or a quarter of the machine's memory if that is less."""


class StoreParquet(BatchStore[FileBatch, tuple[Manifest, Mapping[str, FileBatches]]]):
    """Keeps registers in Parquet files, in a local directory or in an object store.

    `path` is a path, or a URI that `pyarrow.fs` knows (`s3://bucket/state`; `s3a` is the same);
    with `filesystem`, a path in that file system. Spark reads large batches itself, with its own
    configuration (`s3a` for S3), and its tasks need this project's packages. `create` makes the
    store if it does not exist; otherwise a missing store raises `StoreUnavailable`.

    A step is committed by its manifest, a JSON file that appears whole or not at all; the files
    that it names are durable before that. Files never change. A damaged file raises `StoreCorrupt`
    when it is first read.
    Batches merge by size (`stores.batches.compaction`), and files that no recent manifest names are
    removed. `at_step=n` goes back to step n, one of the last few, and drops the steps after it.

    One process writes at a time; another gets a `StoreLocked`. On a local path the lock ends with
    its process. On an object store it is a lease that is renewed while the store is open, and runs
    out a minute after (`stores.parquet.fencing`). If a lock fails, no committed step is lost, and
    the writer that was overtaken gets a `StoreLocked` (see `stores.parquet.fencing`). If the same
    process opens the state again, the new store takes over, and the old one says so. With
    `read_only` there is no lock, and each read is of the newest step, or of `at_step`, while
    another process writes. A DataFrame that was read stays valid for ten minutes after its files
    were merged away, while the writer is open.

    The driver reads and writes batches of at most `driver_rows` rows; Spark does larger ones, with
    the session `spark` (default: the active one, or a local one that is started). At most
    `cache_bytes` of what was read stay in memory: by default 256 MB. Large files in which many keys
    are looked up, step after step, are copied to a temporary folder (see `TMPDIR`), as Arrow has
    their rows in memory, and mapped; not with `cache_bytes=0`. `limits` bounds the reads: see
    `st.Limits`.

    >>> def query(a: st.ZSet[int]) -> st.ZSet[int]:
    ...     return st.distinct(a)
    >>> graph = st.compile(query)
    >>> with st.StoreParquet.from_graph(graph, "state", create=True) as store:
    ...     _ = st.iteration(store, graph, (st.ZSetPython({1: 2}),))
    >>> with st.StoreParquet.from_graph(graph, "state") as store:
    ...     (out,) = st.iteration(store, graph, (st.ZSetPython({1: -2}),))
    >>> out == st.ZSetPython({1: -1})
    True
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        registers: Sequence[Register] | None = None,
        *,
        create: bool = False,
        read_only: bool = False,
        at_step: int | None = None,
        driver_rows: int = DRIVER_BATCH_ROWS,
        cache_bytes: int | None = None,
        filesystem: pafs.FileSystem | None = None,
        spark: SparkSession | None = None,
        limits: Limits | None = None,
        evolve: bool = False,
    ) -> None:
        self.evolves = evolve
        self._limits = checked_limits(limits)
        self._directory = directory_of(path, filesystem)
        self._create = create
        self._read_only = read_only
        self._at_step = at_step
        self._driver_rows = driver_rows
        self._spark = spark
        cache = min(CACHE_BYTES, quarter_of_memory()) if cache_bytes is None else cache_bytes
        self._reader = FileReader(self._directory, cache)
        self._files = BatchFiles(self._reader, self._session, driver_rows)
        self._committed = Committed(self._directory, driver_rows)
        self._turns = Turns(
            self._forget,
            f"{self._directory.shown}: the store is closed; open it again with "
            "st.StoreParquet.from_graph(graph, path)",
            shown=self._directory.shown,
            give_way=self._committed.give_way,
        )
        self._registers: Served[Tiers[FileBatch]] = Served()
        self._outputs: tuple[Schema, ...] = ()
        self._added: dict[str, list[Added]] = {}
        self._next_kept: StateDescription | None = None  # of the circuit that the step evolves to
        self._reading = Reading(
            self._reader, self._committed, self._turns, self._session, driver_rows, self._limits
        )
        self._pins = self._reading.pins
        if registers is not None:
            self.open(registers)

    @classmethod
    def from_graph(
        cls,
        graph: AnyGraph,
        path: str | os.PathLike[str],
        *,
        create: bool = False,
        read_only: bool = False,
        at_step: int | None = None,
        driver_rows: int = DRIVER_BATCH_ROWS,
        cache_bytes: int | None = None,
        filesystem: pafs.FileSystem | None = None,
        spark: SparkSession | None = None,
        limits: Limits | None = None,
        evolve: bool = False,
    ) -> StoreParquet:
        """The store of a circuit: `from_graph(graph, "s3://bucket/state", create=True)`.

        See the class for the arguments. Raises `StoreUnavailable` if there is no store and `create`
        is false, `StoreMismatch` if the state belongs to another circuit, `StoreLocked` if another
        process writes it, `StoreCorrupt` if it is damaged.
        """
        return cls(
            path,
            registers_of(graph),
            create=create,
            read_only=read_only,
            at_step=at_step,
            driver_rows=driver_rows,
            cache_bytes=cache_bytes,
            filesystem=filesystem,
            spark=spark,
            limits=limits,
            evolve=evolve,
        )

    def __repr__(self) -> str:
        return f"StoreParquet({self._directory.shown!r})"

    def open(self, registers: Sequence[Register], outputs: Sequence[Schema] = ()) -> None:
        """Open these registers. Raises `StoreMismatch` with the registers that differ."""
        check_are_registers(registers, "st.StoreParquet.from_graph(graph, path)")
        self._turns.begin()
        self._committed.evolves = self.evolves
        try:
            if self._registers.is_open:
                self._committed.check(registers)
            elif self._read_only:
                self._committed.open_to_read(registers, at_step=self._at_step)
            else:
                self._committed.open_to_write(
                    registers,
                    create=self._create,
                    at_step=self._at_step,
                    make_way=lambda: self._turns.take_over(self._directory.identity),
                )
            names = self._committed.names
            self._registers.serve(names)
            if not self._registers.is_open:
                asked = [replace(r, name=names[r.name]) for r in registers if r.name in names]
                described = map(self._committed.kept.of, asked)
                registers_by_name = {r.name: r for r in (*self._committed.registers(), *described)}
                self._registers.open(self._tiers_of_each(registers_by_name.values()))
            self._outputs = tuple(outputs)
        except StoreLocked:
            self._turns.check_open()  # its error names the other store of this process
            raise
        finally:
            self._turns.end()

    def close(self) -> None:
        """Drop the current step and release the lock."""
        self._turns.close()
        if not self._turns.at_home:
            return  # a fork: the lock and the files belong to the parent
        self._wait_for_merging()
        self._files.close()
        self._reader.close()
        self._registers.close()
        self._committed.close()

    def last_outputs(self) -> tuple[Relation, ...] | None:
        """The output of the last committed step; None if it was not kept."""
        batches = self._reading.current()[0].outputs
        if batches is None or [kinds for kinds, _ in batches] != [s.kinds for s in self._outputs]:
            return None
        with self._reading.trying():
            return tuple(
                self._reading.output(batch, output_content(i, schema))
                for i, ((_, batch), schema) in enumerate(zip(batches, self._outputs, strict=True))
            )

    @contextmanager
    def snapshot(self) -> Iterator[Self]:
        """Within the block, this thread reads the last committed step as of the block's start.

        The writer keeps the files of that step during blocks of its own process. It does not see
        blocks in other processes: they can read their step while it is one of the last three.
        After that a read raises `StoreUnavailable`; it never returns rows of another step.
        """
        manifest, _ = self._reading.current()
        with (
            self._committed.holding(manifest),
            self._reading.pins.pin((manifest, manifest.registers)),
        ):
            yield self

    def last_circuit(self) -> str | None:
        """The text of the circuit that took the last committed step; None if it is unknown."""
        self._reading.current()
        return self._committed.kept.circuit

    def described(self) -> Described:
        """The registers of the state, as `Register.describe` gives them, by their names there."""
        return self._committed.kept.registers

    def read_kept(self, name: str) -> tuple[Relation, ...]:
        """All rows of a register, by its name in the state."""
        return self._reading.whole(self._registers.all[name].register, self._limits.local_rows)

    def evolve(self, registers: Sequence[Register], names: Mapping[str, str]) -> None:
        """In the current step, replace the registers of the state: see `EvolvingStore`."""
        description = self._committed.kept.evolved(registers, names)
        super().evolve([description.of(r) for r in registers], names)
        self._next_kept = description

    @property
    def cached_bytes(self) -> int:
        """The approximate memory of the cached parts of files."""
        return self._reader.cached_bytes

    @property
    def copied_bytes(self) -> int:
        """The bytes of large files that are mapped, on the disk of `TMPDIR`."""
        return self._reader.copied_bytes

    @property
    def bytes_written(self) -> int:
        """The size of the Parquet files written so far."""
        return self._files.bytes_written

    # -- a step

    def read(self, register: str, keys: Relation | None = None) -> tuple[Relation, ...]:
        """The committed value, as parts that add up to it; with `keys`, only the rows of those."""
        of = self._entry(register).register
        if keys is None:
            return self._reading.whole(of)
        if not of.key:
            raise no_key(of)
        return self._reading.at_keys(of, keys)

    def read_since(
        self, register: str, keys: Relation, since: Sequence[int]
    ) -> tuple[Relation, ...]:
        """The rows of keys from a position in the order on. Reads the same row groups as `read`."""
        of = self._entry(register).register
        return self._reading.since(of, keys, since)

    def read_beside(self, register: str, rows: Relation, buckets: int) -> tuple[Relation, ...]:
        """The rows in the same buckets as some rows."""
        of = self._entry(register).register
        return self._reading.at(of, wanted_buckets(checked_beside(of, rows), of, buckets))

    def serves_tasks(self, *, here: bool) -> bool:
        """Tasks reach the directory from any machine."""
        return True

    def for_tasks(self) -> spark_files.TaskFiles:
        """The state before the step, as tasks read it."""
        _, live = self._reading.current()
        served = {n: tiers.register for n, tiers in self._registers.by_name.items()}
        files = {
            n: [f for batch in live.get(of.name, ()) for f in batch.files]
            for n, of in served.items()
        }
        stems = {of.name: self._stem(of) for of in served.values()}
        return spark_files.TaskFiles(
            served,
            files,
            last=self._last(),
            directory=self._directory,
            stems=stems,
        )

    def add_written(self, register: str, added: Sequence[AddedRows]) -> None:
        """Add the rows of files that tasks have written, in the current step."""
        of = self._entry(register).register
        self._begin_step()
        self._end_merging()
        for batch in batches_of([cast(tuple[File, ...], x.written) for x in added]):
            addition = self._files.of_tasks(batch, of, self._stem(of))
            self._added.setdefault(of.name, []).append(addition)

    def add(self, register: str, change: Relation) -> None:
        """Add a change in the current step; a DataFrame is computed here, once.

        Another thread sorts many rows of the driver. `commit` raises the error if that fails.
        """
        of = self._entry(register).register
        self._begin_step()
        added = self._files.change(change, of, self._stem(of))
        self._added.setdefault(of.name, []).append(added)

    def _commit(
        self, last: LastStep, outputs: Sequence[Relation] | None, circuit: str | None
    ) -> None:
        now_to_text(last.now)  # checked first: an error here changes nothing
        self._end_merging()
        manifest, _ = self._reading.current()
        self._added = ended(self._added)
        self._turns.check_open()  # another thread may have closed it meanwhile
        with self._reading.trying(), reaching(self._directory.shown, f"commit step {last.step}"):
            self._committed.renew()
            if self._next is None:
                self._tend(self._reading.state[1], self._added)
            written, outputs_written = self._files.step(
                self._added, outputs, self._outputs, manifest.next_files
            )
            before = self._before_step(self._batches())
            description = self._committed.description_of(circuit, self._next_kept)
            self._write(
                replace(
                    manifest,
                    circuit=description.name,
                    fingerprint=fingerprint_of(description.registers),
                    last=last,
                    revision=0,
                    outputs=outputs_written,
                    registers={
                        n: before.get(n, ()) + written.get(n, ()) for n in description.registers
                    },
                )
            )
        self._committed.kept, self._next_kept = description, None
        self._finish_step(written)

    def compact(self) -> None:
        """Merge each register into one batch; readers see no difference."""
        self._begin_step()
        try:
            self._end_merging()
            manifest, live = self._reading.current()
            with self._reading.trying(), reaching(self._directory.shown, "merge its batches"):
                self._committed.renew()
                before = {name: live.get(name, ()) for name in self._registers.all}
                live = {n: t.compact(before[n]) for n, t in self._registers.all.items()}
                if live != before:
                    self._write(replace(next_revision(manifest), registers=live))
        finally:
            self._turns.end()

    # -- one step at a time

    def _forget(self) -> None:
        drop(self._added)
        self._added = {}
        self._next = self._next_kept = None
        if self._committed.in_doubt:
            self._files.leave()
        else:
            self._files.forget()

    def _last(self) -> LastStep:
        return self._reading.current()[0].last

    def _batches(self) -> Mapping[str, tuple[FileBatch, ...]]:
        return self._reading.current()[1]

    # -- files

    def _session(self) -> SparkSession:
        if self._spark is None:
            self._spark = get_session()
        return self._spark

    def _stem(self, register: Register) -> str:
        """The beginning of the names of a register's files, in the step under way."""
        description = self._next_kept or self._committed.kept
        return f"{description.numbers[register.name]:04d}-{self._reading.state[0].next_files}"

    def _merge(self, register: Register, run: Sequence[FileBatch]) -> Work[FileBatch]:
        return self._files.merge(register, run, self._stem(register))

    def _end_merging(self) -> None:
        if self._merging is not None:
            with self._reading.trying(), reaching(self._directory.shown, "merge its batches"):
                super()._end_merging()

    def _replace(self, name: str, new: tuple[FileBatch, ...]) -> None:
        manifest, live = self._reading.state
        self._reading.state = manifest, {**live, name: new}

    def _write(self, manifest: Manifest) -> None:
        self._committed.commit(manifest, self._files.unsynced)
        self._files.keep()
