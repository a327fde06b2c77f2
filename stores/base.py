"""The common parts of stores: JSON decoding, registers by name, the last step, and commits."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Generic, TypeVar

import msgspec
import pyarrow as pa

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import StoreCorrupt, StoreError, StoreMismatch
from stepping_spark.plan.difference import Described
from stepping_spark.relations.codec import conform
from stepping_spark.relations.relation import Relation
from stepping_spark.relations.store import AddedRows, Now, Ordering, Register
from stores.step_lock import NOT_OPEN, Closing, Pins, Turns

T = TypeVar("T")

Natural = Annotated[int, msgspec.Meta(ge=0)]
PositiveNumber = Annotated[int, msgspec.Meta(ge=1)]


def decoded(text: bytes | str, of: type[T]) -> T:
    """The value in a JSON text. Raises a ValueError with the first place that does not fit."""
    try:
        return msgspec.json.decode(text, type=of)
    except (msgspec.MsgspecError, RecursionError) as e:
        raise ValueError(str(e)) from None


def check_are_registers(listed: object, remedy: str) -> None:
    """Raise an error for anything but registers, such as their graph."""
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        listed = (listed,)
    for odd in listed:
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


def checked_beside(register: Register, rows: Relation) -> pa.Table:
    """The checked rows, for a read of the buckets that they are in."""
    if not register.key:
        raise no_key(register)
    if rows.table is None:
        raise StoreError(
            f"register {register.name!r} was read by the buckets of rows that Spark has; fetch the "
            "rows, or read it by key"
        )
    return conform(rows.table, register.schema)


class Served(Generic[T]):
    """The entries of a store's registers, by their names in a circuit.

    It can serve several circuits, each with its own names.
    """

    def __init__(self) -> None:
        self.is_open = False
        """Whether the store is open: after `open`, and before `close`."""
        self.all: dict[str, T] = {}
        """The entry of a register, by its name in the state; empty if the store is not open."""
        self.by_name: dict[str, T] = {}
        """The entry of a register, by its name in a circuit."""
        self._names: dict[str, str] = {}

    def open(self, entries: Mapping[str, T]) -> None:
        """Open the store with these entries."""
        self.is_open, self.all = True, dict(entries)
        self._find()

    def close(self) -> None:
        """Forget all entries."""
        self.is_open, self.all = False, {}
        self._find()

    def serve(self, names: Mapping[str, str]) -> None:
        """Serve one more circuit; `names` maps its names to names in the state (see `matched`)."""
        self._names |= names
        self._find()

    def replace(self, entries: Mapping[str, T]) -> None:
        """Serve the entries of the circuit that the state evolved to, by the circuit's names."""
        self.all, self._names = dict(entries), {name: name for name in entries}
        self._find()

    def _find(self) -> None:
        entries = ((name, self.all.get(entry_name)) for name, entry_name in self._names.items())
        self.by_name = {name: entry for name, entry in entries if entry is not None}

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


def read_registers(described: Described, where: str) -> list[Register]:
    """The registers of a state, from its description, or a `StoreCorrupt` if that is unreadable.

    Their rows have no classes; this is enough to inspect a state without its circuit.
    """
    try:
        return [Register.described(name, description) for name, description in described.items()]
    except ValueError as e:
        raise StoreCorrupt(
            f"{where}: the description of its registers cannot be read: {e}; it is damaged, or of "
            "another version of stepping_spark: restore it, or use that version"
        ) from e


E = TypeVar("E")
P = TypeVar("P")


@dataclass(frozen=True)
class LastStep:
    """The record of the last committed step, without its registers and outputs."""

    step: int = 0
    now: Now = None
    offsets: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    made_by: tuple[str, ...] | None = None

    def next(
        self,
        step: int,
        now: Now,
        offsets: Mapping[str, int] | None,
        settings: Mapping[str, str] | None,
        made_by: Sequence[str] | None,
    ) -> LastStep:
        """The step after this one: see `Store.commit`. Raises `StoreError` for another number."""
        if step != self.step + 1:
            raise StoreError(
                f"step {step} cannot be committed: the last committed step is {self.step}, so that "
                f"the next is {self.step + 1}; the store is as it was before"
            )
        return LastStep(
            step,
            now,
            self.offsets if offsets is None else dict(offsets),
            self.settings if settings is None else dict(settings),
            None if made_by is None else tuple(made_by),
        )


@dataclass(kw_only=True)
class BeforeStep:
    """A task's view of the last committed step, and the additions of one attempt of the task."""

    last: LastStep
    added: list[AddedRows] = field(default_factory=list)

    def last_step(self) -> int:
        """The number of the last committed step."""
        return self.last.step

    def last_now(self) -> Now:
        """The `now` of the last committed step."""
        return self.last.now

    def last_settings(self) -> Mapping[str, str]:
        """The session settings that the state depends on."""
        return self.last.settings


class BaseStore(Closing, Generic[E, P]):
    """A store whose registers have entries of type E, and whose snapshots pin a P."""

    evolves: bool = False
    _read_only: bool = False
    _turns: Turns
    _pins: Pins[P]
    _registers: Served[E]
    _next: dict[str, E] | None = None
    """The entries of the circuit that the step under way evolves to."""

    @abstractmethod
    def _last(self) -> LastStep:
        """The last committed step, or the one that this thread has pinned."""

    @abstractmethod
    def _commit(
        self, last: LastStep, outputs: Sequence[Relation] | None, circuit: str | None
    ) -> None:
        """Make the additions of the step visible: see `commit`."""

    def last_step(self) -> int:
        """The number of the last committed step; 0 before the first."""
        return self._last().step

    def last_now(self) -> Now:
        """The `now` of the last committed step; None before the first."""
        return self._last().now

    def last_offsets(self) -> Mapping[str, int]:
        """The offset of each source of changes at the last committed step."""
        return self._last().offsets

    def last_settings(self) -> Mapping[str, str]:
        """The session settings that the state depends on; empty before they are set."""
        return self._last().settings

    def last_made_by(self) -> tuple[str, ...] | None:
        """The computation of each output of the last committed step; None if it is unknown."""
        return self._last().made_by

    def commit(
        self,
        step: int,
        now: Now,
        outputs: Sequence[Relation] | None = None,
        offsets: Mapping[str, int] | None = None,
        settings: Mapping[str, str] | None = None,
        made_by: Sequence[str] | None = None,
        circuit: str | None = None,
    ) -> None:
        """Make the additions of the step durable and visible, all at once.

        After an error no addition is visible, and the same step may be taken again. If the
        connection was lost meanwhile, `last_step` shows whether the step was committed.
        """
        self._begin_step()
        try:
            self._commit(self._last().next(step, now, offsets, settings, made_by), outputs, circuit)
        finally:
            self._turns.end()

    def abort(self) -> None:
        """Discard the additions of the current step, if it belongs to this thread."""
        self._turns.abort()

    def _begin_step(self) -> None:
        if self._read_only or self._pins.held or not self._registers.is_open:
            self._turns.check_open()
            if self._read_only:
                raise StoreError(
                    f"{self._turns.shown} was opened with read_only=True; open it without, to write"
                )
            self._registers.check_open()
            self._pins.check_none()
        self._turns.begin()

    def _entry(self, register: str) -> E:
        """The entry of a register, by its name in a circuit."""
        self._turns.check_open()
        if self._next is not None and register in self._next:
            return self._next[register]
        entry = self._registers.by_name.get(register)
        return self._registers.of(register) if entry is None else entry
