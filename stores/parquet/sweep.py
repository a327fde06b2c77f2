"""Removes files that no kept manifest names.

Only files of the state are removed, by their names, and only those that no writer can name that
comes after this one: whatever its own generation, and older ones, have written.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from functools import partial

from stores.parquet.directory import TEMPORARY, Directory
from stores.parquet.kept import CIRCUITS
from stores.parquet.manifest import (
    CIRCUIT_NAME,
    DATA,
    DATA_NAME,
    FOLDER,
    Log,
    Manifest,
    Order,
    name_of,
)
from stores.pool import later

KEPT = 3
"""So many of the newest manifests are kept, and of the newest steps: they can be opened again."""

GRACE = 600.0
"""Seconds for which a large file stays after it was merged away: a DataFrame may still read it."""

_HALF_MADE = re.compile(rf"{FOLDER}/{TEMPORARY}(?:(\d{{8}})-\d{{12}}-\d{{4}}\.json-)?\w+", re.ASCII)


class Sweeper:
    """Removes files that no kept manifest names. Failures are retried later."""

    def __init__(self, directory: Directory, log: Log, large_rows: int) -> None:
        self._directory = directory
        self._log = log
        self._large_rows = large_rows
        self._kept: list[tuple[Order, frozenset[str], frozenset[str]]] = []
        self._pinned = Counter[Order]()  # by how many snapshots of this process
        self._leaving: dict[str, float] = {}  # large files, and when their time is up
        self._removing: Future[None] | None = None

    def sweep(self, newest: Manifest, older: Sequence[Order]) -> None:
        """Remove all that is older than the kept manifests, or half-made.

        To be called when the newest was just written, by this writer: before, an older one might
        still commit what it has half-made.
        """
        with suppress(OSError):
            self._kept.clear()
            kept = to_keep([*older, newest.order])
            for order in sorted(kept - {newest.order}):
                manifest = self._log.read_or_none(order)
                if manifest is not None:
                    self._keep(manifest)
            self._keep(newest)
            there = self._directory.sizes(DATA).keys() | self._directory.sizes(CIRCUITS).keys()
            half_made = self._directory.sizes(FOLDER).keys()
            mine = newest.generation
            self._remove([n for n in there - self._named() if is_of_state(n, mine)])
            self._remove([name_of(o) for o in self._log.orders() if o[0] < mine and o not in kept])
            self._remove([n for n in half_made if is_half_made(n, mine)])

    def committed(self, manifest: Manifest) -> None:
        """Remove what the manifests that are kept from now on do not name."""
        self._keep(manifest)
        now = time.monotonic()
        gone = [name for name, until in self._leaving.items() if until < now]
        dropped: list[Order] = []
        kept = to_keep([order for order, _, _ in self._kept])
        pinned = min((order for order, n in self._pinned.items() if n), default=None)
        if pinned is not None:  # and with it those that come after
            kept |= {order for order, _, _ in self._kept if order >= pinned}
        left = [found for found in self._kept if found[0] not in kept]
        self._kept = [found for found in self._kept if found[0] in kept]
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
        if manifest.circuit is not None:
            small |= {manifest.circuit}
        self._kept.append((manifest.order, small, large))

    def _named(self) -> frozenset[str]:
        return frozenset().union(*(names for _, *both in self._kept for names in both))


def to_keep(orders: Sequence[Order]) -> set[Order]:
    """Of manifests, the oldest first, those that stay."""
    of_steps = {step: (generation, step, n) for generation, step, n in sorted(orders)}
    steps = list(dict.fromkeys(step for _, step, _ in sorted(orders, reverse=True)))
    return {*sorted(orders)[-KEPT:], *(of_steps[step] for step in steps[:KEPT])}


def is_of_state(name: str, generation: int) -> bool:
    """Whether a file is one of rows, or a circuit, written in a generation or before it."""
    found = DATA_NAME.fullmatch(name) or CIRCUIT_NAME.fullmatch(name)
    return found is not None and int(found[1] or 0) <= generation


def is_half_made(name: str, generation: int) -> bool:
    """Whether a file is what a manifest of a generation, or one before it, was to become."""
    found = _HALF_MADE.fullmatch(name)
    return found is not None and int(found[1] or 0) <= generation
