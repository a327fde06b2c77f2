"""Change feeds as Z-sets: changed rows of Delta and Iceberg, and records of Debezium."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute

from stepping_spark.base.errors import InputError
from stepping_spark.base.packages import DataFrame
from stepping_spark.base.packages import types as T
from stepping_spark.relations.arrow import one_array
from stepping_spark.relations.relation import DriverRelation
from stepping_spark.rows.schema import CHANGE, COUNT, ZSetType
from stepping_spark.rows.sql_text import text
from stepping_spark.rows.types import quote, row_type
from stepping_spark.zsets.from_arrow import relation_of_arrow
from stepping_spark.zsets.from_dataframe import check_frame, failure, relation_of, struct_of
from stepping_spark.zsets.spark import ZSetSpark

__all__ = [
    "change_feed",
    "counted_changes",
    "counted_feed",
    "from_change_feed",
    "is_change_feed",
]

pc: Any = pyarrow.compute

U = TypeVar("U")

FEED_META = (
    *(CHANGE, "_commit_version", "_commit_timestamp"),
    *("_change_ordinal", "_commit_snapshot_id"),  # Iceberg
)
FEED_COUNTS = {
    "insert": 1,
    "update_postimage": 1,
    "delete": -1,
    "update_preimage": -1,  # Delta, Spark
    "INSERT": 1,
    "UPDATE_AFTER": 1,
    "DELETE": -1,
    "UPDATE_BEFORE": -1,  # Iceberg
}
# The count of a record's `before` and `after` rows, by `op`. Each of these rows must exist.
DEBEZIUM_COUNTS: dict[str, Mapping[str, int]] = {
    "c": {"after": 1},
    "r": {"after": 1},
    "u": {"before": -1, "after": 1},
    "d": {"before": -1},
}
RECORD = ("op", "before", "after")


def from_change_feed(df: DataFrame | pa.Table, of: type[U]) -> ZSetSpark[U]:
    """Convert a change feed to a Z-set of `of`: added rows count 1, removed rows −1.

    The columns decide between two forms:

    - Delta's change data feed, the result of Spark's `changes`, and Iceberg's changelog
      (`create_changelog_view`): the columns of `of`, and `_change_type`. `insert` and
      `update_postimage` count 1, `delete` and `update_preimage` −1. Iceberg's `INSERT` and
      `UPDATE_AFTER` count 1, its `DELETE` and `UPDATE_BEFORE` −1. `_commit_version`,
      `_commit_timestamp`, `_change_ordinal` and `_commit_snapshot_id` are ignored. This form may
      also be an Arrow table, such as the result of deltalake's `load_cdf`; it is checked at once,
      without Spark.
    - Debezium's records: `op`, `before` and `after`, at the top or inside a struct `payload`. Other
      columns (`source`, `ts_ms`, …) are ignored. `c` and `r` add `after`, `d` removes `before`, `u`
      does both. The columns of `of` are the fields of `before` and `after`.

    The changes of a batch are added up: their order does not matter, and an update that changes
    nothing has no effect. Columns are checked and widened as in `ZSetSpark.from_dataframe`. The
    function keeps no state.

    Raises `InputError` if the columns fit neither form. Errors that depend on the rows raise
    `InputError` when the value is used, before a step commits anything:

    - another kind of change, such as Debezium's `t` (a truncate, which does not name the rows that
      it removes) or `m` (a message, which changes no row);
    - an update or a delete without `before`: make the database write whole old rows (in Postgres,
      `REPLICA IDENTITY FULL`);
    - an empty record. It is a tombstone of Kafka, or text that `from_json` could not read. Both
      look the same, so drop tombstones before parsing: `records.where("value IS NOT NULL")`.

    >>> feed = spark.read.option("readChangeFeed", True) \\
    ...     .option("startingVersion", 7).table("orders")          # doctest: +SKIP
    >>> stepper.step((st.from_change_feed(feed, Order), None))      # doctest: +SKIP
    """
    annotation: Any = of
    t, where = ZSetType(row_type(annotation)), "from_change_feed"
    if isinstance(df, pa.Table):
        table = relation_of_arrow(counted_feed(df, where), t, COUNT, where)
        return ZSetSpark(DriverRelation(table, t.schema), t)
    return change_feed(df, t, where)


def counted_feed(table: pa.Table, where: str) -> pa.Table:
    """The rows of an Arrow table with a `_change_type` column, with their counts."""
    names = {name.lower(): name for name in table.schema.names}
    if CHANGE not in names:
        raise InputError(
            f"{where}: expected the column {CHANGE}, found {', '.join(table.schema.names)}; a "
            "table of whole rows is for ZSetSpark.from_arrow"
        )
    kinds: Any = one_array(table.column(names[CHANGE])).cast(pa.string())
    at = pc.index_in(kinds, pa.array(list(FEED_COUNTS)))
    if at.null_count:
        odd = kinds.filter(pc.is_null(at))[0].as_py()
        raise InputError(
            f"{where}, column {CHANGE!r}: expected one of {_names(FEED_COUNTS)}, found {odd!r}; "
            "leave these rows out, or map them to these kinds"
        )
    counts: Any = pa.array(list(FEED_COUNTS.values()), pa.int64()).take(at)
    columns = [name for lower, name in names.items() if lower not in FEED_META]
    return table.select(columns).append_column(COUNT, counts)


def is_change_feed(df: DataFrame) -> bool:
    """Whether a DataFrame has the columns of one of the two forms of change feeds."""
    return _is_delta(df) or _record(df) is not None


def change_feed(df: DataFrame, t: ZSetType, where: str) -> ZSetSpark[Any]:
    """`from_change_feed`, given a stream type. Each InputError begins with `where`."""
    check_frame(df, where)
    if _is_delta(df):
        counted = counted_changes(df)
    else:
        record = _record(df)
        if record is None:
            raise InputError(
                f"{where}: expected Delta's column {CHANGE}, or Debezium's op, before and after "
                f"(or a struct payload with them), found {', '.join(df.columns) or 'no column'}; "
                "a DataFrame of whole rows is for ZSetSpark.from_dataframe"
            )
        counted = _debezium(df, t, *record, where)
    return ZSetSpark.unchecked(relation_of(counted, t, COUNT, where), t)


def _is_delta(df: DataFrame) -> bool:
    return CHANGE in map(str.lower, df.columns)


def counted_changes(df: DataFrame) -> DataFrame:
    """The rows of a DataFrame with a `_change_type` column, with their counts."""
    columns = [quote(n) for n in df.columns if n.lower() not in FEED_META]
    kinds = " ".join(f"WHEN {text(k)} THEN {n}L" for k, n in FEED_COUNTS.items())
    message = (
        f"concat({text(f'column {CHANGE!r}: expected one of {_names(FEED_COUNTS)}, found ')}, "
        f"coalesce({CHANGE}, 'NULL'), '; leave these rows out, or map them to these kinds')"
    )
    count = f"CASE {CHANGE} {kinds} ELSE {failure(message)} END"
    return df.selectExpr(*columns, f"{count} AS {COUNT}")


def _record(df: DataFrame) -> tuple[str, T.StructType] | None:
    """Debezium's fields: the prefix of their names, and their struct; None without such fields."""
    by_name = {f.name.lower(): f for f in df.schema.fields}
    payload = by_name.get("payload")
    if "op" not in by_name and payload is not None and isinstance(payload.dataType, T.StructType):
        prefix, fields = "payload.", payload.dataType
    else:
        prefix, fields = "", df.schema
    names = {n.lower() for n in fields.names}
    return (prefix, fields) if names.issuperset(RECORD) else None


def _debezium(
    df: DataFrame, t: ZSetType, prefix: str, fields: T.StructType, where: str
) -> DataFrame:
    op = f"{prefix}op"
    types = {f.name.lower(): f.dataType for f in fields}
    if not isinstance(types["op"], T.StringType):
        raise InputError(
            f"{where}, column {op!r}: expected STRING, found {types['op'].simpleString().upper()}; "
            "cast it"
        )
    sides = {n: struct_of(f"{prefix}{quote(n)}", types[n], t, f"{where}, {n}") for n in RECORD[1:]}
    kinds = " ".join(
        f"WHEN {text(kind)} THEN array({', '.join(_counted(op, kind, sides, n) for n in counts)})"
        for kind, counts in DEBEZIUM_COUNTS.items()
    )
    unknown = " ".join(f"WHEN {text(k)} THEN {text(v)}" for k, v in _REFUSED.items())
    message = (
        f"concat({text(f'column {op!r}: expected one of {_names(DEBEZIUM_COUNTS)}, found ')}, "
        f"coalesce({op}, 'NULL'), "
        f"CASE coalesce({op}, 'NULL') {unknown} ELSE '; leave such records out' END)"
    )
    # `inline` reads the source once; a union of both sides would read it twice.
    items = df.selectExpr(
        f"inline(CASE {op} {kinds} ELSE {failure(message)} END) AS ({COUNT}, `row`)"
    )
    return items.selectExpr(COUNT, *[f"`row`.{quote(n)}" for n, _ in t.schema.columns])


_REFUSED = {
    "t": " (a truncate): it removes rows that it does not name; give a step with those rows",
    "m": " (a message): it changes no row; leave such records out",
    "NULL": (
        ": a tombstone, or a text that could not be parsed; drop tombstones before parsing, with "
        'where("value IS NOT NULL")'
    ),
}


def _counted(op: str, kind: str, sides: Mapping[str, str], side: str) -> str:
    """A row and its count, in SQL that fails if the row is missing."""
    remedy = "; let the database write whole old rows (Postgres: REPLICA IDENTITY FULL)"
    message = f"column {side!r}: expected a row, found NULL, where {op} is {kind!r}"
    missing = failure(text(message + (remedy if side == "before" else "; correct the records")))
    count = f"{DEBEZIUM_COUNTS[kind][side]}L"
    return _item(f"IF({sides[side]} IS NULL, {missing}, {count})", sides[side])


def _item(count: str, row: str) -> str:
    return f"named_struct('count', {count}, 'row', {row})"


def _names(kinds: Mapping[str, object]) -> str:
    return ", ".join(kinds)
