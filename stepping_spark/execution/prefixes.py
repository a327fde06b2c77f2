"""What is known, from the steps before, of the rows of a window's partitions that need no reading.

A step that adds a row to the end of a partition needs the last rows of it, and of the others their
count, or their sum. Both were known to the step before. So this keeps them: of each partition that
was computed, from which place in the order on it is to be read, and what comes before that place
(`engines.arrow.kernels.Prefix`). It is no state: what is not known is read.

What is known is of the last step that was committed by this stepper. Where the store is at another
step, or a partition has changed and was not computed on the driver, it is forgotten.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from stepping_spark.engines.arrow.kernels import PartitionKey, Prefix, Prefixes
from stepping_spark.limits import Limits
from stepping_spark.plan.terms import Read, State
from stepping_spark.spark.relation import Relation
from stepping_spark.store import OrderedStore, StepStore

Parts: TypeAlias = tuple[Relation, ...]


@dataclass
class _Touched:
    """The partitions that a step changes, or None for too many; and what it finds out of them."""

    keys: Sequence[PartitionKey] | None
    prefixes: Prefixes = field(default_factory=Prefixes)


class KnownPrefixes:
    """The prefixes of the partitions of a plan's windows."""

    def __init__(self, store: StepStore, limits: Limits) -> None:
        self._store = store
        self._limits = limits
        self._step: int | None = None
        self._known: OrderedDict[tuple[Read, PartitionKey], Prefix] = OrderedDict()
        self._touched: dict[Read, _Touched] = {}

    def begin(self, last_step: int) -> None:
        """Begin a step, after this one."""
        self._touched = {}
        if self._step != last_step:
            self._known.clear()
            self._step = last_step

    def committed(self) -> None:
        """Take over what the step has found: it was committed."""
        if self._step is None:
            return
        self._step += 1
        for read, touched in self._touched.items():
            if touched.keys is None:
                gone = [known for known in self._known if known[0] == read]
            else:
                gone = [(read, key) for key in touched.keys]
            for known in gone:
                self._known.pop(known, None)
            for key, prefix in touched.prefixes.found.items():
                self._known[read, key] = prefix
        while len(self._known) > self._limits.known_prefixes:
            self._known.popitem(last=False)
        self._touched = {}

    def read(
        self, read: Read, keys: Relation, state: State, whole: Callable[[], Parts]
    ) -> tuple[Parts, Prefixes]:
        """The rows of partitions: from the end of the prefix on, where that is known of all."""
        touched = self._touched[read] = _Touched(self._keys(keys, state))
        known = {k: self._known.get((read, k)) for k in touched.keys or ()}
        found = {k: prefix for k, prefix in known.items() if prefix is not None}
        is_cut = known and len(found) == len(known) and _is_in_order(read, state)
        if not is_cut or not isinstance(self._store, OrderedStore):
            return whole(), touched.prefixes
        touched.prefixes = Prefixes(found)
        since = [found[k].place for k in touched.keys or ()]
        return self._store.read_since(state.register.name, keys, since), touched.prefixes

    def forget(self, read: Read) -> Prefixes:
        """Nothing is known of what a read gives: it is to be read whole after all."""
        touched = self._touched[read]
        touched.prefixes = Prefixes()
        return touched.prefixes

    def _keys(self, keys: Relation, state: State) -> list[PartitionKey] | None:
        """The partitions that are touched, if they are few."""
        if keys.table is None or keys.table.num_rows > self._limits.cut_keys:
            return None
        rows = keys.table.select(list(state.register.key)).to_pylist()
        return [tuple(row.values()) for row in rows]


def _is_in_order(read: Read, state: State) -> bool:
    """Whether the register has the order that the window has."""
    return read.cut is not None and state.order == read.cut.sorting[0]
