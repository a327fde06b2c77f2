"""The description of a state: its registers, and the circuit that made them.

`registers.json` has the original registers of a state. Once a step has recorded its circuit, or the
state has evolved to another one, `circuits/<generation>-<digest>.json` has the registers and the
circuit, and the manifest names this file. So an older step is opened with its own description.
Before a state is opened, its directory, its description and its newest manifest are checked.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import Struct

from stepping_spark.base.errors import StoreCorrupt, StoreUnavailable
from stepping_spark.plan.difference import Described, described
from stepping_spark.relations.store import Register, fingerprint_of
from stores.base import Natural, decoded
from stores.parquet.directories import TEMPORARY, Directory, LocalDirectory, reaching
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

CIRCUITS = "circuits"


@dataclass(frozen=True)
class StateDescription:
    """The registers of a state, the numbers that begin the names of their files, its circuit.

    `stored_as` has the register names in the footers of files, for renamed registers.
    """

    registers: Described
    numbers: Mapping[str, int]
    stored_as: Mapping[str, str] = field(default_factory=dict)
    circuit: str | None = None
    name: str | None = None  # of the file with this description; None: `registers.json`

    @classmethod
    def first(cls, registers: Described) -> StateDescription:
        """The description of a new state."""
        return cls(registers, {name: i for i, name in enumerate(registers)})

    @property
    def shown(self) -> str:
        """The name of the file with this description, for messages."""
        return self.name or REGISTERS

    def evolved(self, registers: Sequence[Register], names: Mapping[str, str]) -> StateDescription:
        """The description for another circuit; `names` maps its kept registers to names here."""
        free = 1 + max(self.numbers.values(), default=-1)
        numbers, stored_as = {}, {}
        for register in registers:
            before = names.get(register.name)
            if before is None:
                numbers[register.name], free = free, free + 1
            else:
                numbers[register.name] = self.numbers[before]
                stored_as[register.name] = self.stored_as.get(before, before)
        return StateDescription(described(registers), numbers, stored_as)

    def of(self, register: Register) -> Register:
        """A register of the state, with the name that the footers of its files have."""
        return replace(register, stored_as=self.stored_as.get(register.name, ""))

    def written(self, directory: Directory, generation: int, circuit: str) -> StateDescription:
        """Write the description with a circuit to a durable file, and return it."""
        content = {
            "registers": self.registers,
            "numbers": self.numbers,
            "stored_as": self.stored_as,
            "circuit": circuit,
        }
        data = json.dumps(content, indent=1).encode()
        name = f"{CIRCUITS}/{generation:08d}-{hashlib.sha256(data).hexdigest()[:16]}.json"
        with suppress(FileExistsError):  # of a step that was not committed
            directory.create(name, data)
        return replace(self, circuit=circuit, name=name)


class _File(Struct, frozen=True):
    registers: Described
    numbers: dict[str, Natural]
    stored_as: dict[str, str]
    circuit: str


def kept_at(directory: Directory, manifest: Manifest) -> StateDescription:
    """The description of a state at a step. Raises `StoreCorrupt` for a damaged file."""
    if manifest.circuit is None:
        return StateDescription.first(first_registers(directory) or {})
    name = manifest.circuit
    try:
        with reaching(directory.shown, "read its circuit"):
            file = decoded(directory.read(name), _File)
        return StateDescription(file.registers, file.numbers, file.stored_as, file.circuit, name)
    except (ValueError, FileNotFoundError) as e:
        raise _damaged(directory, name, e) from None
    except StoreUnavailable as e:
        if isinstance(e.__cause__, FileNotFoundError):
            raise _damaged(directory, name, e.__cause__) from None
        raise


def first_registers(directory: Directory) -> Described | None:
    """The original registers of a state; None if there is no state."""
    try:
        with reaching(directory.shown, "read its registers"):
            return decoded(directory.read(REGISTERS), dict[str, dict[str, Any]])
    except ValueError as e:
        raise _damaged(directory, REGISTERS, e) from None
    except StoreUnavailable as e:
        if isinstance(e.__cause__, FileNotFoundError):
            return None
        raise


def _damaged(directory: Directory, name: str, why: Exception) -> StoreCorrupt:
    return StoreCorrupt(
        f"{directory.shown}: {name} is damaged: {why}; restore it, or make a new store"
    )


OWN = (CIRCUITS, CLAIMS, DATA, FOLDER, LOCK, REGISTERS)
"""The names in a store's directory."""

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
    """Raise an OSError if a local directory's permissions would keep a writer from starting.

    For an object store only an actual write could find that out.
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


def check_fingerprint(
    description: StateDescription, manifest: Manifest, directory: Directory
) -> None:
    """Raise `StoreCorrupt` if a manifest does not belong to the described registers."""
    digest = fingerprint_of(description.registers)
    if manifest.fingerprint != digest:
        raise StoreCorrupt(
            f"{directory.shown}: {description.shown} is not of this state: it describes {digest}, "
            f"and the manifest of step {manifest.step} is of {manifest.fingerprint}; restore "
            f"{description.shown}, or make a new store"
        )


def check_belongs(description: StateDescription, manifest: Manifest, directory: Directory) -> None:
    """Raise `StoreCorrupt` if a manifest, or one of its files, belongs to other registers.

    The name of a file begins with the number of its register. The content of a file is compared
    when it is first read.
    """
    check_fingerprint(description, manifest, directory)
    numbers = {name: f"{i:04d}" for name, i in description.numbers.items()}
    for name, batches in manifest.registers.items():
        for f in (f for batch in batches for f in batch.files):
            match = NUMBERED.match(f.name)
            if match is not None and match[1] != numbers.get(name, match[1]):
                raise StoreCorrupt(
                    f"{directory.shown}: {manifest.name} says that {f.name} is of register "
                    f"{name!r}, and by its number it is of another: somebody has edited the "
                    f"manifest, or the order of {description.shown}; restore them, or make a new "
                    "store"
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
    """The last committed manifest, also while a writer is active."""
    orders = log.orders()
    check_any(orders, directory)
    return read_or_next(log, orders[-1])


def read_or_next(log: Log, order: FileOrder) -> Manifest:
    """A manifest that was just listed, or a later one if it was removed meanwhile."""
    for _ in range(_TRIES):
        with suppress(FileNotFoundError):
            return log.read(order)
        order = max(log.orders(), default=order)
    return log.read(order)
