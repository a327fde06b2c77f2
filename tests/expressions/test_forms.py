"""Each function of the table, of each type, with and without NULL, against Spark at the edges."""

from __future__ import annotations

import datetime as dt
import itertools
import math
import random
from collections.abc import Iterator
from decimal import Context, Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from stepping_spark.expressions.arrow_evaluator import evaluator
from stepping_spark.expressions.arrow_kernels import is_known
from stepping_spark.expressions.expr import Call, Expr, Field, Literal
from stepping_spark.expressions.operations import result_type
from stepping_spark.expressions.spark_functions import (
    DECIMALS,
    FORMS,
    LISTS,
    TEXTS,
    UNITS_BETWEEN,
)
from stepping_spark.expressions.spark_to_arrow import SparkFunction, reading_of
from stepping_spark.expressions.zones import TESTED, day_of, instants, known_zone, local_times
from stepping_spark.relations.transfer import frame_of
from stepping_spark.rows.atoms import (
    BOOL,
    BYTES,
    DATE,
    DATETIME,
    FLOAT,
    INT,
    INT_MAX,
    INT_MIN,
    LOCAL_DATETIME,
    STR,
    TIMEDELTA,
    Atom,
    RowType,
)
from stepping_spark.rows.schema import Schema
from stepping_spark.rows.types import ListOf, Optional, unwrap
from stepping_spark.spark import types
from stepping_spark.spark.column_tree import Tree

DECIMAL = Atom("Decimal", Decimal, 12, 3)
WHOLE, FRACTION = (Atom("Decimal", Decimal, 38, scale) for scale in (0, 38))
_NINES = [Decimal((sign, (9,) * 38, 0)) for sign in (0, 1)]
TEXT = [
    "",
    " ",
    "a",
    "Ab c",
    "aXb-c",
    "a-b--c",
    "é\u0130🙂x",
    "a.b|c",
    "x\ny\r\nz",
    "\u2028a",
    "ab\n",
]
TEXT += [
    "12",
    " -7\t",
    "+0",
    "9223372036854775808",
    "1.50",
    "-0.005",
    "2024-02-29",
    "2023-02-29",
    "1893-04-01",
]
TEXT += ["abcabc", "A1b22", "%_\\", "1e5", "today", "true"]
TEXT += ["Ashcraft", "Tymczak", "PFISTER", "ababa", "bookkeeper", "é-bcd", "b🙂b", "9 lives", "H"]
DAYS = [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1582, 10, 10), dt.date(2024, 2, 29)]
DAYS += [dt.date(2023, 1, 31), dt.date(2020, 12, 31), dt.date(1969, 12, 31), dt.date(1893, 4, 1)]
# Where clocks change in Berlin and New York, and before 1900, when each town had its own time.
CHANGES = [
    *("2024-03-31 00:59:59", "2024-03-31 01:00", "2024-03-31 01:30", "2024-03-31 02:30"),
    *("2024-10-27 00:30", "2024-10-27 01:30", "2024-10-27 02:30", "2024-10-27 03:00"),
    *("2024-03-10 02:30", "2024-03-10 06:59:59", "2024-03-10 07:00", "2024-03-10 07:30"),
    *("2024-11-03 01:30", "2024-11-03 05:30", "2024-11-03 06:30", "2024-11-03 00:10"),
    *("1893-03-31 23:06:31", "1893-03-31 23:06:32", "1883-11-18 16:59", "1883-11-18 17:03:58"),
    *("1883-11-18 12:03:57", "1893-04-01 00:03", "1850-06-01 12:00", "0200-01-05 12:00"),
]
TIMES = [dt.datetime(d.year, d.month, d.day, 23 - i, i, 59, i) for i, d in enumerate(DAYS[2:])]
TIMES += [dt.datetime.fromisoformat(t) for t in CHANGES]
VALUES: dict[RowType, list[Any]] = {
    STR: TEXT,
    BOOL: [True, False],
    INT: [0, 1, -1, 7, 12, 31, 2024, 2**31, INT_MAX, INT_MIN + 1],
    FLOAT: [0.0, -0.0, 0.5, -0.5, 2.5, 0.125, 1.005, -1e-9, 1e300, math.inf, -math.inf, math.nan],
    DECIMAL: [Decimal(v) / 1000 for v in (0, 5, -5, 1500, -2500, 999_999_999_999, -1)],
    WHOLE: [*map(Decimal, (0, 1, -1, 15, -25, INT_MAX, INT_MIN, 2**53 + 1, 10**37)), *_NINES],
    FRACTION: [
        *(Decimal(n).scaleb(-38) for n in (0, 1, -1, 5 * 10**37, -(10**37))),
        *(n.scaleb(-38, Context(prec=38)) for n in _NINES),
    ],
    DATE: DAYS,
    LOCAL_DATETIME: TIMES,
    DATETIME: [t.replace(tzinfo=dt.UTC) for t in TIMES],
    BYTES: [b"", b"\x00", b"\xff", b"\x7f\x80", b"abc", b"ab"],
    TIMEDELTA: [dt.timedelta(d, s, u) for d in (0, 3, -9) for s in (0, -1, 86_399) for u in (0, 1)],
}
CONSTANTS: dict[str, list[tuple[Any, ...]]] = {
    "concat_ws": [("-",), ("",)],
    "substring": [(1, 2), (2, 0)],
    "left": [(0,), (2,)],
    "right": [(0,), (2,)],
    "lpad": [(3, "x")],
    "rpad": [(3, "🙂")],
    "repeat": [(2,), (0,)],
    "replace": [("a", "zz")],
    "like": [("%b_c",)],
    "ilike": [("A%B",), ("%b_C",), ("_%",)],
    "startswith": [("a",)],
    "endswith": [("c",)],
    "contains": [("-",)],
    "sha2": [(256,), (0,)],
    "rlike": [("^a.b",), ("[A-Z]+$",), (r"\d{2}",), ("b$",)],
    "regexp_extract": [("([a-z])(\\d*)", 2), ("b|c", 0), ("a(.)",), ("(x)?-", 1)],
    "regexp_replace": [("[^a-c]+", "<$0>"), ("b.", ""), ("(a)(b)?", "$2$1")],
    "split": [("-", -1), ("\\.", -1), ("ab", -1), ("\\|",)],
    "split_part": [("-", 1), ("-", -1), ("b", 2), ("-", 9)],
    "substring_index": [("-", 2), ("-", -2), ("b", 0)],
    "locate": [("b",), (1, "b")],
    "instr": [("b",), ("",)],
    "translate": [("abc", "x"), ("aab", "12")],
    "array_join": [(",",)],
    "date_trunc": [("year",), ("week",), ("day",), ("hour",), ("mm",)],
    "date_format": [("yyyy-MM",), ("dd.MM.yyyy HH:mm",)],
    "trunc": [("month",), ("week",), ("YEAR",), ("quarter",)],
    "add_months": [(1,), (-13,), (0,)],
    "round": [(), (2,), (0,)],
    "timestampdiff": [(unit,) for unit in UNITS_BETWEEN],
}
STANDS_FOR: dict[RowType, list[RowType]] = {
    LISTS: [ListOf(INT)],
    TEXTS: [ListOf(STR)],
    DECIMALS: [DECIMAL, WHOLE, FRACTION],
}
TYPES: dict[type, RowType] = {str: STR, int: INT}


def columns_of(name: str, t: RowType) -> Iterator[list[Expr]]:
    """Columns for a function: each may be NULL, or none may."""
    count = max(FORMS[name].columns, 1) if FORMS[name].columns > 0 else 2
    for nullable, inner in itertools.product((True, False), STANDS_FOR.get(t, [t])):
        shown: RowType = Optional(inner) if nullable else inner
        yield [Field(shown, (f"{'n' if nullable else ''}{slug(inner)}{i}",)) for i in range(count)]


FEW = {"make_date": 60}
"""Of how many rows one is enough: three random ints are a day seldom."""


def tree_of(e: Expr) -> Tree:
    return Tree("constant", e.constant) if isinstance(e, Literal) else Tree("text", str(e))


def slug(t: RowType) -> str:
    return "".join(c for c in str(t) if c.isalnum()).lower()


def cases() -> Iterator[SparkFunction]:
    for name, form in FORMS.items():
        for t in sorted(form.types, key=str):
            for fields in columns_of(name, t):
                for constants in CONSTANTS.get(name, [()]):
                    arguments = [*fields, *(Literal(TYPES[type(c)], c) for c in constants)]
                    if form.constant_first:
                        arguments = [arguments[-1], *arguments[:-1]]
                    by_text = {str(a): a for a in fields}
                    found = reading_of(
                        Tree("function", name, tuple(map(tree_of, arguments))), by_text
                    )
                    assert found is not None, f"{name} of {t} with {constants}"
                    if isinstance(found, SparkFunction):
                        yield found


CASES = [*cases()]


def table_of(fields: list[Field], seed: int) -> pa.Table:
    chance, columns = random.Random(seed), {}
    for f in fields:
        t = unwrap(f.type)
        rows = 60
        if isinstance(t, ListOf):
            inner = VALUES[unwrap(t.inner)]
            values: list[Any] = [chance.choices(inner, k=chance.randrange(4)) for _ in range(rows)]
        else:
            values = [*VALUES[t], *chance.choices(VALUES[t], k=rows - len(VALUES[t]))]
            chance.shuffle(values)
        if isinstance(f.type, Optional):
            values = [None if i % 7 == 3 else v for i, v in enumerate(values)]
        columns[f.path[0]] = pa.array([f.type.encode(v, "a test") for v in values], f.type.arrow)
    schema = pa.schema(
        [pa.field(f.path[0], f.type.arrow, isinstance(f.type, Optional)) for f in fields]
    )
    return pa.Table.from_arrays([*columns.values()], schema=schema)


FIELDS = {f.path[0]: f for e in CASES for f in e.args if isinstance(f, Field)}


def test_each_function_of_the_table_has_cases() -> None:
    assert {e.name for e in CASES} == set(FORMS)


def compare(spark: SparkSession, cases: list[SparkFunction], zone: str) -> None:
    """Compare what the driver computes with Spark, and the types."""
    there = known_zone(zone)
    table = table_of([*FIELDS.values()], 7)
    rows = [table.slice(i, 1) for i in range(table.num_rows)]
    wanted: list[str] = []
    found: list[list[Any]] = []
    masks: dict[str, Any] = {}
    wrong: list[str] = []
    for j, e in enumerate(cases):
        compute = evaluator(e)
        assert compute is not None, str(e)
        values = [compute(row, lambda: there) for row in rows]
        known = [v is not None for v in values]
        assert sum(known) * FEW.get(e.name, 60 if unwrap(e.args[0].type) == STR else 8) >= len(
            rows
        ), f"{e} asks Spark for most of its edges"
        masks[f"known{j}"] = pa.array(known)
        found.append([None if v is None else v[0].as_py() for v in values])
        wanted.append(f"if(known{j}, {e.sql('')}, NULL) AS v{j}")
    types_of = [*((n, FIELDS[n].type) for n in table.column_names), *((n, BOOL) for n in masks)]
    both = table
    for name, mask in masks.items():
        both = both.append_column(name, mask)
    frame = frame_of(both, Schema(tuple(types_of), ()), spark)
    made = frame.selectExpr(*wanted).coalesce(1).toArrow()
    typed = spark.createDataFrame([], shown_schema(table.schema))
    for j, e in enumerate(cases):
        t = from_spark(typed.selectExpr(str(e.sql(""))).schema.fields[0])
        if t != e.type and not isinstance(unwrap(t), ListOf):  # a cast loses what items are
            wrong.append(f"{e} is {t} to Spark, and {e.type} here")
        if unwrap(e.type) == INT and "cast" not in e.name:
            call = str(e.sql("")).removeprefix("CAST(").removesuffix(" AS BIGINT)")
            own = typed.selectExpr(call).schema.fields[0].dataType.simpleString()
            if own != ("int" if e.is_int else "bigint"):
                wrong.append(f"{e} is {own} to Spark, and has {FORMS[e.name].bits} bits here")
        for row, ours, theirs in zip(rows, found[j], made.column(j).to_pylist(), strict=True):
            values = [row.column(f.path[0])[0].as_py() for f in e.args if isinstance(f, Field)]
            if repr(ours) != repr(theirs):
                wrong.append(f"{e} of {values} in {zone} is {theirs!r}, and {ours!r} here")
    assert not wrong, "\n".join(wrong[:90])


def shown_schema(schema: pa.Schema) -> str:
    fields = (FIELDS[f.name] for f in schema)
    rows = ((f.path[0], f.type.ddl, isinstance(f.type, Optional)) for f in fields)
    return ", ".join(f"`{n}` {ddl}{'' if nullable else ' NOT NULL'}" for n, ddl, nullable in rows)


def from_spark(field: Any) -> RowType:
    return types.from_spark(field.dataType, field.nullable, "a test")


@pytest.mark.turn(3)
@pytest.mark.compat
@pytest.mark.slow
def test_the_driver_says_of_each_function_what_spark_says(spark: SparkSession) -> None:
    compare(spark, CASES, "UTC")


@pytest.mark.turn(3)
@pytest.mark.slow
@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "+05:30"])
def test_functions_of_times_are_those_of_the_session_s_zone(spark: SparkSession, zone: str) -> None:
    cases = [e for e in CASES if e.in_session_zone]
    assert len(cases) > 60
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        compare(spark, cases, zone)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.slow
@pytest.mark.turn(3)
@pytest.mark.parametrize("zone", sorted(TESTED))
def test_clocks_of_a_zone_change_when_they_do_in_spark(spark: SparkSession, zone: str) -> None:
    there = known_zone(zone)
    if there is None:
        pytest.skip("this machine has no rules of time zones")
    chance, year = random.Random(3), 365 * 86_400
    changes = [s for s in range(-120 * year, 80 * year, 43_200) if differs(s, there)]
    assert len(changes) > 1
    seconds = [c + d for c in changes for d in (*range(0, 43_200, 1800), 1, 1799, 43_199)]
    seconds += [chance.randrange(-1900 * year, 8000 * year) for _ in range(1_000)]
    micros = pa.array([s * 1_000_000 for s in seconds], pa.int64())
    moments, clocks = micros.cast(pa.timestamp("us", "UTC")), micros.cast(pa.timestamp("us"))
    schema = Schema((("moment", DATETIME), ("clock", LOCAL_DATETIME)), ())
    frame = frame_of(pa.table({"moment": moments, "clock": clocks}), schema, spark).coalesce(1)
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        made = frame.selectExpr(
            "CAST(moment AS TIMESTAMP_NTZ) AS clock", "unix_micros(CAST(clock AS TIMESTAMP)) AS n"
        ).toArrow()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    found = local_times(moments, there), instants(clocks, there)
    assert made.column(0).cast(pa.int64()).to_pylist() == found[0].cast(pa.int64()).to_pylist()
    assert made.column(1).to_pylist() == found[1].cast(pa.int64()).to_pylist()


DAY = 86_400
SPANS = (0, 1, -1, 1800, -3600, DAY, -DAY, 30 * 3600, -30 * 3600, 7 * DAY, 183 * DAY, -400 * DAY)


@pytest.mark.turn(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    "zone", ["UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "+05:30"]
)
def test_times_are_moved_by_spans_as_in_spark(spark: SparkSession, zone: str) -> None:
    """Over the days on which clocks change, from 1850 on: a day later it is the same o'clock."""
    there = known_zone(zone)
    assert there is not None
    chance, year = random.Random(7), 365 * DAY
    changes = [s for s in range(-120 * year, 80 * year, DAY // 2) if differs(s, there)]
    near = [c + s + chance.choice((0, 1800, 5400)) for c in changes for s in SPANS]
    seconds = [*near, *(chance.randrange(-1900 * year, 8000 * year) for _ in range(500))]
    spans = [chance.choice(SPANS) * 1_000_000 + chance.choice((0, 0, 1, -1)) for _ in seconds[1:]]
    micros = pa.array([s * 1_000_000 for s in seconds], pa.int64())
    t, d, n = DATETIME, TIMEDELTA, LOCAL_DATETIME
    columns = {
        "t": micros.cast(t.arrow),
        "u": micros.take(pa.array(chance.sample(range(len(seconds)), len(seconds)))).cast(t.arrow),
        "n": micros.cast(n.arrow),
        "d": pa.array([*spans, None], pa.int64()).cast(d.arrow),
    }
    columns |= {"m": columns["u"].cast(pa.int64()).cast(n.arrow), "e": columns["d"][::-1]}
    columns |= {"x": day_of(columns["n"]), "y": day_of(columns["m"])}
    fields = {
        "t": t,
        "u": t,
        "n": n,
        "m": n,
        "d": Optional(d),
        "e": Optional(d),
        "x": DATE,
        "y": DATE,
    }
    f = {name: Field(of, (name,)) for name, of in fields.items()}
    day, hour = (Literal(d, dt.timedelta(hours=hours)) for hours in (27, 1))
    given: list[Any] = [
        *((op, f[x], by) for x in "tn" for by in (f["d"], day, hour) for op in "+-"),
        *((op, f["d"], f["e"]) for op in "+-"),
        *(("-", f[a], f[b]) for a, b in ("tu", "nm", "xy")),
        ("neg", f["d"]),
    ]
    calls = [
        Call(result_type(op, tuple(a.type for a in args), ""), op, tuple(args))
        for op, *args in given
    ]
    schema = Schema(tuple(fields.items()), ())
    frame = frame_of(pa.table({name: columns[name] for name in fields}), schema, spark)
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        shown = [f"{e.sql('_t_')} AS e{i}" for i, e in enumerate(calls)]
        made = frame.coalesce(1).alias("_t_").selectExpr(*shown).toArrow()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    for i, e in enumerate(calls):
        compute = evaluator(e)
        assert compute is not None
        assert is_known(e)
        found = compute(pa.table(columns), lambda: there)
        assert found is not None
        assert found.type == e.type.arrow
        assert made.column(i).cast(pa.int64()).to_pylist() == found.cast(pa.int64()).to_pylist(), e


def differs(seconds: int, zone: dt.tzinfo) -> bool:
    """Whether clocks of a zone change within the twelve hours from these seconds on."""
    at = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(seconds=seconds)
    both = (at.astimezone(zone), (at + dt.timedelta(hours=12)).astimezone(zone))
    return both[0].utcoffset() != both[1].utcoffset()


SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.0, 0.5, -3.0, math.inf, -math.inf, math.nan, 5e-324, 1e308]
SPECIAL += [2.0**31, 2.0**53 + 2, 2.0**53 - 1, 1 + 2**-30, -1 - 2**-30, 1 - 2**-30, -1075.0]


def test_powers_and_logarithms_have_the_bits_that_spark_s_have(spark: SparkSession) -> None:
    chance = random.Random(5)
    x = [chance.uniform(-746, 710) for _ in range(4_000)] + [math.ulp(1), 0.3, -0.3, 0.4, 709.78]
    y = [math.ldexp(chance.uniform(0.5, 1), chance.randrange(-1074, 1024)) for _ in range(4_000)]
    y += [1.0, math.nextafter(1, 2), math.nextafter(1, 0), 1 + 2**-21, 2.0]
    pairs = [*itertools.product(SPECIAL, repeat=2), *zip(y, x, strict=True)]
    pairs += [(v, chance.uniform(-3, 3)) for v in y]
    pairs += [(2.0, 1024.0), (2.0, -1074.0), (math.nextafter(2, 0), 1024.0), (4.0, 511.5)]
    for _ in range(2_000):
        near_one = 1 + chance.uniform(-1e-6, 1e-6)
        base = chance.uniform(0.5, 3)
        least = chance.uniform(1_020, 1_080) / math.log2(base)  # near the greatest, or the least
        pairs += [(near_one, chance.uniform(-1e10, 1e10)), (base, least), (base, -least)]
        pairs += [(chance.uniform(-9, 0), float(chance.randrange(-60, 60)))]
    table = pa.table(dict(zip("xy", map(list, zip(*pairs, strict=True)), strict=True)))
    wanted = {name: f"{name}(x)" for name in ("exp", "ln", "log2", "log10")}
    wanted |= {name: f"{name}(x, y)" for name in ("power", "log")}
    asked = [f"{call} AS {name}" for name, call in wanted.items()]
    made = spark.createDataFrame(table).coalesce(1).selectExpr(*asked).toArrow()
    columns = [c.combine_chunks() for c in table.columns]
    for name, call in wanted.items():
        found = FORMS[name].kernel(*columns[: call.count(",") + 1]).to_pylist()
        for pair, ours, theirs in zip(pairs, found, made.column(name).to_pylist(), strict=True):
            assert repr(ours) == repr(theirs), (name, pair)


def test_the_greatest_of_floats_is_the_first_of_equal_ones(spark: SparkSession) -> None:
    rows = [*itertools.product([*SPECIAL[:2], 1.0, math.nan, -math.inf, None], repeat=3)]
    table = pa.table(
        {n: pa.array(c, pa.float64()) for n, c in zip("xyz", zip(*rows, strict=True), strict=True)}
    )
    frame = spark.createDataFrame(table).coalesce(1)
    made = frame.selectExpr("greatest(x, y, z) AS greatest", "least(x, y, z) AS least").toArrow()
    columns = [c.combine_chunks() for c in table.columns]
    for name in ("greatest", "least"):
        found = FORMS[name].kernel(*columns).to_pylist()
        assert list(map(repr, found)) == list(map(repr, made.column(name).to_pylist()))


def call_of(name: str, *args: Expr) -> SparkFunction:
    """A call, of the type that Spark says."""
    tree = Tree("function", name, tuple(map(tree_of, args)))
    found = reading_of(tree, {str(a): a for a in args})
    assert isinstance(found, SparkFunction)
    return found


def test_a_function_of_several_types_takes_each_pair_of_them(spark: SparkSession) -> None:
    for name, form in FORMS.items():
        if form.alike:
            continue
        units = [Literal(STR, "day")] if form.constant_first else []
        a, b = (
            [
                Field(Optional(t), (f"n{slug(t)}{i}",))
                for t in sorted(form.types - {DECIMALS}, key=str)
            ]
            + [Field(Optional(DECIMAL), (f"n{slug(DECIMAL)}{i}",))] * (DECIMALS in form.types)
            for i in (0, 1)
        )
        cases = [call_of(name, *units, *pair) for pair in itertools.product(a, b)]
        assert len(cases) == 9
        compare(spark, cases, "UTC")


def test_whole_units_between_times_are_those_of_spark(spark: SparkSession) -> None:
    """Over ends of months and leap days, with clocks that run on or not."""
    chance, edges = random.Random(11), []
    for year in (1, 4, 1582, 1900, 1969, 1970, 2000, 2023, 2024, 9999):
        for month, day in ((1, 1), (1, 31), (2, 28), (3, 1), (3, 30), (12, 31)):
            edges += [
                dt.datetime(year, month, day, h, 30, 0, chance.choice((0, 1))) for h in (0, 9)
            ]
    edges += [dt.datetime(y, 2, 29, 23, 59, 59, 999_999) for y in (4, 2000, 2024, 9996)]
    starts, ends = chance.choices(edges, k=3_000), chance.choices(edges, k=3_000)
    for i, (a, b) in enumerate(zip(starts[::2], ends[::2], strict=True)):  # within one year
        ends[2 * i] = a.replace(month=b.month, day=min(b.day, 28), hour=b.hour)
    t = LOCAL_DATETIME
    table = pa.table({n: pa.array(v, t.arrow) for n, v in (("a", starts), ("b", ends))})
    cases = [
        call_of("timestampdiff", Literal(STR, u), Field(t, ("a",)), Field(t, ("b",)))
        for u in UNITS_BETWEEN
    ]
    schema = Schema((("a", t), ("b", t)), ())
    frame = frame_of(table, schema, spark).coalesce(1)
    made = frame.selectExpr(*(f"{e.sql('')} AS {e.constants[0]}" for e in cases)).toArrow()
    for e in cases:
        compute = evaluator(e)
        assert compute is not None
        found = compute(table, lambda: dt.UTC)
        assert found is not None
        assert found.to_pylist() == made.column(e.constants[0]).to_pylist(), e


def test_a_text_is_the_day_that_spark_reads(spark: SparkSession) -> None:
    chance = random.Random(4)
    pieces = ["2024", "0001", "9999", "1", "2", "02", "29", "30", "31", "12", "13", "0", "00", "+"]
    pieces += ["-", "-", "-", "-", "-", " ", "T", "x", "\t", "\x7f", ":"]
    texts = ["".join(chance.choices(pieces, k=chance.randrange(1, 8))) for _ in range(4_000)]
    days = ("2024", "1999", "0001", "10000", "+2023", "-2023", "123", "12345678")
    for year, month, day in itertools.product(days, ("1", "02", "13"), ("9", "29", "31", "031")):
        texts += [f"{year}-{month}-{day}", f" {year}-{month}-{day}Tx", f"{year}-{month} "]
    made = spark.createDataFrame(pa.table({"s": texts})).coalesce(1)
    wanted = made.selectExpr("TRY_CAST(s AS DATE) AS d", "year(TRY_CAST(s AS DATE)) AS y")
    shown = wanted.selectExpr("CAST(d AS STRING)", "y").toArrow()
    days_read = 0
    for s, d, y in zip(texts, *(c.to_pylist() for c in shown.columns), strict=True):
        found = FORMS["try_cast_to_date"].kernel(pa.array([s]))
        if found is None:  # Python does not have the year
            assert y is None or not 1 <= y <= 9999, s
        else:
            assert (None if found[0].as_py() is None else str(found[0])) == d, s
            days_read += d is not None
    assert days_read > 200


@pytest.mark.parametrize("form", [*FORMS])
def test_a_function_of_many_rows_is_that_of_each_row(form: str) -> None:
    there = known_zone("UTC")
    table = table_of([*FIELDS.values()], 7)
    for e in (e for e in CASES if e.name == form):
        compute = evaluator(e)
        assert compute is not None
        alone = [compute(table.slice(i, 1), lambda: there) for i in range(table.num_rows)]
        known = [i for i, v in enumerate(alone) if v is not None]
        wanted = [v[0].as_py() for v in alone if v is not None]

        def taken(some: list[int]) -> pa.Table:
            return table.take(pa.array(some, pa.int64()))

        for some in (known, known[1:], known[3:4] * 3, []):
            found = compute(taken(some), lambda: there)
            assert found is not None, e
            by_row = dict(zip(known, wanted, strict=True))
            assert repr(found.to_pylist()) == repr([by_row[i] for i in some]), e
            assert found.type == e.type.arrow, e
        chunks = pa.concat_tables([taken(known[:5]), taken(known[5:])])
        cut = chunks.slice(2)
        found = compute(cut, lambda: there)
        assert found is not None, e
        assert repr(found.to_pylist()) == repr(wanted[2:]), e
