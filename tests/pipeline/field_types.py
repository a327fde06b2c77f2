"""A row with each type that a field can have, and values at its ends."""

from __future__ import annotations

import datetime as dt
import enum
import uuid
from decimal import Decimal
from typing import Annotated, Any

import pyarrow as pa

import stepping_spark as st
from stepping_spark.rows.names import arrow_schema
from stepping_spark.rows.schema import ZSetType
from stepping_spark.rows.types import row_type


class Colour(enum.Enum):
    RED = "red"
    BLUE = "it's blue"


class Inner(st.Data):
    x: int | None
    spaced: Annotated[str, st.Column("a b")]


NARROW = Annotated[Decimal, st.Precision(5, 2)]
UTC = dt.UTC

FIELDS: dict[str, tuple[Any, list[Any]]] = {
    "bool": (bool, [True, False]),
    "int": (int, [-(2**63), 2**63 - 1]),
    "float": (float, [float("nan"), float("-inf"), 5e-324]),
    "str": (str, ["", "\0", "é\n'\"\\", "x" * 10_000]),
    "bytes": (bytes, [b"", b"\0\xff"]),
    "decimal": (Decimal, [Decimal("9" * 20 + "." + "9" * 18), Decimal(0)]),
    "narrow": (NARROW, [Decimal("-999.99"), Decimal("0.01")]),
    "date": (dt.date, [dt.date.min, dt.date.max]),
    "datetime": (
        dt.datetime,
        [dt.datetime(1, 1, 1, tzinfo=UTC), dt.datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)],
    ),
    "local": (st.LocalDateTime, [dt.datetime.min, dt.datetime.max]),
    "timedelta": (dt.timedelta, [dt.timedelta(microseconds=-1)]),
    "uuid": (uuid.UUID, [uuid.UUID(int=0), uuid.UUID(int=2**128 - 1)]),
    "enum": (Colour, list(Colour)),
    "data": (Inner, [Inner(x=None, spaced="s"), Inner(x=-1, spaced="")]),
    "pair": (st.Pair[int, str | None], [st.Pair(left=1, right=None)]),
    "tuple": (tuple[int, float], [(1, 0.5)]),
    "zset": (st.ZSetPython[int], [st.ZSetPython({1: 2}), st.ZSetPython({})]),
}


def nested(name: str) -> tuple[type[Any], list[Any]]:
    """A class whose fields are of a type, as it is and two deep; and rows of it.

    The fields are called `plain`, `none`, `items`, `inside`, `deep` and `lists`.
    """
    t, values = FIELDS[name]
    pair = st.Pair[t, int]  # type: ignore[valid-type]
    fields = {
        "id": int,
        "plain": t,
        "none": t | None,
        "items": list[t],  # type: ignore[valid-type]
        "inside": pair,
        "deep": list[pair],
        "lists": st.Pair[list[t | None], int] | None,  # type: ignore[valid-type]
        "twice": list[list[t]],  # type: ignore[valid-type]
    }
    made: Any = type("Row", (st.Data,), {"__annotations__": fields, "__module__": __name__})
    rows = [
        made(
            id=i,
            plain=value,
            none=None if i % 2 else value,
            items=tuple(values[:i]),
            inside=st.Pair(left=value, right=i),
            deep=(st.Pair(left=value, right=i),) * (i % 2),
            lists=st.Pair(left=(value, None), right=i),
            twice=((), (value,)),
        )
        for i, value in enumerate(values)
    ]
    rows.append(
        made(
            id=len(values),
            plain=values[0],
            none=None,
            items=(),
            inside=st.Pair(left=values[0], right=0),
            deep=(),
            lists=None,
            twice=(),
        )
    )
    return made, rows


def columns_of(made: Any) -> pa.Schema:
    """The columns of a class in Arrow."""
    return arrow_schema(ZSetType(row_type(made)).schema.columns)


class Inside(st.Data):
    x: Annotated[int, st.Column("an x, in side")]


class Odd(st.Data):
    number: Annotated[int, st.Column("Sample Number")]
    kind: Annotated[str | None, st.Column("class")]
    dotted: Annotated[float, st.Column("a.b")]
    underscore: Annotated[int, st.Column("_id")]
    accent: Annotated[str, st.Column("é %")]
    quoted: Annotated[str, st.Column('it\'s a "quote" `')]
    inner: Annotated[st.Pair[int, list[Inside]], st.Column("Inner One")]
    marked: Annotated[bool, st.Column("_gone_")]


def odd(n: int, kind: str | None) -> Odd:
    return Odd(
        number=n,
        kind=kind,
        dotted=0.5,
        underscore=n,
        accent="é",
        quoted="'",
        inner=st.Pair(left=n, right=[Inside(x=n)]),
        marked=True,
    )


NAMES = ["Sample Number", "class", "a.b", "_id", "é %", 'it\'s a "quote" `', "Inner One", "_gone_"]
