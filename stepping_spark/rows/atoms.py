"""Atoms: row types without parts, and the checking and encoding of their values."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import math
import typing
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import pyarrow as pa

from stepping_spark.base.errors import InputError, short
from stepping_spark.base.fields import PickledByFields

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
FLOAT_INT_MAX = 2**53
# The longest span that fits 64 bits of microseconds, in Arrow and Spark
LONGEST = dt.timedelta(days=106_751_990)
NAN = float("nan")  # the one NaN that rows hold, so that equal rows are equal in Python too

MOST_DIGITS = 38  # the most digits of a DECIMAL

STORABLE = (
    "bool, int, float, str, bytes, Decimal, date, datetime, st.LocalDateTime, timedelta, UUID, "
    "a string Enum, X | None, list[X], tuple[...], a st.Data, st.Pair[L, R], st.ZSetPython[X]"
)


class LocalDateTime:
    """Annotation of a field that holds a naive `datetime` (TIMESTAMP_NTZ), not an instant.

    >>> class Departure(st.Data):
    ...     at: st.LocalDateTime
    >>> Departure(at=datetime.datetime(2013, 1, 1, 5, 15))
    Departure(at=datetime.datetime(2013, 1, 1, 5, 15))
    """


@dataclass(frozen=True)
class Precision:
    """`Annotated[Decimal, st.Precision(p, s)]`: a decimal of p digits, s of them after the point.

    Without it a `Decimal` field is a DECIMAL(38, 18). Raises `TypeError` for numbers of digits that
    Spark does not support.

    >>> class Price(st.Data):
    ...     euros: Annotated[Decimal, st.Precision(10, 2)]
    >>> Price(euros=Decimal("9.99"))
    Price(euros=Decimal('9.99'))
    """

    precision: int
    scale: int

    def __post_init__(self) -> None:
        if not (1 <= self.precision <= 38 and 0 <= self.scale <= self.precision):
            raise TypeError(
                f"{self}: Spark's decimals have 1 to 38 digits, of which 0 to all come after "
                "the point; choose a precision from 1 to 38 and a scale up to it"
            )


@dataclass(frozen=True)
class Column:
    """`Annotated[float, st.Column("Culmen Length (mm)")]`: a field whose column has another name.

    The field keeps its own name in queries and in the state. Sources, sinks, `from_arrow` and
    `from_dataframe` find the column by this name, which may be any name that the table's system
    allows.

    >>> class Penguin(st.Data):
    ...     number: Annotated[int, st.Column("Sample Number")]
    >>> penguins = pa.table({"Sample Number": [7]})
    >>> st.ZSetSpark.from_arrow(penguins, Penguin) == st.ZSetPython({Penguin(number=7): 1})
    True
    """

    name: str

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise TypeError(f"st.Column({self.name!r}): expected the name of a column, as a text")


@dataclass(frozen=True)
class RowType(PickledByFields):
    """The type of a row or of a field. Types are equal if their Spark columns are equal."""

    @property
    def ddl(self) -> str:
        """The type in Spark SQL."""
        raise NotImplementedError

    @property
    def arrow(self) -> pa.DataType:
        """The type in Arrow, in the form that Spark returns and accepts."""
        raise NotImplementedError

    def encode(self, value: Any, where: str) -> Any:
        """The value for Arrow. Raises an InputError that begins with `where` if it does not fit."""
        raise NotImplementedError

    def decode(self, value: Any) -> Any:
        """The inverse of `encode`, for values from Arrow's `to_pylist`."""
        return value

    def _refuse(self, value: Any, where: str) -> InputError:
        return InputError(f"{where}: expected {self}, found {short(value)}")


@dataclass(frozen=True)
class Atom(RowType):
    """A type without parts: a row of `ZSet[int]`, or a field."""

    name: str
    python: type
    precision: int = 0
    scale: int = 0

    DDL: ClassVar[Mapping[str, str]] = {
        "bool": "BOOLEAN",
        "int": "BIGINT",
        "float": "DOUBLE",
        "str": "STRING",
        "bytes": "BINARY",
        "date": "DATE",
        "datetime": "TIMESTAMP",
        "LocalDateTime": "TIMESTAMP_NTZ",
        "timedelta": "INTERVAL DAY TO SECOND",
        "UUID": "STRING",
        "Enum": "STRING",
    }

    def __str__(self) -> str:
        if self.name == "Decimal" and (self.precision, self.scale) != (38, 18):
            return f"Decimal({self.precision}, {self.scale})"
        return self.python.__name__ if self.name == "Enum" else self.name

    @cached_property
    def is_halved(self) -> bool:
        """Whether sums are stored in two halves: a change of them may have more than 38 digits.

        Sums of ints are Decimals, too, with the Python type int; they are not halved.
        """
        return self.name == "Decimal" and self.precision == MOST_DIGITS and self.python is not int

    @property
    def members(self) -> list[str]:
        """The stored texts of the members of an Enum."""
        assert issubclass(self.python, enum.Enum)
        return [str(m.value) for m in self.python]

    @property
    def ddl(self) -> str:
        if self.name == "Decimal":
            return f"DECIMAL({self.precision}, {self.scale})"
        return self.DDL[self.name]

    @cached_property
    def arrow(self) -> pa.DataType:
        if self.name == "Decimal":
            return pa.decimal128(self.precision, self.scale)
        return _ARROW[self.name]

    def encode(self, value: Any, where: str) -> Any:
        encoder = _ENCODERS[self.name]
        return encoder(self, value, where)

    def decode(self, value: Any) -> Any:
        match self.name:
            case "UUID":
                return uuid.UUID(value)
            case "Enum":
                return self.python(value)
            case "float" if value != value:
                return NAN
            case "datetime":
                return value.astimezone(dt.UTC)
            case "Decimal":
                return value
        return value


def _encode_exact(t: Atom, value: Any, where: str) -> Any:
    if type(value) is not t.python:
        raise t._refuse(value, where)
    return value


def _encode_int(t: Atom, value: Any, where: str) -> int:
    if type(value) is not int:
        raise t._refuse(value, where)
    if not INT_MIN <= value <= INT_MAX:
        raise InputError(
            f"{where}: {value} is beyond the 64 bits of an int column; use a Decimal field"
        )
    return value


def _encode_str(t: Atom, value: Any, where: str) -> str:
    if type(value) is not str:
        raise t._refuse(value, where)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as e:
            raise InputError(
                f"{where}: {value!r} is not Unicode text: {e.reason} at character {e.start}; "
                "replace it, or use a bytes field"
            ) from None
    return value


def _encode_float(t: Atom, value: Any, where: str) -> float:
    if type(value) is int:
        if abs(value) > FLOAT_INT_MAX:
            raise InputError(
                f"{where}: {value} is beyond the integers that a float column holds exactly; "
                "convert it with float(), or use a Decimal field"
            )
        value = float(value)
    if type(value) is not float:
        raise t._refuse(value, where)
    if value == 0:
        return 0.0  # Spark's grouping treats 0.0 and -0.0 as one
    return NAN if math.isnan(value) else value


def _encode_decimal(t: Atom, value: Any, where: str) -> decimal.Decimal:
    if type(value) is int:
        value = decimal.Decimal(value)
    if type(value) is not decimal.Decimal or not value.is_finite():
        raise t._refuse(value, where)
    fits = value.adjusted() < t.precision - t.scale or not value
    with decimal.localcontext(decimal.Context(prec=100)):
        rounded = value.quantize(decimal.Decimal(1).scaleb(-t.scale)) if fits else None
    if rounded is None or rounded != value:
        raise InputError(
            f"{where}: {value} does not fit Decimal({t.precision}, {t.scale}); round it, or "
            "annotate the field with Annotated[Decimal, st.Precision(p, s)]"
        )
    return rounded


def _encode_date(t: Atom, value: Any, where: str) -> dt.date:
    if type(value) is not dt.date:
        raise t._refuse(value, where)
    return value


def _encode_datetime(t: Atom, value: Any, where: str) -> dt.datetime:
    if not isinstance(value, dt.datetime):
        raise t._refuse(value, where)
    if value.tzinfo is None:
        raise InputError(
            f"{where}: {value!r} has no time zone; give it one (tzinfo=datetime.UTC), or "
            "annotate the field st.LocalDateTime"
        )
    _check_no_nanoseconds(value, where)
    try:
        return value.astimezone(dt.UTC)
    except OverflowError:
        raise InputError(
            f"{where}: {value!r} is before year 1 or after year 9999 in UTC; use a later or an "
            "earlier one"
        ) from None


def _check_no_nanoseconds(value: dt.datetime, where: str) -> None:
    """Refuse a `pandas.Timestamp` with nanoseconds, which a column would lose."""
    if getattr(value, "nanosecond", 0):
        raise InputError(
            f"{where}: {value!r} has nanoseconds, and a column has microseconds; round it: "
            ".floor('us')"
        )


def _encode_timedelta(t: Atom, value: Any, where: str) -> dt.timedelta:
    if type(value) is not dt.timedelta:
        raise t._refuse(value, where)
    if abs(value) > LONGEST:
        raise InputError(
            f"{where}: {value!r} is beyond the 64 bits of microseconds of an interval column; "
            "use an int field of seconds"
        )
    return value


def _encode_local(t: Atom, value: Any, where: str) -> dt.datetime:
    if not isinstance(value, dt.datetime):
        raise t._refuse(value, where)
    if value.tzinfo is not None:
        raise InputError(
            f"{where}: {value!r} has a time zone; a st.LocalDateTime field holds naive ones: "
            "annotate the field datetime, or drop its tzinfo"
        )
    _check_no_nanoseconds(value, where)
    return value


def _encode_uuid(t: Atom, value: Any, where: str) -> str:
    if not isinstance(value, uuid.UUID):
        raise t._refuse(value, where)
    return str(value)


def _encode_enum(t: Atom, value: Any, where: str) -> str:
    if not isinstance(value, t.python):
        raise t._refuse(value, where)
    return str(typing.cast(enum.Enum, value).value)


_ARROW: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int": pa.int64(),
    "float": pa.float64(),
    "str": pa.string(),
    "bytes": pa.binary(),
    "date": pa.date32(),
    "datetime": pa.timestamp("us", tz="UTC"),
    "LocalDateTime": pa.timestamp("us"),
    "timedelta": pa.duration("us"),
    "UUID": pa.string(),
    "Enum": pa.string(),
}
_ENCODERS: dict[str, Any] = {
    "bool": _encode_exact,
    "int": _encode_int,
    "float": _encode_float,
    "str": _encode_str,
    "bytes": _encode_exact,
    "Decimal": _encode_decimal,
    "date": _encode_date,
    "datetime": _encode_datetime,
    "LocalDateTime": _encode_local,
    "timedelta": _encode_timedelta,
    "UUID": _encode_uuid,
    "Enum": _encode_enum,
}

BOOL = Atom("bool", bool)
INT = Atom("int", int)
FLOAT = Atom("float", float)
REST = Atom("float", float, precision=1)  # the rounding error of a sum of floats, as a float
STR = Atom("str", str)
BYTES = Atom("bytes", bytes)
DECIMAL = Atom("Decimal", decimal.Decimal, 38, 18)
DATE = Atom("date", dt.date)
DATETIME = Atom("datetime", dt.datetime)
LOCAL_DATETIME = Atom("LocalDateTime", dt.datetime)
TIMEDELTA = Atom("timedelta", dt.timedelta)
UUID = Atom("UUID", uuid.UUID)
ATOMS: dict[Any, Atom] = {
    bool: BOOL,
    int: INT,
    float: FLOAT,
    str: STR,
    bytes: BYTES,
    decimal.Decimal: DECIMAL,
    dt.date: DATE,
    dt.datetime: DATETIME,
    LocalDateTime: LOCAL_DATETIME,
    dt.timedelta: TIMEDELTA,
    uuid.UUID: UUID,
}
TIMES: dict[RowType, str] = {
    INT: "an int, such as the number of the step",
    DATE: "a date",
    DATETIME: "a datetime with a time zone",
    LOCAL_DATETIME: "a datetime without a time zone",
}
"""The types of times, and for each the description of a fitting `now`."""


def is_time(now: object, t: RowType) -> bool:
    """Whether a `now` can be compared with times of the type."""
    if t == INT:
        return isinstance(now, int) and not isinstance(now, bool)
    if t == DATE:
        return isinstance(now, dt.date) and not isinstance(now, dt.datetime)
    return isinstance(now, dt.datetime) and (now.tzinfo is not None) == (t == DATETIME)
