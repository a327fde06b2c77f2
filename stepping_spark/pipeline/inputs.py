"""One source and the input that it feeds: batches become Z-sets of the input's rows."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import InputError, SourceError, cut_short, short
from stepping_spark.base.limits import Limits
from stepping_spark.base.packages import DataFrame
from stepping_spark.execution.io import held_input
from stepping_spark.pipeline.iterators import Items, ItemSource
from stepping_spark.pipeline.protocols import (
    AT,
    MISFITS,
    OTHER_KIND,
    Batch,
    Change,
    Portion,
    Position,
    Source,
    numbers_of,
    position_of,
)
from stepping_spark.pipeline.rejects import (
    DROP,
    FAIL,
    added_up,
    on_invalid_of,
    rejected_of,
    without_misfits,
)
from stepping_spark.relations.codec import encode
from stepping_spark.relations.placement import bytes_of_a_step
from stepping_spark.relations.relation import DriverRelation, Relation, computed_once, plus
from stepping_spark.rows.names import arrow_schema, matched
from stepping_spark.rows.schema import COUNT, VALUE, StreamType, ZSetType
from stepping_spark.spark.session import get_session
from stepping_spark.zsets.from_arrow import fitted
from stepping_spark.zsets.from_dataframe import names_of, relation_of, split
from stepping_spark.zsets.spark import ZSetPython, ZSetSpark

METHODS = ("open", "read", "behind", "close")

SHOWN_LINE = 300
"""The most characters of a row that does not fit, in a message."""

LONGEST_NAME = 300
"""The most characters of a source or sink in a message."""

NOT_READ = "start"
"""The text for the position of a source that was not read yet."""


@dataclass(frozen=True)
class Taken:
    """The part of a step from one source: no batch if nothing is new, no change if no row changed.

    `misfits` is the number of rows that did not fit; `rejected` has them for a sink.
    """

    batch: Batch | None = None
    change: ZSetSpark[Any] | None = None
    rejected: ZSetSpark[Any] | None = None
    misfits: int = 0


class Feed:
    """A source that is read for one input, up to `position`.

    `was` is an older name of the input, under which a state may have the position (`renamed`).
    """

    def __init__(self, name: str, t: StreamType, argument: object, limits: Limits) -> None:
        if not isinstance(t, ZSetType):
            raise InputError(
                f"{user_line()}: input {name!r} takes {t}, and sources give rows; write the query "
                "on a Z-set: st.make_scalar makes a number of one"
            )
        self.name = self.was = name
        self.type = t
        self.position: Position | None = None
        self.shown = short_name(argument)
        self.on_invalid = on_invalid_of(name, argument)
        self._where = f"input {name!r}"
        self._source = source_of(name, argument)
        self._columns = columns_given(argument, t)
        self._limits = limits

    def open(self, position: Position | None) -> None:
        """Open the source to read after a position, and check its columns."""
        lengths = getattr(self._source, "lengths", None)
        if position is not None and lengths and len(numbers_of(position)) not in lengths:
            raise SourceError(f"{self._where}, {self.shown}: {OTHER_KIND}")
        self._source.open(self._columns)
        self.position = position
        schema = getattr(self._source, "schema", None)
        if callable(schema):
            self._check(schema())

    def position_in(self, offsets: Mapping[str, int]) -> Position | None:
        """The position of the source in a store's offsets; None if it was not read."""
        position = position_of(self.name, offsets)
        return position_of(self.was, offsets) if position is None else position

    def close(self) -> None:
        """Release the resources of the source."""
        self._source.close()

    def behind(self) -> int | None:
        """The unread amount of the source, in `counts`; None if unknown."""
        return self._source.behind(self.position)

    def share_of_columns(self) -> str:
        """How many columns of its table an open source reads; "" for all of them, or if unknown."""
        schema = getattr(self._source, "schema", None)
        read, there = len(self._columns), len(schema()) if callable(schema) else 0
        return f"{read:,} of {there:,} columns" if read < there else ""

    @property
    def rejects_to(self) -> Any:
        """The sink of rows that do not fit, or None."""
        return None if self.on_invalid in (FAIL, DROP) else self.on_invalid

    @property
    def counts(self) -> str:
        """The unit of `behind`, in the singular."""
        unit = getattr(self._source, "unit", "change")
        return str(getattr(self._source, "counts", unit))

    @property
    def begins_whole(self) -> bool:
        """Whether it is a table without a sink for misfits: its current rows are finite."""
        return not isinstance(self._source, ItemSource) and self.on_invalid in (FAIL, DROP)

    def take_after(self, position: Position | None, portion: Portion) -> Taken:
        """The next batch after any position.

        Rows that do not fit are an error, or are dropped: a sink for them has got them before.
        """
        own_position, self.position = self.position, position
        try:
            return self._next_change(portion, FAIL if self.on_invalid == FAIL else DROP)
        finally:
            self.position = own_position

    def gathered(self, changes: Iterable[ZSetSpark[Any]]) -> ZSetSpark[Any]:
        """The sum of changes of the input.

        The driver holds changes up to the bytes of a step. Spark holds the other ones on its disks.
        """
        schema, most = self.type.schema, bytes_of_a_step(self._limits)
        here: list[Relation] = []
        relations: list[Relation] = []
        for change in changes:
            relation = held_input(change, self.type, self._where, self._limits)
            (here if isinstance(relation, DriverRelation) else relations).append(relation)
            if sum(part.nbytes or 0 for part in here) > most:
                relations.append(computed_once(plus(here, schema).in_spark(get_session)))
                here = []
        whole = plus([*here, *relations], schema)
        whole = whole.added_up() if isinstance(whole, DriverRelation) else whole
        return ZSetSpark(whole, self.type)

    def take(self, portion: Portion) -> Taken:
        """The next batch; `position` does not change."""
        return self._next_change(portion, self.on_invalid)

    def _next_change(self, portion: Portion, on_invalid: object) -> Taken:
        batch = self._source.read(self.position, portion)
        if batch is None:
            return Taken()
        if not isinstance(batch, Batch):
            raise SourceError(
                f"{self._where}: read gave {short(batch)}; a source returns an st.Batch, or None "
                "if there is nothing new"
            )
        whole, misfits = self._relation_of(batch)
        if isinstance(whole, DriverRelation):
            whole = whole.added_up()
        change: ZSetSpark[Any] | None = None if whole.is_empty else ZSetSpark(whole, self.type)
        n = int(np.abs(misfits.column(COUNT).to_numpy()).sum())
        if not n or on_invalid == DROP:
            return Taken(batch, change, None, n)
        if on_invalid == FAIL:
            raise self._misfit(misfits)
        rejected = rejected_of(self.name, misfits)
        return Taken(batch, change, rejected, n)

    def look(self, portion: Portion) -> None:
        """Raise the errors of `take` that a source can detect without reading rows."""
        look = getattr(self._source, "look", None)
        batch = look(self.position, portion) if callable(look) else None
        if isinstance(batch, Batch):
            self._relation_of(batch)

    def confirm(self) -> None:
        """Notify the source that its position is committed, if it has a method `confirm`."""
        confirm = getattr(self._source, "confirm", None)
        if confirm is not None and self.position is not None:
            confirm(self.position)

    # -- columns

    def _check(self, there: pa.Schema) -> None:
        """Refuse a table without the columns of the rows, or with columns of other types."""
        where = f"{self._where}, {self.shown}"
        if AT.encode() in (there.metadata or {}):
            where += f", {(there.metadata or {})[AT.encode()].decode()}"
        if self._columns.names == [VALUE] and len(there.names) == 1:
            names = {VALUE: there.names[0]}  # a single column is the value, whatever its name
        else:
            failure = functools.partial(_source_error, where)
            names = matched(self._columns, there.names, failure)
        fields = [there.field(there.names.index(column)) for column in names.values()]
        empty = pa.table([pa.nulls(0, f.type) for f in fields], names=list(names))
        try:
            fitted(empty, self.type, None, where, {})
        except InputError as e:
            raise SourceError(str(e)) from None

    # -- rows

    def _place(self, batch: Batch) -> str:
        """The place of a batch in its source, for messages: versions, or another unit."""
        to = numbers_of(batch.position)[0]
        unit = getattr(self._source, "unit", "position")
        if isinstance(self._source, ItemSource):
            return f"{unit} {to}"
        if self.position is None:
            return f"up to {unit} {to}"
        before = numbers_of(self.position)[0]
        further = f", up to {to}" if to > before + 1 else ""
        return f"after {unit} {before}{further}"

    def _at(self, place: str) -> str:
        """The input and a place in its source, for messages."""
        of = "" if isinstance(self._source, ItemSource) else f"{self.shown}, "
        return f"{self._where}, {of}{place}"

    def _relation_of(self, batch: Batch) -> tuple[Relation, pa.Table]:
        """The sum of the changes of a batch, and the rows that do not fit."""
        place = self._place(batch)
        parts = [self._fitting(change, place) for change in _changes(batch)]
        misfits = [m for _, m in parts if m.num_rows]
        if batch.misfits is not None:
            misfits.append(batch.misfits)
        return plus([p for p, _ in parts], self.type.schema), added_up(misfits, place)

    def _misfit(self, misfits: pa.Table) -> InputError:
        """The error for rows that do not fit; it shows the first."""
        first = misfits.slice(0, 1).to_pylist()[0]
        more = misfits.num_rows - 1
        others = f" (and {more:,} more row{'' if more == 1 else 's'})" if more else ""
        row = cut_short(first["row"], SHOWN_LINE)
        return InputError(
            f"{self._at(first[AT])}, {first['reason']}, in the row {row}{others}; "
            "correct the rows, or say what becomes of rows that do not fit: "
            'on_invalid="drop", or on_invalid= with a sink for them'
        )

    def _fitting(self, change: Change, place: str) -> tuple[Relation, pa.Table]:
        if isinstance(change, pa.Table):
            return self._of_table(change, (change.schema.metadata or {}).get(AT.encode()), place)
        where = self._at(place)
        if isinstance(change, DataFrame):
            return self._of_frame(change, where)
        if isinstance(change, ZSetPython) and self.on_invalid != FAIL:
            return self._of_rows(change, where)
        return held_input(change, self.type, where, self._limits), MISFITS.empty_table()

    def _of_rows(self, rows: ZSetPython[Any], where: str) -> tuple[Relation, pa.Table]:
        """The rows of Python that fit, and the misfits."""
        fit, misfits = [], []
        for row, n in rows.iter():
            try:
                encode([(row, n)], self.type, where)
                fit.append((row, n))
            except InputError as e:
                misfits.append({"row": repr(row), "reason": str(e), COUNT: n})
        relation = DriverRelation(encode(fit, self.type, where), self.type.schema)
        return relation, pa.Table.from_pylist(misfits, MISFITS)

    def _of_table(
        self, table: pa.Table, within: bytes | None, place: str
    ) -> tuple[Relation, pa.Table]:
        """The rows of a table that fit, and the misfits; `within` is a more exact place."""
        count = self._count(table.schema.names)
        place = place if within is None else within.decode()
        fitting = fitted(table, self.type, count, self._at(place), self._names)
        misfits = MISFITS.empty_table()
        relation = fitting.relation
        if fitting.wrong:
            relation, misfits = without_misfits(table, fitting, count, place)
        return DriverRelation(relation, self.type.schema), misfits

    def _of_frame(self, frame: DataFrame, where: str) -> tuple[Relation, pa.Table]:
        """The rows of a DataFrame that fit, and the misfits, which take one more Spark job."""
        count = self._count(frame.columns)
        misfits = MISFITS.empty_table()
        if self.on_invalid == FAIL:
            fit = relation_of(frame, self.type, count, where, self._names)
        else:
            fit, others = split(frame, self.type, count, where, self._names)
            misfits = others.toArrow().rename_columns(MISFITS.names).cast(MISFITS)
        zset = ZSetSpark.unchecked(fit, self.type)
        return held_input(zset, self.type, where, self._limits), misfits

    def _count(self, there: Iterable[str]) -> str | None:
        """The column of counts, unless a field of the rows is this column."""
        return COUNT if COUNT in there and COUNT not in self._names.values() else None

    @property
    def _names(self) -> Mapping[str, str]:
        """The names of columns that differ from their fields, in tables that the source returns.

        Items of an iterable have the names of the row class; sources rename columns themselves.
        """
        return names_of(self.type) if isinstance(self._source, ItemSource) else {}


def _source_error(where: str, reason: str) -> SourceError:
    return SourceError(f"{where}: {reason}")


def position_text(position: Position | None) -> str:
    """A position in log lines: its first number, such as the version.

    The other numbers identify the table, and the pieces of a version that are read.
    """
    return NOT_READ if position is None else str(numbers_of(position)[0])


def short_name(argument: object) -> str:
    """A source or sink argument in a few words: the beginning of its name, or its class."""
    if isinstance(argument, list | tuple):
        return f"{len(argument)} items"
    name = str(getattr(argument, "__qualname__", None) or repr(argument))
    return type(argument).__name__ if "\n" in name else cut_short(name, LONGEST_NAME)


def columns_given(argument: object, t: ZSetType) -> pa.Schema:
    """The fields of rows, with the names of their columns in a table.

    A row class may name columns, and so may a table with `columns=`; the table's names win.
    """
    columns = getattr(argument, "columns", None) or {}
    if not isinstance(columns, Mapping):
        columns = {}
    fields = [n for n, _ in t.schema.columns]
    unknown = [name for name in columns if name not in fields]
    if unknown:
        raise InputError(
            f"{user_line()}: columns= of {short_name(argument)} names "
            f"{', '.join(map(repr, unknown))}, and the fields are {', '.join(fields)}; "
            "write columns={field: column}"
        )
    return arrow_schema(t.schema.columns, {**names_of(t), **columns})


def _changes(batch: Batch) -> tuple[Change, ...]:
    if isinstance(batch.changes, ZSetPython | ZSetSpark | pa.Table | DataFrame):
        return (batch.changes,)  # a single change
    return batch.changes


def source_of(name: str, argument: object) -> Source:
    """The source of an input's argument: its `source()`, the argument itself, or an iterable."""
    if isinstance(argument, Items):
        return ItemSource(name, argument.items)
    method = getattr(argument, "source", None)
    candidate: Any = method() if callable(method) and not isinstance(argument, type) else argument
    if all(callable(getattr(candidate, m, None)) for m in METHODS) and not isinstance(
        candidate, type
    ):
        source: Source = candidate
        return source
    if isinstance(candidate, Iterable) and not isinstance(
        candidate, str | bytes | ZSetPython | ZSetSpark
    ):
        return ItemSource(name, candidate)
    raise InputError(
        f"{user_line()}: input {name!r} has {short(argument)} as its source; give a table, as "
        "st.DeltaTable(path), an iterable of (position, change), or an object with the methods of "
        "st.Source"
    )
