"""Counts the rows of a DataFrame that Spark has computed, and estimates their size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from stepping_spark.packages import Column, DataFrame
from stepping_spark.packages import functions as F
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.schema import Schema
from stepping_spark.rows.sql_text import closed
from stepping_spark.rows.types import ListOf, Optional, Struct, ZSetOf, quote


@dataclass(frozen=True)
class Measured:
    """The number of rows of a relation, and about how many bytes they would take in Arrow."""

    rows: int
    nbytes: int
    nulls: tuple[str, ...] = ()  # the tested fields that contain NULLs, though they never should


def measure(frame: DataFrame, schema: Schema, tests: Sequence[tuple[str, str]] = ()) -> Measured:
    """Count the rows of a computed DataFrame, and find the `tests` that some row fails."""
    size = " + ".join(_size(t, quote(n)) for n, t in schema.all)
    nulls = [f"count_if({test}) AS n{i}" for i, (_, test) in enumerate(tests)]
    found = frame.selectExpr("count(1) AS rows", f"sum({size}) AS bytes", *nulls).first()
    assert found is not None
    wrong = tuple(name for i, (name, _) in enumerate(tests) if found[f"n{i}"])
    return Measured(found["rows"], found["bytes"] or 0, wrong)


def width_of(schema: Schema) -> int | None:
    """The bytes of each row in Arrow, if all rows have the same number; None if not."""
    widths = [_width(t) for _, t in schema.all]
    known = [w for w in widths if w is not None]
    return sum(known) if len(known) == len(widths) else None


def _width(t: RowType) -> int | None:
    if isinstance(t, Optional):
        return _width(t.inner)
    if isinstance(t, Struct):
        return width_of(Schema(t.fields, ()))
    if isinstance(t, ListOf | ZSetOf) or t.ddl in ("STRING", "BINARY"):
        return None
    return max(t.arrow.bit_width // 8, 1)


def column(name: str) -> Column:
    """The column of exactly this name, with any characters."""
    return F.col(quote(name))


def _size(t: RowType, value: str, depth: int = 0) -> str:
    """About the number of bytes of a value in Arrow, as SQL."""
    return f"coalesce({_known_size(t, value, depth)}, 0L)"


def _known_size(t: RowType, value: str, depth: int) -> str:
    if isinstance(t, Optional):
        return _known_size(t.inner, value, depth)
    if isinstance(t, Struct):
        sizes = (_size(f, f"{value}.{quote(n)}", depth) for n, f in t.fields)
        return closed(" + ".join(sizes))
    if isinstance(t, ListOf | ZSetOf):
        inner = t.inner if isinstance(t, ListOf) else t.item
        item = _size(inner, f"x{depth}", depth + 1)
        return f"aggregate({value}, 4L, (n{depth}, x{depth}) -> n{depth} + {item})"
    if t.ddl in ("STRING", "BINARY"):
        return closed(f"octet_length({value}) + 4L")
    return f"{max(t.arrow.bit_width // 8, 1)}L"
