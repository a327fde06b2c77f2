"""The algebra of relations on the driver: adding, negating, comparing and measuring rows.

Equality of rows is that of Spark's grouping: NULL equals NULL, NaN equals NaN, 0.0 equals -0.0, and
structs and lists are equal if their parts are. All functions are pure.
"""

from __future__ import annotations

import decimal
import functools
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import compress
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from stepping_spark.base.errors import StepError, cut_short
from stepping_spark.rows.atoms import INT_MIN, RowType
from stepping_spark.rows.schema import Schema, has_floats

Ids = npt.NDArray[np.int64]
_Number = TypeVar("_Number", np.int64, np.uint64)

_SAMPLE = 1 << 14
_TIMES = 5  # estimated values per row: with fewer, too many rows are equal by chance

SHOWN_ROW = 1_000
"""The most characters of a row in a message."""

_ODD = np.uint64(0x9E3779B97F4A7C15)  # a multiplication by it spreads numbers in the upper bits


def positions(numbers: Ids) -> Ids:
    """For each number the position of an equal one, the same for all equal numbers.

    Most are found by their slot in a table, which has the position of the last number there. Other
    numbers, whose slot is taken, are found by a dictionary.
    """
    slots = _slots(numbers.view(np.uint64))
    table = np.empty(slots.max() + 1, np.int32)
    table[slots] = np.arange(len(numbers), dtype=np.int32)
    places = table[slots].astype(np.int64)
    rest = np.flatnonzero(numbers[places] != numbers)
    if len(rest):
        codes = encoded(pa.array(numbers[rest]))
        last = np.empty(codes.max() + 1, np.int64)
        last[codes] = rest
        places[rest] = last[codes]
    return places


def distinct_numbers(numbers: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
    """The distinct numbers of an array, sorted: in a fortieth of the time of NumPy's `unique`."""
    ordered = np.sort(numbers)
    firsts = np.ones(len(ordered), np.bool_)
    firsts[1:] = ordered[1:] != ordered[:-1]
    return ordered[firsts]


def codes_of(array: Any) -> Ids:
    """A number below the length for each value of an array; only equal values share a number."""
    if pa.types.is_integer(array.type) and not array.null_count:
        return below_length(np.asarray(array.to_numpy(), np.int64))
    return encoded(array)


def below_length(numbers: Ids) -> Ids:
    """`codes_of` at least one number."""
    least, most = int(numbers.min()), int(numbers.max())
    return numbers - least if most - least < len(numbers) else positions(numbers)


def encoded(array: Any) -> Ids:
    """A number for each distinct value of an array, from 0."""
    indices = array.dictionary_encode(null_encoding="encode").indices
    return np.asarray(indices.to_numpy(zero_copy_only=False), np.int64)


def sample(rows: int) -> Ids:
    """The positions of a sample: half are adjacent, as equal rows may be, and half are spread."""
    if rows <= _SAMPLE:
        return np.arange(rows)
    half = _SAMPLE // 2
    return np.append(np.arange(half), np.arange(half, rows, -(-(rows - half) // half)))


def are_mostly_different(some: npt.NDArray[Any], rows: int) -> bool:
    """Whether so few of all rows are equal that `repeated` is faster than a dictionary.

    `some` are the numbers of a sample. Of s rows with N values, about s²/2N are equal to others.
    """
    equal = len(some) - len(distinct_numbers(some))
    return 2 * _TIMES * rows * equal < len(some) ** 2


def repeated(hashes: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    """A mask of the hashes that occur more than once. Sorts only hashes that share a table slot."""
    slots, at = _slots(hashes), np.arange(len(hashes), dtype=np.int32)
    table = np.empty(slots.max() + 1, np.int32)
    table[slots] = at
    taken = np.zeros(len(table), np.bool_)
    taken[slots[table[slots] != at]] = True
    some = np.flatnonzero(taken[slots])
    order = some[np.argsort(hashes[some])]
    first = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
    mask = np.zeros(len(hashes), np.bool_)
    mask[order[first]] = mask[order[first + 1]] = True
    return mask


def _slots(numbers: npt.NDArray[np.uint64]) -> Ids:
    """A slot for each number, in a table with two to four times as many slots as numbers."""
    bits = len(numbers).bit_length() + 1
    return ((numbers * _ODD) >> np.uint64(64 - bits)).view(np.int64)


Array: TypeAlias = "pa.Array[Any]"
ArrowColumn: TypeAlias = "pa.Array[Any] | pa.ChunkedArray[Any]"

INT_WIDE = pa.decimal128(38, 0)  # holds the sum of any number of 64-bit ints
FEW = 1_000  # rows; for more rows, Arrow is faster
WIDEST = 76  # the most digits of a decimal256
_EXACT = decimal.Context(prec=100)  # the default of 28 digits would round


def empty(schema: Schema) -> pa.Table:
    """The relation without rows."""
    return schema.empty


def concat(tables: Iterable[pa.Table], schema: Schema) -> pa.Table:
    """The sum of relations: all their rows, not consolidated. Copies nothing."""
    parts = []
    for t in tables:
        if t.num_rows:
            parts.append(t if t.schema.equals(schema.arrow) else t.cast(schema.arrow))
    if len(parts) == 1:
        return parts[0]
    return pa.concat_tables(parts) if parts else empty(schema)


def negate(table: pa.Table, schema: Schema) -> pa.Table:
    """The rows with the opposite diffs."""
    for i, (name, t) in enumerate(schema.diffs, len(schema.columns)):
        try:
            negated = pc.negate_checked(table.column(i))
        except pa.ArrowInvalid:
            raise _no_opposite(table, schema, name, t) from None
        table = table.set_column(i, table.schema.field(i), negated)
    return table


def consolidate(table: pa.Table, schema: Schema) -> pa.Table:
    """The relation with equal rows merged, and without rows whose diffs are all zero.

    The order of the rows is unspecified, but the same each time. Float zeros become 0.0. A sum that
    does not fit the type of its diff raises `StepError`.
    """
    if not table.num_rows:
        return empty(schema)
    if not table.schema.equals(schema.arrow):
        table = table.select(schema.names)
    table = canonical_rows(table, schema)
    if table.num_rows > 1:
        arrays: list[ArrowColumn] = [*table.columns]
        columns, diffs = arrays[: len(schema.columns)], arrays[len(schema.columns) :]
        keys = columns if schema.is_flat else [f for c in columns for f in flat(c)]
        few = _few(keys)
        if few is None:
            table = _added(keys, columns, diffs, schema)
        elif len(few.first) < table.num_rows:
            try:
                return pa.Table.from_arrays(few.added(columns, diffs), schema=schema.arrow)
            except (OverflowError, pa.ArrowInvalid):  # a sum may be beyond its type
                table = _added(keys, columns, diffs, schema)
    return without_zeros(table, schema)


def without_zeros(table: pa.Table, schema: Schema) -> pa.Table:
    """The rows with a nonzero diff."""
    mask = nonzero(table, schema)
    return table if mask is None else table.filter(pa.array(mask))


def nonzero(table: pa.Table, schema: Schema) -> npt.NDArray[np.bool_] | None:
    """A mask of the rows with a nonzero diff; None if all rows have one."""
    nonzero_mask = None
    for i in range(len(schema.columns), len(schema.all)):
        diff: Any = table.column(i)
        if pa.types.is_integer(diff.type):
            mask = diff.to_numpy() != 0
        else:
            mask = pc.not_equal(diff, _zero(diff.type)).to_numpy()
        nonzero_mask = mask if nonzero_mask is None else nonzero_mask | mask
        if np.count_nonzero(nonzero_mask) == len(nonzero_mask):
            return None
    return nonzero_mask


@functools.cache
def _zero(t: pa.DataType) -> Any:
    return pa.scalar(0, t)


def distinct_rows(table: pa.Table, *, drop_nulls: bool) -> pa.Table:
    """The distinct rows of a table; with `drop_nulls`, without rows that contain a NULL."""
    if table.num_columns == 1 and not pa.types.is_nested(table.schema.types[0]):
        values: Any = one_array(canonical(table.column(0))).unique()
        values = values.drop_null() if drop_nulls and values.null_count else values
        return pa.Table.from_arrays([values], schema=table.schema)
    columns = [canonical(c) for c in table.columns]
    table = pa.Table.from_arrays(columns, schema=table.schema)
    if drop_nulls:
        masks = [pc.is_valid(c) for c in table.columns if c.null_count]
        if masks:
            table = table.filter(functools.reduce(pc.and_, masks))
    if table.num_rows < 2 or not table.num_columns:
        return table.slice(0, 1)
    keys = [f for c in table.columns for f in flat(c)]
    few = _few(keys)
    if few is not None:
        return table if len(few.first) == table.num_rows else table.take(pa.array(few.first))
    return table.take(_grouped(keys, []).column("first"))


# Equality of values


def flat(column: ArrowColumn) -> list[ArrowColumn]:
    """Columns without parts (no structs, no lists) that are equal where the values are.

    They are used for grouping and joining. The column for a list is only comparable within this
    call: to compare two columns of lists, concatenate them first. Floats are expected as
    `canonical` returns them.
    """
    if pa.types.is_struct(column.type):
        array: Any = one_array(column)
        columns: list[ArrowColumn] = [array.is_valid()] if array.null_count else []
        return columns + [f for part in array.flatten() for f in flat(part)]
    if pa.types.is_list(column.type):
        return [_list_bytes(one_array(column))]
    return [column]


def canonical_rows(table: pa.Table, schema: Schema) -> pa.Table:
    """The rows with one zero and one NaN for floats."""
    if not schema.has_floats:
        return table
    return pa.Table.from_arrays([canonical(c) for c in table.columns], schema=schema.arrow)


def canonical(column: ArrowColumn) -> ArrowColumn:
    """The column with one zero and one NaN for floats, at any depth."""
    t = column.type
    if not (has_floats(t) if pa.types.is_nested(t) else pa.types.is_floating(t)):
        return column
    if pa.types.is_floating(t):
        summed: Any = pc.add(column, pa.scalar(0.0))  # -0.0 + 0.0 is 0.0
        one_nan: ArrowColumn = pc.if_else(pc.is_nan(summed), pa.scalar(float("nan")), summed)
        return one_nan
    array: Any = one_array(column)
    if pa.types.is_struct(t):
        parts = [one_array(canonical(p)) for p in array.flatten()]
        return pa.StructArray.from_arrays(
            parts, fields=list(t), mask=array.is_null() if array.null_count else None
        )
    return pa.ListArray.from_arrays(
        pa.array(_offsets(lengths_of(array)), pa.int32()),
        one_array(canonical(array.flatten())),
        type=t,
        mask=array.is_null() if array.null_count else None,
    )


def one_array(column: ArrowColumn) -> Array:
    """The column as one array; rows are copied only if several chunks have some."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    if column.num_chunks == 1:
        return cast(Array, column.chunk(0))
    chunks = [c for c in column.chunks if len(c)]
    if len(chunks) == 1:
        return chunks[0]
    return pa.concat_arrays(chunks) if chunks else pa.array([], column.type)


def may_have_null(table: pa.Table) -> bool:
    """Whether a table may contain a NULL. NULLs inside of values are not checked."""
    return any(c.null_count or pa.types.is_nested(c.type) for c in table.columns)


def _list_bytes(array: Any) -> Array:
    """Each list as the bytes of its items' ids, which are equal for equal lists only."""
    items = array.flatten()
    ids = row_ids(flat(items))
    offsets = _offsets(lengths_of(array)) * ids.itemsize
    validity = array.is_valid().buffers()[1] if array.null_count else None
    buffers = [validity, pa.py_buffer(offsets.tobytes()), pa.py_buffer(ids.tobytes())]
    return pa.Array.from_buffers(pa.large_binary(), len(array), buffers)


def row_ids(columns: Sequence[ArrowColumn]) -> Ids:
    """A number for each row of these flat columns. Equal rows have equal numbers, others do not.

    All numbers are below the number of rows.
    """
    numbers = row_numbers(columns)
    return below_length(numbers) if len(columns) > 1 and len(numbers) else numbers


def row_numbers(columns: Sequence[ArrowColumn]) -> Ids:
    """`row_ids` in less time; the numbers of several columns may be large."""
    if not len(columns[0]):
        return np.zeros(0, np.int64)
    numbers: Ids | None = None
    for column in columns:
        codes = codes_of(one_array(column))
        if numbers is not None:
            # Both factors are at most the number of rows, so the product cannot overflow.
            codes = below_length(numbers) * (codes.max() + 1) + codes
        numbers = codes
    assert numbers is not None
    return numbers


def lengths_of(array: Array) -> Ids:
    """The number of items of each list; 0 for NULL."""
    lists: Any = array
    lengths: Any = pc.fill_null(pc.list_value_length(lists), 0)
    return np.asarray(lengths.to_numpy(), np.int64)


def _offsets(lengths: Ids) -> Ids:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])


# Sums


def _added(
    keys: Sequence[ArrowColumn],
    columns: list[ArrowColumn],
    diffs: Sequence[ArrowColumn],
    schema: Schema,
) -> pa.Table:
    """The relation with equal rows merged and their diffs added; `keys` are the flat columns."""
    rows = len(diffs[0])
    wide = [_widened(d, rows) for d in diffs]
    nested = any(pa.types.is_nested(c.type) for c in columns)
    groups = _grouped(keys, wide)
    if nested:
        first = groups.column("first")
        columns = [one_array(c).take(first) for c in columns]
    else:
        columns = [groups.column(f"key{i}") for i in range(len(keys))]
    sums: list[ArrowColumn] = []
    for i, (name, t) in enumerate(schema.diffs):
        total = groups.column(f"diff{i}_sum")
        try:
            sums.append(total.cast(t.arrow))
        except pa.ArrowInvalid:
            raise _beyond(columns, total, schema, name, t) from None
    return pa.Table.from_arrays([*columns, *sums], schema=schema.arrow)


@dataclass(frozen=True)
class _Few:
    """The groups of a few rows: the group number of each row, and the first row of each group."""

    numbers: Sequence[int]
    first: Sequence[int]

    def added(
        self, columns: Sequence[ArrowColumn], diffs: Sequence[ArrowColumn]
    ) -> list[ArrowColumn]:
        """The columns with equal rows merged and their diffs added, without sums of zero only.

        Raises an Arrow error or OverflowError if a sum does not fit.
        """
        first, sums = self.first, [self._sums(d) for d in diffs]
        alive = list(map(any, zip(*sums, strict=True)))
        if not all(alive):
            first = list(compress(first, alive))
            sums = [list(compress(s, alive)) for s in sums]
        at: Array = pa.array(first, pa.int64())
        arrays: list[ArrowColumn] = [c.take(at) for c in columns]
        return arrays + [pa.array(s, d.type) for s, d in zip(sums, diffs, strict=True)]

    def _sums(self, diff: ArrowColumn) -> list[Any]:
        """The sum of a diff for each group."""
        if diff.type == INT_WIDE:
            with suppress(pa.ArrowInvalid):  # beyond 64 bits; ints are faster than Decimals
                diff = diff.cast(pa.int64())
        values: Any = diff.to_pylist()
        sums: list[Any] = [0] * len(self.first)
        with decimal.localcontext(_EXACT):
            for number, n in zip(self.numbers, values, strict=True):
                sums[number] += n
        return sums


def _few(keys: Sequence[ArrowColumn]) -> _Few | None:
    """The groups of rows; None if Arrow is faster, for many rows.

    For few rows, a Python dictionary takes a fraction of the time that Arrow needs to start.
    """
    if not keys or len(keys[0]) > FEW:
        return None
    rows: list[Any] = [comparable(k) for k in keys]
    rows = rows[0] if len(rows) == 1 else list(zip(*rows, strict=True))
    distinct = dict.fromkeys(rows)
    if len(distinct) == len(rows):
        return _Few(range(len(rows)), range(len(rows)))
    numbers = dict(zip(distinct, range(len(distinct)), strict=True))
    groups = [numbers[row] for row in rows]
    first = dict(zip(reversed(groups), reversed(range(len(rows))), strict=True))
    return _Few(groups, sorted(first.values()))


def comparable(column: ArrowColumn) -> Sequence[Any]:
    """The values of a canonical flat column, or numbers for them, which convert faster.

    They are equal in Python if and only if the values are equal in Arrow.
    """
    t = column.type
    if not pa.types.is_integer(t) and pa.types.is_primitive(t) and t.bit_width in _BITS:
        column = one_array(column).view(_BITS[t.bit_width])
    return cast(Sequence[Any], column.to_pylist())


_BITS = {32: pa.int32(), 64: pa.int64()}


@functools.cache
def is_simple(t: pa.DataType) -> bool:
    """Whether values are equal in Python if they are in Arrow, and are fast to convert."""
    return (
        pa.types.is_integer(t)
        or pa.types.is_boolean(t)
        or pa.types.is_date(t)
        or pa.types.is_string(t)
        or pa.types.is_binary(t)
        or pa.types.is_large_binary(t)
    )


def _grouped(keys: Sequence[ArrowColumn], diffs: Sequence[ArrowColumn]) -> pa.Table:
    """The sums of diffs, and the position of the first row, of each group of rows."""
    names = [f"key{i}" for i in range(len(keys))]
    sums = [f"diff{i}" for i in range(len(diffs))]
    rows = len(diffs[0]) if diffs else len(keys[0])
    position = pa.array(np.arange(rows))
    table = pa.Table.from_arrays([*keys, *diffs, position], names=[*names, *sums, "row"])
    # One thread is as fast for a driver's tables, and keeps the order the same in each run.
    groups = table.group_by(names, use_threads=False)
    totals = groups.aggregate([*((s, "sum") for s in sums), ("row", "min")])
    return totals.rename_columns(["first" if n == "row_min" else n for n in totals.schema.names])


def grouped(keys: Sequence[ArrowColumn], summed: Sequence[Any]) -> tuple[Array, list[Any]]:
    """The position of a row of each group of rows, and the exact sums of columns of numbers.

    The keys are flat columns; without a key there is one group, of all rows.
    """
    rows = len(summed[0])
    if not rows:
        return pa.array([], pa.int64()), [s.slice(0, 0) for s in summed]
    wide = [_widened(s, rows) for s in summed]
    if not keys:
        return pa.array([0], pa.int64()), [pa.array([pc.sum(s).as_py()], s.type) for s in wide]
    groups = _grouped(keys, wide)
    return one_array(groups.column("first")), [
        groups.column(f"diff{i}_sum") for i in range(len(wide))
    ]


def _widened(diff: ArrowColumn, rows: int) -> ArrowColumn:
    """The diff in a type in which its sums cannot overflow: Arrow's sums would wrap around."""
    bounds: Any = pc.min_max(diff).as_py()
    with decimal.localcontext(_EXACT):
        largest = max(abs(bounds["min"]), abs(bounds["max"]))
        if pa.types.is_integer(diff.type):
            return diff if largest * rows < 2**63 else diff.cast(INT_WIDE)
        fits = largest * rows < decimal.Decimal(10) ** (38 - diff.type.scale)
    wide = pa.decimal128 if fits else pa.decimal256
    return diff.cast(wide(38 if fits else WIDEST, diff.type.scale))


def _beyond(
    columns: Sequence[ArrowColumn], total: ArrowColumn, schema: Schema, name: str, t: RowType
) -> StepError:
    """The error for a sum that does not fit its column. It shows the first such row."""
    for i, value in enumerate(total.to_pylist()):
        try:
            pa.array([value], total.type).cast(t.arrow)
        except pa.ArrowInvalid:
            row = {n: c[i].as_py() for (n, _), c in zip(schema.columns, columns, strict=True)}
            return _too_large(row, name, t, value)
    raise AssertionError(f"{name}: no sum is beyond {t.ddl}")


def _no_opposite(table: pa.Table, schema: Schema, name: str, t: RowType) -> StepError:
    """The error for the negation of the smallest integer."""
    i = pc.index(table.column(name), pa.scalar(INT_MIN)).as_py()
    row = {n: table.column(n)[i].as_py() for n, _ in schema.columns}
    return _too_large(row, name, t, f"-({INT_MIN})")


def shown_row(row: dict[str, Any]) -> str:
    """The columns of a row for a message; long texts are cut."""
    return cut_short(", ".join(f"{n}={cut_short(repr(v))}" for n, v in row.items()), SHOWN_ROW)


def _too_large(row: dict[str, Any], name: str, t: RowType, value: Any) -> StepError:
    of = f" of the row ({shown_row(row)})" if row else ""
    return StepError(
        f"{name}{of} adds up to {value}, which is beyond {t.ddl}; feed fewer or smaller weights"
    )
