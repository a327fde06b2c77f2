"""Structured Streaming as a source of steps: each micro-batch is one, exactly once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from stepping_spark.base.errors import InputError, StoreError
from stepping_spark.base.packages import DataFrame
from stepping_spark.circuit.graph import AnyGraph
from stepping_spark.circuit.operators import Input
from stepping_spark.rows.schema import COUNT, ZSetType
from stepping_spark.spark.session import advise, streaming_query
from stepping_spark.stepper.stepper import Stepper
from stepping_spark.zsets.from_change_feed import change_feed as from_feed
from stepping_spark.zsets.from_change_feed import is_change_feed
from stepping_spark.zsets.from_dataframe import relation_of
from stepping_spark.zsets.python import ZSet
from stepping_spark.zsets.spark import ZSetSpark

__all__ = ["foreach_batch"]

ToZSet = Callable[[DataFrame], ZSet[object]]


def foreach_batch(
    stepper: Stepper[Any, Any],
    input: str | int,  # noqa: A002 - the field's name for it
    *,
    source: str | None = None,
    first_batch: int = 0,
    change_feed: bool = False,
    to_zset: ToZSet | None = None,
) -> Callable[[DataFrame, int], None]:
    """A function for `writeStream.foreachBatch`: each micro-batch is one step, exactly once.

    `input` is the name or the number of a parameter of the query; the other inputs do not change in
    these steps. Read the outputs of the steps from caches. The store commits the batch's id with
    the step, so repeating a committed batch changes nothing. So a query can continue that was
    killed between the store's commit and its checkpoint's. Several streams may feed one stepper;
    their steps are taken one at a time.

    Each line of a batch is an inserted row, with the weight in the column `_count_`, if there is
    one. `change_feed=True` reads it with `from_change_feed`; `to_zset` is a function from the batch
    to a Z-set for everything else. Columns are checked as in `ZSetSpark.from_dataframe`. A batch is
    computed once, however often it is used; an empty one is a step without changes.

    `source` names the stream in the store; by default it has the input's name. A stream is
    identified by this name and by its checkpoint. A stream with a new checkpoint would read
    everything again, so it is refused under the same name. A batch other than the last or the next
    one is refused too: then the checkpoint or the store is an older copy, and changes would be lost
    or applied twice. `first_batch` is the id that the first batch must have, if it is not 0 because
    earlier rows are in the store already.

    Spark Connect is not supported: there such a function runs in another process. In a local
    session with Spark's default of 200 shuffle partitions the first batch may take half a minute; a
    line of the log warns of it. Call `spark.conf.set("spark.sql.shuffle.partitions", 4)` before the
    stream starts.

    Raises `InputError` for an input that does not exist, or that is a number. An error of the
    function ends the streaming query, and the store is as before the batch: `InputError`,
    `StepError`, and `StoreError` for a batch out of order.

    >>> orders = spark.readStream.schema(schema).json("orders/")    # doctest: +SKIP
    >>> step = st.foreach_batch(stepper, input="orders")            # doctest: +SKIP
    >>> orders.writeStream.foreachBatch(step) \\
    ...     .option("checkpointLocation", "checkpoint/").start()    # doctest: +SKIP
    """
    number, name, t = _input_of(stepper.graph, input)
    where = f"input {name!r}"
    reader = _reader(t, where, change_feed, to_zset)
    called = name if source is None else source

    def take(batch: DataFrame, batch_id: int) -> None:
        advise(batch.sparkSession)
        key = _key(called, streaming_query(batch))
        offsets = stepper.store.last_offsets()
        _check_stream(called, key, offsets)
        if _check_order(called, batch_id, offsets.get(key), first_batch):
            inputs: list[object] = [None] * len(stepper.graph.inputs)
            inputs[number] = reader(batch)
            stepper.step_from(key, batch_id, inputs)

    return take


def _input_of(graph: AnyGraph, wanted: str | int) -> tuple[int, str, ZSetType]:
    """The number, name and type of an input that takes Z-sets."""
    names = [v.operator.label for v in graph.inputs if isinstance(v.operator, Input)]
    listed = ", ".join(names)
    if isinstance(wanted, str) and wanted in names:
        number = names.index(wanted)
    elif type(wanted) is int and 0 <= wanted < len(names):
        number = wanted
    else:
        raise InputError(
            f"foreach_batch: {graph.name} has no input {wanted!r}; its inputs are {listed}: give "
            f"one of these names, or a number from 0 to {len(names) - 1}"
        )
    t = graph.inputs[number].type
    if not isinstance(t, ZSetType):
        raise InputError(
            f"foreach_batch: input {names[number]!r} of {graph.name} takes {t}, and a batch is a "
            "Z-set; feed it with Stepper.step_from in a function of your own"
        )
    return number, names[number], t


def _reader(t: ZSetType, where: str, change_feed: bool, to_zset: ToZSet | None) -> ToZSet:
    """The function that turns a batch into a Z-set."""
    if to_zset is not None:
        if change_feed:
            raise InputError(
                f"foreach_batch, {where}: change_feed=True and to_zset= were both given; give one"
            )
        return to_zset
    if change_feed:
        return lambda batch: from_feed(batch, t, where)

    def rows(batch: DataFrame) -> ZSetSpark[object]:
        try:
            count = COUNT if COUNT in map(str.lower, batch.columns) else None
            return ZSetSpark.unchecked(relation_of(batch, t, count, where), t)
        except InputError as e:
            if not is_change_feed(batch):
                raise
            raise InputError(f"{e}; or, as it is a change feed, say change_feed=True") from None

    return rows


# -- the identity of streams, and the order of batches


def _key(source: str, query: str | None) -> str:
    """The name of a stream in the store: its source, and the query's id from its checkpoint."""
    return source if query is None else f"{source}@{query}"


def _check_stream(source: str, key: str, offsets: Mapping[str, int]) -> None:
    """Refuse a query under the source name of another one that the store has read."""
    others = [k for k in offsets if k == source or k.rpartition("@")[0] == source]
    if others and key not in others:
        raise StoreError(
            f"foreach_batch: this is another streaming query ({key}) than the one that the store "
            f"has read as source {source!r} ({', '.join(others)}): it has another checkpoint, and "
            "would read everything again. Start it with the checkpointLocation of the one before; "
            "or, if all it reads is new to the store, give it a name of its own with source="
        )


def _check_order(source: str, batch: int, last: int | None, first: int) -> bool:
    """Whether a batch is the next one; False for the last one again. Refuses any other."""
    expected = first if last is None else last + 1
    if batch in (last, expected):
        return batch == expected
    if last is None:
        raise StoreError(
            f"foreach_batch: the first batch of source {source!r} is number {batch}, and the store "
            f"has none of those before, from {first} on. Start the query with a new "
            f"checkpointLocation; or, if their rows are in the store, say first_batch={batch}"
        )
    why = "the checkpoint is an older copy than the store"
    if batch > expected:
        why = "the store is an older copy than the checkpoint, or batches were kept from it"
    raise StoreError(
        f"foreach_batch: source {source!r} gave batch {batch}, and the last one in the store is "
        f"{last}, so that the next is {expected}: {why}. Restore a store and a checkpoint that "
        "belong together, and give every batch to the function, empty ones too; or, if this is "
        "another stream, give it a name of its own with source="
    )
