"""On the driver and in Spark alike: overflow, and what depends on the session's time zone."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import uuid
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as hs
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import stepping_spark as st
from examples.shop import Click
from tests.benchmarks.shop import MORE, VIEWS, Trade
from tests.cases import LEAST, MOST, Z

pytestmark = pytest.mark.driver  # each test takes its steps in both modes

Price = Annotated[Decimal, st.Precision(38, 2)]
PRICES = [Decimal("9" * 36 + ".99"), Decimal("-0.01"), Decimal(10) ** 18]


class Item(st.Data):
    id: int
    n: int
    price: Price


items = hs.builds(
    Item,
    id=hs.sampled_from([0, 1]),
    n=hs.sampled_from([LEAST, LEAST + 1, -(2**62), -1, 0, 1, 2**32, 2**62, MOST]),
    price=hs.sampled_from([*PRICES, *(-p for p in PRICES)]),
)
weights = hs.sampled_from([-(2**62), -1, 1, 2, 2**62])
changes = hs.lists(hs.tuples(items, weights), max_size=3)


def added(a: st.ZSet[Item]) -> st.ZSet[int]:
    return st.map(a, f=lambda x: x.n + x.id - 1)


def multiplied(a: st.ZSet[Item]) -> st.ZSet[int]:
    return st.map(st.filter(a, f=lambda x: x.n * 2 > 0), f=lambda x: -x.n)


def weighted(a: st.ZSet[Item]) -> st.ZSet[st.Pair[Item, Item]]:
    return st.join(a, a, on_left=lambda x: x.id, on_right=lambda x: x.id)


def totals(a: st.ZSet[Item]) -> st.ZSet[st.Pair[int, int]]:
    return st.group_reduce_flatten(a, by=lambda x: x.id, zero=int, pick_value=lambda x: x.n)


class Total(st.Data):
    id: int
    price: Price | None
    least: int
    most: int


def aggregated(a: st.ZSet[Item]) -> st.ZSet[Total]:
    return st.aggregate(
        a,
        lambda x: x.id,
        Total,
        price=st.agg.sum(lambda x: x.price),
        least=st.agg.min(lambda x: x.n),
        most=st.agg.max(lambda x: x.n),
    )


OVERFLOWING = (added, multiplied, weighted, totals, aggregated)


def outcome(
    query: Callable[..., Any], steps: Sequence[Any], local_rows: int
) -> list[tuple[Any, ...] | type[Exception]]:
    """What each step gives, or that it fails; what fails leaves the store as it was."""
    graph = st.compile(query)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
    found: list[tuple[Any, ...] | type[Exception]] = []
    for step in steps:
        try:
            found.append(stepper.step((Z(step),)))
        except st.SteppingError as e:
            found.append(type(e))
    return found


@pytest.mark.turn(2)
@pytest.mark.parametrize("query", OVERFLOWING, ids=lambda q: q.__name__)
@settings(max_examples=5)
@given(steps=hs.lists(changes, min_size=1, max_size=3))
def test_what_is_beyond_a_column_is_so_in_both_modes(
    spark: SparkSession, query: Callable[..., Any], steps: list[Any]
) -> None:
    assert outcome(query, steps, st.Limits.local_rows) == outcome(query, steps, 0)


@pytest.mark.turn(2)
@pytest.mark.parametrize("local_rows", [st.Limits.local_rows, 0], ids=["driver", "spark"])
@pytest.mark.parametrize(
    ("query", "item"),
    [
        (added, (Item(id=0, n=LEAST, price=PRICES[1]), 1)),
        (multiplied, (Item(id=1, n=2**62, price=PRICES[1]), 1)),
        (weighted, (Item(id=1, n=1, price=PRICES[1]), 2**32)),
        (totals, (Item(id=1, n=2**62, price=PRICES[1]), 2)),
        (aggregated, (Item(id=1, n=0, price=PRICES[0]), 2)),
    ],
    ids=lambda x: getattr(x, "__name__", ""),
)
def test_what_is_beyond_a_column_is_an_error(
    spark: SparkSession, query: Callable[..., Any], item: Any, local_rows: int
) -> None:
    ok = (Item(id=0, n=5, price=PRICES[1]), 1)
    first, beyond, again = outcome(query, [[ok], [item], [ok]], local_rows)
    assert beyond is st.StepError
    assert [first, again] == outcome(query, [[ok], [ok]], local_rows)


class Reading(st.Data):
    at: dt.datetime
    local: st.LocalDateTime | None


class Seen(st.Data):
    hour: int
    day: dt.date
    month: dt.date | None
    text: str
    local: st.LocalDateTime
    at: dt.datetime | None


@pytest.fixture(params=["America/New_York", "Europe/Berlin", "Asia/Kathmandu"])
def zone(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[ZoneInfo]:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", request.param)
    yield ZoneInfo(request.param)
    spark.conf.set("spark.sql.session.timeZone", str(before))


def field(x: Any) -> Any:
    """What a field is to Spark's functions."""
    return x


def wall(t: dt.datetime) -> Any:
    """What a clock on the wall says."""
    return t.replace(tzinfo=None)


def seen(a: st.ZSet[Reading]) -> st.ZSet[Seen]:
    return st.map(
        a,
        f=lambda r: Seen(
            hour=field(F.hour(field(r.at))),
            day=field(F.to_date(field(r.at))),
            month=field(F.trunc(field(r.at), "month")),
            text=field(F.date_format(field(r.at), "yyyy-MM-dd HH:mm")),
            local=field(r.at).cast("timestamp_ntz"),
            at=field(r.local).cast("timestamp"),
        ),
    )


def latest(a: st.ZSet[Reading]) -> st.ZSet[Seen]:
    """The last of each hour."""
    found = st.distinct(seen(a))
    return st.first_n(found, lambda s: s.local, 2, by=lambda s: s.hour)


# Before and after clocks are changed in New York and in Berlin, an hour that is there twice, and
# times before there were time zones.
INSTANTS = [
    dt.datetime(2024, 3, 10, 6, 59, 59, tzinfo=dt.UTC),
    dt.datetime(2024, 3, 10, 7, 0, tzinfo=dt.UTC),
    dt.datetime(2024, 11, 3, 5, 30, tzinfo=dt.UTC),
    dt.datetime(2024, 11, 3, 6, 30, tzinfo=dt.UTC),
    dt.datetime(2024, 3, 31, 0, 59, 59, tzinfo=dt.UTC),
    dt.datetime(2024, 3, 31, 1, 0, tzinfo=dt.UTC),
    dt.datetime(2024, 10, 27, 0, 30, tzinfo=dt.UTC),
    dt.datetime(2024, 10, 27, 1, 30, tzinfo=dt.UTC),
    dt.datetime(1969, 12, 31, 23, 59, 59, 999999, dt.UTC),
    dt.datetime(1883, 11, 18, 16, 58, tzinfo=dt.UTC),
    dt.datetime(1850, 7, 1, 23, 30, tzinfo=dt.UTC),
]
LOCALS = [
    None,
    dt.datetime(2024, 3, 10, 2, 30),
    dt.datetime(2024, 11, 3, 1, 30),
    dt.datetime(2024, 3, 31, 2, 30),
    dt.datetime(2024, 10, 27, 2, 30),
    dt.datetime(1883, 11, 18, 12, 1),
    dt.datetime(1850, 7, 1),
]
readings = hs.builds(Reading, at=hs.sampled_from(INSTANTS), local=hs.sampled_from(LOCALS))


@pytest.mark.turn(2)
@pytest.mark.parametrize("query", [seen, latest], ids=lambda q: q.__name__)
def test_the_session_s_time_zone_is_that_of_both_modes(
    spark: SparkSession, zone: ZoneInfo, query: Callable[..., Any]
) -> None:
    @settings(max_examples=4)
    @given(
        steps=hs.lists(
            hs.lists(hs.tuples(readings, hs.sampled_from([-1, 1, 2])), max_size=4),
            min_size=1,
            max_size=3,
        )
    )
    def holds(steps: list[Any]) -> None:
        assert outcome(query, steps, st.Limits.local_rows) == outcome(query, steps, 0)

    holds()


@pytest.mark.parametrize("local_rows", [st.Limits.local_rows, 0], ids=["driver", "spark"])
def test_functions_of_instants_are_in_the_session_s_time_zone(
    spark: SparkSession, zone: ZoneInfo, local_rows: int
) -> None:
    (found,) = outcome(seen, [[(Reading(at=at, local=None), 1) for at in INSTANTS]], local_rows)
    there = [at.astimezone(zone) for at in INSTANTS]
    rows = [
        Seen(
            hour=t.hour,
            day=t.date(),
            month=t.date().replace(day=1),
            text=f"{t:%Y-%m-%d %H:%M}",
            local=wall(t),
            at=None,
        )
        for t in there
    ]
    assert found == (Z([(row, 1) for row in rows]),)


@pytest.mark.parametrize("zone", ["America/New_York", "Europe/Berlin"], indirect=True)
@pytest.mark.parametrize("name", [*MORE, "visits"])
def test_where_clocks_change_views_of_instants_are_those_of_spark_and_ask_nothing(
    spark: SparkSession, zone: ZoneInfo, name: str
) -> None:
    graph: Any = st.compile({**MORE, **VIEWS}[name])
    near = [dt.timedelta(minutes=m) for m in (-61, -30, 0, 1, 29, 59)]
    rows = [Click(user=i % 2, at=at + d) for i, at in enumerate(INSTANTS) for d in near]
    steps = [[(row, 1) for row in rows], [(row, -1) for row in rows[::3]]]
    found = []
    for local_rows in (st.Limits.local_rows, 0):
        stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
        found.append([stepper.step((Z(step),))[0].to_python() for step in steps])
        asked = sum(m.queries for m in stepper.metrics)
        assert bool(asked) == (local_rows == 0)
    assert found[0] == found[1]


@pytest.mark.parametrize("zone", ["America/New_York", "Europe/Berlin"], indirect=True)
@pytest.mark.parametrize("name", VIEWS)
def test_in_a_time_zone_with_known_rules_the_views_of_a_shop_ask_nothing(
    spark: SparkSession, zone: ZoneInfo, name: str
) -> None:
    graph: Any = st.compile(VIEWS[name])
    stepper: Any = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    trade = Trade()
    for _ in range(3):
        day, changes = trade.step()
        stepper.step([changes[v.operator.label] for v, _ in graph.named_inputs], now=day)
    assert [m.queries for m in stepper.metrics] == [0, 0, 0]


class Odd(st.Data):
    name: str | None
    x: float | None


class Told(st.Data):
    name: str | None
    shout: str | None
    more: float | None
    positive: bool | None


class Summed(st.Data):
    name: str | None
    count: int
    values: int
    total: float | None
    least: float | None
    most: str | None


def told(a: st.ZSet[Odd]) -> st.ZSet[Told]:
    some = st.filter(a, f=lambda r: field(r.x).isNull() | (r.x != 1.0))
    return st.map(
        some,
        f=lambda r: Told(
            name=r.name,
            shout=field(F.upper(field(r.name))),
            more=field(r.x) + 1.0,
            positive=field(r.x) > 0.0,
        ),
    )


def met(a: st.ZSet[Odd]) -> st.ZSet[st.Pair[Odd, Odd]]:
    by_name = st.join(a, a, on_left=lambda r: r.name, on_right=lambda r: r.name)
    by_x = st.join(a, a, on_left=lambda r: r.x, on_right=lambda r: r.x)
    return st.add(by_name, by_x)


def summed(a: st.ZSet[Odd]) -> st.ZSet[Summed]:
    there = st.distinct(a)
    return st.aggregate(
        there,
        lambda r: r.name,
        Summed,
        count=st.agg.count(),
        values=st.agg.count_distinct(lambda r: r.x),
        total=st.agg.sum(lambda r: r.x),
        least=st.agg.min(lambda r: r.x),
        most=st.agg.max(lambda r: r.name),
    )


AWKWARD = [
    *("\x0012b", "\0", "a\\b'c", '"\r\n\t\x1a\x7f', "${spark.app.name}", "/*+ NOW */", "/", "🙂"),
    *("", " ", "a", "a ", "Zoë", "Zoe\u0308"),
]
FLOATS = [0.0, -0.0, 1.0, -1.5, 1e308, 5e-324, float("nan"), float("inf"), float("-inf")]
odd = hs.builds(Odd, name=hs.sampled_from([None, *AWKWARD]), x=hs.sampled_from([None, *FLOATS]))


@pytest.mark.turn(3)
@pytest.mark.parametrize("query", [told, met, summed], ids=lambda q: q.__name__)
@settings(max_examples=6)
@given(
    steps=hs.lists(
        hs.lists(hs.tuples(odd, hs.sampled_from([-1, 1, 2])), max_size=5), min_size=1, max_size=3
    )
)
def test_nulls_floats_and_texts_are_the_same_in_both_modes(
    spark: SparkSession, query: Callable[..., Any], steps: list[Any]
) -> None:
    assert outcome(query, steps, st.Limits.local_rows) == outcome(query, steps, 0)


@pytest.mark.parametrize("local_rows", [st.Limits.local_rows, 0], ids=["driver", "spark"])
@pytest.mark.parametrize(
    "setting",
    [
        "spark.sql.parser.escapedStringLiterals",
        "spark.sql.ansi.doubleQuotedIdentifiers",
        "spark.sql.legacy.consecutiveStringLiterals.enabled",
    ],
)
def test_a_text_is_what_it_is_whatever_a_session_makes_of_literals(
    spark: SparkSession, setting: str, local_rows: int
) -> None:
    other = "'$\\"

    def shouted(a: st.ZSet[str]) -> st.ZSet[str]:
        loud = st.map(a, f=lambda s: field(F.upper(field(s))))
        return st.distinct(st.filter(loud, f=lambda s: s != other))

    before = spark.conf.get(setting)
    spark.conf.set(setting, "true")
    try:
        came, gone = ([(s, n) for s in (*AWKWARD, other)] for n in (1, -1))
        found = outcome(shouted, [came, gone], local_rows)
    finally:
        spark.conf.set(setting, str(before))
    assert found == [(Z([(s.upper(), n) for s in AWKWARD]),) for n in (1, -1)]


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Named(st.Data):
    id: uuid.UUID
    colours: list[Colour | None]
    day: dt.date | None


class Text(st.Data):
    id: str
    colour: str
    days: int


def named(a: st.ZSet[Text]) -> st.ZSet[Named]:
    return st.distinct(
        st.map(
            a,
            f=lambda t: Named(
                id=field(F.concat(field(t.id))),
                colours=field(F.array(F.lower(field(t.colour)), F.lit(None))),
                day=field(F.date_add(F.lit(dt.date(2024, 1, 1)), field(t.days).cast("int"))),
            ),
        )
    )


ID = uuid.UUID(int=10)
GOOD = Text(id=str(ID).upper(), colour="RED", days=1)


@pytest.mark.parametrize("local_rows", [st.Limits.local_rows, 0], ids=["driver", "spark"])
def test_one_uuid_is_one_value_however_a_function_writes_it(
    spark: SparkSession, local_rows: int
) -> None:
    same = [(GOOD, 1), (dataclasses.replace(GOOD, id=str(ID)), 1)]
    (found,) = outcome(named, [same], local_rows)
    row = Named(id=ID, colours=[Colour.RED, None], day=dt.date(2024, 1, 2))
    assert found == (Z({row: 1}),)


@pytest.mark.turn(2)
@pytest.mark.parametrize("rows", [1, 6_000])
@pytest.mark.parametrize("local_rows", [st.Limits.local_rows, 0], ids=["driver", "spark"])
@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (dataclasses.replace(GOOD, id="x"), "expected a UUID, found x"),
        (dataclasses.replace(GOOD, colour="pink"), "expected one of red, blue, found pink"),
        (dataclasses.replace(GOOD, days=4_000_000), "a year from 1 to 9999, found"),
        (dataclasses.replace(GOOD, days=-4_000_000), "a year from 1 to 9999, found"),
    ],
    ids=["UUID", "Enum", "late", "early"],
)
def test_what_no_value_of_a_field_is_fails_the_step(
    spark: SparkSession, bad: Text, said: str, local_rows: int, rows: int
) -> None:
    graph = st.compile(named)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
    many = [(dataclasses.replace(GOOD, days=n), 1) for n in range(rows)]
    with pytest.raises(st.StepError, match=f"map.*{said}"):
        stepper.step((Z([*many, (bad, 1)]),))
    assert stepper.store.last_step() == 0
