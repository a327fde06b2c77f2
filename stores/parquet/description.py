"""What a state says of itself beside its steps: its registers, and the circuit that made them.

`registers.json` has the registers that a state was made with. Once a step has told its circuit, or
the state has become that of another one, `circuits/<generation>-<digest>.json` has both, and the
manifest names it. So an older step is opened with what it was made with.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from msgspec import Struct

from stepping_spark.base.errors import StoreCorrupt, StoreUnavailable
from stepping_spark.plan.difference import Described, described
from stepping_spark.relations.store import Register
from stores.base import Natural, decoded
from stores.parquet.directories import Directory, reaching
from stores.parquet.manifest import REGISTERS, Manifest

CIRCUITS = "circuits"


@dataclass(frozen=True)
class StateDescription:
    """The registers of a state, the numbers that begin the names of their files, its circuit.

    `stored_as` has the names that files say, for registers that had other names in another circuit.
    """

    registers: Described
    numbers: Mapping[str, int]
    stored_as: Mapping[str, str] = field(default_factory=dict)
    circuit: str | None = None
    name: str | None = None  # of the file that says so; None: `registers.json`

    @classmethod
    def first(cls, registers: Described) -> StateDescription:
        """What a new state says."""
        return cls(registers, {name: i for i, name in enumerate(registers)})

    @property
    def shown(self) -> str:
        """The file that says so, for messages."""
        return self.name or REGISTERS

    def evolved(self, registers: Sequence[Register], names: Mapping[str, str]) -> StateDescription:
        """The same of another circuit; `names` has the names here of registers that stay."""
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
        """A register of the state, with the name that its files say."""
        return replace(register, stored_as=self.stored_as.get(register.name, ""))

    def written(self, directory: Directory, generation: int, circuit: str) -> StateDescription:
        """The same with a circuit, in a durable file."""
        said = {
            "registers": self.registers,
            "numbers": self.numbers,
            "stored_as": self.stored_as,
            "circuit": circuit,
        }
        data = json.dumps(said, indent=1).encode()
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
    """What a state says of itself at a step. Raises `StoreCorrupt` for a damaged file."""
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
    """The registers that a state was made with; None if there is no state."""
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
