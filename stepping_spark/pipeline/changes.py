"""The change of a view in the forms that tables store: by key, with counts, or as a feed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from stepping_spark.base.errors import SinkError
from stepping_spark.pipeline.protocols import REFRESHED, REMOVED
from stepping_spark.relations.arrow import canonical, flat, row_ids
from stepping_spark.rows.names import as_in_table, column_of, to_table
from stepping_spark.rows.schema import CHANGE, COUNT

pc: Any = pyarrow.compute

STEP = "_step"

RANGES = 16
"""The most key ranges by which the files with the keys of a step are looked up."""


@dataclass(frozen=True)
class ByKey:
    """A change to a table with one row for each key.

    `came` are the rows of inserted keys, `changed` and `before` the new and old rows of updated
    keys, and `gone` the rows of deleted keys.
    """

    came: pa.Table
    changed: pa.Table
    before: pa.Table
    gone: pa.Table

    @property
    def feed(self) -> tuple[tuple[str, pa.Table], ...]:
        """The change as a change feed: the rows of each kind."""
        return (
            ("insert", self.came),
            ("update_preimage", self.before),
            ("update_postimage", self.changed),
            ("delete", self.gone),
        )


@dataclass(frozen=True)
class TableForm:
    """The form in which a table stores a view: rows by key, rows with counts, or changes.

    `columns` are the fields of the view, and `key` names some of them. `where` begins errors.
    """

    columns: pa.Schema
    key: tuple[str, ...]
    changes: bool
    where: str

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        columns = as_in_table(self.columns)
        if self.changes:
            return feed_schema(columns)
        if self.key:
            return columns
        return pa.schema([*columns, pa.field(COUNT, pa.int64(), nullable=False)])

    @property
    def order(self) -> list[str]:
        """The columns by which rows of the table are found: of the key, or of all fields."""
        names = as_in_table(self.columns).names
        return [names[self.columns.get_field_index(n)] for n in self.key or self.columns.names]

    def in_table(self, rows: pa.Table) -> pa.Table:
        """Rows with the names and types of the table's columns."""
        return to_table(rows, self.columns).cast(self.schema)

    def split(self, change: pa.Table) -> ByKey:
        """A change with `_count_`, split by key; raises `SinkError` if a key has several rows."""
        counts = change.column(COUNT).to_numpy()
        rows = change.drop_columns([COUNT])
        comes, goes = counts > 0, counts < 0
        ids = key_ids(rows, self.key)
        for side in (comes, goes):
            here = ids[side]
            keys, first, times = np.unique(here, return_index=True, return_counts=True)
            wrong = np.flatnonzero((times > 1) | (np.abs(counts[side][first]) > 1))
            if len(keys) and len(wrong):
                row = rows.filter(pa.array(side)).slice(int(first[wrong[0]]), 1).to_pylist()[0]
                raise not_unique(self.where, self.key, {name: row[name] for name in self.key})
        both = np.intersect1d(ids[comes], ids[goes])
        in_both = np.isin(ids, both)
        return ByKey(
            rows.filter(pa.array(comes & ~in_both)),
            rows.filter(pa.array(comes & in_both)),
            rows.filter(pa.array(goes & in_both)),
            rows.filter(pa.array(goes & ~in_both)),
        )

    def feed(self, change: pa.Table, step: int) -> pa.Table:
        """A change with `_count_` as a change feed: each row with its kind and the step."""
        if self.key:
            split = self.split(change)
            kinds = {"insert": split.came, "update_postimage": split.changed, "delete": split.gone}
            return pa.concat_tables(_feed_rows(rows, kind, step) for kind, rows in kinds.items())
        counts = change.column(COUNT).to_numpy()
        rows: Any = change.drop_columns([COUNT])
        each = rows.take(np.repeat(np.arange(len(counts)), np.abs(counts)))
        came = np.repeat(counts > 0, np.abs(counts))
        return pa.concat_tables(
            [
                _feed_rows(each.filter(pa.array(~came)), "delete", step),
                _feed_rows(each.filter(pa.array(came)), "insert", step),
            ]
        )

    def rewritten(self, change: pa.Table, old_rows: pa.Table, step: int) -> Rewritten:
        """The rows `old_rows` of the table after a change; both have all rows of their keys.

        Raises `SinkError` if a key has several rows.
        """
        if self.changes:
            return Rewritten(self.in_table(self.feed(change, step)), ())
        if not self.key:
            return self._counted(self.in_table(change), old_rows)
        parts = self.split(change)
        split = ByKey(*map(self.in_table, (parts.came, parts.changed, parts.before, parts.gone)))
        double = first_in_both(split.came, old_rows, self.order)
        if double is not None:
            values = dict(zip(self.key, double.values(), strict=True))
            raise not_unique(self.where, self.key, values)
        old = pa.concat_tables([split.before, split.gone])
        unchanged = old_rows.filter(pa.array(~_in(old_rows, old, self.order)))
        return Rewritten(pa.concat_tables([unchanged, split.came, split.changed]), split.feed)

    def _counted(self, change: pa.Table, old_rows: pa.Table) -> Rewritten:
        """`rewritten` for rows with counts."""
        touched = _in(old_rows, change, self.order)
        before = old_rows.filter(pa.array(touched))
        both: Any = pa.concat_tables([before, change])
        ids = key_ids(both, self.order)
        _, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
        sums = np.zeros(len(first), np.int64)
        np.add.at(sums, inverse, both.column(COUNT).to_numpy())
        rows = both.take(first)
        check_counts(rows.select(self.order), sums, self.where)
        i = rows.schema.get_field_index(COUNT)
        after = rows.set_column(i, self.schema.field(COUNT), pa.array(sums))
        after = after.filter(pa.array(sums > 0))
        rows = pa.concat_tables([old_rows.filter(pa.array(~touched)), after])
        return Rewritten(rows, (("delete", before), ("insert", after)))


@dataclass(frozen=True)
class Rewritten:
    """Rows of a table after a change, and the change as a feed: the rows of each kind."""

    rows: pa.Table
    feed: tuple[tuple[str, pa.Table], ...]


def _in(rows: pa.Table, others: pa.Table, key: Sequence[str]) -> Any:
    """A mask of the rows whose key occurs in other rows."""
    ids = key_ids(pa.concat_tables([rows.select(key), others.select(key)]), key)
    return np.isin(ids[: rows.num_rows], ids[rows.num_rows :])


def not_unique(where: str, key: Sequence[str], values: object) -> SinkError:
    """The error for a view in which a key has several rows."""
    return SinkError(
        f"{where}: the view has several rows with the key {', '.join(key)} = {values}; correct the "
        "rows in the source and run again, or give the columns that tell the view's rows apart as "
        f"key=…, or none, to keep rows with their _count_; with another key, {REMOVED}"
    )


def check_counts(rows: pa.Table, counts: Any, where: str) -> None:
    """Refuse rows whose count in the table would be negative."""
    wrong = np.flatnonzero(counts < 0)
    if len(wrong):
        row = rows.slice(int(wrong[0]), 1).to_pylist()[0]
        raise SinkError(
            f"{where}: the view removes more of the row {row} than the table has: somebody else "
            f"has changed its rows; {REFRESHED}"
        )


def first_in_both(a: pa.Table, b: pa.Table, key: Sequence[str]) -> dict[str, Any] | None:
    """The first key of `a` that also occurs in `b`, or None; NULL equals NULL."""
    ids = key_ids(pa.concat_tables([a, b]), key)
    both = np.flatnonzero(np.isin(ids[: a.num_rows], ids[a.num_rows :]))
    if not len(both):
        return None
    values: dict[str, Any] = a.select(list(key)).slice(int(both[0]), 1).to_pylist()[0]
    return values


def fields_of_key(key: Sequence[str], columns: pa.Schema, where: str) -> tuple[str, ...]:
    """The fields of a key, which names fields of the view or their columns; others are refused."""
    fields = named_fields(key, columns)
    missing = [name for name in fields if name not in columns.names]
    if missing:
        known = ((f.name, column_of(f)) for f in columns)
        texts = (f if f == c else f"{f} (column {c})" for f, c in known)
        raise SinkError(
            f"{where}: key= names {', '.join(missing)}, and the view has the fields "
            f"{', '.join(texts)}"
        )
    return fields


def named_fields(names: Iterable[str], columns: pa.Schema) -> tuple[str, ...]:
    """The fields that names of fields or columns mean; other names stay."""
    field_of = {column_of(field): field.name for field in columns}
    return tuple(n if n in columns.names else field_of.get(n, n) for n in names)


def feed_schema(columns: pa.Schema) -> pa.Schema:
    """The columns of a change feed."""
    more = (
        pa.field(CHANGE, pa.string(), nullable=False),
        pa.field(STEP, pa.int64(), nullable=False),
    )
    return pa.schema([*columns, *more])


def _feed_rows(rows: pa.Table, kind: str, step: int) -> pa.Table:
    n = rows.num_rows
    table = rows.append_column(CHANGE, pa.repeat(pa.scalar(kind), n))
    return table.append_column(STEP, pa.repeat(pa.scalar(step, pa.int64()), n))


def ranges_of(values: Any) -> list[tuple[Any, Any]]:
    """At most `RANGES` ordered ranges that cover all values of a column but NULL."""
    unique = values.drop_null().unique()
    ordered = unique.take(pc.sort_indices(unique)).to_pylist()
    size = -(-len(ordered) // RANGES) or 1
    parts = [ordered[i : i + size] for i in range(0, len(ordered), size)]
    return [(part[0], part[-1]) for part in parts]


def key_ids(rows: pa.Table, key: Sequence[str]) -> Any:
    """A number for each row, equal for equal keys; NULL equals NULL, and NaN equals NaN."""
    return row_ids([part for name in key for part in flat(canonical(rows.column(name)))])
