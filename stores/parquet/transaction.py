"""The committed state of a directory, the right to commit, and the removal of unnamed files.

The sweeper removes only files of the state, recognized by their names, which were written by its
own generation or by older ones: no later writer can name them.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

from stepping_spark.base.errors import (
    StoreCorrupt,
    StoreError,
    StoreLocked,
    StoreMismatch,
    StoreUnavailable,
)
from stepping_spark.plan.difference import Described, described, names_in
from stepping_spark.relations.store import Register, fingerprint_of
from stores.base import read_registers
from stores.parquet.description import (
    CIRCUITS,
    StateDescription,
    check_any,
    check_belongs,
    check_fingerprint,
    check_no_others,
    first_registers,
    kept_at,
    read_or_next,
)
from stores.parquet.directories import TEMPORARY, Directory, reaching
from stores.parquet.fencing import CLAIMS, LET_GO, Claim, Lock, lock, locked, who
from stores.parquet.manifest import (
    CIRCUIT_NAME,
    DATA,
    DATA_NAME,
    FOLDER,
    REGISTERS,
    Doubt,
    FileOrder,
    Log,
    Manifest,
    name_of,
)
from stores.threads import later

KEPT = 3
"""The number of newest manifests, and of newest steps, that are kept and can be opened again."""

GRACE = 600.0
"""Seconds for which a large file stays after it was merged away: a DataFrame may still read it."""

_log = logging.getLogger("stepping_spark")

_HALF_MADE = re.compile(rf"{FOLDER}/{TEMPORARY}(?:(\d{{8}})-\d{{12}}-\d{{4}}\.json-)?\w+", re.ASCII)


class Sweeper:
    """Removes files that no kept manifest names.

    Files that it fails to remove stay until the state is opened again; a warning says it once.
    """

    def __init__(self, directory: Directory, log: Log, large_rows: int) -> None:
        self._directory = directory
        self._log = log
        self._large_rows = large_rows
        self._kept: list[tuple[FileOrder, frozenset[str], frozenset[str]]] = []
        self._pinned = Counter[FileOrder]()  # the number of snapshots of this process
        self._leaving: dict[str, float] = {}  # large files, and the times of their removal
        self._removing: Future[None] | None = None
        self._has_warned = False

    def sweep(self, newest: Manifest, older: Sequence[FileOrder]) -> None:
        """Remove all files that are older than the kept manifests, or half-made.

        Call this only after this writer has written the newest manifest: before that, an older
        writer might still commit its half-made files.
        """
        with self._warning():
            self._kept.clear()
            orders = to_keep([*older, newest.order])
            for order in sorted(orders - {newest.order}):
                manifest = self._log.read_or_none(order)
                if manifest is not None:
                    self._keep(manifest)
            self._keep(newest)
            files = self._directory.sizes(DATA).keys() | self._directory.sizes(CIRCUITS).keys()
            half_made = self._directory.sizes(FOLDER).keys()
            mine = newest.generation
            self._remove([n for n in files - self._named() if is_of_state(n, mine)])
            self._remove(
                [name_of(o) for o in self._log.orders() if o[0] < mine and o not in orders]
            )
            self._remove([n for n in half_made if is_half_made(n, mine)])

    def committed(self, manifest: Manifest) -> None:
        """Keep a new manifest, and remove the files that the kept manifests no longer name."""
        self._keep(manifest)
        now = time.monotonic()
        gone = [name for name, until in self._leaving.items() if until < now]
        dropped: list[FileOrder] = []
        orders = to_keep([order for order, _, _ in self._kept])
        pinned = min((order for order, n in self._pinned.items() if n), default=None)
        if pinned is not None:  # and all later ones
            orders |= {order for order, _, _ in self._kept if order >= pinned}
        left = [entry for entry in self._kept if entry[0] not in orders]
        self._kept = [entry for entry in self._kept if entry[0] in orders]
        named = self._named()
        for order, small, large in left:
            dropped.append(order)
            gone += small - named
            self._leaving |= dict.fromkeys(large - named, now + GRACE)
        for name in gone:
            self._leaving.pop(name, None)
        self.wait()
        self._removing = later(partial(self._remove, [*map(name_of, dropped), *gone]))

    @contextmanager
    def keeping(self, order: FileOrder) -> Iterator[None]:
        """Keep a manifest and all later ones during the block."""
        self._pinned[order] += 1
        try:
            yield
        finally:
            self._pinned[order] -= 1

    def wait(self) -> None:
        """Wait for the removal of files in another thread."""
        if self._removing is not None:
            wait([self._removing])

    def _remove(self, names: list[str]) -> None:
        with self._warning():
            self._directory.remove(names)

    @contextmanager
    def _warning(self) -> Iterator[None]:
        try:
            yield
        except OSError as e:
            if not self._has_warned:
                self._has_warned = True
                _log.warning(
                    "%s: old files could not be removed, and stay until the state is opened again; "
                    "this process needs the right to list and remove files there: %s",
                    self._directory.shown,
                    str(e),
                )

    def _keep(self, manifest: Manifest) -> None:
        batches = [b for bs in manifest.registers.values() for b in bs]
        batches += [b for _, b in manifest.outputs or ()]
        large = frozenset(n for b in batches if b.rows > self._large_rows for n in b.names)
        small = frozenset(n for b in batches for n in b.names) - large
        if manifest.circuit is not None:
            small |= {manifest.circuit}
        self._kept.append((manifest.order, small, large))

    def _named(self) -> frozenset[str]:
        return frozenset().union(*(names for _, *both in self._kept for names in both))


def to_keep(orders: Sequence[FileOrder]) -> set[FileOrder]:
    """The manifests to keep: the newest manifests, and the last one of each of the newest steps."""
    of_steps = {step: (generation, step, n) for generation, step, n in sorted(orders)}
    steps = list(dict.fromkeys(step for _, step, _ in sorted(orders, reverse=True)))
    return {*sorted(orders)[-KEPT:], *(of_steps[step] for step in steps[:KEPT])}


def is_of_state(name: str, generation: int) -> bool:
    """Whether a file has rows or a circuit, and was written in this generation or an older one."""
    match = DATA_NAME.fullmatch(name) or CIRCUIT_NAME.fullmatch(name)
    return match is not None and int(match[1] or 0) <= generation


def is_half_made(name: str, generation: int) -> bool:
    """Whether a file is an unfinished manifest of this generation or an older one."""
    match = _HALF_MADE.fullmatch(name)
    return match is not None and int(match[1] or 0) <= generation


_TRIES = 5


class TooFast(StoreUnavailable):
    """The error if each manifest that was listed was removed before it could be read."""


class Committed:
    """The newest manifest of a directory; while it is open for writing, its lock too."""

    def __init__(self, directory: Directory, large_rows: int) -> None:
        self._directory = directory
        self._log = Log(directory)
        self._sweeper = Sweeper(directory, self._log, large_rows)
        self._lock: Lock | None = None
        self._claim: Claim | None = None
        self._gave_way = False
        self._follow = False
        self._manifest = Manifest(0)
        self._doubt: Manifest | None = None
        self.kept = StateDescription.first({})
        self.names: Mapping[str, str] = {}
        self.evolves = False
        """Whether the registers of a circuit may differ from those of the state."""

    # -- opening

    def open_to_write(
        self,
        registers: Sequence[Register],
        *,
        create: bool,
        at_step: int | None,
        make_way: Callable[[], None],
    ) -> None:
        """Take the lock, and find the newest step, or step `at_step`; create missing folders.

        `make_way` is called after all checks, directly before the lock is taken.
        """
        if not create:
            self._described()
        with reaching(self._directory.shown, "open it for writing"):
            if create:
                check_no_others(self._directory)
            self._directory.make((DATA, FOLDER, CLAIMS, CIRCUITS))
            self._check_fits(registers, at_step)
            make_way()
            self._lock = lock(self._directory)
            try:
                if self._gave_way:  # meanwhile, to another store of this process
                    raise locked(self._directory, b"", LET_GO)
                self._begin_or_yield(registers, at_step)
            except BaseException:
                self.close()
                raise

    def open_to_read(self, registers: Sequence[Register], *, at_step: int | None) -> None:
        """Find the newest step, and follow later ones; with `at_step`, stay at that step."""
        self._described()
        with reaching(self._directory.shown, "open it for reading"):
            self._manifest = self._base(at_step)
        self._know(kept_at(self._directory, self._manifest), registers, self._manifest)
        check_belongs(self.kept, self._manifest, self._directory)
        self._follow = at_step is None

    def _check_fits(self, registers: Sequence[Register], at_step: int | None) -> None:
        """Raise the errors of opening, before another store gives way."""
        first = first_registers(self._directory)
        if first is None:
            return
        orders = self._log.orders()
        if at_step is None and not orders:
            self._know(StateDescription.first(first), registers, None)
            return
        try:
            base = self._base(at_step)
            self._know(kept_at(self._directory, base), registers, base)
            check_belongs(self.kept, base, self._directory)
        except TooFast:
            pass  # searched again once this writer has a claim

    def _base(self, at_step: int | None) -> Manifest:
        """The newest manifest, or the one of a step; retried if a writer has gone on meanwhile."""
        for _ in range(_TRIES):
            orders = self._log.orders()
            try:
                return self._chosen(orders, at_step)
            except (FileNotFoundError, StoreCorrupt):
                if self._is_last(orders):
                    raise
        raise TooFast(
            f"{self._directory.shown}: others go on writing while it is opened, and remove what "
            "was just found; try again"
        )

    def _is_last(self, orders: Sequence[FileOrder]) -> bool:
        """Whether the last of these listed manifests is still the last one in the directory."""
        return self._log.orders()[-1:] == orders[-1:]

    def check(self, registers: Sequence[Register]) -> None:
        """Raise `StoreMismatch` if the state has other registers."""
        self._know(self.kept, registers, self._manifest)

    def close(self) -> None:
        """Let another writer in."""
        self._sweeper.wait()
        self.give_way()
        self._lock = self._claim = self._doubt = None

    def give_way(self) -> None:
        """Let another writer in, and stop writing. Any thread may call it at any time."""
        self._gave_way = True
        lock_held = self._lock
        if lock_held is not None:
            with reaching(self._directory.shown, "release its lock"):
                lock_held.release()

    def _described(self) -> Described:
        """The original registers of the state. Raises `StoreUnavailable` if there is no state."""
        description = first_registers(self._directory)
        if description is None:
            raise StoreUnavailable(
                f"{self._directory.shown}: there is no store; make it with create=True, or check "
                "the path"
            )
        return description

    def _know(
        self,
        description: StateDescription,
        registers: Sequence[Register],
        manifest: Manifest | None,
    ) -> None:
        """Find the registers of a circuit in the description of the state at a step."""
        try:
            self.names = names_in(description.registers, registers, evolves=self.evolves)
        except StoreMismatch:
            # The circuit may be the same: somebody may have edited the description of registers.
            if manifest is not None:
                check_fingerprint(description, manifest, self._directory)
            raise
        self.kept = description

    def _begin_or_yield(self, registers: Sequence[Register], at_step: int | None) -> None:
        try:
            self._begin(registers, at_step)
        except (OSError, StoreCorrupt):
            if self._claim is not None:
                self._check_claim()  # a later writer may have removed the missing file
            raise

    def _begin(self, registers: Sequence[Register], at_step: int | None) -> None:
        if first_registers(self._directory) is None:
            text = json.dumps(described(registers), indent=1)
            self._directory.create(REGISTERS, text.encode())
        first = StateDescription.first(self._described())
        for _ in range(_TRIES):
            self._claim = claim = Claim(self._directory, who())
            orders = claim.known_orders()
            if orders or self._directory.sizes(DATA):
                base = self._chosen(orders, at_step)
                self._know(kept_at(self._directory, base), registers, base)
                check_belongs(self.kept, base, self._directory)
            else:
                self._know(first, registers, None)
                base = Manifest(0, fingerprint=fingerprint_of(first.registers))
            self._manifest = replace(base, generation=claim.generation, revision=0)
            claim.begins_with(self._manifest.order, written=False)
            self._log.write(self._manifest, ())
            self._check_claim()
            claim.begins_with(self._manifest.order, written=True)
            # If the older writer has written one more, it saw no claim: somebody removed this one.
            if not orders or claim.after(orders[-1]) is None:
                break
        self._sweeper.sweep(self._manifest, orders)
        with suppress(OSError):
            claim.sweep()

    def _check_claim(self) -> None:
        """Raise `StoreLocked` if another writer has taken over, and release the lock."""
        assert self._claim is not None
        writer = self._claim.overtaken_by()
        if writer is not None:
            if self._lock is not None:
                with suppress(OSError):
                    self._lock.release()
            raise locked(
                self._directory,
                writer,
                "this writer was overtaken, and its last step may be lost: close this store, and "
                "open it again to see",
            )

    def _chosen(self, orders: Sequence[FileOrder], at_step: int | None) -> Manifest:
        shown = self._directory.shown
        check_any(orders, self._directory)
        chosen = orders[-1]
        if at_step is not None:
            fitting = self._log.of_step(at_step, orders)
            if fitting is None:
                steps = ", ".join(str(s) for s in sorted({s for _, s, _ in orders}))
                raise StoreError(
                    f"{shown}: step {at_step} is not kept; the steps that can be opened are: "
                    f"{steps}"
                )
            chosen = fitting
        manifest = self._log.read(chosen)
        self._log.check(manifest)
        return manifest

    # -- between steps

    def newest(self) -> Manifest:
        """The manifest that counts now; settles a commit in doubt, or follows the writer."""
        if self._doubt is not None:
            self._settle(self._doubt)
        elif self._follow:
            with reaching(self._directory.shown, "find its newest step"):
                last = max(self._log.orders(), default=self._manifest.order)
                if last != self._manifest.order:
                    self._manifest = self._followed(read_or_next(self._log, last))
        return self._manifest

    def _followed(self, manifest: Manifest) -> Manifest:
        """A manifest newer than the opened one. Raises `StoreMismatch` for other registers."""
        if manifest.fingerprint != self._manifest.fingerprint:
            raise StoreMismatch(
                f"{self._directory.shown}: its writer has made it the state of another query, at "
                f"step {manifest.step}; open it again, with that query"
            )
        return manifest

    def description_of(
        self, circuit: str | None, evolved: StateDescription | None
    ) -> StateDescription:
        """The description of the state from the next step on; writes a new circuit to its file."""
        description = evolved or self.kept
        if circuit is None and evolved is None:
            return description
        return description.written(self._directory, self._manifest.generation, circuit or "")

    def registers(self) -> list[Register]:
        """The registers of the state, whose rows have no classes."""
        where = f"{self._directory.shown}: {self.kept.shown}"
        return [self.kept.of(r) for r in read_registers(self.kept.registers, where)]

    @contextmanager
    def holding(self, manifest: Manifest) -> Iterator[None]:
        """Keep the files of a step during the block, if this process would remove them."""
        with self._sweeper.keeping(manifest.order):
            yield

    def check_there(self, manifest: Manifest) -> None:
        """Raise `StoreUnavailable` if the step of a snapshot has been removed."""
        with reaching(self._directory.shown, "find its steps"):
            if manifest.order not in self._log.orders():
                raise StoreUnavailable(
                    f"{self._directory.shown}: step {manifest.step}, which this snapshot is of, is "
                    f"gone: the writer keeps the last {KEPT} steps, and has gone on; leave the "
                    "block, and take another snapshot"
                )

    def renew(self) -> None:
        """Check that this is still the writer, before a piece of work, or raise `StoreLocked`."""
        if self._lock is not None:
            self._lock.keep(self._check_claim)

    def commit(self, manifest: Manifest, after: Sequence[str]) -> None:
        """Write the next manifest, once other files are durable.

        After an `OSError` it is not written. After another error this may be unknown until `newest`
        looks again: while the commit is `in_doubt`, no file of the manifest may be removed.
        """
        assert self._lock is not None
        try:
            self._log.write(manifest, after)
        except FileExistsError as e:
            raise StoreLocked(
                f"{self._directory.shown}: {name_of(manifest.order)} is there already: another "
                "writer has committed the step; open the store again"
            ) from e
        except OSError:
            self._check_claim()  # a later writer removes half-made files of this one
            raise
        except BaseException as e:
            self._doubt = manifest
            if isinstance(e, Doubt):
                raise StoreUnavailable(
                    f"{self._directory.shown}: it failed while step {manifest.step} was committed, "
                    "and cannot say whether it was; try again: the store then looks first"
                ) from e.__cause__
            raise
        self._doubt = manifest
        self._check_claim()
        self._manifest, self._doubt = manifest, None
        self._sweeper.committed(manifest)

    @property
    def in_doubt(self) -> bool:
        """Whether a commit was tried, and its result is still unknown."""
        return self._doubt is not None

    def damaged(self, step: int, why: Exception) -> StoreCorrupt:
        """The error for a missing or damaged file of a step.

        Raises `StoreLocked` if another writer has taken over, and may have removed the file.
        """
        if self._claim is not None:
            self._check_claim()
        return StoreCorrupt(
            f"{self._directory.shown}: step {step} cannot be read: {why}; "
            f"{self._log.remedy(self._manifest.order)}"
        )

    def _settle(self, doubt: Manifest) -> None:
        with reaching(self._directory.shown, f"see whether step {doubt.step} is committed"):
            try:
                written = self._directory.read(doubt.name) == doubt.encode()
            except FileNotFoundError:
                written = False
        if written:
            if self._claim is not None:
                self._check_claim()
            self._manifest = doubt
        self._doubt = None
