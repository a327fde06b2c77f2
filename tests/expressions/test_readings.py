"""Spark's functions that Arrow computes on the driver, against Spark."""

from __future__ import annotations

import datetime as dt
import random
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.utils import is_remote

import stepping_spark as st
from stepping_spark.expressions.arrow_evaluator import evaluator, unknown_zone
from stepping_spark.expressions.expr import Opaque
from stepping_spark.expressions.spark_functions import ALSO_CALLED, CAST, FORMS, TRY_CAST
from stepping_spark.expressions.symbolic import trace_row
from stepping_spark.rows.schema import columns_of
from stepping_spark.rows.types import row_type
from stepping_spark.spark.column_made import in_running_session
from stepping_spark.spark.types import analyzed
from tests.cases import ROOT


class Row(st.Data):
    s: str
    t: str | None
    n: int | None
    k: int
    x: float | None
    b: bool | None
    day: dt.date | None
    then: dt.date
    at: st.LocalDateTime | None
    when: dt.datetime | None
    price: Annotated[Decimal, st.Precision(10, 2)]
    off: Annotated[Decimal, st.Precision(4, 3)] | None


TEXTS = ["", "a", "Abc", "é", "\u0130", "a%b_c", "a\nb", " x ", "🙂🙂b", "ab" * 9, "50%"]
DAYS = [dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(1582, 10, 10), dt.date(2024, 2, 29)]
DAYS += [dt.date(2023, 1, 1), dt.date(2020, 12, 31), dt.date(1969, 12, 31)]
TIMES = [dt.datetime(d.year, d.month, d.day, 23 - i, i, 59, i) for i, d in enumerate(DAYS)]
NUMBERS = [0, 1, -1, 2**63 - 1, -(2**63) + 1, 7]
ROWS = [
    Row(
        s=text,
        t=None if i % 4 == 3 else TEXTS[-i],
        n=None if i % 5 == 4 else NUMBERS[i % 6],
        k=i - 3,
        x=None if i % 7 == 6 else [0.5, -0.0, float("inf"), float("nan"), 1e300][i % 5],
        b=[True, False, None][i % 3],
        day=None if i % 6 == 5 else DAYS[i % 7],
        then=DAYS[-1 - i % 7],
        at=None if i % 8 == 7 else cast("Any", TIMES[i % 7]),
        when=None if i % 9 == 8 else TIMES[-1 - i % 7].replace(tzinfo=dt.UTC),
        price=Decimal(i * 1_000_003 - 99) / 100,
        off=None if i % 3 == 2 else Decimal(i * 7 - 9) / 1000,
    )
    for i, text in enumerate(TEXTS)
]


def with_each(text: Any, before: Any) -> Any:
    return F.transform(F.split(text, "b"), lambda b, i: F.concat(before, b))


IN_ZONE: list[Callable[[Any], Any]]  # what depends on the session's time zone
KNOWN: list[Callable[[Any], Any]] = [
    lambda r: F.upper(r.s),
    lambda r: F.lower(r.t),
    lambda r: F.length(r.t),
    lambda r: F.char_length(F.trim(r.s)),
    lambda r: F.octet_length(r.s),
    lambda r: F.octet_length(r.t),
    lambda r: F.concat(r.s, F.lit("-"), r.t),
    lambda r: F.concat(F.ltrim(r.s), F.rtrim(r.s)),
    lambda r: F.substring(r.s, 2, 3),
    lambda r: F.substring(r.t, 1, 0),
    lambda r: F.substr(r.s, F.lit(1), F.lit(2)),
    lambda r: F.like(r.s, F.lit("a%b_c")),
    lambda r: ~F.like(r.t, F.lit("%b%")),
    lambda r: F.like(r.s, F.lit("a_b")),
    lambda r: F.startswith(r.s, F.lit("a")),
    lambda r: F.endswith(r.s, F.lit("b")),
    lambda r: F.contains(r.t, F.lit("%")),
    lambda r: F.replace(r.s, F.lit("a"), F.lit("zz")),
    lambda r: F.upper(r.s) == "A",
    lambda r: F.lower(r.s).isin("a", "abc"),
    lambda r: F.length(r.s) > r.k,
    lambda r: F.length(r.s) + r.k,
    lambda r: F.when(r.k > 0, "more").when(r.k == 0, "none").otherwise(r.s),
    lambda r: F.when(r.b, r.n),
    lambda r: F.when(F.isnull(r.n), F.lit(None)).otherwise(1),
    lambda r: F.when(r.b & (r.k > 0), 1).otherwise(0),
    lambda r: F.coalesce(r.n, r.k),
    lambda r: F.coalesce(r.t, F.lit("none")),
    lambda r: F.nvl(r.t, r.s),
    lambda r: F.year(r.day),
    lambda r: F.quarter(r.day),
    lambda r: F.month(r.then),
    lambda r: F.day(r.day),
    lambda r: F.dayofmonth(r.at),
    lambda r: F.dayofyear(r.then),
    lambda r: F.dayofweek(r.day),
    lambda r: F.weekday(r.day),
    lambda r: F.weekofyear(r.day),
    lambda r: F.year(r.at),
    lambda r: F.hour(r.at),
    lambda r: F.minute(r.at),
    lambda r: F.second(r.at),
    lambda r: F.trunc(r.then, "month"),
    lambda r: F.trunc(r.day, "YEAR"),
    lambda r: F.trunc(r.day, "quarter"),
    lambda r: F.datediff(r.day, r.then),
    lambda r: F.date_sub(r.then, 0),
    lambda r: F.abs(r.n),
    lambda r: F.abs(r.x),
    lambda r: F.abs(r.off),
    lambda r: F.greatest(r.n, r.k),
    lambda r: F.greatest(r.x, F.lit(1.0)),
    lambda r: F.least(r.x, F.coalesce(r.x, F.lit(0.0))),
    lambda r: F.greatest(r.price, r.price),
    lambda r: F.least(r.s, r.t),
    lambda r: F.coalesce(r.off, r.off) * r.x,
    lambda r: F.coalesce(r.x, r.x) / r.price,
    lambda r: F.coalesce(r.price, r.price) / r.price,
    lambda r: F.coalesce(r.k, r.k) / 3,
    lambda r: F.coalesce(r.x, r.x) > r.price,
    lambda r: -F.coalesce(r.x, r.x),
    lambda r: -F.abs(r.off),
    lambda r: F.pow(r.x, 2),
    lambda r: F.power(r.k, r.off),
    lambda r: F.pow(2.5, r.price),
    lambda r: F.sqrt(r.price),
    lambda r: F.exp(r.off),
    lambda r: F.log(r.price),
    lambda r: F.log(2.0, r.price),
    lambda r: F.log2(r.k),
    lambda r: F.log10(r.x),
    lambda r: F.ilike(r.s, F.lit("%AB%")),
    lambda r: F.hash(r.s, r.k, r.x, r.b, r.price, r.then),
    lambda r: F.hash(r.t, r.n, r.day, r.at, r.when, r.off),
    lambda r: F.xxhash64(r.t, r.k, r.x, r.off),
    lambda r: F.least(r.day, r.then),
    lambda r: F.abs(r.k) * r.k - 1,
    lambda r: (F.year(r.then) == 2024) & (F.month(r.then) <= 6),
    lambda r: F.abs(r.x) <= 0.5,
    lambda r: (r.k - F.coalesce(r.k, F.lit(0))) * r.price,
    lambda r: r.price - F.coalesce(r.off, F.lit(Decimal("1.500"))),
    lambda r: F.when(r.b, r.price * r.k).otherwise(None),
    lambda r: F.coalesce(r.off, r.off) * r.price * r.off,
    lambda r: F.try_divide(r.n, r.k),
    lambda r: F.try_divide(r.x, r.x),
    lambda r: F.try_divide(r.k, F.lit(3)),
    lambda r: F.year(r.then).cast("bigint"),
    lambda r: F.isnotnull(r.day) | r.b,
    lambda r: F.concat_ws("-", r.s, r.t),
    lambda r: F.concat_ws("", r.t, r.t),
    lambda r: F.lpad(r.s, 4, "0"),
    lambda r: F.rpad(r.t, 1, "🙂"),
    lambda r: F.lpad(r.s, 0, "x"),
    lambda r: F.left(r.s, F.lit(2)),
    lambda r: F.right(r.t, F.lit(2)),
    lambda r: F.right(r.t, F.lit(0)),
    lambda r: F.repeat(r.s, 3),
    lambda r: F.repeat(r.t, 0),
    lambda r: F.reverse(r.t),
    lambda r: F.soundex(r.s),
    lambda r: F.soundex(r.t),
    lambda r: F.md5(r.s),
    lambda r: F.sha1(r.t),
    lambda r: F.sha2(r.s, 256),
    lambda r: F.sha2(r.t, 0),
    lambda r: F.sha2(r.s, 512),
    lambda r: F.crc32(r.t),
    lambda r: F.nullif(r.n, r.k),
    lambda r: F.nullif(r.s, F.lit("a")),
    lambda r: F.nvl2(r.t, r.s, F.lit("none")),
    lambda r: F.last_day(r.day),
    lambda r: F.unix_date(r.day),
    lambda r: F.isnan(r.x),
    lambda r: F.sqrt(r.x),
    lambda r: F.pmod(r.n, F.lit(7)),
    lambda r: F.pmod(r.k, F.lit(-3)),
    lambda r: F.coalesce(r.n, r.k) % 5,
    lambda r: F.coalesce(r.k, F.lit(0)) % F.lit(-4),
    lambda r: F.coalesce(r.x, F.lit(0.0)) % 0.3,
    lambda r: F.coalesce(r.off, r.off) % r.price,
    lambda r: r.k.bitwiseAND(r.n),
    lambda r: r.k.bitwiseOR(F.lit(8)),
    lambda r: r.n.bitwiseXOR(r.k),
    lambda r: F.round(r.x),
    lambda r: F.round(r.price, 1),
    lambda r: F.floor(r.price),
    lambda r: F.ceil(r.off),
    lambda r: F.sign(r.k),
    lambda r: F.exp(r.x),
    lambda r: F.ln(r.k),
    lambda r: F.signum(r.x),
    lambda r: F.regexp_replace(r.s, "[a-z]+", "<$0>"),
    lambda r: F.regexp_extract(r.t, "(.)b", 1),
    lambda r: r.s.rlike("^[A-Z]"),
    lambda r: F.split(r.s, "b"),
    lambda r: F.split_part(r.s, F.lit("b"), F.lit(1)),
    lambda r: F.substring_index(r.t, "b", 1),
    lambda r: F.locate("b", r.s),
    lambda r: F.instr(r.t, "b"),
    lambda r: F.initcap(r.s),
    lambda r: F.array(r.k, r.n),
    lambda r: F.array(r.s, F.lit("x")),
    lambda r: F.transform(F.split(r.t, "b"), lambda w: F.concat(w, r.s)),
    lambda r: F.transform(F.array(r.k, r.n), lambda x, i: F.coalesce(x, r.k) - i),
    lambda r: F.transform(F.split(r.s, "a"), lambda a: F.array_join(with_each(r.t, a), "-")),
    lambda r: F.size(F.transform(F.split(r.t, "b"), lambda w, i: F.struct(w.alias("w")))),
    lambda r: F.translate(r.s, "ab", "x"),
    lambda r: F.size(F.split(r.t, "b")),
    lambda r: F.array_join(F.split(r.s, "a"), "-"),
    lambda r: F.make_date(F.year(r.then), F.lit(2), F.lit(1)),
    lambda r: F.make_date(F.lit(2024), F.month(r.day), F.lit(1)),
    lambda r: F.add_months(r.then, 0),
    lambda r: F.sequence(F.lit(1), F.length(r.s)),
    lambda r: r.k.cast("string"),
    lambda r: r.price.cast("double"),
    lambda r: r.price.cast("bigint"),
    lambda r: r.price.cast("decimal(12,1)"),
    lambda r: r.k.cast("decimal(20,2)"),
    lambda r: r.k.cast("int"),
    lambda r: r.b.cast("int"),
    lambda r: r.s.try_cast("bigint"),
    lambda r: F.length(r.s).cast("string").cast("bigint"),
    lambda r: F.length(r.s).cast("string").cast("int"),
    lambda r: F.concat(F.lit("1."), F.length(r.s).cast("string")).cast("double"),
    lambda r: r.then.cast("string").cast("date"),
    lambda r: F.to_date(r.then.cast("string")),
    lambda r: r.then.cast("timestamp_ntz"),
    lambda r: F.date_format(r.at, "yyyy"),
    lambda r: F.unix_micros(r.when),
    lambda r: F.unix_millis(r.when),
    lambda r: F.unix_seconds(r.when),
    lambda r: F.timestamp_micros(r.k % F.lit(2**50)),
    lambda r: F.timestamp_millis(r.n % F.lit(2**40)),
    lambda r: F.timestamp_seconds(r.k % F.lit(2**30)),
    lambda r: F.date_format(r.then, "yyyy/MM/dd"),
    *(IN_ZONE := [
        lambda r: F.year(r.when),
        lambda r: F.dayofweek(r.when),
        lambda r: F.hour(r.when),
        lambda r: F.to_date(r.when),
        lambda r: r.when.cast("date"),
        lambda r: F.date_trunc("month", r.when),
        lambda r: F.date_trunc("WEEK", r.when),
        lambda r: F.date_trunc("hour", r.when),
        lambda r: F.date_format(r.when, "yyyy-MM"),
        lambda r: F.trunc(r.when, "month"),
        lambda r: F.date_trunc("month", r.at),
        lambda r: F.to_timestamp(r.at),
        lambda r: r.when.cast("string"),
        lambda r: F.last_day(r.when),
        lambda r: F.timestamp_diff("DAY", r.when, F.to_timestamp(r.at)),
        lambda r: F.timestamp_diff("month", r.at, r.when),
        lambda r: F.timestamp_diff("HOUR", r.day, r.when),
        lambda r: F.date_format(r.when, "dd.MM.yyyy HH:mm"),
    ]),
]  # fmt: skip

# What depends on the time zone, on 32 bits, on escapes, or on what else Spark does by itself.
UNKNOWN: list[Callable[[Any], Any]] = [
    lambda r: F.year(r.then) * 1000,
    lambda r: F.year(r.then) * r.price,
    lambda r: F.coalesce(r.off, r.off) * 2,
    lambda r: F.coalesce(r.off, F.lit(0)) * r.price,
    lambda r: F.coalesce(r.off, F.lit(1)) / r.price,
    lambda r: F.hash(F.year(r.then)),
    lambda r: F.hash(F.array(r.k)),
    lambda r: F.greatest(r.price, r.off),
    lambda r: F.timestamp_diff("DAYOFYEAR", r.at, r.when),
    lambda r: F.like(r.s, F.lit("a\\%")),
    lambda r: F.ilike(r.s, F.lit("é%")),
    lambda r: F.substring(r.s, -2, 1),
    lambda r: F.replace(r.s, F.lit(""), F.lit("x")),
    lambda r: F.trunc(r.day, "day"),
    lambda r: F.concat(r.s, F.lit(1)),
    lambda r: F.lpad(r.s, 5, "ab"),
    lambda r: F.concat_ws("-", F.array(r.s)),
    lambda r: F.nullif(r.k, r.x),
    lambda r: F.when(r.b, 1).otherwise(1.5),
    lambda r: F.upper(r.s) == 1,
    lambda r: F.expr("s || 'x'"),
    lambda r: F.date_format(r.when, "yyyy-MM-dd EEE"),
    lambda r: F.date_format(r.when, "yyyyy"),
    lambda r: F.date_format(r.when, "yy"),
]  # fmt: skip


def traced(f: Callable[[Any], Any]) -> Any:
    return trace_row(f, row_type(Row), "a test")


@pytest.mark.turn(3)
@pytest.mark.compat
def test_arrow_says_of_spark_s_functions_what_spark_says(spark: SparkSession) -> None:
    t = row_type(Row)
    schema = columns_of(t)
    values = [[ft.encode(getattr(row, n), "a test") for n, ft in schema] for row in ROWS]
    arrow = pa.schema([pa.field(n, ft.arrow) for n, ft in schema])
    tables = [
        pa.Table.from_arrays(
            [pa.array([v], f.type) for v, f in zip(row, arrow, strict=True)], schema=arrow
        )
        for row in values
    ]
    frame = spark.createDataFrame(pa.concat_tables(tables)).coalesce(1)
    exprs = [traced(f) for f in KNOWN]
    columns = [in_running_session(e.column) for e in exprs]
    found = frame.select(*[c.alias(f"c{j}") for j, c in enumerate(columns)]).toArrow()
    for j, e in enumerate(exprs):
        assert isinstance(e, Opaque), str(e)
        if is_remote() and "1.500" in str(e):  # Connect gives a Decimal digits of its own
            assert e.reading is None
            continue
        assert e.reading is not None, str(e)
        assert e.type == analyzed(e.column, t, "a test"), str(e)
        compute = evaluator(e)
        assert compute is not None, str(e)
        computed = [compute(table, lambda: dt.UTC) for table in tables]
        left = sum(column is None for column in computed)
        of_letters = str(e).startswith(
            ("upper", "lower", "initcap", "ilike", "TRY_CAST", "=(", "==(", "in(")
        )
        assert left <= (4 if of_letters else 0), str(e)
        for row, column, wanted in zip(ROWS, computed, found.column(j).to_pylist(), strict=True):
            if column is not None:
                assert repr(column[0].as_py()) == repr(wanted), f"{e} of {row}"


def test_a_word_sounds_as_in_spark(spark: SparkSession) -> None:
    source = random.Random(1)
    words = [
        "".join(source.choices("AbcdHhWwaeSsTtrlmzß\u0131- é9", k=n % 12)) for n in range(3_000)
    ]
    words += ["Ashcraft", "Pfister", "Tymczak", "Honeyman", "Wh", "B-b", "\u212aab", "🙂b"]
    table = pa.table({"s": words})
    computed = FORMS["soundex"].kernel(table.column("s").combine_chunks())
    wanted = spark.createDataFrame(table).coalesce(1).select(F.soundex("s").alias("s")).toArrow()
    assert computed.to_pylist() == wanted.column("s").to_pylist()


@pytest.mark.parametrize("f", IN_ZONE)
def test_where_the_time_zone_is_unknown_spark_is_asked(
    spark: SparkSession, f: Callable[[Any], Any]
) -> None:
    compute = evaluator(traced(f))
    assert compute is not None
    assert (
        compute(pa.table({"when": [dt.datetime(2024, 1, 1, tzinfo=dt.UTC)]}), unknown_zone) is None
    )


class Visit(st.Data):
    id: int
    at: dt.datetime


def by_day(a: Any) -> Any:
    return st.map(a, f=lambda v: (v.id, F.to_date(v.at)))


@pytest.mark.driver
@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "Asia/Kathmandu"])
def test_a_step_knows_the_time_zone_of_its_session(spark: SparkSession, zone: str) -> None:
    before = str(spark.conf.get("spark.sql.session.timeZone"))
    by_day.__annotations__ = {"a": st.ZSet[Visit]}
    graph: Any = st.compile(by_day)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    late = dt.datetime(2024, 5, 1, 1, tzinfo=dt.UTC)
    day = dt.date(2024, 4, 30) if zone == "America/New_York" else dt.date(2024, 5, 1)
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        for i in range(3):
            (out,) = stepper.step((st.ZSetPython({Visit(id=i, at=late): 1}),))
            assert out == st.ZSetPython({(i, day): 1})
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert [m.queries for m in stepper.metrics] == [int(zone == "Asia/Kathmandu")] * 3


@pytest.mark.compat
@pytest.mark.parametrize("f", UNKNOWN)
def test_what_may_differ_is_left_to_spark(spark: SparkSession, f: Callable[[Any], Any]) -> None:
    assert traced(f).reading is None


@pytest.mark.driver
def test_a_step_with_functions_of_spark_asks_nothing(spark: SparkSession) -> None:
    def query(a: Any) -> Any:
        some = st.filter(a, f=lambda r: ~F.like(r.s, F.lit("%b%")) & (F.year(r.then) > 1000))
        return st.map(some, f=lambda r: (F.concat(r.s, F.lit("!")), F.month(r.then)))

    query.__annotations__ = {"a": st.ZSet[Row]}
    graph: Any = st.compile(query)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    (out,) = stepper.step((st.ZSetPython((row, 1) for row in ROWS),))
    assert stepper.metrics[-1].queries == 0
    wanted = [(f"{r.s}!", r.then.month) for r in ROWS if "b" not in r.s and r.then.year > 1000]
    assert out == st.ZSetPython((row, 1) for row in wanted)


def test_the_guide_lists_the_functions_that_the_driver_computes() -> None:
    page = (ROOT / "docs" / "guide" / "functions.md").read_text(encoding="utf-8")
    table = page[page.index("| of | functions |") :].partition("\n\n")[0]
    named = {
        n for n in (*FORMS, *ALSO_CALLED) if n.isidentifier() and not n.startswith((CAST, TRY_CAST))
    }
    assert set(re.findall(r"`(\w+)`", table)) == named


class Placed(st.Data):
    id: int
    placed: dt.datetime
    words: str
    amount: float


def months(orders: Any) -> Any:
    return st.map(orders, f=lambda o: (o.id, F.trunc(o.placed, "month")))


def words(orders: Any) -> Any:
    split = st.map_many(
        orders,
        f=lambda o: F.transform(
            F.split(o.words, " "),
            lambda w, i: F.struct(w.alias("_1"), i.cast("bigint").alias("_2")),
        ),
        to=tuple[str, int],
    )
    return st.map(split, f=lambda w: (w[0], w[1]))


def numbers(orders: Any) -> Any:
    return st.map(
        orders,
        f=lambda o: (o.amount.cast("bigint"), F.substring_index(o.words, " ", -1).cast("int")),
    )


def firsts(orders: Any) -> Any:
    return st.map(orders, f=lambda o: F.make_date(F.year(o.placed), F.month(o.placed), F.lit(1)))


@pytest.mark.driver
@pytest.mark.parametrize("view", [months, words, numbers, firsts])
def test_the_views_of_a_newcomer_ask_nothing(spark: SparkSession, view: Any) -> None:
    view.__annotations__ = {"orders": st.ZSet[Placed]}
    graph: Any = st.compile(view)
    late = dt.datetime(2024, 5, 31, 23, 30, tzinfo=dt.UTC)
    row = Placed(id=1, placed=late, words="tea for 2", amount=7.9)
    change = st.ZSetPython({row: 1})
    wanted: dict[Any, dict[Any, int]] = {
        months: {(1, dt.date(2024, 5, 1)): 1},
        words: {("tea", 0): 1, ("for", 1): 1, ("2", 2): 1},
        numbers: {(7, 2): 1},
        firsts: {dt.date(2024, 5, 1): 1},
    }
    for limits in (st.Limits(), st.Limits(local_rows=0)):
        stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), limits=limits)
        (out,) = stepper.step((change,))
        assert dict(out.to_python().iter()) == wanted[view]
        if limits == st.Limits():
            assert stepper.metrics[-1].queries == 0
