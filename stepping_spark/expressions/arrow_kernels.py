"""Evaluates expressions over small relations with Arrow, exactly as Spark does, without Spark.

Only operators that are exact in both are here: whole numbers within 64 bits, Decimals, which are
rounded once where their type lacks room for each digit, floats by the rules of IEEE 754,
comparisons, days, and logic with NULL. Arrow's checked arithmetic fails on an overflow. Spark would
fail or wrap around there, depending on its settings, so then Spark is asked.

Each expression is compiled once, when a plan is prepared, to a function of tables.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial, reduce
from itertools import repeat
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute

from stepping_spark.base.errors import StepError
from stepping_spark.expressions.expr import (
    Build,
    Call,
    Expr,
    Field,
    Items,
    Literal,
    Opaque,
    Singleton,
    Transformed,
    Variable,
    is_plain,
)
from stepping_spark.expressions.operations import OPERATORS, digits, digits_of_result, fit, rank
from stepping_spark.expressions.portable import Derived
from stepping_spark.expressions.zones import between, moved, moved_local
from stepping_spark.relations.arrow import Array, one_array
from stepping_spark.rows.atoms import (
    BOOL,
    DATE,
    DATETIME,
    FLOAT,
    INT,
    LOCAL_DATETIME,
    MOST_DIGITS,
    NAN,
    TIMEDELTA,
    Atom,
    RowType,
)
from stepping_spark.rows.schema import Schema
from stepping_spark.rows.types import Struct, unwrap

pc: Any = pyarrow.compute

Arrays: TypeAlias = list[Array]

KernelFunction = Callable[..., Any]
"""Computes a column from columns, or from a column and constants; None: ask Spark."""

MOST_EXACT = 76
"""The digits of Arrow's largest decimals."""
_ORDERED = ("int", "str", "bytes", "date", "datetime", "LocalDateTime", "timedelta", "Decimal")
_ARITHMETIC: dict[str, KernelFunction] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
    "neg": pc.negate_checked,
}
_COMPARISONS: dict[str, KernelFunction] = {
    "==": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_LOGIC: dict[str, KernelFunction] = {
    "&": pc.and_kleene,
    "|": pc.or_kleene,
    "~": pc.invert,
}
_NULLS: dict[str, KernelFunction] = {
    "isNull": pc.is_null,
    "isNotNull": pc.is_valid,
    "known": lambda x: x,
}
_FIRST_DAY, _LAST_DAY = ((d - dt.date(1970, 1, 1)).days for d in (dt.date.min, dt.date.max))


def is_known(e: Expr) -> bool:
    """Whether the driver can compute an expression without Spark, if nothing overflows."""
    if isinstance(e, Opaque):
        return e.reading is not None
    if not isinstance(e, Call):
        return is_plain(e) or (e.on_driver and all(map(is_known, e.parts())))
    return (_function(e) or _of_instants(e)) is not None and all(map(is_known, e.args))


def kernel_of(e: Call) -> Callable[[Sequence[Any]], Any] | None:
    """The function that computes an operator's column from those of its arguments, in Arrow.

    None if Arrow cannot. The function returns None where Spark must compute it: on an overflow of
    64 bits, or of the digits of a Decimal.
    """
    function = _function(e)
    if function is None:
        return None
    constants = [i for i, a in enumerate(e.args) if i and isinstance(a, Literal)]
    made = unwrap(e.type).arrow

    def computed(columns: Sequence[Any]) -> Any | None:
        given = list(columns)
        if len(columns[0]):
            for i in constants:
                given[i] = columns[i][0]
        try:
            found = function(*given)
        except pa.ArrowInvalid:
            return None
        return found if found is None or found.type == made else None

    return computed


def _function(e: Call) -> KernelFunction | None:
    types = tuple(unwrap(a.type) for a in e.args)
    if e.op in _NULLS:
        return _NULLS[e.op]
    if e.op in _LOGIC:
        return _LOGIC[e.op] if all(t == BOOL for t in types) else None
    if e.op in _COMPARISONS:
        return _comparison(e.op, *types)
    if e.op in ("isin", "eqNullSafe", "coalesce"):
        return _of_nulls(e.op, types)
    if len(types) == 1:
        return _of_one(e.op, types[0], unwrap(e.type))
    if types[0].ddl == "DATE":
        return _days(e.op, types[1])
    if types[0] == LOCAL_DATETIME:
        return _of_local_times(e.op, types[1])
    if types[0] == DATETIME and _is_below_a_day(e.args[1]):
        return lambda x, by: moved(x, by if e.op == "+" else _negated(by), dt.UTC)
    if types == (TIMEDELTA, TIMEDELTA):
        return _ARITHMETIC.get(e.op)
    if e.op in ("+", "-", "*", "/", "%") and all(map(rank, types)):
        return _arithmetic(e.op, types, unwrap(e.type))
    return None


def _name(t: RowType) -> str:
    return t.name if isinstance(t, Atom) else ""


# Arithmetic


def _arithmetic(op: str, types: Sequence[RowType], given: RowType) -> KernelFunction | None:
    if given == INT:
        return remainder if op == "%" else _ARITHMETIC.get(op)
    if given == FLOAT and not any(_name(t) == "Decimal" for t in types):
        return partial(_of_floats, op)
    if _name(given) == "Decimal" and op not in ("/", "%"):
        one, other = (pa.decimal128(*digits(t)) for t in types)
        needed = digits_of_result(op, *types)[0]
        if needed <= MOST_DIGITS:  # neither Spark nor Arrow rounds
            return lambda a, b: _ARITHMETIC[op](a.cast(one), b.cast(other))
        if needed <= MOST_EXACT:
            return partial(_rounded, op, types, given)
        return partial(_by_row, op, given)
    # Spark reduces the digits of operands of % that have too many together
    fits = op == "/" or all(digits_of_result(o, *types)[0] <= MOST_DIGITS for o in "+%")
    if _name(given) == "Decimal" and fits:
        return partial(_by_row, op, given)
    return None


def _rounded(op: str, types: Sequence[RowType], given: RowType, a: Any, b: Any) -> Any:
    """A result with more digits than a Decimal: Spark computes all of them, and rounds once."""
    sizes = [digits(t) for t in types]
    exact = [
        x.cast(pa.decimal128(*size)).cast(pa.decimal256(*size))
        for x, size in zip((a, b), sizes, strict=True)
    ]
    found = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}[op](*exact)
    rounded = pc.round(found, digits(given)[1], round_mode="half_towards_infinity")
    return rounded.cast(given.arrow)


def _by_row(op: str, given: RowType, a: Any, b: Any) -> Any:
    """Decimals divided as in plain Python, which rounds as Spark does."""
    others = repeat(b.as_py()) if isinstance(b, pa.Scalar) else b.to_pylist()
    f = OPERATORS[op].python
    try:
        found = [
            None if x is None or y is None else fit(f(x, y), given, op)
            for x, y in zip(a.to_pylist(), others, strict=False)
        ]
    except StepError:  # a divisor is zero: Spark raises the error
        return None
    return pa.array(found, given.arrow)


def remainder(a: Any, b: Any) -> Any:
    """The remainder of ints, with the sign of the dividend. Raises ArrowInvalid for a zero divisor.

    It also does for the quotient that is beyond 64 bits, of the least int and -1.
    """
    return pc.subtract_checked(a, pc.multiply_checked(b, pc.divide_checked(a, b)))


def _of_floats(op: str, a: Any, b: Any) -> Any:
    a, b = as_floats(a), as_floats(b)
    if op in ("/", "%"):
        if pc.any(pc.equal(b, 0.0)).as_py() if isinstance(b, pa.Array) else b.as_py() == 0:
            return None  # Spark raises an error, or gives NULL
        found = pc.divide(a, b) if op == "/" else _float_remainder(a, b)
    else:
        found = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}[op](a, b)
    return one_nan(found)


def _float_remainder(a: Any, b: Any) -> Any:
    """The exact remainder of floats, with the sign of the dividend, as in C and in Java."""
    there = pc.and_(pc.is_valid(a), pc.is_valid(b))
    if isinstance(b, pa.Scalar):
        divisor: Any = np.nan if b.as_py() is None else b.as_py()
    else:
        divisor = b.to_numpy(zero_copy_only=False)
    with np.errstate(invalid="ignore"):  # of an infinity it is NaN
        found = pa.array(np.fmod(a.to_numpy(zero_copy_only=False), divisor))
    return pc.if_else(there, found, pa.scalar(None, pa.float64()))


def as_floats(x: Any) -> Any:
    """A number as Spark casts it: an int beyond 2**53 becomes the nearest float."""
    return x if x.type == pa.float64() else x.cast(pa.float64(), safe=False)


def one_nan(x: Any) -> Any:
    """The floats with one kind of NaN: processors make several, and rows hold one."""
    return pc.if_else(pc.is_nan(x), pa.scalar(NAN), x)


def _of_one(op: str, t: RowType, given: RowType) -> KernelFunction | None:
    """The kernel of an operator on one value."""
    if op == "neg" and t == INT:
        return _ARITHMETIC[op]
    if op == "neg" and t == TIMEDELTA:
        return _negated
    if op == "neg" and _name(t) in ("Decimal", "float"):
        return lambda x: one_nan(pc.negate(x)) if t == FLOAT else pc.negate(x)
    if op == "to_float" and t in (INT, FLOAT):
        return as_floats
    if op == "to_int" and t == INT:
        return _NULLS["known"]
    if op == "to_decimal" and _name(t) in ("int", "Decimal"):
        return partial(_as_decimal, of=digits(t), to=given)
    if op in ("minute", "local_minute") and _name(t) in ("datetime", "LocalDateTime"):
        return _minutes
    return _day_over if op == "day_over" else None


def _as_decimal(x: Any, of: tuple[int, int], to: RowType) -> Any:
    """A Decimal, rounded half away from zero. Raises ArrowInvalid if it does not fit."""
    scale = digits(to)[1]
    # Rounding up may need one more digit
    x = x.cast(pa.decimal128(min(of[0] + (scale < of[1]), MOST_DIGITS), of[1]))
    if scale < of[1]:
        x = pc.round(x, scale, "half_towards_infinity")
    return x.cast(to.arrow)


# Days and minutes


def _days(op: str, t: RowType) -> KernelFunction | None:
    """The kernel that moves a day by a number of days, or measures the duration between two."""
    if t == DATE and op == "-":
        return _days_between
    if t != INT or op not in ("+", "-"):
        return None

    def moved(day: Any, by: Any) -> Any:
        found = _ARITHMETIC[op](day.cast(pa.int32()).cast(pa.int64()), by)
        least, most = pc.min_max(found).as_py().values()
        if least is not None and (least < _FIRST_DAY or most > _LAST_DAY):
            return None
        return found.cast(pa.int32()).cast(pa.date32())

    return moved


def _days_between(a: Any, b: Any) -> Any:
    days = pc.subtract(a.cast(pa.int32()).cast(pa.int64()), b.cast(pa.int32()).cast(pa.int64()))
    return pc.multiply(days, pa.scalar(86_400_000_000)).cast(TIMEDELTA.arrow)


def _of_local_times(op: str, t: RowType) -> KernelFunction | None:
    """The kernel that moves local times by durations, or measures the duration between two."""
    if t == LOCAL_DATETIME:
        return _ARITHMETIC[op]
    return moved_local if op == "+" else lambda x, by: moved_local(x, _negated(by))


def _negated(durations: Any) -> Any:
    return pc.negate_checked(durations.cast(pa.int64())).cast(durations.type)


def _is_below_a_day(e: Expr) -> bool:
    """Whether an expression is a constant duration that moves instants alike in each zone."""
    span = e.constant if isinstance(e, Literal) else None
    return isinstance(span, dt.timedelta) and abs(span) < dt.timedelta(days=1)


ZonedKernel: TypeAlias = Callable[[Arrays, dt.tzinfo], Any]
"""Computes a column from columns, in the time zone of the session; None: ask Spark."""


def _of_instants(e: Call) -> ZonedKernel | None:
    """The kernel that moves instants by durations, or measures the duration between two."""
    types = tuple(unwrap(a.type) for a in e.args)
    if e.op not in ("+", "-") or types[0] != DATETIME or _is_below_a_day(e.args[1]):
        return None

    def computed(columns: Arrays, zone: dt.tzinfo) -> Any:
        a, b = columns
        try:
            if types[1] == DATETIME:
                return between(a, b, zone)
            return moved(a, b if e.op == "+" else _negated(b), zone)
        except pa.ArrowInvalid:
            return None

    return computed


def _day_over(x: Any) -> Any:
    """The instant 42 hours after midnight UTC of the day's date: the day is over everywhere."""
    days = x.cast(pa.int32()).cast(pa.int64())
    hours = pc.add(pc.multiply(days, pa.scalar(24)), pa.scalar(42))
    micros = pc.multiply(hours, pa.scalar(3_600_000_000))
    return micros.cast(pa.timestamp("us", "UTC"))


def _minutes(x: Any) -> Any:
    """Whole minutes since 1970, rounded down (before 1970 too)."""
    micros = np.asarray(x.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False))
    return pa.array(micros // 60_000_000, mask=np.asarray(x.is_null()))


# Comparisons


def _comparison(
    op: str, a: RowType, b: RowType, *, may_round: bool = True
) -> KernelFunction | None:
    if a == b and (_name(a) in _ORDERED or (a == BOOL and op in ("==", "!="))):
        return _COMPARISONS[op]
    if not (rank(a) and rank(b)):
        return None
    if FLOAT in (a, b):
        return None if "Decimal" in (_name(a), _name(b)) else partial(_compared, op)
    of_sum, scale = digits_of_result("+", a, b)
    both = of_sum - 1  # a sum may need one more digit
    if both > MOST_DIGITS and not may_round:
        return None
    if both > MOST_DIGITS:
        return partial(_with_fewer_digits, op, (a, b), max(0, scale - (both - MOST_DIGITS)))
    t = pa.decimal128(both, scale)
    return lambda x, y: _COMPARISONS[op](x.cast(t), y.cast(t))


def _with_fewer_digits(op: str, types: tuple[RowType, RowType], scale: int, *values: Any) -> Any:
    """Compares Decimals that have too many digits together: Spark rounds both to fewer."""
    t = Atom("Decimal", Decimal, MOST_DIGITS, scale)
    rounded = (_as_decimal(x, digits(of), t) for x, of in zip(values, types, strict=True))
    return _COMPARISONS[op](*rounded)


def _compared(op: str, a: Any, b: Any) -> Any:
    """Compares floats in Spark's order: NaN equals itself, and is the largest."""
    a, b = as_floats(a), as_floats(b)
    if op in (">", ">="):
        a, b, op = b, a, op.replace(">", "<")
    nans = pc.is_nan(a), pc.is_nan(b)
    same = pc.or_(pc.equal(a, b), pc.and_(*nans))
    less = pc.or_(pc.less(a, b), pc.and_(pc.invert(nans[0]), nans[1]))
    found = {"==": same, "!=": pc.invert(same), "<": less, "<=": pc.or_(less, same)}[op]
    return pc.if_else(pc.and_(pc.is_valid(a), pc.is_valid(b)), found, pa.scalar(None, pa.bool_()))


def _of_nulls(op: str, types: Sequence[RowType]) -> KernelFunction | None:
    """The kernel of an operator that does not give NULL for each NULL."""
    # Of several values Spark finds one type
    equals = [_comparison("==", types[0], t, may_round=False) for t in types[1:]]
    if op == "coalesce":
        return pc.coalesce if isinstance(types[0], Atom) and types[0] == types[1] else None
    found = [f for f in equals if f is not None]
    if len(found) < len(equals):
        return None
    if op == "eqNullSafe":
        return partial(_same, found[0])
    return lambda x, *among: reduce(
        pc.or_kleene, (f(x, y) for f, y in zip(found, among, strict=True))
    )


def _same(equal: KernelFunction, a: Any, b: Any) -> Any:
    neither = pc.and_(pc.is_null(a), pc.is_null(b))
    return pc.if_else(neither, True, equal(a, b).fill_null(False))


ZoneOf: TypeAlias = Callable[[], dt.tzinfo | None]
"""Tells the session's time zone; None if it is unknown, or if only Spark knows its rules."""

Evaluator: TypeAlias = Callable[[pa.Table, ZoneOf], Any]
"""Computes the column of an expression over a table's rows; None on an overflow: ask Spark."""


def unknown_zone() -> None:
    """No time zone: Spark is asked for functions of times."""


@dataclass(frozen=True)
class Ask:
    """Evaluates expressions over the rows of a relation where Arrow alone cannot."""

    values: Callable[[pa.Table, Schema, tuple[Expr, ...]], Arrays]  # Spark evaluates these
    zone: ZoneOf = unknown_zone


ArraysOf: TypeAlias = Callable[[pa.Table, Ask], Arrays]
RelationOf: TypeAlias = Callable[[Sequence[Any]], pa.Table]


def evaluator(e: Expr) -> Evaluator | None:
    """The function that computes an expression in Arrow; None if only Spark can evaluate it."""
    if isinstance(e, Literal):
        return _constant(e)
    if isinstance(e, Field):
        return _field(e)
    if isinstance(e, Opaque):
        return None if e.reading is None else evaluator(e.reading)
    if isinstance(e, Variable):
        return _at(_column_of(e))
    parts = tuple(map(evaluator, e.parts()))
    known = [p for p in parts if p is not None]
    if len(known) < len(parts):
        return None
    if isinstance(e, Transformed):
        return _of_items(e, *known)
    if isinstance(e, Items):
        return _of_parts(known, partial(_lists, e.type)) if known else None
    t = unwrap(e.type)
    if isinstance(e, Build) and isinstance(t, Struct):
        return _of_parts(known, struct_of(t))
    if isinstance(e, Singleton):
        return _of_parts(known, _singletons(e))
    if isinstance(e, Derived):
        if e.in_session_zone:
            return _of_parts_in_zone(known, e.arrow_in)
        return _of_parts(known, e.arrow)
    if not isinstance(e, Call):
        return None
    in_zone, kernel = _of_instants(e), kernel_of(e)
    if in_zone is not None:
        return _of_parts_in_zone(known, in_zone)
    return None if kernel is None else _of_parts(known, kernel)


def values_of(schema: Schema, exprs: Sequence[Expr]) -> ArraysOf:
    """A function that computes the values of expressions over the rows of a relation."""
    distinct = list(dict.fromkeys(exprs))
    evaluators = [evaluator(e) for e in distinct]
    places = None if len(distinct) == len(exprs) else [distinct.index(e) for e in exprs]

    def values(table: pa.Table, ask: Ask) -> Arrays:
        columns: list[Any] = []
        asked = []
        for i, compute in enumerate(evaluators):
            column = None if compute is None else compute(table, ask.zone)
            if column is None:
                asked.append(i)
            columns.append(column)
        if asked:
            wanted = tuple(distinct[i] for i in asked)
            found = ask.values(table, schema, wanted) if table.num_rows else map(_nothing, wanted)
            for i, column in zip(asked, found, strict=True):
                columns[i] = column
        return columns if places is None else [columns[i] for i in places]

    return values


def _nothing(e: Expr) -> Any:
    return pa.array([], e.type.arrow)


def relation_of(schema: Schema) -> RelationOf:
    """A function that makes a table of columns and diffs."""
    made = schema.arrow
    fields = list(made)

    types = [f.type for f in fields]

    def relation(columns: Sequence[Any]) -> pa.Table:
        for column, t in zip(columns, types, strict=True):
            if column.type != t:
                columns = cast(columns, fields)
                break
        return pa.Table.from_arrays(columns, schema=made)

    return relation


def _constant(e: Literal) -> Evaluator:
    value: Any = pa.scalar(e.type.encode(e.constant, "a constant"), e.type.arrow)

    def constant(table: pa.Table, _: ZoneOf) -> Array:
        n = table.num_rows
        # A list cannot be repeated zero times.
        column: Array = pa.repeat(value, n) if n else pa.nulls(0, value.type)
        return column

    return constant


def _field(e: Field) -> Evaluator:
    if not e.path:
        t = unwrap(e.type)
        assert isinstance(t, Struct)
        return _row(t)
    return _at(*e.path)


def _row(t: Struct) -> Evaluator:
    """A function that makes one column of a table's columns."""
    names, made = [n for n, _ in t.fields], struct_of(t)

    def row(table: pa.Table, _: ZoneOf) -> Any:
        columns = []
        for name in names:
            chunks: Any = table.column(name)
            columns.append(chunks.chunk(0) if chunks.num_chunks == 1 else one_array(chunks))
        return made(columns)

    return row


def _at(name: str, *path: str) -> Evaluator:
    """A function that reads a column, or a field within it."""

    def read(table: pa.Table, _: ZoneOf) -> Any:
        chunks: Any = table.column(name)
        found: Any = chunks.chunk(0) if chunks.num_chunks == 1 else one_array(chunks)
        for part in path:
            found = pc.struct_field(found, part) if found.null_count else found.field(part)
        return found

    return read


def _part(rows: Any, name: str) -> Array:
    """The column of a field; NULL where the row is."""
    found: Array = pc.struct_field(rows, name) if rows.null_count else rows.field(name)
    return found


def _of_parts(parts: Sequence[Evaluator], made: Callable[[Arrays], Any]) -> Evaluator:
    """A function that computes the columns of the parts, and makes one column of them."""

    def compute(table: pa.Table, zone: ZoneOf) -> Any:
        columns = []
        for part in parts:
            column = part(table, zone)
            if column is None:
                return None
            columns.append(column)
        return made(columns)

    return compute


def _of_parts_in_zone(parts: Sequence[Evaluator], made: ZonedKernel) -> Evaluator:
    """The same for a function of times, of the session's time zone."""

    def compute(table: pa.Table, zone: ZoneOf) -> Any:
        there = zone()
        if there is None:
            return None
        return _of_parts(parts, lambda columns: made(columns, there))(table, zone)

    return compute


def _column_of(variable: Variable) -> str:
    """The column of a variable, beside those of the rows that the lists are in."""
    return f"item {variable.name}"


def _of_items(e: Transformed, items: Evaluator, body: Evaluator) -> Evaluator:
    """A function that computes lists, of a row for each item of others."""
    made: Any = unwrap(e.type).arrow

    def compute(table: pa.Table, zone: ZoneOf) -> Any:
        lists = items(table, zone)
        if lists is None:
            return None
        lengths = np.asarray(pc.list_value_length(lists).fill_null(0).to_numpy(), np.int64)
        ends = np.cumsum(lengths)
        parents = np.repeat(np.arange(len(lengths)), lengths)
        rows = table.take(pa.array(parents, pa.int64()))
        places = np.arange(len(parents)) - (ends - lengths)[parents]
        for v, column in zip(e.variables, (pc.list_flatten(lists), pa.array(places)), strict=False):
            rows = rows.append_column(_column_of(v), column)
        found = body(rows, zone)
        if found is None:
            return None
        offsets = pa.array(np.append(0, ends), pa.int32())
        (values,) = cast([found], [made.value_field])
        mask = lists.is_null() if lists.null_count else None
        return pa.ListArray.from_arrays(offsets, values, type=made, mask=mask)

    return compute


def _lists(t: RowType, columns: Arrays) -> Any:
    """The lists of one item of each column."""
    made: Any = unwrap(t).arrow
    width, rows = len(columns), len(columns[0])
    each = pa.concat_arrays(cast(columns, [made.value_field] * width))
    in_turn = np.arange(rows * width).reshape(width, rows).T.reshape(-1)
    offsets = pa.array(np.arange(rows + 1) * width, pa.int32())
    return pa.ListArray.from_arrays(offsets, each.take(pa.array(in_turn, pa.int64())), type=made)


def _singletons(e: Singleton) -> Callable[[Arrays], Array]:
    lists: Any = e.type.arrow
    fields = list(lists.value_type)

    def made(columns: Arrays) -> Array:
        rows = len(columns[0])
        items = pa.StructArray.from_arrays(
            [columns[0], pa.array(np.ones(rows, np.int64))], fields=fields
        )
        return pa.ListArray.from_arrays(pa.array(np.arange(rows + 1), pa.int32()), items)

    return made


def struct_of(t: Struct) -> Callable[[Arrays], Array]:
    """A function that makes one column of rows from the columns of their fields."""
    fields = [pa.field(n, ft.arrow) for n, ft in t.fields]

    types = [f.type for f in fields]

    def made(columns: Arrays) -> Array:
        for column, t in zip(columns, types, strict=True):
            if column.type != t:
                columns = cast(columns, fields)
                break
        return pa.StructArray.from_arrays(columns, fields=fields)

    return made


def cast(columns: Sequence[Any], fields: Sequence[pa.Field[Any]]) -> Arrays:
    """The columns, cast to the types of the fields."""
    made = list(columns)
    for i, f in enumerate(fields):
        if made[i].type != f.type:
            made[i] = made[i].cast(f.type)
    return made


def spread(values: Array, t: RowType) -> Arrays:
    """The columns of the fields of rows that are in one column."""
    if not isinstance(t, Struct):
        return [values]
    return [_part(values, n) for n, _ in t.fields]
