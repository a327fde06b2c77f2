"""Reads the committed state: the batches of a register, as they are at that moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

from stepping_spark.errors import StoreLocked
from stepping_spark.limits import Limits
from stepping_spark.packages import SparkSession
from stepping_spark.relations.codec import conform
from stepping_spark.relations.hashes import Hashes
from stepping_spark.spark.placement import ALWAYS_SEARCHED, resources
from stepping_spark.spark.relation import DriverRelation, Relation, SparkRelation
from stepping_spark.store import Register
from stores.batches.driver import wanted_places, wanted_since
from stores.parquet import spark_files
from stores.parquet.checks import GROUP_ROWS, Content, Damaged
from stores.parquet.commits import Committed
from stores.parquet.files import FileReader, Group, Pick, content_of
from stores.parquet.filesystem import reaching
from stores.parquet.manifest import File, FileBatch, Manifest
from stores.pool import side_by_side
from stores.registers import checked_since
from stores.snapshots import Pins
from stores.steps import Turns

T = TypeVar("T")
Batches = tuple[FileBatch, ...]

_TRIES = 5


class Reading:
    """What is committed, and the rows of it: small batches by the driver, large ones by Spark.

    `state` is the manifest of the last step, and the batches of each register, some of them merged
    since; a thread within a snapshot reads the one that is pinned.
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
        self.state: tuple[Manifest, Mapping[str, Batches]] = (Manifest(0), {})
        self.pins: Pins[tuple[Manifest, Mapping[str, Batches]]] = Pins()
        self._reader = reader
        self._directory = reader.directory
        self._committed = committed
        self._turns = turns
        self._session = session
        self._driver_rows = driver_rows
        self._limits = limits

    def current(self) -> tuple[Manifest, Mapping[str, Batches]]:
        """The last step, or the one that this thread has pinned, and the batches of registers."""
        self._turns.check_open()
        pinned = self.pins.pinned
        if pinned is not None:
            return pinned
        manifest = self._committed.newest()
        if manifest is not self.state[0]:
            self.state = manifest, manifest.registers
            self._reader.keep_only({f.name for _, f in manifest.files()})
        return self.state

    def batches_of(self, register: Register) -> Batches:
        """The batches of a register."""
        return self.current()[1].get(register.name, ())

    def whole(self, register: Register, most: int = 0) -> tuple[Relation, ...]:
        """All rows of a register, in parts that add up to it.

        The driver reads batches of up to `most` rows, if that is more than it reads otherwise.
        """
        most = max(most, self._driver_rows)
        return self._retried(register, lambda batches: self._whole(register, batches, most))

    def at_keys(self, register: Register, keys: Relation) -> tuple[Relation, ...]:
        """The rows of a register that have one of the keys; further rows, for too many keys."""
        wanted = keys.table
        if keys.frame is not None:
            most = self._limits.looked_up_keys
            wanted = keys.frame.limit(most + 1).toArrow()
            if wanted.num_rows > most:
                return self.whole(register)
        assert wanted is not None
        if not wanted.num_rows:
            return ()
        places = wanted_places(conform(wanted, register.keys), register)
        return self._found(register, places, lambda group: group.at(places))

    def since(
        self, register: Register, keys: Relation, since: Sequence[int]
    ) -> tuple[Relation, ...]:
        """The rows of a register that have one of the keys, from a place in the order on."""
        order, wanted = checked_since(register, keys)
        places, numbers = wanted_since(wanted, since, register)
        return self._found(register, places, lambda group: group.since(places, numbers, order))

    def _found(self, register: Register, places: Hashes, pick: Pick) -> tuple[Relation, ...]:
        """What is picked of the row groups that may have rows with these keys.

        If these are too many row groups, Spark reads the files of large batches. The reader of the
        rows joins them with the keys.
        """

        def at(batches: Batches) -> tuple[Relation, ...]:
            groups = [g for b in batches for g in self._reader.wanted(b, places)]
            here, there = groups, list[Group]()
            if self._are_for_spark(groups):
                large = {f for b in batches if b.rows > self._driver_rows for f in b.files}
                here = [g for g in groups if g[0] not in large]
                there = [g for g in groups if g[0] in large]
            found = self._reader.at(here, pick, register, self._limits.given_rows)
            if found is None:
                return (self._in_spark(register, groups),)
            parts = tuple(DriverRelation(t, register.schema) for t in found)
            return (*parts, self._in_spark(register, there)) if there else parts

        return self._retried(register, at)

    def _are_for_spark(self, groups: Sequence[Group]) -> bool:
        """Whether Spark finds keys in row groups sooner than the driver, which has some of them."""
        if len(groups) * GROUP_ROWS <= min(ALWAYS_SEARCHED, self._limits.searched_rows):
            return False
        rows = self._reader.missing(groups) * GROUP_ROWS
        if rows > self._limits.searched_rows:
            return True
        return rows > ALWAYS_SEARCHED and not resources(self._limits).searched(rows).on_driver

    def output(self, batch: FileBatch, content: Content) -> Relation:
        """The output of a step."""
        if batch.rows <= self._driver_rows:
            return DriverRelation(self._reader.plain(batch, content), content.schema)
        return self._read_by_spark(batch.files, content)

    def _retried(self, register: Register, read: Callable[[Batches], T]) -> T:
        """What is read of a register's batches; again if they were merged away meanwhile."""
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
            self._turns.check_open()  # another store of this process says where it was opened
            raise

    def _whole(self, register: Register, batches: Batches, most: int) -> tuple[Relation, ...]:
        small = [b for b in batches if b.rows <= most]
        large = [b for b in batches if b.rows > most]
        parts: list[Relation] = [
            DriverRelation(self._reader.table(b, register), register.schema) for b in small
        ]
        if large:
            files = [f for b in large for f in b.files]
            parts.append(self._read_by_spark(files, content_of(register)))
        return tuple(parts)

    def _in_spark(self, register: Register, groups: Sequence[Group]) -> SparkRelation:
        """The files that have these row groups: few keys of many rows are not the driver's."""
        files = list(dict.fromkeys(f for f, _ in groups))
        return self._read_by_spark(files, content_of(register))

    def _read_by_spark(self, files: Sequence[File], content: Content) -> SparkRelation:
        """Files as a DataFrame; of what is in them, the footers are compared before."""
        side_by_side(lambda f: self._reader.check(f, content), files)
        frame = spark_files.read(files, content.schema, self._directory, self._session())
        return SparkRelation(frame, content.schema)
