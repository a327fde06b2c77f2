"""The entries of a store's registers, by the names that circuits have for them; and checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

import pyarrow as pa

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import StoreCorrupt, StoreError, StoreMismatch
from stepping_spark.plan.difference import Described
from stepping_spark.relations.codec import conform
from stepping_spark.relations.relation import Relation
from stepping_spark.relations.store import Ordering, Register
from stores.step_lock import NOT_OPEN

T = TypeVar("T")


def check_are_registers(given: object, remedy: str) -> None:
    """Raise an error for anything but registers, such as their graph."""
    if not isinstance(given, Sequence) or isinstance(given, str):
        given = (given,)
    for odd in given:
        if not isinstance(odd, Register):
            raise StoreError(
                f"{user_line()}: expected registers, found {type(odd).__name__}; write {remedy}"
            )


def no_key(register: Register) -> StoreError:
    """The error for a read by key of a register without a key."""
    return StoreError(
        f"register {register.name!r} was read by key and has none; read it whole, or make it "
        "with the key that it is read by"
    )


def checked_since(register: Register, keys: Relation) -> tuple[Ordering, pa.Table]:
    """The order of a register, and the checked keys, for a read from a position on."""
    if not register.key:
        raise no_key(register)
    if register.order is None:
        raise StoreError(
            f"register {register.name!r} was read from a place in its order on, and has no order; "
            "read it by key, or make it with the order"
        )
    if keys.table is None:
        raise StoreError(
            f"register {register.name!r} was read from a place in its order on, by keys that Spark "
            "has; fetch the keys, or read it by key"
        )
    return register.order, conform(keys.table, register.keys)


class Served(Generic[T]):
    """The entries of a store's registers, by their names in a circuit.

    It can serve several circuits, each with its own names.
    """

    def __init__(self) -> None:
        self.is_open = False
        """Whether a store is open: it is not before it was opened, and after it was closed."""
        self.all: dict[str, T] = {}
        """By the name that the state has for a register; none where the store is not open."""
        self.by_name: dict[str, T] = {}
        """The entry of a register, by its name in a circuit."""
        self._names: dict[str, str] = {}

    def open(self, found: Mapping[str, T]) -> None:
        """Open the store with these entries."""
        self.is_open, self.all = True, dict(found)
        self._find()

    def close(self) -> None:
        """Forget all entries."""
        self.is_open, self.all = False, {}
        self._find()

    def serve(self, names: Mapping[str, str]) -> None:
        """Serve one more circuit; `names` maps its names to those of the state (see `matched`)."""
        self._names |= names
        self._find()

    def replace(self, found: Mapping[str, T]) -> None:
        """Serve other entries, those of a circuit that the state evolved to, by its names."""
        self.all, self._names = dict(found), {name: name for name in found}
        self._find()

    def _find(self) -> None:
        there = ((name, self.all.get(found)) for name, found in self._names.items())
        self.by_name = {name: found for name, found in there if found is not None}

    def check_open(self) -> None:
        """Raise `StoreError` if the store is not open."""
        if not self.is_open:
            raise StoreError(NOT_OPEN)

    def of(self, register: str) -> T:
        """The entry of a register, by its name in a circuit.

        Raises `StoreError` if the store is not open, and `StoreMismatch` for an unknown name.
        """
        self.check_open()
        if register not in self.by_name:
            raise StoreMismatch(
                f"there is no register {register!r}; there are: {', '.join(self.all) or 'none'}"
            )
        return self.by_name[register]


def read_registers(kept: Described, where: str) -> list[Register]:
    """The registers of a state, from its description, or a `StoreCorrupt` if that is unreadable.

    Their rows have no classes; this is enough to inspect a state without its circuit.
    """
    try:
        return [Register.described(name, said) for name, said in kept.items()]
    except ValueError as e:
        raise StoreCorrupt(
            f"{where}: the description of its registers cannot be read: {e}; it is damaged, or of "
            "another version of stepping_spark: restore it, or use that version"
        ) from e
