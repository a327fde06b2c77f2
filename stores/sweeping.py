"""Removes files that no kept manifest names."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from functools import partial

from stores.file_writer import DATA
from stores.filesystem import Directory, later
from stores.manifest import Log, Manifest, Order, name_of

KEPT = 3
"""So many of the newest manifests are kept, with their files: steps that can be opened."""

GRACE = 600.0
"""Seconds for which a large file stays after it was merged away: a DataFrame may still read it."""


class Sweeper:
    """Knows which files are named, and removes the others; what fails is left for later."""

    def __init__(self, directory: Directory, log: Log, large_rows: int) -> None:
        self._directory = directory
        self._log = log
        self._large_rows = large_rows
        self._kept: deque[tuple[Order, frozenset[str], frozenset[str]]] = deque()
        self._pinned = Counter[Order]()  # by how many snapshots of this process
        self._leaving: dict[str, float] = {}  # large files, and when their time is up
        self._removing: Future[None] | None = None

    def sweep(self) -> None:
        """Remove all that is older than the kept manifests, or half-made: at opening."""
        with suppress(OSError):
            found = self._log.orders()
            self._kept.clear()
            for order in found[-KEPT:]:
                manifest = self._log.read_or_none(order)
                if manifest is not None:
                    self._keep(manifest)
            there = self._directory.sizes(DATA).keys()
            self._directory.remove(there - self._named())
            self._directory.remove(map(name_of, found[:-KEPT]))
            self._directory.remove(self._log.leftovers())

    def committed(self, manifest: Manifest) -> None:
        """Remove what the manifests that are kept from now on do not name."""
        self._keep(manifest)
        now = time.monotonic()
        gone = [name for name, until in self._leaving.items() if until < now]
        dropped: list[Order] = []
        while len(self._kept) > KEPT and not self._pinned[self._kept[0][0]]:
            order, small, large = self._kept.popleft()
            dropped.append(order)
            named = self._named()
            gone += small - named
            self._leaving |= dict.fromkeys(large - named, now + GRACE)
        for name in gone:
            self._leaving.pop(name, None)
        self.wait()
        self._removing = later(partial(self._remove, [*map(name_of, dropped), *gone]))

    @contextmanager
    def kept(self, order: Order) -> Iterator[None]:
        """Within the block a manifest is kept, and with it those that come after."""
        self._pinned[order] += 1
        try:
            yield
        finally:
            self._pinned[order] -= 1

    def wait(self) -> None:
        """Wait until what is to be removed is."""
        if self._removing is not None:
            wait([self._removing])

    def _remove(self, names: list[str]) -> None:
        with suppress(OSError):
            for name in names:  # one by one: this is no hurry, and runs in the pool itself
                self._directory.remove([name])

    def _keep(self, manifest: Manifest) -> None:
        batches = [b for bs in manifest.registers.values() for b in bs]
        batches += [b for _, b in manifest.outputs or ()]
        large = frozenset(n for b in batches if b.rows > self._large_rows for n in b.names)
        small = frozenset(n for b in batches for n in b.names) - large
        self._kept.append((manifest.order, small, large))

    def _named(self) -> frozenset[str]:
        return frozenset().union(*(names for _, *both in self._kept for names in both))
