"""Converts an Arrow table to a relation, after checks of its columns and its values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute

from stepping_spark.errors import InputError
from stepping_spark.expressions.guards import UUID_TEXT
from stepping_spark.relations.arrow import Array, lengths_of, one_array
from stepping_spark.rows.atoms import Atom, RowType
from stepping_spark.rows.schema import COUNT, VALUE, ZSetType
from stepping_spark.rows.types import ListOf, Optional, Struct
from stepping_spark.zsets.from_dataframe import by_name, compare

pc: Any = pyarrow.compute

ADDED = "rename one with table.rename_columns(…), or make it with table.append_column(…)"


def _is_text(t: pa.DataType) -> bool:
    if pa.types.is_dictionary(t):
        return _is_text(t.value_type)
    return pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_string_view(t)


def _is_bytes(t: pa.DataType) -> bool:
    large = pa.types.is_large_binary(t) or pa.types.is_binary_view(t)
    return large or pa.types.is_binary(t) or pa.types.is_fixed_size_binary(t)


_TAKEN: dict[str, Callable[[Any], bool]] = {
    "bool": pa.types.is_boolean,
    "int": pa.types.is_integer,
    "float": pa.types.is_floating,
    "str": _is_text,
    "bytes": _is_bytes,
    "Decimal": pa.types.is_decimal,
    "date": pa.types.is_date,
    "datetime": lambda t: pa.types.is_timestamp(t) and t.tz is not None,
    "LocalDateTime": lambda t: pa.types.is_timestamp(t) and t.tz is None,
    "timedelta": pa.types.is_duration,
    "UUID": _is_text,
    "Enum": _is_text,
}


_SHOWN = {
    "LocalDateTime": "st.LocalDateTime",
    "Decimal": "Annotated[Decimal, st.Precision(…)]",
}
"""How messages write a type whose name alone would be wrong."""


class Misfit(InputError):
    """A column of another type. `said` is the message without the advice to make a DataFrame."""

    def __init__(self, said: str) -> None:
        super().__init__(f"{said}, or make a DataFrame of the table: st.ZSetSpark.from_dataframe")
        self.said = said


def relation_of_arrow(table: pa.Table, t: ZSetType, count: str | None, where: str) -> pa.Table:
    """The table with the columns of the Z-set's schema.

    Raises InputError for a column that is missing, additional or of another type, and for a value
    that does not fit.
    """
    columns = by_name(table.schema, where)
    weights: Array = pa.array([1] * table.num_rows, pa.int64())
    if count is not None:
        field = columns.pop(count.lower(), None)
        if field is None:
            have = ", ".join(table.schema.names)
            raise InputError(f"{where}: there is no count column {count!r}; the columns are {have}")
        if not pa.types.is_integer(field.type):
            raise InputError(
                f"{where}, count column {field.name!r}: expected an integer type, found "
                f"{field.type}; weights are whole numbers: cast it to int64"
            )
        weights = converted(_column(table, field), _INT, f"{where}, count column {field.name!r}")
    if not isinstance(t.row, Struct) and len(columns) == 1:
        # A single column must be the value, whatever its name.
        columns = {VALUE: next(iter(columns.values()))}
    wanted = t.schema.columns
    compare(columns, [n for n, _ in wanted], where, count, ADDED)
    made = [
        converted(_column(table, columns[n.lower()]), ft, f"{where}, column {n!r}")
        for n, ft in wanted
    ]
    return pa.Table.from_arrays([*made, weights], schema=t.schema.arrow)


_INT = dict(ZSetType(Atom("int", int)).schema.all)[COUNT]


def _column(table: pa.Table, field: pa.Field[Any]) -> Array:
    return one_array(table.column(table.schema.get_field_index(field.name)))


def converted(array: Array, t: RowType, where: str) -> Array:
    """The values in the row type's own Arrow type. Raises InputError for values that do not fit."""
    if isinstance(t, Optional):
        if pa.types.is_null(array.type):
            return array.cast(t.arrow)
        if not array.null_count:
            return converted(array, t.inner, where)
        known = converted(array.drop_null(), t.inner, where)
        at = pc.subtract(pc.cumulative_sum(pc.cast(array.is_valid(), pa.int64())), 1)
        return known.take(pc.if_else(array.is_valid(), at, None))
    if array.null_count:
        raise InputError(
            f"{where}: expected {t}, found NULL; filter such rows out, or allow them in the row "
            "type (`| None`)"
        )
    if isinstance(t, Atom):
        return _atoms(array, t, where)
    whole: Any = array
    if isinstance(t, Struct) and pa.types.is_struct(array.type):
        fields = by_name(array.type, where)
        compare(fields, [n for n, _ in t.fields], where, None, ADDED)
        parts = [
            converted(whole.field(fields[n.lower()].name), ft, f"{where}.{n}") for n, ft in t.fields
        ]
        return pa.StructArray.from_arrays(parts, fields=list(t.arrow))  # type: ignore[call-overload]
    if isinstance(t, ListOf) and _is_list(array.type):
        items = converted(one_array(whole.flatten()), t.inner, f"{where}, items")
        ends = lengths_of(whole.cast(pa.list_(array.type.value_type))).cumsum()
        offsets = pa.array([0, *ends.tolist()], pa.int32())
        return pa.ListArray.from_arrays(offsets, items, type=t.arrow)
    raise _misfit(array, t, where)


def _is_list(t: pa.DataType) -> bool:
    return pa.types.is_list(t) or pa.types.is_large_list(t) or pa.types.is_fixed_size_list(t)


def _atoms(array: Array, t: Atom, where: str) -> Array:
    if not _TAKEN[t.name](array.type):
        raise _misfit(array, t, where)
    try:
        values: Any = array.cast(t.arrow)
    except pa.ArrowInvalid as e:
        raise InputError(f"{where}: expected {t} ({t.arrow}), found {array.type}: {e}") from None
    if t.name == "UUID":
        values = pc.utf8_lower(values)
        _check(values, pc.match_substring_regex(values, UUID_TEXT), "a UUID", where)
    elif t.name == "Enum":
        names = t.members
        one_of = f"one of {', '.join(names)}"
        _check(values, pc.is_in(values, value_set=pa.array(names, pa.string())), one_of, where)
    fitting: Array = values
    return fitting


def _check(values: Array, right: Any, expected: str, where: str) -> None:
    wrong = values.filter(pc.invert(right))
    if len(wrong):
        raise InputError(
            f"{where}: expected {expected}, found {wrong[0].as_py()!r}; correct these rows"
        )


def _misfit(array: Array, t: RowType, where: str) -> InputError:
    named = [name for name, takes in _TAKEN.items() if takes(array.type)]
    fitting = f" ({_SHOWN.get(named[0], named[0])})" if named else ""
    return Misfit(
        f"{where}: expected {t} ({t.arrow}), found {array.type}; cast it, change the type of the "
        f"field{fitting}"
    )
