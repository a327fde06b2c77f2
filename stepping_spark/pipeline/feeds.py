"""One source and the input that it feeds: what it gives becomes a Z-set of the input's rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame

from stepping_spark.callsite import user_line
from stepping_spark.errors import InputError, SourceError
from stepping_spark.execution.io import held_input
from stepping_spark.limits import Limits
from stepping_spark.pipeline.iterators import Items
from stepping_spark.pipeline.positions import numbers_of
from stepping_spark.pipeline.protocols import Batch, Change, Portion, Position, Source
from stepping_spark.relations.arrow import canonical, flat, row_ids
from stepping_spark.rows.atoms import short
from stepping_spark.rows.names import arrow_schema
from stepping_spark.rows.schema import COUNT, Schema, StreamType, ZSetType
from stepping_spark.rows.types import Struct
from stepping_spark.spark.relation import DriverRelation, Relation, plus
from stepping_spark.zsets.from_arrow import Misfit, relation_of_arrow
from stepping_spark.zsets.from_dataframe import relation_of
from stepping_spark.zsets.spark import ZSetPython, ZSetSpark

METHODS = ("open", "read", "behind", "close")

NOT_READ = "start"
"""What is shown as the position of a source that was not read yet."""


class Feed:
    """A source that is read for one input: `position` is how far."""

    def __init__(self, name: str, t: StreamType, given: object, limits: Limits) -> None:
        if not isinstance(t, ZSetType):
            raise InputError(
                f"{user_line()}: input {name!r} takes {t}, and sources give rows; write the query "
                "on a Z-set: st.make_scalar makes a number of one"
            )
        self.name = name
        self.type = t
        self.position: Position | None = None
        self.shown = told(given)
        self._where = f"input {name!r}"
        self._source = source_of(name, given)
        self._columns: Mapping[str, str] = getattr(given, "columns", {})
        self._limits = limits

    def open(self, position: Position | None) -> None:
        """Get ready to read what comes after a position."""
        self._source.open(arrow_of(self.type, self._columns))
        self.position = position

    def close(self) -> None:
        """Release what the source holds."""
        self._source.close()

    def behind(self) -> int | None:
        """How much there is that was not read; None: unknown."""
        return self._source.behind(self.position)

    @property
    def counts(self) -> str:
        """What `behind` counts, in the singular."""
        unit = getattr(self._source, "unit", "change")
        return str(getattr(self._source, "counts", unit))

    def take(self, portion: Portion) -> tuple[Batch | None, ZSetSpark[Any] | None]:
        """What comes next; the position is still the old one. No Z-set: nothing changed."""
        batch = self._source.read(self.position, portion)
        if batch is None:
            return None, None
        if not isinstance(batch, Batch):
            raise SourceError(
                f"{self._where}: read gave {short(batch)}; a source gives an st.Batch, or None "
                "where there is nothing new"
            )
        whole = self._relation_of(batch)
        if isinstance(whole, DriverRelation):
            whole = whole.added_up()
        return batch, None if whole.is_empty else ZSetSpark(whole, self.type)

    def look(self, portion: Portion) -> None:
        """Refuse what `take` refuses, as far as a source can tell that without reading rows."""
        look = getattr(self._source, "look", None)
        batch = look(self.position, portion) if callable(look) else None
        if isinstance(batch, Batch):
            self._relation_of(batch)

    def confirm(self) -> None:
        """Tell the source that what comes before the position is committed, if it wants to know."""
        confirm = getattr(self._source, "confirm", None)
        if confirm is not None and self.position is not None:
            confirm(self.position)

    def _read_with(self, batch: Batch) -> str:
        """Where in the source a batch is: which version, or whatever it counts."""
        to = numbers_of(batch.position)[0]
        if isinstance(self._source, Items):
            return f"position {to}"
        unit = getattr(self._source, "unit", "position")
        if self.position is None:
            return f"{self.shown}, up to {unit} {to}"
        before = numbers_of(self.position)[0]
        further = f", up to {to}" if to > before + 1 else ""
        return f"{self.shown}, after {unit} {before}{further}"

    def _relation_of(self, batch: Batch) -> Relation:
        """The changes of a batch, added up."""
        where = f"{self._where}, {self._read_with(batch)}"
        parts = [self._relation(change, where) for change in _changes(batch)]
        return plus(parts, self.type.schema)

    def _relation(self, change: Change, where: str) -> Relation:
        schema = self.type.schema
        if isinstance(change, pa.Table):
            count = COUNT if COUNT in change.schema.names else None
            kept = _kept(change.schema.names, schema, count)
            return DriverRelation(self._converted(change.select(kept), count, where), schema)
        if isinstance(change, DataFrame):
            count = COUNT if COUNT in change.columns else None
            frame = change.select(*(f"`{n}`" for n in _kept(change.columns, schema, count)))
            held: object = ZSetSpark.unchecked(
                relation_of(frame, self.type, count, where), self.type
            )
        else:
            held = change
        return held_input(held, self.type, where, self._limits)

    def _converted(self, table: pa.Table, count: str | None, where: str) -> pa.Table:
        """A table as the rows have it; rows that do not fit may come and go within one step."""
        try:
            return relation_of_arrow(table, self.type, count, where)
        except Misfit as e:
            raise InputError(e.said) from None
        except InputError:
            left = table if count is None else _left(table, count)
            if left.num_rows == table.num_rows:
                raise
            return relation_of_arrow(left, self.type, count, where)


def shown(position: Position | None) -> str:
    """A position as a log has it: the version, or what the source counts.

    The other numbers of a position say which table it is, and how far a version is read in pieces.
    """
    return NOT_READ if position is None else str(numbers_of(position)[0])


def told(given: object) -> str:
    """What was given as a source or a sink, in a few words."""
    if isinstance(given, list | tuple):
        return f"{len(given)} items"
    said = getattr(given, "__qualname__", None) or repr(given)
    return str(said) if len(str(said)) < 100 else type(given).__name__


def arrow_of(t: ZSetType, named: Mapping[str, str]) -> pa.Schema:
    """The columns of the rows, with the names that they have in a table."""
    of_class = t.row.column_names if isinstance(t.row, Struct) else {}
    return arrow_schema(t.schema.columns, {**of_class, **named})


def _kept(names: Iterable[str], schema: Schema, count: str | None) -> list[str]:
    """The columns of a table that the rows have; where one is missing, all, for the error."""
    names = list(names)
    wanted = {n.lower() for n, _ in schema.columns}
    found = [n for n in names if n.lower() in wanted]
    if len(found) < len(wanted):
        return names
    return found + ([count] if count is not None else [])


def _left(table: pa.Table, count: str) -> pa.Table:
    """The rows that do not come and go in equal numbers."""
    columns = [table.column(name) for name in table.schema.names if name != count]
    ids = row_ids([part for column in columns for part in flat(canonical(column))])
    sums = np.zeros(ids.max(initial=0) + 1, np.int64)
    np.add.at(sums, ids, table.column(count).to_numpy())
    return table.filter(pa.array(sums[ids] != 0))


def _changes(batch: Batch) -> tuple[Change, ...]:
    if isinstance(batch.changes, ZSetPython | ZSetSpark | pa.Table | DataFrame):
        return (batch.changes,)  # one, without the tuple
    return batch.changes


def source_of(name: str, given: object) -> Source:
    """What was given for an input as a source: a place says its own, an iterable is read."""
    made = getattr(given, "source", None)
    found: Any = made() if callable(made) and not isinstance(given, type) else given
    if all(callable(getattr(found, m, None)) for m in METHODS) and not isinstance(found, type):
        source: Source = found
        return source
    if isinstance(found, Iterable) and not isinstance(found, str | bytes | ZSetPython | ZSetSpark):
        return Items(name, found)
    raise InputError(
        f"{user_line()}: input {name!r} has {short(given)} as its source; give a table, as "
        "st.DeltaTable(path), an iterable of (position, change), or an object with the methods of "
        "st.Source"
    )
