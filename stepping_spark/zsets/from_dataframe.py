"""Converts a user's DataFrame to a relation: checks its columns and guards against NULLs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from stepping_spark.base.errors import InputError, SourceError, SteppingError
from stepping_spark.base.packages import Column, DataFrame, raised
from stepping_spark.base.packages import functions as F
from stepping_spark.base.packages import types as T
from stepping_spark.expressions.expr import UUID_TEXT, YEARS
from stepping_spark.relations.relation import SparkRelation
from stepping_spark.relations.sums.overflow import product
from stepping_spark.rows.atoms import FLOAT_INT_MAX, INT, Atom, RowType
from stepping_spark.rows.names import arrow_schema, matched, refuse_feed
from stepping_spark.rows.schema import COUNT, VALUE, ZSetType
from stepping_spark.rows.sql_text import all_of, closed, literal, text
from stepping_spark.rows.types import ListOf, Optional, Struct, ZSetOf, quote
from stepping_spark.spark.session import first_line, raised_in_worker

_MARK = "stepping_spark: "  # the prefix of the errors that the guard raises inside Spark
PASSED = "monotonically_increasing_id() >= -1"
"""A condition on rows that passed the check, in SQL and in Spark's plan. It is always true."""
_INTEGERS = ("ByteType", "ShortType", "IntegerType", "LongType")
_DIGITS: dict[str, int] = dict(zip(_INTEGERS, (3, 5, 10, 19), strict=True))
_TAKEN: dict[str, tuple[str, ...]] = {
    "bool": ("BooleanType",),
    "int": _INTEGERS,
    "float": ("FloatType", "DoubleType"),
    "str": ("StringType", "VarcharType", "CharType"),
    "bytes": ("BinaryType",),
    "date": ("DateType",),
    "datetime": ("TimestampType",),
    "LocalDateTime": ("TimestampNTZType",),
    "timedelta": ("DayTimeIntervalType",),
    "UUID": ("StringType", "VarcharType", "CharType"),
    "Enum": ("StringType", "VarcharType", "CharType"),
}


def check_frame(df: object, where: str) -> None:
    """Refuse values that are no DataFrame, and streaming DataFrames, which have no rows."""
    if not isinstance(df, DataFrame):
        raise InputError(f"{where}: expected a pyspark DataFrame, found {type(df).__name__}")
    if df.isStreaming:
        raise InputError(
            f"{where}: the DataFrame is a stream; step with the DataFrame of each batch: "
            "stream.writeStream.foreachBatch(st.foreach_batch(stepper, input=…))"
        )


def relation_of(
    df: DataFrame,
    t: ZSetType,
    count: str | None,
    where: str,
    names: Mapping[str, str] | None = None,
) -> DataFrame:
    """The DataFrame with the columns of the Z-set's schema. Runs no job.

    `names` has the columns of fields whose column has another name, by default from the row class.
    Raises InputError for a column that is missing or of another type.
    """
    return df.selectExpr(*_shown_as(df, t, count, where, names_of(t) if names is None else names))


def names_of(t: ZSetType) -> Mapping[str, str]:
    """The columns of fields in a row class whose column has another name."""
    return t.row.column_names if isinstance(t.row, Struct) else {}


def _shown_as(
    df: DataFrame, t: ZSetType, count: str | None, where: str, names: Mapping[str, str]
) -> list[str]:
    """The columns of the Z-set's schema in SQL, over the columns of a DataFrame."""
    fields = {f.name: f for f in df.schema.fields}
    counted = "1L"
    if count is not None:
        count = count_column(list(fields), count, where)
        counted = _count(fields[count], where)
        del fields[count]
    elif COUNT in fields and COUNT not in names.values():
        raise InputError(f"{where}: there is a column {COUNT!r}; say count={COUNT!r}, or drop it")
    if not isinstance(t.row, Struct) and len(fields) == 1:
        # A single column must be the value, whatever its name.
        columns = {VALUE: next(iter(fields))}
    else:
        columns = columns_of(t.schema.columns, names, df.schema.names, where)
    refuse_feed(fields, columns, lambda problem: InputError(f"{where}: {problem}"))
    exprs = []
    for n, ft in t.schema.columns:
        f = fields[columns[n]]
        converted = _converted(quote(f.name), f.dataType, ft, f"{where}, column {f.name!r}")
        exprs.append(f"{converted} AS {quote(n)}")
    return [*exprs, f"{counted} AS {COUNT}"]


def columns_of(
    fields: Sequence[tuple[str, RowType]],
    names: Mapping[str, str],
    present: Sequence[str],
    where: str,
) -> dict[str, str]:
    """The column of each field; raises InputError if one is missing or ambiguous to Spark."""
    columns = matched(
        arrow_schema(fields, names), present, lambda problem: InputError(f"{where}: {problem}")
    )
    for column in columns.values():
        same = [name for name in present if name.lower() == column.lower()]
        if len(same) > 1:
            raise InputError(
                f"{where}: columns {same[0]!r} and {same[1]!r} are one name to Spark, which "
                "ignores case; rename or drop one"
            )
    return columns


def count_column(names: Sequence[str], count: str, where: str) -> str:
    """The column of weights, by its name in any case."""
    column = count if count in names else next((n for n in names if n.lower() == count.lower()), "")
    if not column:
        raise InputError(
            f"{where}: there is no count column {count!r}; the columns are {', '.join(names)}"
        )
    return column


def _count(f: T.StructField, where: str) -> str:
    if type(f.dataType).__name__ not in _INTEGERS:
        raise InputError(
            f"{where}, count column {f.name!r}: expected an integer type, found "
            f"{_type_text(f.dataType)}; weights are whole numbers: cast it to BIGINT"
        )
    return f"CAST({quote(f.name)} AS BIGINT)"


def _converted(sql: str, data_type: T.DataType, t: RowType, where: str, depth: int = 0) -> str:
    """The expression in the row type's own Spark type; unchanged if it has that type already."""
    if isinstance(t, Optional):
        if isinstance(data_type, T.NullType):
            return f"CAST({sql} AS {t.ddl})"
        return _converted(sql, data_type, t.inner, where, depth)
    if isinstance(t, Atom):
        return _converted_atom(sql, data_type, t, where)
    if isinstance(t, Struct) and isinstance(data_type, T.StructType):
        return _converted_struct(sql, data_type, t, where, depth)
    if isinstance(t, ListOf | ZSetOf) and isinstance(data_type, T.ArrayType):
        item = t.inner if isinstance(t, ListOf) else t.item
        x = f"x{depth}"
        inner = _converted(x, data_type.elementType, item, f"{where}, items", depth + 1)
        converted = sql if inner == x else f"transform({sql}, {x} -> {inner})"
        return converted if isinstance(t, ListOf) else f"array_sort({converted})"
    raise _misfit(data_type, t, where)


def _converted_atom(sql: str, data_type: T.DataType, t: Atom, where: str) -> str:
    whole = _DIGITS.get(type(data_type).__name__)
    if t.name == "Decimal" and whole is not None:
        if whole > t.precision - t.scale:
            raise _misfit(data_type, t, where, f"its {whole} digits may not fit: cast it")
    elif t.name == "float" and isinstance(data_type, T.LongType):
        message = f"{where}: expected float, found an int beyond 2^53, which a float cannot hold: "
        failed = failure(f"concat({text(message)}, {sql})")
        beyond = closed(f"{sql} NOT BETWEEN -{FLOAT_INT_MAX}L AND {FLOAT_INT_MAX}L")
        return f"IF({beyond}, CAST({failed} AS DOUBLE), CAST({sql} AS DOUBLE))"
    elif t.name == "float" and whole is not None:
        pass
    elif t.name == "Decimal":
        if not isinstance(data_type, T.DecimalType):
            raise _misfit(data_type, t, where)
        if (
            data_type.precision - data_type.scale > t.precision - t.scale
            or data_type.scale > t.scale
        ):
            raise _misfit(
                data_type,
                t,
                where,
                "its digits may not fit: cast it, or annotate the field "
                f"Annotated[Decimal, st.Precision({data_type.precision}, {data_type.scale})]",
            )
    elif type(data_type).__name__ not in _TAKEN[t.name]:
        raise _misfit(data_type, t, where)
    elif t.name == "UUID":
        return f"lower(CAST({sql} AS STRING))"
    return sql if data_type.simpleString() == t.ddl.lower() else f"CAST({sql} AS {t.ddl})"


def _converted_struct(sql: str, data_type: T.StructType, t: Struct, where: str, depth: int) -> str:
    fields = {f.name: f for f in data_type.fields}
    columns = columns_of(t.fields, t.column_names, data_type.names, where)
    parts = []
    for n, ft in t.fields:
        f = fields[columns[n]]
        part = f"{sql}.{quote(f.name)}"
        parts.append((n, part, _converted(part, f.dataType, ft, f"{where}.{f.name}", depth)))
    same = data_type.names == [n for n, _ in t.fields]
    if same and all(part == converted for _, part, converted in parts):
        return sql
    built = ", ".join(f"{text(n)}, {converted}" for n, _, converted in parts)
    return f"IF({sql} IS NULL, NULL, named_struct({built}))"


def struct_of(sql: str, data_type: T.DataType, t: ZSetType, where: str) -> str:
    """A struct column as a column of the Z-set's schema, in SQL. NULL stays NULL.

    Its fields are found, compared and converted like the columns of a DataFrame.
    """
    if not isinstance(data_type, T.StructType):
        raise InputError(
            f"{where}: expected a struct with the fields of {t.row}, found "
            f"{_type_text(data_type)}; parse a text with F.from_json"
        )
    row = t.row
    if isinstance(row, Struct):
        return _converted_struct(sql, data_type, row, where, 0)
    name = data_type.fields[0].name if len(data_type.fields) == 1 else VALUE
    value = _converted_struct(sql, data_type, Struct("row", ((name, row),), dict), where, 0)
    return f"IF({sql} IS NULL, NULL, named_struct({text(VALUE)}, {value}.{quote(name)}))"


def _misfit(data_type: T.DataType, t: RowType, where: str, remedy: str = "") -> InputError:
    remedy = remedy or f"cast it to {t.ddl}, or change the type of the field"
    return InputError(f"{where}: expected {t} ({t.ddl}), found {_type_text(data_type)}; {remedy}")


def _type_text(data_type: T.DataType) -> str:
    return data_type.simpleString().upper()


# Checks that need the rows


@dataclass(frozen=True)
class PossibleError:
    """A possible error of a value in a row."""

    column: str
    expected: str
    found: str
    condition: str  # in SQL: true for a wrong value

    def inside(self, condition: str) -> PossibleError:
        """The same error, with the condition for the value that contains this one."""
        return replace(self, condition=condition)


def guarded_count(t: ZSetType) -> Column:
    """A row's count, as a Column that fails if the row or the count does not fit the type."""
    wrong, failed = _checks(t)
    return F.expr(f"IF({wrong} IS NULL, {COUNT}, CAST({failed} AS BIGINT))")


def _checks(t: ZSetType) -> tuple[str, str]:
    """The error of a row or NULL, and an expression that raises it, in SQL."""
    reason = _reason(t)
    names = ", ".join(quote(n) for n, _ in t.schema.all)
    row = f"to_json(struct({names}), map('ignoreNullFields', 'false'))"
    remedy = text("; filter such rows out, or allow them in the row type")
    message = f"concat({reason}, ', in the row ', {row}, {remedy})"
    return reason, failure(message)


def _reason(t: ZSetType) -> str:
    """The reason why a row does not fit, or NULL, in SQL."""
    wrongs = [w for n, ft in t.schema.columns for w in _wrongs(quote(n), ft, n)]
    wrongs.append(PossibleError(COUNT, "a whole number", "NULL", closed(f"{COUNT} IS NULL")))
    cases = " ".join(
        f"WHEN {w.condition} "
        f"THEN {text(f'column {w.column!r}: expected {w.expected}, found {w.found}')}"
        for w in wrongs
    )
    return f"(CASE {cases} END)"


RAW, REASON = "_row_", "_reason_"


def split(
    df: DataFrame, t: ZSetType, count: str | None, where: str, names: Mapping[str, str]
) -> tuple[DataFrame, DataFrame]:
    """The rows that fit, as by `relation_of`, and the others: their text, reason and count."""
    raw = f"to_json(struct({', '.join(quote(n) for n in df.columns if n != count)}))"
    converted = df.selectExpr(*_shown_as(df, t, count, where, names), f"{raw} AS {RAW}")
    reasons = converted.withColumn(REASON, F.expr(_reason(t)))
    fits = F.col(REASON).isNull()
    return reasons.where(fits).drop(RAW, REASON), reasons.where(~fits).select(RAW, REASON, COUNT)


def failure(message: str) -> str:
    """SQL that raises an error with the text of an expression when evaluated; see `blamed`."""
    return f"raise_error(concat({text(_MARK)}, {message}))"


def guarded(frame: DataFrame, t: ZSetType) -> DataFrame:
    """The relation, with a check that fails on rows that do not fit the type; see `blamed`."""
    return frame.withColumn(COUNT, guarded_count(t))


def guarded_when_read(frame: DataFrame, t: ZSetType) -> DataFrame:
    """The relation, with a check of all rows and columns, even if a query needs only some.

    The check is a filter that depends on the partition, so that Spark evaluates no filter of the
    query before it. Only a query that needs no rows drops it. Then `PASSED` is not in its plan.
    """
    wrong, failed = _checks(t)
    nullable = {f.name for f in frame.schema.fields if f.nullable}
    # Spark computes no column that only a check for NULL reads, if it cannot be NULL.
    hashed = [n for n, ft in t.schema.all if n not in nullable or not isinstance(ft, Atom)]
    right = [closed(f"{wrong} IS NULL")]
    if hashed:
        hash_bit = closed(f"xxhash64({', '.join(map(quote, hashed))}) & 1L")
        right.append(closed(f"{hash_bit} >= 0L"))
    passed = f"IF({all_of(right)}, {PASSED}L, CAST({failed} AS BOOLEAN))"
    return frame.where(passed)


def summed(relation: SparkRelation) -> SparkRelation:
    """The relation with equal rows merged into one and their weights added."""
    if relation.consolidated:
        return relation
    message = f"{_MARK}the weights of a row add up to what is beyond 64 bits; use smaller weights"
    return relation.added_up(lambda _, __: message)


def multiplied(frame: DataFrame, n: int, message: str) -> DataFrame:
    """The relation with each weight times n. An overflow raises an InputError with this message."""
    times = product(closed(COUNT), closed(literal(n, INT)), f"{_MARK}{message}")
    return frame.withColumn(COUNT, F.expr(times))


def blamed(e: raised.PySparkException, where: str) -> SteppingError:
    """The InputError for a DataFrame that could not be computed; or the SourceError of a task."""
    in_worker = raised_in_worker(e)
    if in_worker is not None and in_worker[0] == SourceError.__name__:
        return SourceError(f"{where}: {in_worker[1]}")
    _, guard, message = str(e).partition(_MARK)
    if not guard:
        return InputError(f"{where}: the DataFrame cannot be computed: {first_line(e)}")
    return InputError(f"{where}, {message.split(' SQLSTATE: ')[0].splitlines()[0]}")


@contextmanager
def blaming(where: str) -> Iterator[None]:
    """A context for computing a Z-set: raises InputError for rows and weights that do not fit."""
    try:
        yield
    except raised.PySparkException as e:
        if _MARK not in str(e):
            raise
        raise blamed(e, where) from e


def _wrongs(sql: str, t: RowType, path: str, depth: int = 0) -> Iterator[PossibleError]:
    if isinstance(t, Optional):
        null = closed(f"{sql} IS NULL")
        for w in _wrongs(sql, t.inner, path, depth):
            if w.condition != null:
                yield w.inside(all_of([f"{sql} IS NOT NULL", w.condition]))
        return
    yield PossibleError(path, str(t), "NULL", closed(f"{sql} IS NULL"))
    if isinstance(t, Atom) and t.name == "UUID":
        condition = closed(f"NOT {sql} RLIKE {text(UUID_TEXT)}")
        yield PossibleError(path, "a UUID", "other text", condition)
    elif isinstance(t, Atom) and t.name == "Enum":
        values = t.members
        condition = closed(f"{sql} NOT IN ({', '.join(map(text, values))})")
        yield PossibleError(path, f"one of {', '.join(values)}", "other text", condition)
    elif isinstance(t, Atom) and t.name in YEARS:
        least, most = YEARS[t.name]
        condition = closed(f"{sql} NOT BETWEEN {least} AND {most}")
        yield PossibleError(path, "a year from 1 to 9999", "another one", condition)
    elif isinstance(t, Struct):
        for n, ft in t.fields:
            yield from _wrongs(f"{sql}.{quote(n)}", ft, f"{path}.{n}", depth)
    elif isinstance(t, ListOf | ZSetOf):
        x = f"x{depth}"
        item = t.inner if isinstance(t, ListOf) else t.item
        for w in _wrongs(x, item, f"{path}[]", depth + 1):
            yield w.inside(f"exists({sql}, {x} -> {w.condition})")
        if isinstance(t, ZSetOf):
            yield from _wrong_zset(sql, t, path, x)


def _wrong_zset(sql: str, t: ZSetOf, path: str, x: str) -> Iterator[PossibleError]:
    values = f"transform({sql}, {x} -> {x}.{VALUE})"
    twice = closed(f"size(array_distinct({values})) <> size({sql})")
    yield PossibleError(path, str(t), "a row that stands twice", twice)
    yield PossibleError(path, str(t), "a count of zero", f"exists({sql}, {x} -> {x}.{COUNT} = 0L)")
