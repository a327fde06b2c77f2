"""The fields of several rows as those of one: `SELECT a.*, b.*, …`. Symbolic rows are rows too."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from stepping_spark.rows.atoms import short


class NoSuchRow(TypeError):
    """Raised if the values for a row are not those of its fields."""


def merged(
    rows: Collection[Any], values: Mapping[str, Any], wanted: Collection[str] | None, where: str
) -> dict[str, Any]:
    """The fields of rows by name, and the given values, which come first.

    A Pair stands for its two rows. `wanted` are the fields that are taken; None: all. Raises
    NoSuchRow for a field that two rows have, because nobody knows which one is meant.
    """
    given = [(row, _names_of(row, where)) for one in rows for row in _sides(one)]
    found: dict[str, Any] = {}
    for name in dict.fromkeys(name for _, names in given for name in names):
        if name in values or (wanted is not None and name not in wanted):
            continue
        having = [row for row, names in given if name in names]
        if len(having) > 1:
            raise NoSuchRow(
                f"{where}: {len(having)} rows have a field {name!r}; say which one is meant: "
                f"{name}=…"
            )
        found[name] = getattr(having[0], name)
    return {**found, **values}


def _names_of(row: Any, where: str) -> tuple[str, ...]:
    names: tuple[str, ...] | None = getattr(row, "__row_names__", None)
    if names is None:
        raise NoSuchRow(f"{where}: expected rows, found {short(row)}; give single values by name")
    return names


def _sides(row: Any) -> tuple[Any, ...]:
    """A row, or the two rows of a Pair."""
    names = getattr(row, "__row_names__", ())
    return (row.left, row.right) if names == ("left", "right") else (row,)
