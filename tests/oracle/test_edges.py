"""Values and sizes at the edges: each mode and each store gives what plain Python gives.

What is added is taken away again, and a store is opened anew between the steps.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Annotated, Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark.execution.sql_scope import is_inline
from stepping_spark.rows.atoms import INT, STR
from stepping_spark.rows.schema import ZSetType
from stepping_spark.rows.types import ListOf
from tests.cases import LEAST, MOST, Z, stepper_of
from tests.every_store import InMemory, MakeStore

pytestmark = pytest.mark.driver  # each test says itself where it takes its steps

IN_EACH_MODE = pytest.mark.parametrize(
    "local_rows",
    [st.Limits.local_rows, pytest.param(0, marks=pytest.mark.long)],
    ids=["driver", "spark"],
)
Rows = list[tuple[Any, int]]
ZSET: Any = st.ZSet


def same(
    query: Callable[..., Any],
    steps: Sequence[tuple[Rows | None, ...]],
    local_rows: int,
    make_store: MakeStore | None = None,
) -> list[tuple[Any, ...]]:
    """What each step gives, which is what the reference gives."""
    graph = st.compile(query)
    store: Any = st.StoreMemory.from_graph(graph) if make_store is None else make_store(graph)
    reference = st.reference(graph)
    found = []
    for number, step in enumerate(steps, 1):
        if make_store is not None:
            store = make_store.reopen(store, graph)
        change: Any = tuple(None if rows is None else Z(rows) for rows in step)
        gave: Any = st.Stepper(graph, store, local_rows=local_rows).step(change)
        wanted: Any = reference.step(change)
        for i, (x, y) in enumerate(zip(gave, wanted, strict=True)):
            assert x == y, f"step {number}, output {i}: {x!r}, and not {y!r}"
        found.append(gave)
    return found


def life(*inputs: Sequence[Any]) -> list[tuple[Rows, ...]]:
    """Rows that come, half of them once more and the others with an owed row less, and all go."""
    return [
        tuple([(row, 1) for row in rows] for rows in inputs),
        tuple([(row, 2 if i % 2 else -1) for i, row in enumerate(rows)] for rows in inputs),
        tuple([(row, -3 if i % 2 else 1) for i, row in enumerate(rows)] for rows in inputs),
        tuple([(row, -1) for row in rows[::2]] for rows in inputs),
    ]


# Values


class Real(st.Data):
    k: float | None
    x: float | None


class Reals(st.Data):
    k: float | None
    n: int
    total: float | None
    mean: float | None
    spread: float | None
    least: float | None
    most: float | None
    values: int


def of_floats(a: st.ZSet[Real]) -> tuple[Any, ...]:
    by_k = st.aggregate(
        a,
        lambda r: r.k,
        Reals,
        n=st.agg.count(),
        total=st.agg.sum(lambda r: r.x),
        mean=st.agg.avg(lambda r: r.x),
        spread=st.agg.stddev(lambda r: r.x),
        least=st.agg.min(lambda r: r.x),
        most=st.agg.max(lambda r: r.x),
        values=st.agg.count_distinct(lambda r: r.x),
    )
    pairs = st.join(a, a, on_left=lambda r: r.k, on_right=lambda r: r.x)
    return by_k, pairs, st.distinct(a), st.first_n(a, lambda r: r.x, 3, by=lambda r: r.k)


FLOATS = [math.inf, -math.inf, math.nan, -0.0, 0.0, 1.5, 5e-324, 1.7976931348623157e308, None]
REALS = [Real(k=k, x=x) for k in (math.nan, -0.0, math.inf, None) for x in FLOATS]
REALS += [Real(k=0.0, x=1.5), Real(k=0.0, x=-1.7976931348623157e308)]


class Whole(st.Data):
    k: int
    x: int | None


class Wholes(st.Data):
    k: int
    total: int | None
    mean: float | None
    least: int | None
    most: int | None
    once: int | None


def of_ints(a: st.ZSet[Whole]) -> tuple[Any, ...]:
    by_k = st.aggregate(
        a,
        lambda r: r.k,
        Wholes,
        total=st.agg.sum(lambda r: r.x),
        mean=st.agg.avg(lambda r: r.x),
        least=st.agg.min(lambda r: r.x),
        most=st.agg.max(lambda r: r.x),
        once=st.agg.sum_distinct(lambda r: r.x),
    )
    pairs = st.join(a, a, on_left=lambda r: r.k, on_right=lambda r: r.x)
    return by_k, pairs, st.distinct(a), st.first_n(a, lambda r: r.x, 2)


# Beyond 64 bits on the way, and never at the end: each total has as much below as above zero.
WHOLES = [
    Whole(k=k, x=x)
    for k in (LEAST, MOST, 0)
    for x in (LEAST + 1, LEAST + 1, MOST, MOST, None, -1, 1)
]


class Time(st.Data):
    day: dt.date
    at: dt.datetime
    local: st.LocalDateTime | None


class Times(st.Data):
    day: dt.date
    first: dt.datetime
    last: dt.datetime
    local: st.LocalDateTime | None
    locals: int


def of_times(a: st.ZSet[Time]) -> tuple[Any, ...]:
    by_day = st.aggregate(
        a,
        lambda r: r.day,
        Times,
        first=st.agg.min(lambda r: r.at),
        last=st.agg.max(lambda r: r.at),
        local=st.agg.max(lambda r: r.local),
        locals=st.agg.count_distinct(lambda r: r.local),
    )
    pairs = st.join(a, a, on_left=lambda r: r.at, on_right=lambda r: r.at)
    return by_day, pairs, st.distinct(a), st.first_n(a, lambda r: r.local, 2)


DAYS = [dt.date.min, dt.date.max, dt.date(1582, 10, 10), dt.date(1970, 1, 1)]
LOCALS: list[Any] = [dt.datetime.min, dt.datetime.max, None, dt.datetime(1582, 10, 10, 1)]
TIMES = [
    Time(day=day, at=at.replace(tzinfo=dt.UTC), local=local)
    for day in DAYS
    for at in (dt.datetime.min, dt.datetime.max, dt.datetime(1969, 12, 31, 23, 59, 59, 999999))
    for local in LOCALS
]


class Word(st.Data):
    word: str
    raw: bytes | None


class Words(st.Data):
    word: str
    n: int
    least: bytes | None


def of_texts(a: st.ZSet[Word]) -> tuple[Any, ...]:
    by_word = st.aggregate(
        a, lambda r: r.word, Words, n=st.agg.count(), least=st.agg.min(lambda r: r.raw)
    )
    pairs = st.join(a, a, on_left=lambda r: r.word, on_right=lambda r: r.word)
    return by_word, pairs, st.distinct(a), st.first_n(a, lambda r: r.word, 3)


TEXTS = [
    "\0",
    "a\0b",
    "",
    " ",
    "🙂",
    "👩\u200d👧",
    "Zoë",
    "Zoe\u0308",
    "\ufeff",
    "\uffff",
    "'\"\\$",
]
WORDS = [Word(word=w, raw=b) for w in TEXTS for b in (None, b"", b"\0\xff")]


class Inner(st.Data):
    x: float | None
    tags: list[str | None]


class Deep(st.Data):
    rows: list[list[Inner | None]]
    one: Inner | None
    pair: st.Pair[int | None, tuple[str, list[int]] | None]


class Deeper(st.Data):
    one: Inner | None
    n: int
    most: list[list[Inner | None]] | None


def of_nested(a: st.ZSet[Deep]) -> tuple[Any, ...]:
    by_one = st.aggregate(
        a, lambda r: r.one, Deeper, n=st.agg.count(), most=st.agg.max(lambda r: r.rows)
    )
    pairs = st.join(a, a, on_left=lambda r: r.rows, on_right=lambda r: r.rows)
    return by_one, pairs, st.distinct(a), st.first_n(a, lambda r: r.pair, 2)


INNERS = [None, Inner(x=None, tags=[]), Inner(x=math.nan, tags=[None, "", "\0"])]
LISTS: list[Any] = [[], [[]], [[None], [INNERS[2], None]]]
PAIRS: list[Any] = [st.Pair(left=None, right=None), st.Pair(left=1, right=("a", [1, 2]))]
DEEPS = [Deep(rows=rows, one=one, pair=pair) for rows in LISTS for one in INNERS for pair in PAIRS]


def row_class(name: str, fields: dict[str, Any]) -> Any:
    """A class of rows with these fields."""
    return type(name, (st.Data,), {"__annotations__": fields, "__module__": __name__})


def of_decimals(
    precision: int, scales: Sequence[int], *, mean: bool = False
) -> tuple[Any, Any, Any]:
    """A query on Decimals of each scale, and its rows, of as many digits as fit.

    Of which, where there are 38, a mean has four less.
    """
    one = {s: Annotated[Decimal, st.Precision(precision, s)] | None for s in scales}
    sums = {s: Annotated[Decimal, st.Precision(min(38, precision + 10), s)] | None for s in scales}
    means = {
        s: Annotated[Decimal, st.Precision(min(38, precision + 4), min(38, s + 4))] | None
        for s in scales
    }
    row: Any = row_class("Row", {"k": int, **{f"s{s}": one[s] for s in scales}})
    types: dict[str, Any] = {"sum": sums, "once": sums, "most": one, "least": one}
    types |= {"mean": means} if mean else {}
    fields = {f"{kind}{s}": t[s] for kind, t in types.items() for s in scales}
    spread = {f"dev{s}": float | None for s in scales}
    values = {f"n{s}": int for s in scales}
    total: Any = row_class("Total", {"k": int, **fields, **spread, **values})
    kinds: dict[str, Any] = {
        "sum": st.agg.sum,
        "once": st.agg.sum_distinct,
        "most": st.agg.max,
        "least": st.agg.min,
        "dev": st.agg.stddev,
        "n": st.agg.count_distinct,
    }
    kinds |= {"mean": st.agg.avg} if mean else {}

    def query(a: Any) -> tuple[Any, ...]:
        asked = {
            f"{kind}{s}": agg(lambda r, s=s: getattr(r, f"s{s}"))
            for kind, agg in kinds.items()
            for s in scales
        }
        largest = f"s{scales[-1]}"
        pairs = st.join(
            a, a, on_left=lambda r: getattr(r, largest), on_right=lambda r: getattr(r, largest)
        )
        return st.aggregate(a, lambda r: r.k, total, **asked), pairs, st.distinct(a)

    query.__annotations__ = {"a": st.ZSet[row]}
    exact = decimal.Context(prec=60)
    length = max(precision - 5 * mean, 1)
    digits = ("12345678901234567890" * 2)[:length]
    # The sums of positive and of negative ones stay within a third of what fits.
    units = [int(digits), -int(digits), 1, -1, 0, int(digits) // 7, -(10 ** (length - 1))]
    rows = [
        row(k=i % 2, **{f"s{s}": Decimal(u).scaleb(-s, exact) for s in scales})
        for i, u in enumerate(units)
    ]
    rows.append(row(k=0, **{f"s{s}": None for s in scales}))
    return query, rows, row


def of_some_decimals(a: Any) -> tuple[Any, ...]:
    gave: tuple[Any, ...] = _DECIMALS(a)
    return gave


_DECIMALS, DECIMALS, _Row = of_decimals(38, (0, 18, 20, 38))
CLASSES: dict[str, tuple[Callable[..., tuple[Any, ...]], Sequence[Any]]] = {
    "floats": (of_floats, REALS),
    "ints": (of_ints, WHOLES),
    "decimals": (of_some_decimals, DECIMALS),
    "times": (of_times, TIMES),
    "texts": (of_texts, WORDS),
    "nested": (of_nested, DEEPS),
}


def edges(
    floats: st.ZSet[Real],
    ints: st.ZSet[Whole],
    decimals: Any,
    times: st.ZSet[Time],
    texts: st.ZSet[Word],
    nested: st.ZSet[Deep],
) -> tuple[Any, ...]:
    """All classes of values in one circuit: what is small is one query of Spark's."""
    return (
        *of_floats(floats),
        *of_ints(ints),
        *of_some_decimals(decimals),
        *of_times(times),
        *of_texts(texts),
        *of_nested(nested),
    )


edges.__annotations__["decimals"] = ZSET[_Row]
del edges.__annotations__["return"]


def test_a_text_that_begins_with_a_byte_order_mark_keeps_it(make_store: MakeStore) -> None:
    def of_words(a: st.ZSet[Word]) -> tuple[Any, ...]:
        return st.distinct(a), st.first_n(a, lambda r: r.word, 2)

    del of_words.__annotations__["return"]
    words = [Word(word="\ufeff", raw=None), Word(word="\ufeffa", raw=b"")]
    for rows in (words[:1], words[1:], words):
        same(of_words, life(rows), st.Limits.local_rows, make_store)


@IN_EACH_MODE
def test_values_at_the_edges_come_and_go(
    spark: SparkSession, make_store: MakeStore, local_rows: int
) -> None:
    found = same(edges, life(*(rows for _, rows in CLASSES.values())), local_rows, make_store)
    assert len(found) == 4


@pytest.mark.long
@pytest.mark.parametrize("local_rows", [st.Limits.local_rows, 0], ids=["driver", "spark"])
@pytest.mark.parametrize("precision", [7, 12, 20, 28, 37, 38])
def test_decimals_of_every_scale_are_exact(
    spark: SparkSession, make_store: MakeStore, precision: int, local_rows: int
) -> None:
    # Spark computes all scales with one store, and the other stores keep all that the driver gives.
    every = local_rows > 0 or isinstance(make_store, InMemory)
    scales = range(precision + 1) if every else (0, precision // 2, precision)
    for first in range(0, len(scales), 10):
        for mean in (False, True):
            query, rows, _ = of_decimals(precision, scales[first : first + 10], mean=mean)
            same(query, life(rows)[:2], local_rows, make_store)


# Weights


def weights_beyond(zset: Any) -> list[Callable[[], object]]:
    """Each way to look at a Z-set whose weights do not fit, which a user may go."""
    return [
        lambda: zset.to_python(),
        lambda: zset.to_arrow(),
        lambda: list(zset.iter()),
        lambda: zset.get_count(1),
        lambda: zset.empty(),
        lambda: repr(zset),
        lambda: list(zset.iter_by_index(lambda x: x)),
        lambda: zset == Z({2: 1}),
    ]


@pytest.fixture(params=["true", "false"], ids=["ansi", "not ansi"])
def ansi(request: pytest.FixtureRequest, spark: SparkSession) -> Iterator[None]:
    spark.conf.set("spark.sql.ansi.enabled", request.param)
    yield
    spark.conf.unset("spark.sql.ansi.enabled")


def counted(spark: SparkSession, *counts: int) -> Any:
    rows = ", ".join(f"(1L, {n}L)" if n != LEAST else f"(1L, {n + 1}L - 1L)" for n in counts)
    return st.ZSetSpark.from_dataframe(
        spark.sql(f"SELECT * FROM VALUES {rows} t(x, n)"), int, count="n"
    )


@pytest.mark.parametrize(
    ("ansi", "every"),
    [
        ("false", False),
        pytest.param("false", True, marks=pytest.mark.long),
        pytest.param("true", True, marks=pytest.mark.long),
    ],
    indirect=["ansi"],
)
def test_weights_of_a_dataframe_beyond_64_bits_are_an_error_however_they_are_looked_at(
    spark: SparkSession, ansi: None, every: bool
) -> None:
    half = counted(spark, 2**62)
    whole = counted(spark, LEAST)
    zsets = [half * 2, whole * -1, -whole, half + half, half - whole, counted(spark, MOST, 1)]
    for i, zset in enumerate(zsets):
        looks = weights_beyond(zset)
        for look in looks if every else looks[i :: len(zsets)]:
            with pytest.raises(st.SteppingError, match=r"beyond (64 bits|BIGINT)"):
                look()


def test_weights_that_go_beyond_64_bits_and_come_back_are_counted(
    spark: SparkSession, ansi: None
) -> None:
    assert counted(spark, MOST, MOST, -MOST).get_count(1) == MOST
    assert (counted(spark, 2**62) * -2).get_count(1) == LEAST
    assert counted(spark, MOST, 1, -5).get_count(1) == MOST - 4


def negated(a: st.ZSet[int]) -> st.ZSet[int]:
    return st.neg(a)


def tripled(a: st.ZSet[int]) -> st.ZSet[int]:
    return st.add3(a, a, a)


def exploded(a: st.ZSet[int]) -> st.ZSet[int]:
    return st.explode(a, lambda x: [(x, 4)])


def joined(a: st.ZSet[int]) -> st.ZSet[st.Pair[int, int]]:
    return st.linear.join(a, a, on_left=lambda x: x, on_right=lambda x: x)


def listed(a: st.ZSet[int]) -> st.ZSet[st.Pair[st.ZSetPython[int], int]]:
    both: Any = st.agg.collect(lambda x: x % 2)
    return st.group_reduce_flatten(a, by=lambda x: x % 2, zero=Z, pick_value=both)


def summed(a: st.ZSet[int]) -> st.ZSet[st.Pair[float, int]]:
    reals = st.map(a, f=lambda x: (x, x * 1.0))
    return st.group_reduce_flatten(reals, by=lambda r: r[0], zero=float, pick_value=lambda r: r[1])


@pytest.mark.parametrize(
    ("ansi", "local_rows", "queries"),
    [
        ("true", st.Limits.local_rows, 5),
        ("false", 0, 1),
        ("true", 0, 3),
        pytest.param("false", st.Limits.local_rows, 5, marks=pytest.mark.long),
        pytest.param("false", 0, 5, marks=pytest.mark.long),
        pytest.param("true", 0, 5, marks=pytest.mark.long),
    ],
    indirect=["ansi"],
)
def test_weights_beyond_64_bits_fail_a_step_and_lose_nothing(
    spark: SparkSession, ansi: None, local_rows: int, queries: int
) -> None:
    asked = [
        (summed, 2**62),
        (negated, LEAST),
        (tripled, 2**62),
        (exploded, 2**62),
        (joined, 2**32),
    ]
    for query, weight in asked[:queries]:
        graph: Any = st.compile(query)
        stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
        with pytest.raises(st.StepError, match=r"beyond|too large|overflow|fit") as caught:
            stepper.step((Z({1: weight}),))
        assert re.match(rf"{query.__name__}\.[\w.]+ \(test_edges\.py:\d+, in ", str(caught.value))
        stepper.step((Z({1: 1}),))
        assert stepper.store.last_step() == 1


@IN_EACH_MODE
def test_weights_that_a_store_adds_up_beyond_64_bits_fail_the_step_and_lose_nothing(
    spark: SparkSession, make_store: MakeStore, local_rows: int
) -> None:
    for query in (listed, st.distinct):
        traced: Any = query if query is listed else distinct
        graph: Any = st.compile(traced)
        store = make_store(graph)
        for n, fits in ((MOST, True), (1, False), (-MOST, True), (LEAST, True), (-1, False)):
            store = make_store.reopen(store, graph)
            stepper = st.Stepper(graph, store, local_rows=local_rows)
            if fits:
                stepper.step((Z({2: n}),))
            else:
                with pytest.raises(st.SteppingError, match=r"beyond|out of range|64 bits"):
                    stepper.step((Z({2: n}),))
        assert store.last_step() == 3


def distinct(a: st.ZSet[int]) -> st.ZSet[int]:
    return st.distinct(a)


def test_counts_that_are_no_64_bits_are_refused_where_they_are_given(spark: SparkSession) -> None:
    beyond = pa.table({"x": [1], "n": pa.array([2**63], pa.uint64())})
    with pytest.raises(st.InputError):
        st.ZSetSpark.from_arrow(beyond, int, count="n")
    table = st.ZSetSpark.from_arrow(pa.table({"x": [1], "n": [2**62]}), int, count="n")
    for look in (lambda: table * 2, lambda: (table + table).to_python(), lambda: table * 2**63):
        with pytest.raises(st.SteppingError, match=r"64 bits|BIGINT"):
            look()
    graph = st.compile(distinct)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    with pytest.raises(st.InputError, match="64 bits"):
        stepper.step((Z({1: 2**62}) * 2,))


# Sizes


class Long(st.Data):
    k: int
    text: str


def longest(a: st.ZSet[Long]) -> tuple[st.ZSet[Long], st.ZSet[st.Pair[Long, Long]]]:
    most = st.first_n(a, lambda r: r.text, 1, by=lambda r: r.k)
    return most, st.join(a, a, on_left=lambda r: r.text, on_right=lambda r: r.text)


@pytest.mark.parametrize(
    ("size", "local_rows"),
    [
        (100_000, st.Limits.local_rows),
        pytest.param(10_000_000, st.Limits.local_rows, marks=pytest.mark.long),
        pytest.param(10_000_000, 0, marks=pytest.mark.long),
    ],
)
def test_a_long_text_comes_and_goes(
    spark: SparkSession, make_store: MakeStore, local_rows: int, size: int
) -> None:
    long = [Long(k=k, text="🙂" * (size // 4) + end) for k in (1, 2) for end in ("", "a", "\0")]
    steps = [([(row, 1) for row in long[:4]],), ([(row, 1) for row in long[4:]],)]
    steps += [([(row, -1) for row in long],)]
    same(longest, steps, local_rows, make_store)


def test_long_values_are_no_text_of_a_query() -> None:
    for row, wanted in (("a" * 1000, True), ("a" * 100_000, False)):
        table = pa.table({"value": [row], "_count_": [1]})
        assert is_inline(table, ZSetType(STR).schema) == wanted
    many = pa.table({"value": [list(range(10_000))], "_count_": [1]})
    assert not is_inline(many, ZSetType(ListOf(INT)).schema)


def wide(columns: int) -> tuple[Callable[..., Any], list[Any]]:
    """A query on rows of many columns, and such rows."""
    fields = {f"c{i}": (int, str | None, float)[i % 3] for i in range(columns)}
    row: Any = row_class("Wide", fields)
    last = f"c{columns - 3}"

    def query(a: Any) -> Any:
        found = st.distinct(a)
        most = st.first_n(a, lambda r: getattr(r, last), 1, by=lambda r: r.c0)
        return found, most, st.join(a, a, on_left=lambda r: r.c0, on_right=lambda r: r.c3)

    query.__annotations__ = {"a": st.ZSet[row]}
    rows = []
    for n in range(4):
        values = ((n % 2, None if n else str(n), n / 2)[i % 3] for i in range(columns))
        rows.append(row(**dict(zip(fields, values, strict=True))))
    return query, rows


@IN_EACH_MODE
@pytest.mark.parametrize("columns", [90, pytest.param(300, marks=pytest.mark.long)])
def test_rows_of_many_columns_come_and_go(
    spark: SparkSession, make_store: MakeStore, local_rows: int, columns: int
) -> None:
    query, rows = wide(columns)
    same(query, life(rows)[:2] + life(rows)[3:], local_rows, make_store)


class Keyed(st.Data):
    k: int
    x: int


class OfKey(st.Data):
    k: int
    n: int
    total: int
    least: int
    most: int
    values: int


def of_key(
    a: st.ZSet[Keyed], b: st.ZSet[int]
) -> tuple[st.ZSet[OfKey], st.ZSet[Keyed], st.ZSet[int]]:
    found = st.aggregate(
        a,
        lambda r: r.k,
        OfKey,
        n=st.agg.count(),
        total=st.agg.sum(lambda r: r.x),
        least=st.agg.min(lambda r: r.x),
        most=st.agg.max(lambda r: r.x),
        values=st.agg.count_distinct(lambda r: r.x % 1000),
    )
    pairs = st.join(a, b, on_left=lambda r: r.k, on_right=lambda k: k)
    return found, st.first_n(a, lambda r: r.x, 2, by=lambda r: r.k), st.count(pairs)


@IN_EACH_MODE
@pytest.mark.parametrize("rows", [1_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_a_key_of_many_rows_comes_and_goes(
    spark: SparkSession, make_store: MakeStore, local_rows: int, rows: int
) -> None:
    def change(first: int, last: int, n: int) -> Rows:
        return [(Keyed(k=7, x=x), n) for x in range(first, last)]

    steps: list[tuple[Rows | None, Rows | None]] = [
        (change(0, rows, 1), [(7, 1)]),
        (change(0, 1, -1) + change(rows - 1, rows, -1), None),
        (change(1, rows // 2, -1), [(7, 1)]),
        (change(rows // 2, rows - 1, -1), [(7, -2)]),
    ]
    same(of_key, steps, local_rows, make_store)


def of_joins(joins: int) -> Callable[..., Any]:
    """A chain of joins, each of which gives a row for a row."""

    def query(a: st.ZSet[Keyed]) -> st.ZSet[Keyed]:
        found = a
        for _ in range(joins):
            pairs = st.join(found, a, on_left=lambda r: r.k, on_right=lambda r: r.k)
            found = st.map(pairs, f=lambda p: Keyed(k=p.right.k, x=p.left.x))
        return found

    return query


@pytest.mark.parametrize(
    ("joins", "local_rows"),
    [
        (10, st.Limits.local_rows),
        pytest.param(60, st.Limits.local_rows, marks=pytest.mark.long),
        pytest.param(60, 0, marks=pytest.mark.long),
    ],
)
def test_many_joins(
    spark: SparkSession, make_store: MakeStore, joins: int, local_rows: int
) -> None:
    rows = [Keyed(k=k, x=-k) for k in range(3)]
    steps: list[tuple[Rows]] = [([(r, 1) for r in rows],), ([(rows[1], -1)],)]
    same(of_joins(joins), steps, local_rows, make_store)


def of_steps(a: st.ZSet[Keyed]) -> tuple[st.ZSet[OfKey], st.ZSet[Keyed]]:
    found, first, _ = of_key(a, st.map(a, f=lambda r: r.k))
    return found, first


@IN_EACH_MODE
@pytest.mark.parametrize(
    ("empty", "single"), [(2, 8), pytest.param(50, 500, marks=pytest.mark.long)]
)
def test_empty_steps_and_steps_of_one_row(
    spark: SparkSession, make_store: MakeStore, local_rows: int, empty: int, single: int
) -> None:
    if local_rows == 0:
        single //= 10  # each takes a second and more, whatever has gone before
    graph = st.compile(of_steps)
    store = make_store(graph)
    stepper = st.Stepper(graph, store, local_rows=local_rows)
    reference = st.reference(graph)
    steps: list[Any] = [None] * empty
    steps += [Z({Keyed(k=i % 3, x=i % 50): 1 if i % 5 else -1}) for i in range(single)]
    steps += [None] * empty
    for number, change in enumerate(steps):
        if number == len(steps) // 2:
            store = make_store.reopen(store, graph)
            stepper = st.Stepper(graph, store, local_rows=local_rows)
        assert stepper.step((change,)) == reference.step((change,))
    assert store.last_step() == len(steps)


class Measured(st.Data):
    key: str
    value: float


class Mean(st.Data):
    key: str
    mean: float
    spread: float | None


def means(a: st.ZSet[Measured]) -> st.ZSet[Mean]:
    return st.aggregate(
        a,
        by=lambda m: m.key,
        into=Mean,
        mean=st.agg.avg(lambda m: m.value),
        spread=st.agg.variance(lambda m: m.value),
    )


weighted_floats = pytest.mark.parametrize("value", [1.0, 99_999_999.0, 1e-300])


@weighted_floats
def test_a_float_may_have_a_large_weight(value: float) -> None:
    (out,) = stepper_of(means).step((Z({Measured(key="a", value=value): 10**9}),))
    assert [*out.iter()] == [(Mean(key="a", mean=value, spread=0.0), 1)]


@weighted_floats
def test_a_float_of_a_weight_that_is_too_large_is_an_error(value: float) -> None:
    stepper = stepper_of(means)
    with pytest.raises(st.StepError, match="a sum of floats is too large; add up fewer or smaller"):
        stepper.step((Z({Measured(key="a", value=value): 2**63 - 1}),))
    (out,) = stepper.step((Z({Measured(key="a", value=value * n): 1 for n in (1, 2)}),))
    assert [(mean.mean, n) for mean, n in out.iter()] == [(value * 1.5, 1)]
