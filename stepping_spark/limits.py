"""`Limits`: the numbers that decide where things run, and how much is done at once."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from stepping_spark.callsite import user_line
from stepping_spark.errors import InputError


def _limit(default: int, of: str, *, least: int = 0, zero: str = "") -> Any:
    """A field: what it counts, the least value, and what 0 does where that is worth a word."""
    return field(default=default, metadata={"of": of, "least": least, "zero": zero})


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The numbers that decide what runs on the driver or in Spark, at once or in parts.

    They change how fast a step is and how much memory it needs, never its result. `st.Stepper`,
    `st.iteration` and `st.actions` take them for the computation. A store takes them, when it is
    made, for what it reads and keeps. The defaults fit a driver with some gigabytes of memory.
    Raises `InputError` for a value that is not a whole number, or is too small.

    >>> st.Limits(local_rows=100_000).local_rows
    100000
    """

    # -- where a stream is computed

    local_rows: int = _limit(2_000_000, "rows", zero="sends everything to Spark")
    """Rows that a stream reads, to be computed on the driver. Beyond: in Spark."""

    given_rows: int = _limit(1_000_000, "rows")
    """Rows that one computation on the driver, one small query, or one read by key may give.

    Beyond, however few rows it reads, it is done in Spark.
    """

    small_rows: int = _limit(100_000, "rows")
    """Rows that a Spark query of one partition reads, for several streams together.

    Beyond: a query for each stream, in as many partitions as the session has.
    """

    small_bytes: int = _limit(32 << 20, "bytes")
    """The same in bytes: Spark has them several times in memory, and what is made of them.

    Beyond: a query for each stream, as with more rows.
    """

    small_given_bytes: int = _limit(64 << 20, "bytes")
    """Bytes that such a query gives, by the widest rows that it reads. Beyond: as a large one."""

    streams_together: int = _limit(8, "streams", least=1)
    """Streams in one small query: each join and sum takes some of its one task's memory at first.

    Beyond: another query.
    """

    queries_at_once: int = _limit(4, "queries", least=1)
    """Large queries that run side by side. Beyond: they wait for each other."""

    broadcast_bytes: int = _limit(32 << 20, "bytes")
    """Bytes of a relation of the driver that is sent to all workers, for a join.

    Beyond it is shuffled, and what Spark has computed of that size stays in Spark too.
    """

    # -- what comes to the driver

    fetched_rows: int = _limit(2_000_000, "rows")
    """Rows that Spark has computed, to come to the driver. Beyond: they stay in Spark."""

    fetched_bytes: int = _limit(256 << 20, "bytes")
    """The same in bytes, as Arrow has them. Beyond: they stay in Spark."""

    sampled_rows: int = _limit(10_000, "rows")
    """Rows that come to the driver without being counted before. Beyond: a job counts them."""

    piece_bytes: int = _limit(64 << 20, "bytes", least=1)
    """Bytes that come to the driver in one job: Spark has them several times meanwhile.

    Beyond: several jobs, a piece each.
    """

    collected_rows: int = _limit(5_000, "rows")
    """Rows of the driver whose functions Spark evaluates without a job, and gives row by row.

    Beyond: a job, which gives Arrow. The two took as long at about 5,000 rows.
    """

    known_relations: int = _limit(100, "relations")
    """Small relations of which the values of functions are remembered within a step.

    Beyond: all are forgotten.
    """

    inline_cells: int = _limit(500, "cells")
    """Values of a relation that stands in the text of a query: parsing takes longer with more.

    Beyond: a view of an Arrow table.
    """

    inline_bytes: int = _limit(64 << 10, "bytes")
    """The same in bytes, for long texts and lists, of which a query keeps several copies.

    Beyond: a view.
    """

    cut_rows: int = _limit(1_000, "rows")
    """Rows of a window's state that the driver computes all: to look for what matters takes longer.

    Beyond: the rows from the change on, and those that the functions look back to.
    """

    cut_keys: int = _limit(8, "keys")
    """Keys of a change for which the driver looks for those rows, each with a pass over the state.

    Beyond: all rows of the keys are read and computed.
    """

    known_prefixes: int = _limit(10_000, "partitions", zero="reads partitions whole")
    """Partitions of windows of which the driver knows what comes before the rows that it reads.

    Beyond: those that were not changed for the longest time are read whole.
    """

    due_times: int = _limit(10_000, "times")
    """Times between two steps that are looked up one by one, in what is kept until its time.

    Beyond: all that is kept is read.
    """

    # -- in a recursion

    loop_rows: int = _limit(100_000, "rows")
    """Rows of one iteration that Spark has computed, to come to the driver. Beyond: they stay."""

    loop_parts: int = _limit(8, "parts", least=1)
    """Parts that iterations leave of one stream. Beyond: they are put together."""

    # -- in all stores

    looked_up_keys: int = _limit(100_000, "keys")
    """Keys that one read of a store looks up. Beyond: it gives all rows, or Spark joins them."""

    listed_keys: int = _limit(1_000, "keys")
    """Keys that stand in a condition's text, where Spark has the rows. Beyond: a broadcast."""

    kept_bytes: int = _limit(512 << 20, "bytes")
    """Bytes of a change in Spark that the driver may keep: Spark refuses results of 1 GB.

    Beyond: Spark keeps it, or writes it.
    """

    sorted_rows: int = _limit(1 << 14, "rows")
    """Rows of a change that are consolidated all at once. Beyond: piece by piece, in order."""

    piece_rows: int = _limit(1 << 20, "rows", least=1)
    """Rows of such a piece, which is what is copied at a time. Beyond: another piece."""

    merged_rows: int = _limit(1 << 16, "rows", least=1)
    """Rows of a slice of a merge, and the least that a step merges. Beyond: in later steps."""

    # -- in a Parquet store

    merged_here_rows: int = _limit(1 << 21, "rows")
    """Rows that the driver merges in one step, or the store's `driver_rows` if those are more.

    Beyond: Spark merges.
    """

    searched_rows: int = _limit(1 << 24, "rows")
    """Rows that the driver reads to find keys in, which takes two cores about two seconds.

    Beyond: Spark reads the files, and joins what it reads.
    """

    groups_at_once: int = _limit(128, "row groups", least=1)
    """Row groups that are in memory at a time, beside the cache, to find keys in them.

    Beyond: they are read one lot after the other.
    """

    given_parts: int = _limit(16, "parts", least=1)
    """Parts that such a lot of row groups gives. Beyond: they are copied into one."""

    file_rows: int = _limit(1 << 20, "rows", least=1)
    """Rows of a file. Beyond: another file."""

    batch_files: int = _limit(64, "files", least=1)
    """Files of one batch. Beyond: its files have more rows."""

    # -- in a Postgres store

    statement_rows: int = _limit(2_000, "rows")
    """Rows that go to the server along with their statement. Beyond: by COPY."""

    index_rows: int = _limit(50_000, "rows")
    """Rows that are added to the index of an empty table. Beyond: the index is made anew."""

    vacuum_rows: int = _limit(10_000, "rows")
    """Rows of an output that a step deletes. Beyond: VACUUM removes them after the commit."""

    part_bytes: int = _limit(32 << 20, "bytes", least=1)
    """Bytes of a table that one of Spark's workers reads at a time. Beyond: another task."""

    def __post_init__(self) -> None:
        for f in fields(self):
            value, least = getattr(self, f.name), f.metadata["least"]
            if type(value) is not int or value < least:
                zero = f.metadata["zero"]
                raise InputError(
                    f"{f.name}={value!r}: expected a number of {f.metadata['of']}, {least} or more"
                    + (f"; 0 {zero}" if zero else "")
                )


DEFAULT = Limits()


def checked_limits(limits: object) -> Limits:
    """The limits that a user has given; the defaults for None."""
    if limits is None:
        return DEFAULT
    if not isinstance(limits, Limits):
        raise InputError(
            f"{user_line()}: limits={limits!r}: expected st.Limits, found "
            f"{type(limits).__name__}; write limits=st.Limits(local_rows=…)"
        )
    return limits


def limits_of(limits: Limits | None, local_rows: int | None) -> Limits:
    """The limits that were given, with or without the short form for one of them."""
    if limits is None and local_rows is not None:
        return Limits(local_rows=local_rows)
    limits = checked_limits(limits)
    if local_rows not in (None, limits.local_rows):
        raise InputError(
            f"{user_line()}: local_rows={local_rows!r}, and limits= says "
            f"local_rows={limits.local_rows:,}; give one of the two: "
            f"limits=st.Limits(local_rows={local_rows!r}, …)"
        )
    return limits
