"""Rows of a Z-set in the order of a key, and rows that match given keys or rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Any

import pyarrow as pa

from stepping_spark.errors import InputError
from stepping_spark.expressions.index import Key
from stepping_spark.expressions.symbolic import to_column
from stepping_spark.packages import DataFrame
from stepping_spark.packages import functions as F
from stepping_spark.relations.codec import conform, decode
from stepping_spark.rows.atoms import short
from stepping_spark.rows.schema import Columns, Schema, ZSetType
from stepping_spark.rows.types import quote, sort_key
from stepping_spark.spark.matches import matching
from stepping_spark.spark.send import frame_of

Keyed = Iterator[tuple[Any, Any, int]]

_WHERE = "iter_by_index, match_keys"


def keyed_pairs(
    pairs: Iterable[tuple[Any, int]], t: ZSetType, key: Key, match_keys: Set[object] | None
) -> Keyed:
    """Keys, rows and counts in the order of the keys, computed in Python."""
    wanted = None
    if match_keys is not None:
        wanted = {sort_key(k) for k in _encoded(match_keys, key)}
    found = []
    for row, n in pairs:
        encoded = key.type.encode(key.expr.value(row), f"the key of {row!r}")
        if wanted is None or sort_key(encoded) in wanted:
            found.append((encoded, row, n))
    found.sort(key=lambda f: sort_key(t.row.encode(f[1], "iter_by_index")))
    # Sorting is stable, in both directions, so the last part of the key is sorted first.
    for i, up in reversed(list(enumerate(key.ascending))):
        found.sort(key=lambda f: sort_key(_parts(key, f[0])[i]), reverse=not up)
    for encoded, row, n in found:
        yield key.type.decode(encoded), row, n


def check_set(given: object, expected: str) -> None:
    """Refuse anything but a set: a bare row or key may be iterable too."""
    if not isinstance(given, Set):
        raise InputError(f"{expected}, found {short(given)}; write {{…}} around what you look for")


def _encoded(match_keys: Set[object], key: Key) -> list[Any]:
    check_set(match_keys, f"{_WHERE}: expected a set of keys")
    return [key.type.encode(k, _WHERE) for k in match_keys]


def keyed_frame(frame: DataFrame, t: ZSetType, key: Key, match_keys: Set[object] | None) -> Keyed:
    """Keys, rows and counts in the order of the keys, computed by Spark in one job."""
    parts = tuple((f"_k{i}_", p.type) for i, p in enumerate(key.parts))
    computed = [to_column(p).alias(n) for p, (n, _) in zip(key.parts, parts, strict=True)]
    shown = frame.select(*computed, *(F.col(quote(n)) for n, _ in t.schema.all))
    if match_keys is not None:
        encoded = _encoded(match_keys, key)
        shown = matching_rows(shown, _table([_parts(key, e) for e in encoded], parts), parts)
    order = [
        F.col(n).asc() if up else F.col(n).desc()
        for (n, _), up in zip(parts, key.ascending, strict=True)
    ]
    ordered = shown.orderBy(*order, *(F.col(quote(n)) for n, _ in t.schema.columns))
    table = conform(ordered.toArrow(), Schema(parts + t.schema.columns, t.schema.diffs))
    keys = zip(*(table.column(n).to_pylist() for n, _ in parts), strict=True)
    for values, (row, n) in zip(keys, decode(table.select(t.schema.arrow.names), t), strict=True):
        yield key.type.decode(_joined(key, values)), row, n


def _parts(key: Key, encoded: Any) -> list[Any]:
    """The encoded values of a key's parts."""
    return [encoded] if key.parts == (key.expr,) else list(encoded.values())


def _joined(key: Key, parts: Sequence[Any]) -> Any:
    """The encoded key with these parts; the inverse of `_parts`."""
    if key.parts == (key.expr,):
        return parts[0]
    return {f"_{i}": value for i, value in enumerate(parts, 1)}


def _table(rows: Sequence[Sequence[Any]], columns: Columns) -> pa.Table:
    schema = Schema(columns, ()).arrow
    arrays = [pa.array([row[i] for row in rows], f.type) for i, f in enumerate(schema)]
    return pa.Table.from_arrays(arrays, schema=schema)


def matching_rows(frame: DataFrame, rows: pa.Table, columns: Columns) -> DataFrame:
    """The lines of the DataFrame whose columns match one of the rows. NULL matches NULL."""
    wanted = frame_of(rows.select([n for n, _ in columns]), Schema(columns, ()), frame.sparkSession)
    return matching(frame, wanted, columns, small=True)
