"""What errors say to a user who has written what a newcomer writes."""

from __future__ import annotations

import dataclasses
import datetime as dt
from decimal import Decimal
from typing import Annotated, Any

import pyarrow as pa
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

import stepping_spark as st


class At(st.Data):
    at: dt.datetime


class Order(st.Data):
    customer: str
    qty: int


class Listed(st.Data):
    customer: str
    all: list[int]


class Priced(st.Data):
    name: str
    price: Annotated[Decimal, st.Precision(10, 2)]
    rate: Decimal
    least: Annotated[Decimal, st.Precision(12, 4)] | None


class Words(st.Data):
    a: int
    by: int
    into: int
    fields: int
    word: str


def another_order() -> Any:
    class Order(st.Data):
        customer: str
        qty: int

    return Order


def collected(a: st.ZSet[Order]) -> Any:
    pick: Any = st.agg.collect(lambda o: o.qty)
    by: Any = lambda o: o.customer  # noqa: E731
    return st.group_reduce_flatten(a, by=by, zero=st.ZSetPython, pick_value=pick)


def said_by(query: Any) -> str:
    with pytest.raises(st.CompileError) as caught:
        st.compile(query)
    return str(caught.value)


# -- lists and windows


def test_a_z_set_where_a_list_is_wanted_says_how_to_make_one() -> None:
    def query(a: st.ZSet[Order]) -> Any:
        return st.map(collected(a), f=lambda p: Listed(customer=p.right, all=p.left))

    said = said_by(query)
    assert "expected list[int], found ZSetPython[int], from row.left; declare it ZSet" in said
    assert "st.python: [row for row, n in z.iter() for _ in range(n)]" in said


def test_a_part_of_a_tuple_is_called_as_it_is_written() -> None:
    def query(a: st.ZSet[Order]) -> Any:
        pairs = st.map(collected(a), f=lambda p: (1, (p.left, p.right)))
        return st.map(pairs, f=lambda row: Listed(customer="", all=row[1][0]))

    assert "from row[1][0]; " in said_by(query)


def test_a_field_of_another_type_says_which_cast_would_do() -> None:
    def query(a: st.ZSet[Order]) -> Any:
        return st.map(a, f=lambda o: Order(customer=o.customer, qty=o.customer))  # type: ignore[arg-type]

    said = said_by(query)
    assert "expected int, found str, from row.customer; convert it, with .cast('BIGINT')" in said


def test_a_part_that_only_a_group_has_is_called_by_its_name() -> None:
    def query(a: st.ZSet[Order]) -> Any:
        g = st.group(a, by=lambda o: o.customer)
        bad = lambda o: Order(customer=o.qty, qty=o.qty)  # noqa: E731
        return st.flatten(st.per_group[g](lambda s: st.map(s, f=bad)))

    assert "expected str, found int, from row.qty; convert it, with .cast('STRING')" in (
        said_by(query)
    )


def test_map_many_of_a_z_set_says_how_to_make_a_list_of_it() -> None:
    def query(a: st.ZSet[Order]) -> Any:
        return st.map_many(collected(a), f=lambda p: p.left)

    assert "found ZSetPython[int], from left; make a list of it in f=st.python(" in said_by(query)


def test_the_list_that_it_says_can_be_made(spark: SparkSession) -> None:
    def listed(p: Any) -> list[int]:
        return [row for row, n in p.left.iter() for _ in range(n)]

    def query(a: st.ZSet[Order]) -> Any:
        return st.map_many(collected(a), f=st.python(listed))

    graph = st.compile(query)
    change = st.ZSetPython({Order(customer="a", qty=5): 2})
    (out,) = st.iteration(st.StoreMemory.from_graph(graph), graph, (change,))
    assert out == st.ZSetPython({5: 2})


@pytest.mark.parametrize("made", [F.window, F.session_window])
def test_a_window_of_time_is_no_function_of_a_row(spark: SparkSession, made: Any) -> None:
    def query(a: st.ZSet[At]) -> Any:
        return st.map(a, f=lambda o: made(o.at, "5 minutes")["start"])

    said = said_by(query)
    assert f"{made.__name__} makes new rows, and a row function" in said
    assert "st.sessions" in said


@pytest.mark.parametrize("made", [F.row_number, F.rank, lambda: F.sum("qty"), lambda: F.lag("qty")])
def test_a_window_function_is_called_one(spark: SparkSession, made: Any) -> None:
    def query(a: st.ZSet[Order]) -> Any:
        over = Window.partitionBy("customer").orderBy("qty")
        return st.map(a, f=lambda o: made().over(over))

    said = said_by(query)
    assert "is a window function: it looks at several rows" in said
    assert "Use st.window" in said
    assert "st.first_n" in said
    assert "inside an aggregate function" not in said


@pytest.mark.parametrize("clock", [F.current_timestamp, F.current_date, F.now, F.localtimestamp])
def test_the_clock_of_spark_is_refused_with_what_is_for_it(spark: SparkSession, clock: Any) -> None:
    def query(a: st.ZSet[Order]) -> Any:
        return st.map(a, f=lambda o: clock())

    assert "use st.temporal_filter, which compares times of the rows with the now=" in said_by(
        query
    )


# -- functions of Spark in the query itself


def test_a_function_of_spark_that_is_given_a_lambda_says_where_it_belongs() -> None:
    def query(a: st.ZSet[Order]) -> Any:
        total: Any = F.sum(lambda o: o.qty)  # type: ignore[arg-type]
        return st.aggregate(a, by=None, into=Order, qty=total)

    said = said_by(query)
    assert "test_messages.py" in said
    assert "sum of Spark was called in the query itself, and raised " in said
    assert "st.agg.sum(lambda row: row.qty)" in said


def test_a_column_outside_of_a_function_says_where_it_belongs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As it is before the first step: Spark asserts that there is a session, and says nothing.
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)

    def query(a: st.ZSet[Order]) -> Any:
        return st.filter(a, f=F.col("qty") > 1)  # type: ignore[arg-type]

    said = said_by(query)
    assert "col of Spark was called in the query itself, and raised AssertionError. " in said
    assert "f=lambda row: row.qty > 1" in said


def test_an_assertion_of_the_user_s_own_is_left_as_it_is() -> None:
    def query(a: st.ZSet[Order]) -> Any:
        raise AssertionError("mine")

    with pytest.raises(AssertionError, match=r"^mine$"):
        st.compile(query)


def test_a_column_in_the_place_of_a_function_says_what_to_write(spark: SparkSession) -> None:
    def query(a: st.ZSet[Order]) -> Any:
        return st.filter(a, f=F.col("qty") > 1)  # type: ignore[arg-type]

    assert "write lambda row: …, with row.x in the place of F.col('x')" in said_by(query)


# -- names


def test_an_unknown_aggregate_says_which_there_are() -> None:
    with pytest.raises(
        AttributeError, match=r"st\.agg has no 'first'; it has any_value, arg_max, .*stddev, "
    ):
        getattr(st.agg, "first")  # noqa: B009
    there = {n for n, f in vars(st.agg).items() if getattr(f, "__module__", "") == st.agg.__name__}
    assert {n for n in there if n.islower() and n[0] != "_"} == set(st.agg.__all__)


def test_each_operator_of_one_step_is_public() -> None:
    there = {
        n for n, f in vars(st.linear).items() if getattr(f, "__module__", "") == st.linear.__name__
    }
    of_steps = {n for n in there if n.islower() and n[0] != "_"}
    assert not of_steps - set(st.linear.__all__)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("outer_joins", "did you mean st.outer_join"),
        ("sum", r"did you mean st\.agg\.sum"),
        ("zzz", r"; dir\(stepping_spark\) lists"),
    ],
)
def test_an_unknown_name_says_which_may_be_meant(name: str, said: str) -> None:
    with pytest.raises(AttributeError, match=f"stepping_spark has no '{name}'.*{said}"):
        getattr(st, name)
    assert not hasattr(st, name)


def test_a_row_of_another_class_of_the_same_name_says_which_it_is(spark: SparkSession) -> None:
    def query(a: st.ZSet[Order]) -> Any:
        return a

    graph = st.compile(query)
    row = another_order()(customer="a", qty=1)
    with pytest.raises(st.InputError) as caught:
        st.iteration(st.StoreMemory.from_graph(graph), graph, (st.ZSetPython({row: 1}),))
    said = str(caught.value)
    here = "tests.language.test_messages"
    assert f"expected a row of {here}.Order, found one of {here}.another_order.<locals>" in said
    assert "import the class from one place" in said


def test_a_row_of_a_class_that_was_made_again_says_so() -> None:
    def query(a: st.ZSet[Any]) -> Any:
        return a

    old: Any = another_order()
    new = another_order()
    query.__annotations__["a"] = st.ZSet[old]
    step = st.reference(st.compile(query)).step
    with pytest.raises(st.InputError, match=r"an older or newer class of that name.*compile the"):
        step((st.ZSetPython({new(customer="a", qty=1): 1}),))


def test_a_part_of_a_tuple_by_a_name_says_how_parts_are_written() -> None:
    def query(a: st.ZSet[Order]) -> Any:
        return st.delta_join(a, st.Lookup(a, key=lambda o: o.qty, on=lambda row: row.qty))

    assert "has no field 'qty'; it has parts: row[0] is Order" in said_by(query)


def test_what_cannot_be_used_per_group_is_called_as_the_user_calls_it() -> None:
    def query(a: st.ZSet[Order], b: st.ZSet[Order]) -> Any:
        g = st.group(a, by=lambda o: o.customer)
        look = st.Lookup(b, key=lambda o: o.qty, on=lambda row: row[0].qty)
        return st.flatten(st.per_group[g](lambda s: st.delta_join(s, look)))

    assert "st.delta_join, or st.half_join, cannot be used per group; do it before" in said_by(
        query
    )


# -- numbers


@pytest.mark.parametrize("local_rows", [2_000_000, 0])
def test_a_count_beyond_64_bits_says_what_can_hold_it(spark: SparkSession, local_rows: int) -> None:
    def counted(a: st.ZSet[int]) -> Any:
        return st.count(a)

    def as_it_says(a: st.ZSet[int]) -> st.ZSet[Annotated[Decimal, st.Precision(38, 0)]]:
        one: Any = F.lit(1).cast("decimal(38, 0)")
        return st.reduce(a, zero=Decimal, pick_value=lambda row: one)

    graph, other = st.compile(counted), st.compile(as_it_says)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
    again = st.Stepper(other, st.StoreMemory.from_graph(other), local_rows=local_rows)
    first, second = (st.ZSetPython({n: 2**62}) for n in (1, 2))
    stepper.step((first,))
    again.step((first,))
    with pytest.raises(st.StepError, match=r"beyond.*st\.reduce\(a, zero=Decimal, pick_value="):
        stepper.step((second,))
    (out,) = again.step((second,))
    assert out.get_count(Decimal(2**63)) == 1


def test_counts_that_add_up_to_more_than_64_bits_are_an_input_error() -> None:
    table = pa.table({"customer": ["a", "b"], "qty": [1, 1], "n": [2**62, -(2**62)]})
    z: Any = st.ZSetSpark.from_arrow(table, Order, count="n")
    small = z.to_python()
    for left, right in ((z, z), (z, small), (small, z)):
        with pytest.raises(st.InputError, match=r"^a \+ b: _count_ of the row \(customer='a'"):
            left + right
    with pytest.raises(st.InputError, match=r"^a \+ b: _count_"):
        z - -z
    assert (z - z).empty()
    table = table.set_column(2, "n", pa.array([2**61] * 2))
    half: Any = st.ZSetSpark.from_arrow(table, Order, count="n")
    assert (half + half).get_count(Order(customer="a", qty=1)) == 2**62
    with pytest.raises(st.InputError, match=r"a \+ b"):
        _ = half + half + half + half


def test_decimals_are_shown_with_the_scale_that_their_field_says(spark: SparkSession) -> None:
    def query(a: st.ZSet[Priced]) -> Any:
        return a

    rows = [
        Priced(name=n, price=Decimal(p), rate=Decimal(r), least=None if m is None else Decimal(m))
        for n, p, r, m in (("a", "1.5", "1.50", "2"), ("b", "1E1", "7", None))
    ]
    given = st.ZSetPython([(row, 1) for row in rows])
    graph = st.compile(query)
    (out,) = st.iteration(st.StoreMemory.from_graph(graph), graph, (given,))
    for shown in (repr(given), repr(out), out._repr_html_()):
        for part in ("1.50", "10.00", "2.0000"):
            assert part in shown
        assert "1.500" not in shown  # one that says no scale is shown with what it has


def test_an_error_on_a_constant_in_the_place_of_a_column_names_lit(spark: SparkSession) -> None:
    def query(a: st.ZSet[Order]) -> Any:
        return st.map(a, f=lambda o: F.coalesce(o.qty, 0))  # type: ignore[arg-type]

    with pytest.raises(st.CompileError, match=r"write F\.lit\(…\) around a constant$"):
        st.compile(query)


# -- None


def test_none_in_a_field_that_has_none_is_refused_where_the_row_is_made() -> None:
    none: Any = None
    with pytest.raises(TypeError, match=r"^Order\.qty is int, found None; .*qty: int \| None$"):
        Order(customer="a", qty=none)
    with pytest.raises(TypeError, match=r"Order\.customer is str"):
        dataclasses.replace(Order(customer="a", qty=1), customer=none)
    assert Priced(name="", price=Decimal(1), rate=Decimal(1), least=None).least is None
    assert st.Pair(left=None, right=1).left is None  # whose types nothing says

    class Told(st.Pair[int, str | None]):
        at: dt.date | None = None

    assert Told(left=1, right=None).at is None
    with pytest.raises(TypeError, match=r"Told\.left is int, found None"):
        Told(left=none, right="")


def test_none_in_a_row_that_a_function_makes_names_the_function() -> None:
    none: Any = None

    def query(a: st.ZSet[Order]) -> Any:
        return st.map(a, f=lambda o: Order(customer=none, qty=o.qty))

    assert "Order.customer is str, found None" in said_by(query)


# -- names of fields that are arguments


def test_an_aggregate_fills_a_field_that_is_called_as_an_argument() -> None:
    class Filled(st.Data):
        a: int
        by: int
        into: int
        fields: int
        word: str

    def query(a: st.ZSet[Order]) -> Any:
        asked: Any = dict.fromkeys(("a", "by"), st.agg.count())
        asked["fields"] = st.agg.count_distinct(lambda o: o.qty)
        return st.aggregate(
            a, lambda o: o.customer, Filled, fields={**asked, "into": st.agg.count()}
        )

    given = st.ZSetPython({Order(customer="x", qty=3): 2})
    (out,) = st.reference(st.compile(query)).step((given,))
    assert out == st.ZSetPython({Filled(a=2, by=2, into=2, fields=1, word="x"): 1})


@pytest.mark.parametrize("name", ["by", "into"])
def test_an_argument_that_is_given_twice_says_how_a_field_is_filled(name: str) -> None:
    def query(a: st.ZSet[Order]) -> Any:
        given: dict[str, Any] = {name: st.agg.count()}
        return st.aggregate(a, lambda o: o.customer, Words, **given)

    said = said_by(query)
    assert "test_messages.py" in said
    assert f"for a field named '{name}' write fields={{'{name}': st.agg.…}}" in said


def test_an_aggregate_as_an_argument_says_how_a_field_is_filled() -> None:
    def query(a: st.ZSet[Order]) -> Any:
        by: Any = st.agg.count()
        return st.aggregate(a, into=Words, by=by)

    assert "found the aggregate st.agg.count; for a field of that name write fields={'by'" in (
        said_by(query)
    )

    def twice(a: st.ZSet[Order]) -> Any:
        return st.aggregate(a, None, Words, fields={"n": st.agg.count()}, n=st.agg.count())

    assert "'n' is in fields= and is an argument too" in said_by(twice)


class Typed(st.Data):
    at: dt.datetime
    local: st.LocalDateTime
    day: dt.date
    span: dt.timedelta
    n: int
    word: str
    yes: bool


NOON = dt.datetime(2024, 12, 31, 12)


@pytest.mark.parametrize(
    ("wrong", "said", "remedies"),
    [
        (
            lambda t: t.at > NOON,
            "'>' of datetime and LocalDateTime; a datetime has a time zone",
            [
                lambda t: t.at > NOON.replace(tzinfo=dt.UTC),
                lambda t: t.at.cast("timestamp_ntz") > t.local,
            ],
        ),
        (
            lambda t: t.at - t.local > dt.timedelta(1),
            "'-' of datetime and LocalDateTime; a datetime has a time zone",
            [lambda t: t.at.cast("timestamp_ntz") - t.local > dt.timedelta(1)],
        ),
        (
            lambda t: t.at > t.day,
            "'>' of datetime and date; F.to_date(…)",
            [lambda t: F.to_date(t.at) > t.day, lambda t: t.at > t.day.cast("timestamp")],
        ),
        (
            lambda t: t.local == t.day,
            "'==' of LocalDateTime and date; F.to_date(…)",
            [
                lambda t: F.to_date(t.local) == t.day,
                lambda t: t.local == t.day.cast("timestamp_ntz"),
            ],
        ),
        (
            lambda t: t.n.isin(1, "2"),
            "'isin' of int and int and str; write a constant with or without quotes",
            [lambda t: t.n.isin(1, 2), lambda t: t.word.cast("bigint") == t.n],
        ),
        (
            lambda t: t.day >= "2024-12-31",
            "'>=' of date and str; write a constant as dt.date(2024, 12, 31)",
            [lambda t: t.day >= dt.date(2024, 12, 31), lambda t: t.day >= t.word.cast("date")],
        ),
        (
            lambda t: t.at < "2024-12-31",
            "'<' of datetime and str; write a constant as dt.datetime(2024, 12, 31, tzinfo=dt.UTC)",
            [
                lambda t: t.at < dt.datetime(2024, 12, 31, tzinfo=dt.UTC),
                lambda t: t.at < t.word.cast("timestamp"),
            ],
        ),
        (
            lambda t: t.local < "2024-12-31",
            "'<' of LocalDateTime and str; write a constant as dt.datetime(2024, 12, 31), or",
            [
                lambda t: t.local < dt.datetime(2024, 12, 31),
                lambda t: t.local < t.word.cast("timestamp_ntz"),
            ],
        ),
        (
            lambda t: t.span > 5,
            "'>' of timedelta and int; use dt.timedelta(days=1), or F.make_dt_interval(…)",
            [lambda t: t.span > dt.timedelta(days=1), lambda t: t.span > F.make_dt_interval(t.n)],
        ),
        (
            lambda t: t.at + t.n > t.at,
            "'+' of datetime and int; use dt.timedelta(days=1), or F.make_dt_interval(…)",
            [
                lambda t: t.at + dt.timedelta(days=1) > t.at,
                lambda t: t.at + F.make_dt_interval(t.n) > t.at,
            ],
        ),
        (
            lambda t: t.local - t.n > t.local,
            "'-' of LocalDateTime and int; use dt.timedelta(days=1), or F.make_dt_interval(…)",
            [lambda t: t.local - F.make_dt_interval(t.n) > t.local],
        ),
        (
            lambda t: t.yes + 1 > 1,
            "'+' of bool and int; .cast('bigint') makes 1 or 0 of a bool",
            [lambda t: t.yes.cast("bigint") + 1 > 1],
        ),
    ],
)
def test_an_operator_between_two_types_names_a_remedy_that_works(
    spark: SparkSession, wrong: Any, said: str, remedies: list[Any]
) -> None:
    def query(f: Any) -> Any:
        return lambda typed: st.filter(typed, f=f)

    assert f"Spark has no {said}" in said_by(annotated(query(wrong)))
    for remedy in remedies:
        st.compile(annotated(query(remedy)))


def annotated(query: Any) -> Any:
    query.__annotations__ = {"typed": st.ZSet[Typed], "return": st.ZSet[Typed]}
    return query
