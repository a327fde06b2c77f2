"""Converts an Arrow table to a relation: checks its columns, and finds rows that do not fit."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from stepping_spark.base.errors import InputError
from stepping_spark.expressions.expr import UUID_TEXT
from stepping_spark.relations.arrow import Array, lengths_of, one_array
from stepping_spark.rows.atoms import Atom, RowType
from stepping_spark.rows.names import arrow_schema, matched, refuse_feed
from stepping_spark.rows.schema import COUNT, VALUE, ZSetType
from stepping_spark.rows.types import ListOf, Optional, Struct, ZSetOf
from stepping_spark.zsets.from_dataframe import count_column, names_of

pc: Any = pyarrow.compute


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
    "float": lambda t: pa.types.is_floating(t) or pa.types.is_integer(t),
    "str": _is_text,
    "bytes": _is_bytes,
    "Decimal": lambda t: pa.types.is_decimal(t) or pa.types.is_integer(t),
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
"""The text in messages for a type whose name alone would be wrong."""

_YEARS = (dt.datetime(1, 1, 1, tzinfo=dt.UTC), dt.datetime(9999, 12, 31, tzinfo=dt.UTC))
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_DAYS = tuple((year - _EPOCH).days for year in _YEARS)
_DAY = 86_400_000_000
"""A day in microseconds."""


@dataclass(frozen=True)
class MisfitValues:
    """Values of a column that do not fit its type: their places, and the reason for each."""

    where: str
    at: Any  # of numpy
    reason_of: Callable[[int], str]  # the reason for the i-th value of `at`

    def reason(self, i: int) -> str:
        """The error of the i-th of these values."""
        return f"{self.where}: {self.reason_of(i)}"


@dataclass(frozen=True)
class Fitting:
    """A table converted to the schema of a Z-set. Values that do not fit are NULL in it."""

    relation: pa.Table
    wrong: Sequence[MisfitValues]
    where: str

    def reasons(self) -> dict[int, str]:
        """The reasons of rows that do not fit, by place: the first wrong column and value."""
        by_place: dict[int, str] = {}
        for wrong in self.wrong:
            for i, at in enumerate(wrong.at.tolist()):
                if at not in by_place:
                    by_place[at] = wrong.reason(i).removeprefix(f"{self.where}, ")
        return by_place


def relation_of_arrow(table: pa.Table, t: ZSetType, count: str | None, where: str) -> pa.Table:
    """The table with the columns of the Z-set's schema, found by the columns of the class.

    Raises InputError for a column that is missing or of another type, and for a value that does
    not fit.
    """
    fitting = fitted(table, t, count, where, names_of(t))
    if fitting.wrong:
        raise InputError(f"{fitting.wrong[0].reason(0)}; {ALLOW}")
    return fitting.relation


ALLOW = "filter such rows out, correct them, or allow them in the row type"


def fitted(
    table: pa.Table, t: ZSetType, count: str | None, where: str, names: Mapping[str, str]
) -> Fitting:
    """The table with the columns of the Z-set's schema, and the values that do not fit.

    `names` has the columns of fields whose column has another name. Raises InputError for a column
    that is missing or of another type.
    """
    names_there = table.schema.names
    weights: Array = pa.array([1] * table.num_rows, pa.int64())
    if count is not None:
        count = count_column(names_there, count, where)
        weights = _weights(table, count, where)
        names_there = [name for name in names_there if name != count]
    elif COUNT in names_there and COUNT not in names.values():
        raise InputError(f"{where}: there is a column {COUNT!r}; say count={COUNT!r}, or drop it")
    fields = t.schema.columns
    if not isinstance(t.row, Struct) and len(names_there) == 1:
        # A single column must be the value, whatever its name.
        columns = {VALUE: names_there[0]}
    else:
        columns = columns_of(fields, names, names_there, where)
    refuse_feed(names_there, columns, lambda problem: InputError(f"{where}: {problem}"))
    parts = [
        fit(one_array(table.column(table.schema.get_field_index(columns[n]))), ft, _in(where, n))
        for n, ft in fields
    ]
    relation = pa.Table.from_arrays([a for a, _ in parts] + [weights], schema=t.schema.arrow)
    return Fitting(relation, [w for _, wrong in parts for w in wrong], where)


def columns_of(
    fields: Sequence[tuple[str, RowType]],
    names: Mapping[str, str],
    present: Sequence[str],
    where: str,
) -> dict[str, str]:
    """The column of each field; raises InputError if one is missing, or a name occurs twice."""
    twice = next((name for i, name in enumerate(present) if name in present[:i]), None)
    if twice is not None:
        raise InputError(f"{where}: column {twice!r} is there twice; rename or drop one")
    return matched(
        arrow_schema(fields, names), present, lambda problem: InputError(f"{where}: {problem}")
    )


def _in(where: str, column: str) -> str:
    return f"{where}, column {column!r}"


def _weights(table: pa.Table, count: str, where: str) -> Array:
    where = f"{where}, count column {count!r}"
    column = table.column(table.schema.get_field_index(count))
    if not pa.types.is_integer(column.type):
        raise InputError(
            f"{where}: expected an integer type, found {column.type}; weights are whole numbers: "
            "cast it to int64"
        )
    weights, wrong = fit(one_array(column), _INT, where)
    if wrong:
        raise InputError(f"{wrong[0].reason(0)}; a weight is a whole number of 64 bits")
    return weights


_INT = dict(ZSetType(Atom("int", int)).schema.all)[COUNT]

Fitted = tuple[Array, list[MisfitValues]]
"""Values in the row type's own Arrow type, with NULL for values that do not fit, and the latter."""


def fit(array: Array, t: RowType, where: str) -> Fitted:
    """The values in the row type's own Arrow type. Raises InputError for unfit columns."""
    bare = t.inner if isinstance(t, Optional) else t
    if pa.types.is_null(array.type):
        values, wrong = _nulls(len(array), bare.arrow), list[MisfitValues]()
    elif array.null_count:
        non_null, inner = fit(array.drop_null(), bare, where)
        valid = np.flatnonzero(np.asarray(array.is_valid()))
        at = pc.subtract(pc.cumulative_sum(pc.cast(array.is_valid(), pa.int64())), 1)
        values = non_null.take(pc.if_else(array.is_valid(), at, None))
        wrong = [MisfitValues(w.where, valid[w.at], w.reason_of) for w in inner]
    else:
        return _parts(array, bare, where)
    if not isinstance(t, Optional) and len(array):
        nulls = np.flatnonzero(np.asarray(array.is_null()))
        wrong.insert(0, MisfitValues(where, nulls, lambda _: f"expected {t}, found NULL"))
    return values, wrong


def _parts(array: Array, t: RowType, where: str) -> Fitted:
    """`fit` for values that are not NULL at the top level."""
    whole: Any = array
    if isinstance(t, Atom):
        return _atoms(array, t, where)
    if isinstance(t, Struct) and pa.types.is_struct(array.type):
        names = [field.name for field in array.type]
        columns = columns_of(t.fields, t.column_names, names, where)
        parts = [
            fit(whole.field(array.type.get_field_index(columns[n])), ft, f"{where}.{n}")
            for n, ft in t.fields
        ]
        values: Any = pa.StructArray.from_arrays(
            [part for part, _ in parts],
            fields=list(t.arrow),  # type: ignore[call-overload]
        )
        return values, [w for _, wrong in parts for w in wrong]
    if isinstance(t, ListOf) and _is_list(array.type):
        items, wrong = fit(one_array(whole.flatten()), t.inner, f"{where}, items")
        ends = lengths_of(whole.cast(pa.list_(array.type.value_type))).cumsum()
        offsets = pa.array([0, *ends.tolist()], pa.int32())
        lists = pa.ListArray.from_arrays(offsets, items, type=t.arrow)
        rows = [
            MisfitValues(w.where, np.searchsorted(ends, w.at, side="right"), w.reason_of)
            for w in wrong
        ]
        return lists, rows
    if isinstance(t, ZSetOf) and _is_list(array.type):
        return _zsets(array, t, where)
    raise _other_type(array, t, where)


def _zsets(array: Array, t: ZSetOf, where: str) -> Fitted:
    """Z-sets within rows: lists of rows and counts, in any order and of any length."""
    lists, wrong = _parts(array, ListOf(t.item), where)
    misfits = {int(at) for w in wrong for at in w.at}
    items: list[Any] = [[] if i in misfits else v for i, v in enumerate(lists.to_pylist())]
    zsets: Array = pa.array([t.encode(t.decode(v), where) for v in items], t.arrow)
    return zsets, wrong


def _is_list(t: pa.DataType) -> bool:
    return pa.types.is_list(t) or pa.types.is_large_list(t) or pa.types.is_fixed_size_list(t)


def _atoms(array: Array, t: Atom, where: str) -> Fitted:
    if not _TAKEN[t.name](array.type):
        raise _other_type(array, t, where)
    values, at = cast_or_null(array, t.arrow)

    def beyond(i: int) -> str:
        return f"expected {t} ({t.arrow}), found {_text_of(array[int(at[i])])} ({array.type})"

    wrong = [MisfitValues(where, at, beyond)] if len(at) else []
    if t.name == "UUID":
        values = pc.utf8_lower(values)
        wrong += _not(values, pc.match_substring_regex(values, UUID_TEXT), "a UUID", where)
    elif t.name == "Enum":
        names = t.members
        is_member = pc.is_in(values, value_set=pa.array(names, pa.string()))
        wrong += _not(values, is_member, f"one of {', '.join(names)}", where)
    elif t.name in ("date", "datetime", "LocalDateTime"):
        wrong += _not(values, _in_years(values), "a year from 1 to 9999", where)
    return values, wrong


def cast_or_null(array: Array, to: pa.DataType) -> tuple[Array, Any]:
    """The values cast to another type, with NULL for values outside it, and the places of these."""
    try:
        return array.cast(to), np.empty(0, np.int64)
    except pa.ArrowInvalid:
        if len(array) == 1:
            return _nulls(1, to), np.zeros(1, np.int64)
    half = len(array) // 2
    (low, wrong), (high, above) = (cast_or_null(part, to) for part in (array[:half], array[half:]))
    return pa.concat_arrays([low, high]), np.concatenate([wrong, above + half])


def _nulls(n: int, t: Any) -> Array:
    nulls: Array = pa.nulls(n, t)
    return nulls


def _in_years(values: Any) -> Any:
    """Whether a date or a time is in a year that Spark and Python support."""
    if pa.types.is_date(values.type):
        numbers, unit = values.cast(pa.int32()), 1
    else:
        numbers, unit = values.cast(pa.int64()), _DAY
    least, beyond = _DAYS[0] * unit, (_DAYS[1] + 1) * unit
    return pc.and_(pc.greater_equal(numbers, least), pc.less(numbers, beyond))


def _not(values: Any, right: Any, expected: str, where: str) -> list[MisfitValues]:
    """The values for which `right` is false, as misfits."""
    at = np.flatnonzero(~np.asarray(pc.fill_null(right, True)))
    if not len(at):
        return []
    return [
        MisfitValues(
            where, at, lambda i: f"expected {expected}, found {_text_of(values[int(at[i])])}"
        )
    ]


def _text_of(scalar: Any) -> str:
    return repr(python_of(scalar))


def python_of(scalar: Any) -> object:
    """A value of Arrow in Python; as text if Python lacks it, such as a year beyond 9999."""
    try:
        return scalar.as_py()
    except (ValueError, OverflowError):
        values: Any = pa.array([scalar.value], scalar.type)
        return values.cast(pa.string())[0].as_py()


def _other_type(array: Array, t: RowType, where: str) -> InputError:
    named = [name for name, takes in _TAKEN.items() if takes(array.type)]
    fitting = f" ({_SHOWN.get(named[0], named[0])})" if named else ""
    return InputError(
        f"{where}: expected {t} ({t.arrow}), found {_found_type(array.type)}; cast it, change the "
        f"type of the field{fitting}"
    )


def _found_type(t: Any) -> str:
    """The type of an existing column, for a message: its Arrow type, which is the most precise."""
    return str(t.type_name) if isinstance(t, pa.OpaqueType) else str(t)


def told_type(t: Any) -> str:
    """An Arrow type for a message: as in the declaration of a field, or its name in its system."""
    if isinstance(t, pa.OpaqueType):
        return str(t.type_name)
    if isinstance(t, pa.Decimal128Type):
        return f"Decimal({t.precision}, {t.scale})"
    return _TOLD.get(t, str(t))


_TOLD: dict[Any, str] = {
    pa.int64(): "int",
    pa.float64(): "float",
    pa.string(): "str",
    pa.bool_(): "bool",
    pa.binary(): "bytes",
    pa.date32(): "date",
    pa.timestamp("us", "UTC"): "datetime (with a zone)",
    pa.timestamp("us"): "st.LocalDateTime (without a zone)",
}
