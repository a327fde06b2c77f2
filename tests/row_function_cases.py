"""Random functions of rows, as the text of Python expressions over `r`, by the type they give.

A function is kept as text, so that a failing test shows what a user can paste. Those of operators
on fields plain Python can evaluate too; the others have functions of Spark in them.
"""

from __future__ import annotations

import datetime as dt
import random
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, TypeAlias

from pyspark.sql import functions as F

import stepping_spark as st
from tests.cases import Z

Changes: TypeAlias = "tuple[st.ZSetPython[Row], ...]"  # of each input


class Inner(st.Data):
    k: int | None
    v: str | None


class Row(st.Data):
    n: int  # each row has a number of its own
    x: int
    y: int | None
    s: str
    t: str | None
    b: bool | None
    f: float | None
    d: Annotated[Decimal, st.Precision(10, 2)] | None
    day: dt.date | None
    at: dt.datetime | None
    inner: Inner | None
    both: tuple[int | None, str]
    more: list[int]


# What the text of a function may name.
NAMES: dict[str, Any] = {
    "F": F,
    "st": st,
    "dt": dt,
    "Decimal": Decimal,
    "Inner": Inner,
    "NAN": float("nan"),
}

FIELDS = {
    "bool": ("r.b",),
    "int": ("r.x", "r.y", "r.inner.k", "r.both[0]"),
    "str": ("r.s", "r.t", "r.inner.v", "r.both[1]"),
    "float": ("r.f",),
    "decimal": ("r.d",),
    "date": ("r.day",),
    "datetime": ("r.at",),
    "data": ("r.inner", "r"),
    "tuple": ("r.both",),
    "list": ("r.more",),
}
CONSTANTS = {
    "bool": ("True", "False"),
    "int": ("0", "1", "2", "-1"),
    "str": ("''", "'a'", "'AB'", '"\'"', "'%'"),
    "float": ("0.0", "1.5", "-2.0", "NAN"),
    "decimal": ("Decimal('0')", "Decimal('1.5')", "Decimal('-0.25')"),
    "date": ("dt.date(2024, 2, 29)",),
    "datetime": ("dt.datetime(2024, 3, 31, 1, 30, tzinfo=dt.UTC)",),
}
COMPARED = tuple(CONSTANTS)
SCALARS = (*COMPARED[1:], "bool", "bool")  # conditions are the ones that are easily misread
# Forms of functions of each type; {int} is a function of that type, {int!} that or a constant.
PLAIN = {
    "bool": (
        "~({bool})",
        "(({bool}) & ({bool}))",
        "(({bool}) | ({bool}))",
        "r.inner.isNull()",
        "r.both.isNotNull()",
        "r.more.isNull()",
        *(
            form.replace("T", t)
            for t in COMPARED[1:]
            for form in (
                "(({T}) < ({T!}))",
                "(({T}) >= ({T!}))",
                "(({T}) == ({T!}))",
                "(({T}) != ({T!}))",
                "({T}).isNull()",
                "({T}).isNotNull()",
                "({T}).eqNullSafe({T!})",
                "({T}).between({T!}, {T!})",
                "({T}).isin({T!}, {T!})",
            )
        ),
        "(({float}) < ({decimal}))",
        "({bool}).isNull()",
        "({bool}).eqNullSafe({bool!})",
        "(({bool}) == ({bool!}))",
    ),
    "int": (
        "(({int}) + ({int!}))",
        "(({int}) - ({int!}))",
        "(({int}) * ({int!}))",
        "(1 - ({int}))",
        "-({int})",
        "(({int}) % 3)",
    ),
    "float": (
        "(({float}) + ({float!}))",
        "(({float}) * 2.0)",
        "-({float})",
        "(({int}) / 4)",
        "(({decimal}) * ({float!}))",
    ),
    "decimal": ("(({decimal}) + ({decimal!}))", "-({decimal})", "(({decimal}) * 2)"),
    "date": ("(({date}) + 1)", "(({date}) - 2)"),
    "datetime": (
        "(({datetime}) + dt.timedelta(hours=1))",
        "(({datetime}) - dt.timedelta(minutes=30))",
    ),
    "str": (),
    "data": ("Inner(k={int!}, v={str!})", "st.Pair(left={scalar}, right={scalar})"),
    "tuple": ("({scalar}, {scalar!})", "(({scalar}, {bool}), {scalar})", "({bool}, {data})"),
    "list": ("[{int}, {int!}]", "[{str}, {str!}]"),
}
OF_SPARK = {
    "bool": (
        "F.isnan({float})",
        "F.when({bool}, {bool}).otherwise({bool})",
        "F.coalesce({bool}, {bool})",
        "({str}).like('%a%')",
        "({str}).ilike('%B%')",
        "({str}).rlike('[ab]+')",
        "({str}).startswith('a')",
        "({str}).contains('b')",
        "F.array_contains(F.array({int}, {int}), 1)",
        "F.exists(r.more, lambda i: i > 0)",
        "({int}).cast('boolean')",
    ),
    "int": (
        "F.length({str})",
        "F.abs({int})",
        "F.coalesce({int}, F.lit(0))",
        "F.when({bool}, {int}).otherwise({int})",
        "F.when({bool}, {int})",
        "F.month({date})",
        "F.datediff({date}, {date})",
        "F.greatest({int}, {int})",
        "F.hash({scalar}, {scalar})",
        "F.timestamp_diff('HOUR', {datetime}, {datetime})",
        "F.size(F.array({str}, {str}))",
        "({bool}).cast('int')",
        "({float}).try_cast('bigint')",
        "F.aggregate(r.more, F.lit(0).cast('bigint'), lambda a, i: a + i)",
        "F.try_divide({int}, {int}).try_cast('int')",
    ),
    "str": (
        "F.upper({str})",
        "F.lower({str})",
        "F.concat({str}, F.lit('a'))",
        "F.greatest({str}, {str})",
        "F.concat({str}, {str})",
        "F.concat_ws('-', {str}, {str})",
        "F.substring({str}, 1, 1)",
        "F.trim({str})",
        "F.coalesce({str}, F.lit(''))",
        "F.when({bool}, {str}).otherwise({str})",
        "F.when({bool}, {str})",
        "({scalar}).cast('string')",
        "F.date_format({date}, 'yyyy')",
    ),
    "float": (
        "F.sqrt(F.abs({float}))",
        "F.power({number}, F.lit(2.0))",
        "F.least({float}, {float})",
        "({int}).cast('double')",
        "F.when({bool}, {float}).otherwise({float})",
        "F.coalesce({float}, F.lit(0.0))",
        "F.nanvl({float}, F.lit(1.0))",
        "({decimal}).cast('double')",
    ),
    "decimal": (
        "({int}).cast('decimal(20,3)')",
        "F.round({decimal}, 1)",
        "F.abs({decimal})",
        "F.greatest({decimal}, {decimal})",
        "F.when({bool}, {decimal})",
        "F.coalesce({decimal}, F.lit(Decimal('0.5')))",
    ),
    "date": (
        "F.date_add({date}, 3)",
        "F.last_day({date})",
        "({datetime}).cast('date')",
        "F.when({bool}, {date})",
        "F.trunc({date}, 'month')",
    ),
    "datetime": (
        "F.date_trunc('hour', {datetime})",
        "({date}).cast('timestamp')",
        "F.when({bool}, {datetime})",
    ),
    "data": ("Inner(k={int}, v=F.upper({str}))",),
    "tuple": ("({str}, F.when({bool}, {scalar}))",),
    "list": ("F.array({int}, {int})", "F.sort_array(r.more)", "F.when({bool}, r.more)"),
}
# What fails for some rows; rarely, because one such function spoils the step of all others.
FAILING = {
    "int": ("({str}).cast('int')", "({int}).try_cast('int') / ({int})", "(({int}) % ({int}))"),
    "float": ("(({int}) / ({int}))",),
    "date": ("({str}).cast('date')",),
    "bool": ("({str}).cast('boolean')",),
}


GROUPS = {
    "scalar": SCALARS,
    "number": ("int", "float", "decimal"),
    "key": (*SCALARS, "bool", "data", "tuple", "tuple"),
    "ordered": (*SCALARS, "tuple"),
    "any": (*SCALARS, "data", "tuple", "list"),
}

_HOLE = re.compile(r"\{(\w+)(!?)\}")
_SAME_BRANCHES = re.compile(r"F\.when\(.*, (.+)\)\.otherwise\(\1\)")


def a_function(source: random.Random, kind: str, depth: int = 2, *, failing: bool = False) -> str:
    """A function of a row that gives a type of `FIELDS`, or one of a group of types.

    `failing`: it may fail for some rows. A condition that fails does not stand before two values
    that are the same: Spark's optimizer leaves it out where it plans the query, and only there.
    """
    kind = source.choice(GROUPS.get(kind, (kind,)))
    ways = [FIELDS[kind], *[PLAIN[kind]] * 3, OF_SPARK[kind]]
    if failing and kind in FAILING:
        ways.append(FAILING[kind])
    form = source.choice(source.choice([w for w in ways if w]) if depth else FIELDS[kind])

    def filled(hole: re.Match[str]) -> str:
        if hole[2] and source.random() < 0.5:
            return source.choice(CONSTANTS["int" if hole[1] == "scalar" else hole[1]])
        return a_function(source, hole[1], depth - 1, failing=failing)

    made = _HOLE.sub(filled, form)
    return source.choice(FIELDS[kind]) if failing and _SAME_BRANCHES.fullmatch(made) else made


def function(text: str) -> Callable[[Any], Any]:
    """The function of a row that a text is."""
    made: Callable[[Any], Any] = eval(f"lambda r: {text}", NAMES)
    return made


# -- rows, of few values, so that keys of all kinds meet

VALUES: dict[str, list[Any]] = {
    "x": [0, 1, 2, -1],
    "y": [None, 0, 1, 2],
    "s": ["", "a", "AB", "b "],
    "t": [None, "a", "ab", "'"],
    "b": [None, True, False],
    "f": [None, 0.0, -0.0, 1.5, float("nan"), float("inf")],
    "d": [None, Decimal("0.00"), Decimal("1.50"), Decimal("-2.25")],
    "day": [None, dt.date(2024, 2, 29), dt.date(1969, 12, 31)],
    "at": [None, dt.datetime(2024, 3, 31, 1, 30, tzinfo=dt.UTC)],
    "inner": [None, Inner(k=None, v=None), Inner(k=1, v=None), Inner(k=0, v="a")],
    "both": [(None, "a"), (1, "a"), (0, "")],
    "more": [[], [1], [0, 1, -1]],
}


def a_row(source: random.Random, n: int) -> Row:
    return Row(n=n, **{name: source.choice(v) for name, v in VALUES.items()})


def a_step(source: random.Random, known: list[Row], owed: bool) -> Changes:
    """Rows for two inputs, some of them several times."""
    counts = [1, 1, 2, -1, -2] if owed else [1, 1, 2]
    return tuple(
        Z([(source.choice(known), source.choice(counts)) for _ in range(source.randint(3, 5))])
        for _ in range(2)
    )


def steps_of(source: random.Random, *, owed: bool = False) -> list[Changes]:
    """Two steps of changes of two inputs: rows come; then some go, also all of a kind, and come.

    `owed`: some rows go that were never there, so that their totals are negative.
    """
    known = [a_row(source, n) for n in range(7)]
    first, second = a_step(source, known, owed), a_step(source, known, owed)
    gone = [Z([(r, -n) for r, n in z.iter() if r.y != 1]) for z in first]
    return [first, tuple(a + b for a, b in zip(gone, second, strict=True))]
