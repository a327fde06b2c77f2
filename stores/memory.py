"""The memory store: state that lives as long as its process, on the driver and in Spark's cache."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Self

from stepping_spark.base.limits import Limits, checked_limits
from stepping_spark.base.packages import SparkSession
from stepping_spark.circuit.graph import AnyGraph
from stepping_spark.plan.difference import Described, described, names_in
from stepping_spark.plan.planner import registers_of
from stepping_spark.relations.codec import conform
from stepping_spark.relations.placement import LOOKED_UP_KEYS, ROWS_PER_KEY, is_sent_whole
from stepping_spark.relations.relation import (
    KEPT_BYTES,
    DriverRelation,
    Relation,
    SparkRelation,
    plus,
)
from stepping_spark.relations.store import AddedRows, Register
from stepping_spark.rows.schema import Schema
from stepping_spark.spark.session import get_session, quarter_of_memory
from stores.base import LastStep, Served, check_are_registers, checked_beside, checked_since, no_key
from stores.batches.compaction import AtOnce, BatchStore, Merge, Tiers, Work
from stores.batches.driver import (
    Building,
    DriverBatch,
    Ranges,
    ordered,
    wanted_buckets,
    wanted_places,
    wanted_since,
)
from stores.batches.mapped import MappedBatch, MappedFiles, MappedState
from stores.batches.spark import SparkBatch, cached, settle
from stores.step_lock import Pins, Turns

HeldBatch = DriverBatch | SparkBatch
HeldBatches = tuple[HeldBatch, ...]


@dataclass(frozen=True)
class MemoryState:
    """The committed state, and the step that committed it."""

    last: LastStep = field(default_factory=LastStep)
    batches: Mapping[str, HeldBatches] = field(default_factory=dict)
    outputs: tuple[Relation, ...] | None = None
    schemas: tuple[Schema, ...] = ()  # of the outputs
    circuit: str | None = None


def rows_of_batch(batch: HeldBatch, register: Register) -> Relation:
    """All rows of a batch."""
    if isinstance(batch, SparkBatch):
        return batch.relation
    return DriverRelation(batch.table, register.schema, consolidated=True)


def release(batches: Sequence[HeldBatch]) -> None:
    """Free the batches in Spark's cache."""
    for b in batches:
        if isinstance(b, SparkBatch):
            b.release()


def at_since(
    of: Register, batches: HeldBatches, keys: Relation, since: Sequence[int], limits: Limits
) -> tuple[Relation, ...]:
    """The rows of keys from a position in the order on; from Spark, all rows of the keys."""
    order, table = checked_since(of, keys)
    places, numbers = wanted_since(table, since, of)
    relations: list[Relation] = []
    for b in batches:
        if isinstance(b, SparkBatch):
            relations.append(b.at(DriverRelation(table, of.keys), limits))
        elif (rows := b.since(places, numbers, order)) is not None:
            relations.append(DriverRelation(rows, of.schema, consolidated=True))
    return tuple(relations)


_CLOSED = (
    "the store is closed, and what it kept is gone; make a new one with "
    "st.StoreMemory.from_graph(graph)"
)


class StoreMemory(BatchStore[HeldBatch, MemoryState]):
    """Stores registers in memory, until it is closed or the process ends.

    The driver holds them as Arrow tables, up to `driver_bytes`: by default a quarter of the
    machine's memory. A lookup of a few keys in millions of rows takes well under a millisecond. The
    rest, and changes that arrive as large DataFrames, are cached in Spark, partitioned by key.
    `spark` is the session for that: by default the active one, or a local one that is started when
    needed. If its tasks take a step, and run on this machine, the state is in files of a temporary
    directory, which are mapped into memory. `limits` bounds the reads: see `st.Limits`.

    State is stored in batches that merge by size (`stores.batches.compaction`). While large batches
    merge, the result takes additional memory. `rows_written` counts the cost of merges.

    Any thread may read committed state at any time. A step belongs to the thread that adds first:
    until it commits or aborts, other threads that add or commit get `StoreLocked`.

    >>> def query(a: st.ZSet[str]) -> st.ZSet[str]:
    ...     return st.distinct(a)
    >>> graph = st.compile(query)
    >>> store = st.StoreMemory.from_graph(graph)
    >>> _ = st.iteration(store, graph, (st.ZSetPython({"a": 2}),))
    >>> store.last_step()
    1
    """

    def __init__(
        self,
        registers: Sequence[Register] | None = None,
        *,
        driver_bytes: int | None = None,
        spark: SparkSession | None = None,
        limits: Limits | None = None,
    ) -> None:
        self._limits = checked_limits(limits)
        self._budget = quarter_of_memory() if driver_bytes is None else driver_bytes
        self._spark = spark
        self._turns = Turns(self._forget, _CLOSED, shown="st.StoreMemory")
        self._registers: Served[Tiers[HeldBatch]] = Served()
        self._outputs: tuple[Schema, ...] = ()
        self._state = MemoryState()
        self._added: dict[str, HeldBatches] = {}
        self._building: list[tuple[str, Building]] = []
        self._pins: Pins[MemoryState] = Pins()
        self._files = MappedFiles()
        if registers is not None:
            self.open(registers)

    @classmethod
    def from_graph(
        cls,
        graph: AnyGraph,
        *,
        driver_bytes: int | None = None,
        spark: SparkSession | None = None,
        limits: Limits | None = None,
    ) -> StoreMemory:
        """An empty store for a circuit."""
        return cls(registers_of(graph), driver_bytes=driver_bytes, spark=spark, limits=limits)

    def open(self, registers: Sequence[Register], outputs: Sequence[Schema] = ()) -> None:
        """Open these registers. Raises `StoreMismatch` with the registers that differ."""
        check_are_registers(registers, "st.StoreMemory.from_graph(graph)")
        self._turns.begin()
        try:
            if not self._registers.is_open:
                self._registers.open(self._tiers_of_each(registers))
            self._registers.serve(names_in(self.described(), registers, evolves=self.evolves))
            self._outputs = tuple(outputs)
        finally:
            self._turns.end()

    def close(self) -> None:
        """Discard the state, and the current step."""
        self._turns.close()
        if not self._turns.at_home:
            return  # a fork: Spark's cache belongs to the parent
        self._wait_for_merging()
        self._files.close()
        dropped, self._state = self._state, MemoryState()
        self._registers.close()
        for batches in dropped.batches.values():
            release(batches)

    def last_outputs(self) -> tuple[Relation, ...] | None:
        """The output of the last committed step; None if it was not kept."""
        state = self._open_state()
        return state.outputs if state.schemas == self._outputs else None

    @contextmanager
    def snapshot(self) -> Iterator[Self]:
        """Within the block, this thread reads the last committed step as of the block's start.

        The store keeps that step until the block ends, while other threads take further steps.

        >>> def query(a: st.ZSet[str]) -> st.ZSet[str]:
        ...     return st.distinct(a)
        >>> graph = st.compile(query)
        >>> store = st.StoreMemory.from_graph(graph)
        >>> with store.snapshot():
        ...     store.last_step()
        0
        """
        with self._pins.pin(self._open_state()):
            yield self

    def last_circuit(self) -> str | None:
        """The text of the circuit that took the last committed step; None if it is unknown."""
        return self._open_state().circuit

    def described(self) -> Described:
        """The registers of the state, as `Register.describe` gives them, by their names there."""
        return described([tiers.register for tiers in self._registers.all.values()])

    def read_kept(self, name: str) -> tuple[Relation, ...]:
        """All rows of a register, by its name in the state."""
        of = self._registers.all[name].register
        return tuple(rows_of_batch(b, of) for b in self._open_state().batches.get(name, ()))

    @property
    def driver_bytes(self) -> int:
        """The memory that committed state takes on the driver."""
        return _driver_bytes(self._state.batches.values())

    # -- a step

    def read(self, register: str, keys: Relation | None = None) -> tuple[Relation, ...]:
        """The committed value, as parts that add up to it; with `keys`, only the rows of those."""
        of = self._entry(register).register
        batches = self._open_state().batches.get(of.name, ())
        if keys is None:
            return tuple([rows_of_batch(b, of) for b in batches])
        if not of.key:
            raise no_key(of)
        if keys.frame is not None and batches:
            return _at_keys_in_spark(of, batches, keys, self._limits)
        return _at_keys(of, batches, keys, self._limits) if batches else ()

    def read_since(
        self, register: str, keys: Relation, since: Sequence[int]
    ) -> tuple[Relation, ...]:
        """The rows of keys from a position in the order on; from Spark, all rows of the keys."""
        of = self._entry(register).register
        return at_since(of, self._open_state().batches.get(of.name, ()), keys, since, self._limits)

    def read_beside(self, register: str, rows: Relation, buckets: int) -> tuple[Relation, ...]:
        """The rows in the same buckets as some rows; from Spark, all rows of their keys."""
        of = self._entry(register).register
        table = checked_beside(of, rows)
        batches = self._open_state().batches.get(of.name, ())
        keys = DriverRelation(table.select(list(of.key)), of.keys).distinct(nulls=True)
        places = wanted_buckets(table, of, buckets)
        return _at_keys(of, batches, keys, self._limits, places)

    def serves_tasks(self, *, here: bool) -> bool:
        """Whether tasks run here, and Spark's cache has no batch that the driver does not fetch."""
        every = [b for name in self._registers.all for b in self._state.batches.get(name, ())]
        return here and not any(isinstance(b, SparkBatch) and b.nbytes > KEPT_BYTES for b in every)

    def for_tasks(self) -> MappedState:
        """The state for tasks on this machine; moves other batches to files first."""
        self._begin_step()
        self._end_merging()
        folder, batches = self._files.folder, self._state.batches
        before = {name: batches.get(name, ()) for name in self._registers.all}
        for name, in_files in self._in_files(before).items():
            self._replace(name, in_files)
        served = {n: tiers.register for n, tiers in self._registers.by_name.items()}
        files = {
            n: [p for b in self._batches_of(of) if isinstance(b, MappedBatch) for p in b.paths]
            for n, of in served.items()
        }
        return MappedState(served, files, last=self._last(), folder=folder)

    def add_written(self, register: str, added: Sequence[AddedRows]) -> None:
        """Add the rows of files that tasks have written, in the current step."""
        of = self._entry(register).register
        self._begin_step()
        self._end_merging()
        placed = self._files.batches([str(x.written) for x in added])
        self._added[of.name] = self._added.get(of.name, ()) + placed

    def add(self, register: str, change: Relation) -> None:
        """Add a change in the current step; a DataFrame is computed here, once.

        Another thread sorts many rows of the driver. If that fails, `commit` raises the error, or
        the next addition of a DataFrame.
        """
        of = self._entry(register).register
        self._begin_step()
        if isinstance(change, SparkRelation):
            self._end_building()
            placed = self._placed(settle(change, of), of, self._bytes_left())
            self._added[of.name] = self._added.get(of.name, ()) + placed
        else:
            self._building.append((of.name, Building(change.fetched(), of)))

    def _commit(
        self, last: LastStep, outputs: Sequence[Relation] | None, circuit: str | None
    ) -> None:
        # Before the commit: a failure here changes nothing for readers.
        self._end_merging()
        self._end_building()
        self._tend(self._state.batches, self._added)
        self._spill()
        added, self._added = self._added, {}
        before, old = self._state.batches, self._before_step(self._state.batches)
        new = {n: old.get(n, ()) + batches for n, batches in added.items()}
        self._state = MemoryState(
            last,
            {**old, **new},
            None if outputs is None else tuple(outputs),
            self._outputs,
            self._state.circuit if circuit is None else circuit,
        )
        if self._next is not None:
            stay = {id(b) for batches in self._state.batches.values() for b in batches}
            release([b for bs in before.values() for b in bs if id(b) not in stay])
        self._finish_step(added)

    def compact(self) -> None:
        """Merge each register into one batch. Readers see no difference."""
        self._begin_step()
        try:
            self._end_merging()
            for tiers in self._registers.all.values():
                batches = self._state.batches.get(tiers.register.name, ())
                self._replace(tiers.register.name, tiers.compact(batches))
        finally:
            self._turns.end()

    # -- one step at a time

    def _end_building(self) -> None:
        """Wait for the batches that are being built. Raises the error of one that failed."""
        built = [(name, building.batch) for name, building in self._building]
        self._turns.check_open()  # another thread may have closed it meanwhile
        self._building = []
        for name, batch in built:
            if batch.rows:
                self._added[name] = (*self._added.get(name, ()), batch)

    def _forget(self) -> None:
        for _, building in self._building:
            building.drop()
        dropped, self._added, self._building = self._added, {}, []
        self._next = None
        for batches in dropped.values():
            release(batches)

    # -- batches on the driver and in Spark

    def _open_state(self) -> MemoryState:
        self._turns.check_open()
        return (self._pins.pinned if self._pins.held else None) or self._state

    def _last(self) -> LastStep:
        return self._open_state().last

    def _batches(self) -> Mapping[str, HeldBatches]:
        return self._open_state().batches

    def _tend_all(self, batches: Mapping[str, HeldBatches], rows: int) -> dict[str, HeldBatches]:
        merged = super()._tend_all(batches, rows)
        return self._in_files(merged)

    def _in_files(self, batches: Mapping[str, HeldBatches]) -> dict[str, HeldBatches]:
        """The batches, all of them in files that tasks read."""
        every = [(b, n) for n, some in batches.items() for b in some]
        on_driver = [b for b, _ in every if type(b) is DriverBatch]  # and not mapped
        moved: dict[HeldBatch, HeldBatch] = {}
        moved.update(zip(on_driver, self._files.moved(on_driver), strict=True))
        for b, name in every:
            if isinstance(b, SparkBatch):
                of = self._registers.all[name].register
                (moved[b],) = self._files.moved([ordered(b.relation.fetched().table, of)])
        for name in batches:
            self._registers.all[name].exchange(moved)
        return {n: tuple(moved.get(b, b) for b in some) for n, some in batches.items()}

    def _replace(self, name: str, new: HeldBatches) -> None:
        """Replace the batches of a register by equivalent ones."""
        old = self._state.batches.get(name, ())
        if new != old:
            batches = {**self._state.batches, name: new}
            self._state = replace(self._state, batches=batches)
            release([b for b in old if b not in new])

    def _bytes_left(self) -> int:
        """The bytes that the driver may still hold."""
        return self._budget - self.driver_bytes - _driver_bytes(self._added.values())

    def _spill(self) -> None:
        """Move the largest batches to Spark, until the rest is within the budget."""
        while self._bytes_left() < 0:
            on_driver = [
                (batch.nbytes, name, batch)
                for name, batches in self._state.batches.items()
                for batch in batches
                if type(batch) is DriverBatch  # and not mapped
            ]
            if not on_driver:
                return
            _, name, largest = max(on_driver, key=lambda entry: entry[0])
            tiers = self._registers.all[name]
            moved: HeldBatch
            if self._files.are_there:  # tasks read them
                (moved,) = self._files.moved([largest])
            else:
                settled = settle(self._in_spark(largest, tiers.register), tiers.register)
                moved = cached(settled, tiers.register)
            batches = self._state.batches[name]
            self._replace(name, tuple(moved if b is largest else b for b in batches))

    def _in_spark(self, batch: HeldBatch, register: Register) -> SparkRelation:
        return rows_of_batch(batch, register).in_spark(self._session)

    def _session(self) -> SparkSession:
        if self._spark is None:
            self._spark = get_session()
        return self._spark

    def _merge(self, register: Register, run: Sequence[HeldBatch]) -> Work[HeldBatch]:
        on_driver = [b for b in run if isinstance(b, DriverBatch)]
        if len(on_driver) == len(run):
            return Merge(on_driver, register)
        return AtOnce(lambda: self._merged_in_spark(register, run))

    def _merged_in_spark(self, register: Register, run: Sequence[HeldBatch]) -> HeldBatches:
        both = plus([self._in_spark(b, register) for b in run], register.schema)
        merged = settle(both.in_spark(self._session), register)
        # Half of the rest, so that a batch does not move back and forth at each merge.
        return self._placed(merged, register, self._bytes_left() // 2)

    def _placed(self, settled: SparkRelation, register: Register, left: int) -> HeldBatches:
        """A batch of settled rows: on the driver, if there is room for it."""
        if not settled.rows:
            return ()
        nbytes = settled.nbytes or 0
        if register.schema.columns and nbytes > min(left, KEPT_BYTES):
            return (cached(settled, register),)
        return (ordered(settled.fetched().table, register),)


def _at_keys_in_spark(
    of: Register, batches: HeldBatches, keys: Relation, limits: Limits
) -> tuple[Relation, ...]:
    """The rows of batches that have one of the keys of a DataFrame; maybe other rows too."""
    assert keys.frame is not None
    here = [b for b in batches if isinstance(b, DriverBatch)]
    rows, nbytes = sum(b.rows for b in here), _driver_bytes([batches])
    most = max(LOOKED_UP_KEYS, rows // ROWS_PER_KEY)
    sent = len(here) == len(batches) and is_sent_whole(rows, nbytes, limits)
    fetched = None if sent else keys.frame.limit(most + 1).toArrow()
    if fetched is None or fetched.num_rows > most:
        # The reader's join selects among the rows of the driver.
        return tuple(
            b.at(keys, limits) if isinstance(b, SparkBatch) else rows_of_batch(b, of)
            for b in batches
        )
    return _at_keys(of, batches, DriverRelation(fetched, of.keys), limits)


def _at_keys(
    of: Register,
    batches: HeldBatches,
    keys: Relation,
    limits: Limits,
    places: Ranges | None = None,
) -> tuple[Relation, ...]:
    """The rows of batches that have one of the keys; on the driver, only those at some places."""
    assert keys.table is not None
    table = conform(keys.table, of.keys)
    if not table.num_rows:
        return ()
    wanted = wanted_places(table, of) if places is None else places
    relations: list[Relation] = []
    for b in batches:
        if isinstance(b, SparkBatch):
            relations.append(b.at(DriverRelation(table, of.keys), limits))
        elif (rows := b.at(wanted)) is not None:
            relations.append(DriverRelation(rows, of.schema, consolidated=True))
    return tuple(relations)


def _driver_bytes(registers: Iterable[HeldBatches]) -> int:
    """The memory of the batches of registers on the driver; others are mapped files, or Spark's."""
    return sum([b.nbytes for batches in registers for b in batches if type(b) is DriverBatch])
