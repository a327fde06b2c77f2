"""The protocol of stores. A store keeps registers between steps, and registers only add up."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeAlias, runtime_checkable

import pyarrow as pa

from stepping_spark.base.fields import PickledByFields
from stepping_spark.base.signature import Signature
from stepping_spark.relations.arrow import one_array
from stepping_spark.relations.hashing import Numbers, order_numbers
from stepping_spark.relations.relation import Relation
from stepping_spark.rows.atoms import INT
from stepping_spark.rows.schema import Schema

PLACE = "_place_"
"""The column of a row's place in a store, while the store consolidates rows."""


@dataclass(frozen=True)
class Ordering:
    """The order of the rows of a key: by a column of ints, dates, times or durations."""

    column: str
    ascending: bool = True
    nulls_first: bool = True

    def numbers(self, rows: pa.Table | pa.RecordBatch) -> Numbers:
        """The place of each row in the order, as a number."""
        column = one_array(rows.column(self.column))
        return order_numbers(column, ascending=self.ascending, nulls_first=self.nulls_first)


@dataclass(frozen=True)
class Register(PickledByFields):
    """The state of one stream: the sum of all its changes.

    With a key it is an arrangement: `key` names the columns by which it is read. A key that is
    computed, or lies inside a struct, has columns of its own in the schema (`_key_1_`, …). `sums`
    identifies the stream.
    `why` is the purpose of the register, if the query does not show it. With an `order`, the last
    rows of a key can be read without the others: see `OrderedStore`. `stored_as` is its name in the
    files of a store, if it was a register of another circuit before.
    """

    name: str
    schema: Schema
    key: tuple[str, ...] = ()
    sums: Signature = field(default_factory=Signature)
    why: str = field(default="", compare=False)
    order: Ordering | None = None
    stored_as: str = field(default="", compare=False)

    @cached_property
    def keys(self) -> Schema:
        """The schema of the keys by which it is read."""
        types = dict(self.schema.columns)
        return Schema(tuple((k, types[k]) for k in self.key), ())

    @cached_property
    def other_columns(self) -> tuple[str, ...]:
        """The names of the columns outside of the key; empty without a key."""
        return tuple(n for n, _ in self.schema.columns if n not in self.key) if self.key else ()

    @cached_property
    def placed(self) -> Schema:
        """The schema of rows with their places in a store."""
        return Schema((*self.schema.columns, (PLACE, INT)), self.schema.diffs)

    def describe(self) -> dict[str, object]:
        """The description, as JSON. Old state can be used only if its description is equal."""
        x = self.order
        order = {} if x is None else {"order": [x.column, x.ascending, x.nulls_first]}
        return {
            **self.schema.kinds,
            "key": list(self.key),
            "sums": str(self.sums),
            **order,
        }

    @classmethod
    def described(cls, name: str, content: object) -> Register:
        """The register with this description. Raises ValueError if it is not a valid one."""
        match content:
            case {"key": [*key], "sums": str() as sums, **rest}:
                schema = Schema.of_kinds(content)
                names = [n for n, _ in schema.columns]
                missing = [k for k in key if k not in names]
                if missing:
                    raise ValueError(f"its key {missing[0]!r} is not one of its columns")
                if len(set(key)) < len(key):
                    raise ValueError("its key has a column twice")
                order = _ordering(rest.get("order"), names)
                return cls(name, schema, tuple(key), Signature.of_text(sums), order=order)
        raise ValueError("a register without a key or a signature")


def _ordering(order: object, names: Sequence[str]) -> Ordering | None:
    match order:
        case None:
            return None
        case [str() as column, bool() as ascending, bool() as nulls_first] if column in names:
            return Ordering(column, ascending, nulls_first)
    raise ValueError("its order is not a column of it with a direction and the place of NULL")


def fingerprint(registers: Sequence[Register]) -> str:
    """A digest of the registers of a circuit, the same in every process."""
    return fingerprint_of({r.name: r.describe() for r in registers})


def fingerprint_of(described: Mapping[str, Mapping[str, object]]) -> str:
    """`fingerprint`, from the result of `Register.describe` for each register's name."""
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()[:16]


Now: TypeAlias = "int | float | str | dt.date | dt.datetime | None"
# By the name of the type. A datetime is a date too, so it comes first.
_NOWS: dict[type[object], Callable[[str], Now]] = {
    int: int,
    float: float,
    str: str,
    dt.datetime: dt.datetime.fromisoformat,
    dt.date: dt.date.fromisoformat,
}


def now_to_text(now: Now) -> str | None:
    """A `now` as text for `now_from_text`, in any process. Raises TypeError for other types."""
    if now is None:
        return None
    for t in _NOWS:
        if isinstance(now, t) and not isinstance(now, bool):
            shown = now.isoformat() if isinstance(now, dt.date) else str(now)
            return f"{t.__name__} {shown}"
    raise TypeError(f"{type(now).__name__}, not an int, float, str, date or datetime")


def now_from_text(text: str | None) -> Now:
    """The inverse of `now_to_text`."""
    if text is None:
        return None
    kind, shown = text.split(" ", 1)
    (read,) = (read for t, read in _NOWS.items() if t.__name__ == kind)
    return read(shown)


class StepStore(Protocol):
    """The part of a store that the computation of a step needs: the old state, and `add`."""

    def last_step(self) -> int:
        """The number of the last committed step; 0 before the first."""

    def last_now(self) -> Now:
        """The `now` of the last committed step; None before the first."""

    def last_settings(self) -> Mapping[str, str]:
        """The session settings that the state depends on; empty before they are set."""

    def read(self, register: str, keys: Relation | None = None) -> tuple[Relation, ...]:
        """The committed value, in parts of the register's schema that add up to it.

        No parts means empty. With keys (a relation with the register's key columns, distinct,
        without diffs), it returns at least the rows with one of them. NULL in a key equals NULL
        here. For SQL's meaning, leave such keys out.
        """

    def add(self, register: str, change: Relation) -> None:
        """Add a change (a relation of the register's schema) in the current step.

        A `SparkRelation` that already `is_settled` for the register is stored unchanged.
        """


class Store(StepStore, Protocol):
    """Keeps registers between steps. A step's additions become visible on commit, or not at all.

    In one step, a caller makes any number of `read`s (of the state before the step) and `add`s,
    then a `commit` or an `abort`. A failed `commit` leaves the store as before the step.

    >>> def steps_taken(store: st.Store) -> int:
    ...     return store.last_step()
    >>> steps_taken(st.StoreMemory([]))
    0
    """

    def open(self, registers: Sequence[Register], outputs: Sequence[Schema] = ()) -> None:
        """Prepare to serve these registers, and to keep outputs of these schemas.

        Raises `StoreMismatch` with the registers that differ between circuit and state.
        Outputs may differ; then the output of the last step is not available. A store that is
        already open stays open.
        """

    def close(self) -> None:
        """Drop the current step and release the lock. A second call does nothing.

        A closed store raises `StoreError` for everything but `abort`. A durable state can then be
        opened again, as another object.
        """

    def last_offsets(self) -> Mapping[str, int]:
        """The position up to which each source was read, as of the last committed step."""

    def last_outputs(self) -> tuple[Relation, ...] | None:
        """The outputs of the last committed step; None if they were not kept."""

    def last_made_by(self) -> tuple[str, ...] | None:
        """The computation of each output of the last committed step; None if it is unknown.

        It is unknown if an older version, which did not store it, committed the step.
        """

    def snapshot(self) -> AbstractContextManager[Store]:
        """A context in which this thread reads the store as of one committed step.

        It is the last committed step when the block begins, even if another thread or process
        commits meanwhile. Other threads are not affected. The thread cannot step within the block.
        A nested block reads the same step. The class of the store decides how long a block may
        last.
        """

    def commit(
        self,
        step: int,
        now: Now,
        outputs: Sequence[Relation] | None = None,
        offsets: Mapping[str, int] | None = None,
        settings: Mapping[str, str] | None = None,
        made_by: Sequence[str] | None = None,
    ) -> None:
        """Make the additions of the current step durable and visible, all at once.

        The commit also stores the step's number; its `now`; its outputs (a relation for each, of
        the schemas given to `open`; None: not kept); the position up to which each source was read;
        the session settings that functions of rows depend on (None: as before); and the computation
        of each output in the query (None: unknown).
        """

    def abort(self) -> None:
        """Drop the additions of the current step."""

    def compact(self) -> None:
        """Merge the parts that can be merged. Readers see no difference."""

    def batches(self, register: str) -> int:
        """The number of parts in which the register is stored."""


@dataclass(frozen=True)
class Size:
    """The size of a register: the number of its parts, their rows as stored, and their bytes."""

    batches: int
    rows: int
    nbytes: int


@runtime_checkable
class SizedStore(Protocol):
    """A store that knows the sizes of its registers; reports show them."""

    def size(self, register: str) -> Size:
        """The size of a register after the last committed step."""


@runtime_checkable
class OrderedStore(Protocol):
    """A store that can read the last rows of a key, for registers that have an order.

    Windows use it. From other stores, they read all rows of the key.
    """

    def read_since(
        self, register: str, keys: Relation, since: Sequence[int]
    ) -> tuple[Relation, ...]:
        """The rows of keys from a place in the order on, with one place for each key; see `read`.

        The keys are on the driver. A place is a number as returned by `Ordering.numbers`. The
        result may contain earlier rows, which only cost time.
        """


@runtime_checkable
class BucketStore(Protocol):
    """A store that can read some rows of a key: those in some of its buckets.

    `relations.hashing.bucket_numbers` of the columns outside of the key decides on the bucket of a
    row. First rows of large groups use it. From other stores, they read all rows of the key.
    """

    def read_beside(self, register: str, rows: Relation, buckets: int) -> tuple[Relation, ...]:
        """The rows of a key in the bucket, of so many, of one of some rows; see `read`.

        The rows are on the driver, with the columns of the register. The result may contain rows of
        other buckets, and of other keys, as that of `read` may.
        """


@dataclass(frozen=True)
class AddedRows:
    """Rows that a task adds to a register: their number, and where it has written them."""

    register: str
    rows: int
    written: object  # files, or another reference of the store


@runtime_checkable
class TaskState(StepStore, Protocol):
    """The state before a step, as Spark's tasks read it, and a place for their additions."""

    @property
    def added(self) -> Sequence[AddedRows]:
        """The additions of an attempt of a task."""

    def attempt(self) -> AbstractContextManager[TaskState]:
        """The state for a new attempt of a task, without additions.

        Its connections and files are open within the block.
        """


@runtime_checkable
class TaskStore(StepStore, Protocol):
    """A store whose state tasks read and write, each for a part of the keys."""

    def serves_tasks(self, *, here: bool) -> bool:
        """Whether tasks can read the state; `here` is true if all run on this machine."""

    def for_tasks(self) -> TaskState:
        """The state before the step, which can be pickled."""

    def merge_meanwhile(self, rows: int) -> None:
        """Merge batches in another thread while tasks compute; the step changes so many rows."""

    def add_written(self, register: str, added: Sequence[AddedRows]) -> None:
        """Add rows that tasks have written, in the current step; rows never added are dropped."""


@runtime_checkable
class EvolvingStore(Protocol):
    """A store whose state can become that of another circuit: see `stepping_spark.stepper.evolve`.

    It stores the text of a circuit with the registers: `commit` has one more argument, `circuit`,
    and None keeps the stored text. While it `evolves`, `open` serves the common registers of the
    circuit and the state, and raises no `StoreMismatch`.
    """

    evolves: bool

    def described(self) -> Mapping[str, Mapping[str, Any]]:
        """The results of `Register.describe` for the state's registers, by their names there."""

    def last_circuit(self) -> str | None:
        """The text of the circuit that took the last committed step; None if it is unknown."""

    def read_kept(self, name: str) -> tuple[Relation, ...]:
        """All rows of a register, by its name in the state."""

    def size_kept(self, name: str) -> Size:
        """The size of a register, by its name in the state."""

    def evolve(self, registers: Sequence[Register], names: Mapping[str, str]) -> None:
        """In the current step, replace the registers of the state by these.

        `names` has the names in the state of the registers that stay. The others begin empty, with
        only the additions of this step. The commit drops the remaining old registers; after an
        abort the state is unchanged.
        """


def register_name(cache: str) -> str:
    """The name of the register that a cache reads."""
    return f"cache.{cache}"
