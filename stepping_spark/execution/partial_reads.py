"""Reads some rows of keys: the last ones of partitions, or those in some buckets of groups."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from stepping_spark.circuit.physical import BucketedRank
from stepping_spark.execution.arrow.buckets import Buckets
from stepping_spark.execution.arrow.kernels import PartitionKey, Prefix, Prefixes, StateNotes
from stepping_spark.execution.arrow.window_delta import CUT_KEYS, CUT_ROWS
from stepping_spark.execution.sql_scope import Projection
from stepping_spark.execution.step import Step, rows_of
from stepping_spark.expressions.arrow_evaluator import Ask
from stepping_spark.plan.step_ir import Read, RegisterPlan, Selection
from stepping_spark.relations.arrow import Array
from stepping_spark.relations.relation import DriverRelation, Relation, on_driver
from stepping_spark.relations.store import BucketStore, OrderedStore, StepStore

RelationParts: TypeAlias = tuple[Relation, ...]


KNOWN_PREFIXES = 10_000
"""Window partitions for which the driver caches the results before the rows that it reads.

Beyond: the partitions that were changed least recently are read whole.
"""


@dataclass
class _Touched:
    """The partitions that a step changes (None for too many), and their new prefixes."""

    keys: Sequence[PartitionKey] | None
    prefixes: Prefixes = field(default_factory=Prefixes)


class KnownPrefixes:
    """The prefixes of the partitions of a plan's windows.

    A step that adds a row to the end of a partition needs its last rows, and the count or the sum
    of the earlier ones, which the previous step knew. So this cache has, for each computed
    partition, the place in the order from which to read it, and the values before that place
    (`execution.arrow.kernels.Prefix`). It is no state: an unknown partition is read whole.

    The values belong to the last step that this stepper committed. They are forgotten if the store
    is at another step, or if a partition has changed and was not computed on the driver.
    """

    def __init__(self, store: StepStore) -> None:
        self._store = store
        self._step: int | None = None
        self._known: OrderedDict[tuple[Read, PartitionKey], Prefix] = OrderedDict()
        self._touched: dict[Read, _Touched] = {}

    def begin(self, last_step: int) -> None:
        """Begin the step after `last_step`; forget all if that is not the last step seen here."""
        self._touched = {}
        if self._step != last_step:
            self._known.clear()
            self._step = last_step

    def skip(self) -> None:
        """Forget all: tasks take the step."""
        self._step = None

    def committed(self) -> None:
        """Keep the prefixes of the step that was just committed."""
        if self._step is None:
            return
        self._step += 1
        for read, touched in self._touched.items():
            if touched.keys is None:
                gone = [entry for entry in self._known if entry[0] == read]
            else:
                gone = [(read, key) for key in touched.keys]
            for entry in gone:
                self._known.pop(entry, None)
            for key, prefix in touched.prefixes.new.items():
                self._known[read, key] = prefix
        while len(self._known) > KNOWN_PREFIXES:
            self._known.popitem(last=False)
        self._touched = {}

    def read(
        self, read: Read, keys: Relation, state: RegisterPlan, whole: Callable[[], RelationParts]
    ) -> tuple[RelationParts, Prefixes]:
        """The rows of partitions; only the rows after the prefixes, if all prefixes are known."""
        touched = self._touched[read] = _Touched(self._keys(keys, state))
        by_key = {k: self._known.get((read, k)) for k in touched.keys or ()}
        prefixes = {k: prefix for k, prefix in by_key.items() if prefix is not None}
        is_cut = by_key and len(prefixes) == len(by_key) and _is_in_order(read, state)
        if not is_cut or not isinstance(self._store, OrderedStore):
            return whole(), touched.prefixes
        touched.prefixes = Prefixes(prefixes)
        since = [prefixes[k].place for k in touched.keys or ()]
        return self._store.read_since(state.register.name, keys, since), touched.prefixes

    def forget(self, read: Read) -> Prefixes:
        """Forget the prefixes of a read whose partitions must be read whole after all."""
        touched = self._touched[read]
        touched.prefixes = Prefixes()
        return touched.prefixes

    def _keys(self, keys: Relation, state: RegisterPlan) -> list[PartitionKey] | None:
        """The keys of partitions as tuples; None if they are many, or in Spark."""
        if keys.table is None or keys.table.num_rows > CUT_KEYS:
            return None
        rows = keys.table.select(list(state.register.key)).to_pylist()
        return [tuple(row.values()) for row in rows]


class BucketReads:
    """The reads of one plan whose large groups are read by bucket."""

    def __init__(self, store: StepStore, projection: Projection) -> None:
        self._store = store
        self._projection = projection
        self._buckets: dict[Read, Buckets] = {}

    def read(
        self,
        step: Step,
        read: Read,
        state: RegisterPlan,
        key: Selection,
        firsts: RelationParts,
        change: Relation,
        whole: Callable[[], RelationParts],
    ) -> RelationParts:
        """The rows that a change can affect.

        `firsts` are the old first rows of the changed groups, `whole` reads all rows of these, and
        `key` selects the groups of the rows of the change.
        """
        if not isinstance(change, DriverRelation) or rows_of(*firsts) is None:
            return tuple([p.select(read.change.type.schema, beside=True) for p in whole()])
        schema, groups = read.change.type.schema, self._of(read)
        ask = Ask(self._projection.values, self._projection.zone)
        first_rows = DriverRelation(on_driver(firsts, schema), schema)
        large = groups.large(first_rows, change.table, ask)
        if large is not None:
            step.state_notes[read] = StateNotes(in_buckets=large)
        if large is not None and self._finds_buckets(groups, state):
            step.read_whole[read] = whole
            batches = self._cut(read, state, key, change, pa.array(large))
        else:
            batches = whole()
        parts = tuple([p.select(schema, beside=True) for p in batches])
        rows = rows_of(*parts)
        if rows is None or rows <= CUT_ROWS:
            return parts
        here = [p for p in parts if isinstance(p, DriverRelation)]
        return tuple(groups.restricted(here, change.table, large, ask))

    def _of(self, read: Read) -> Buckets:
        if read not in self._buckets:
            assert read.buckets is not None
            tree = read.buckets.of.tree((read.change.type,) * 3)
            assert isinstance(tree, BucketedRank)
            self._buckets[read] = Buckets(tree)
        return self._buckets[read]

    def _finds_buckets(self, groups: Buckets, state: RegisterPlan) -> bool:
        """Whether the store finds the rows of a bucket, which the same columns decide on there."""
        are_same = set(state.register.other_columns) == set(groups.other_columns)
        return are_same and isinstance(self._store, BucketStore)

    def _cut(
        self,
        read: Read,
        state: RegisterPlan,
        key: Selection,
        change: DriverRelation,
        large: Array,
    ) -> RelationParts:
        """The rows of the small groups of a change, and those in its buckets of the large ones."""
        assert read.buckets is not None
        assert isinstance(self._store, BucketStore)
        name, projection = state.register.name, self._projection
        small_keys, large_keys = (
            projection.keys(change.filter(rows), key, nulls=read.nulls)
            for rows in (pc.invert(large), large)
        )
        rows = projection.select(change.filter(large), state.selection)
        of_large = self._store.read_beside(name, rows, read.buckets.of.buckets)
        if small_keys.is_empty:
            return of_large
        # Either may have rows of other keys, which must not come twice.
        of_small = self._store.read(name, small_keys)
        batches = [
            *(p.having(large_keys, among=False) for p in of_small),
            *(p.having(large_keys) for p in of_large),
        ]
        return tuple([p for p in batches if not p.is_empty])


def _is_in_order(read: Read, state: RegisterPlan) -> bool:
    """Whether the register has the order of the window."""
    return read.cut is not None and state.order == read.cut.sorting[0]
