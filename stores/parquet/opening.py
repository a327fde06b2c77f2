"""Checks before a state is opened: its registers, and its newest manifest."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress

from stepping_spark.base.errors import StoreCorrupt, StoreUnavailable
from stepping_spark.relations.store import fingerprint_of
from stores.parquet.description import CIRCUITS, StateDescription, first_registers
from stores.parquet.directories import TEMPORARY, Directory, LocalDirectory
from stores.parquet.fencing import CLAIMS, LOCK
from stores.parquet.manifest import (
    DATA,
    FOLDER,
    NUMBERED,
    REGISTERS,
    FileOrder,
    Log,
    Manifest,
    none_is_left,
)

OWN = (CIRCUITS, CLAIMS, DATA, FOLDER, LOCK, REGISTERS)
"""What a store has in its directory."""

_TRIES = 5


def check_no_others(directory: Directory) -> None:
    """Raise an error for a directory that has other files."""
    if first_registers(directory) is not None:
        return
    names = [name.removeprefix("/") for name in directory.sizes("")]
    others = sorted(n for n in names if n not in OWN and not n.startswith(TEMPORARY))
    if others:
        shown = ", ".join(others[:3]) + (" …" if len(others) > 3 else "")
        raise StoreUnavailable(
            f"{directory.shown}: there is no store, but {shown}; a new store needs a directory of "
            "its own: give the path of an empty one, or of one that is not there"
        )


def check_may_write(directory: Directory) -> None:
    """An OSError where a writer could not begin, as far as a local directory's rights say it.

    Of an object store only a write could tell.
    """
    if not isinstance(directory, LocalDirectory):
        return
    path = directory.root
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    number = 0 if os.path.isdir(path) else errno.ENOTDIR
    if not number and not os.access(path, os.W_OK | os.X_OK):
        number = errno.EACCES
    if number:
        raise OSError(number, os.strerror(number), path)


def check_fingerprint(kept: StateDescription, manifest: Manifest, directory: Directory) -> None:
    """A `StoreCorrupt` where a manifest is not of the registers that are described."""
    digest = fingerprint_of(kept.registers)
    if manifest.fingerprint != digest:
        raise StoreCorrupt(
            f"{directory.shown}: {kept.shown} is not of this state: it describes {digest}, and "
            f"the manifest of step {manifest.step} is of {manifest.fingerprint}; restore "
            f"{kept.shown}, or make a new store"
        )


def check_belongs(kept: StateDescription, manifest: Manifest, directory: Directory) -> None:
    """A `StoreCorrupt` where a manifest is not of the registers that are described.

    Nor are its files, by their names, which begin with a register's number. What is in a file is
    compared when it is first read.
    """
    check_fingerprint(kept, manifest, directory)
    numbers = {name: f"{i:04d}" for name, i in kept.numbers.items()}
    for name, batches in manifest.registers.items():
        for f in (f for batch in batches for f in batch.files):
            found = NUMBERED.match(f.name)
            if found is not None and found[1] != numbers.get(name, found[1]):
                raise StoreCorrupt(
                    f"{directory.shown}: {manifest.name} says that {f.name} is of register "
                    f"{name!r}, and by its number it is of another: somebody has edited the "
                    f"manifest, or the order of {kept.shown}; restore them, or make a new store"
                )


def check_any(orders: Sequence[FileOrder], directory: Directory) -> None:
    """Raise `StoreCorrupt` if no manifest is left, `StoreUnavailable` if none was written."""
    if not orders and not directory.sizes(DATA):
        raise StoreUnavailable(
            f"{directory.shown}: its first manifest is not written: somebody is making the store "
            "now, or has died doing so; try again, or open it with create=True"
        )
    if not orders:
        raise none_is_left(directory.shown)


def newest(directory: Directory, log: Log) -> Manifest:
    """The last committed manifest, also while somebody writes."""
    orders = log.orders()
    check_any(orders, directory)
    return read_or_next(log, orders[-1])


def read_or_next(log: Log, order: FileOrder) -> Manifest:
    """A manifest that was there a moment ago, or one that came after it."""
    for _ in range(_TRIES):
        with suppress(FileNotFoundError):
            return log.read(order)
        order = max(log.orders(), default=order)
    return log.read(order)
