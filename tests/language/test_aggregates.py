"""Aggregates and first rows: against Spark SQL, their plans, and what a step reads."""

from __future__ import annotations

import random
import re
import statistics
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Annotated, Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import stepping_spark as st
from stepping_spark import functions
from stepping_spark.language import linear
from stepping_spark.plan.planner import plan_of
from tests.cases import Z

NAN, INF = float("nan"), float("inf")
agg = st.agg


class Row(st.Data):
    k: str | None
    x: float | None
    n: int | None
    d: Annotated[Decimal, st.Precision(12, 2)] | None


class All(st.Data):
    k: str | None
    count: int
    known: int
    sum_x: float | None
    sum_n: int | None
    sum_d: Annotated[Decimal, st.Precision(22, 2)] | None
    avg_x: float | None
    avg_n: float | None
    avg_d: Annotated[Decimal, st.Precision(16, 6)] | None
    min_x: float | None
    max_x: float | None
    min_d: Annotated[Decimal, st.Precision(12, 2)] | None
    values: int
    sum_of_values: int | None
    at_max: int | None


class Spread(st.Data):
    k: str | None
    of_floats: float | None
    of_ints: float | None
    of_decimals: float | None


class Least(st.Data):
    k: str | None
    least: int | None


class Total(st.Data):
    n: int
    total: int | None


class Extremes(st.Data):
    k: str | None
    least: int | None
    most: int | None


class Summed(st.Data):
    k: str | None
    total: float | None


SQL = """
SELECT {key} count(*) AS count, count(x) AS known, sum(x) AS sum_x, sum(n) AS sum_n,
    sum(d) AS sum_d, avg(x) AS avg_x, avg(n) AS avg_n, avg(d) AS avg_d, min(x) AS min_x,
    max(x) AS max_x, min(d) AS min_d, count(DISTINCT n) AS values,
    sum(DISTINCT n) AS sum_of_values,
    max_by(n, CASE WHEN x IS NOT NULL THEN struct(x, n IS NULL, -n) END) AS at_max
FROM {table} {group}
"""
AGGREGATES: dict[str, Any] = {
    "count": agg.count(),
    "known": agg.count(lambda r: r.x),
    "sum_x": agg.sum(lambda r: r.x),
    "sum_n": agg.sum(lambda r: r.n),
    "sum_d": agg.sum(lambda r: r.d),
    "avg_x": agg.avg(lambda r: r.x),
    "avg_n": agg.avg(lambda r: r.n),
    "avg_d": agg.avg(lambda r: r.d),
    "min_x": agg.min(lambda r: r.x),
    "max_x": agg.max(lambda r: r.x),
    "min_d": agg.min(lambda r: r.d),
    "values": agg.count_distinct(lambda r: r.n),
    "sum_of_values": agg.sum_distinct(lambda r: r.n),
    "at_max": agg.arg_max(lambda r: r.x, lambda r: r.n),
}


def everything(a: st.ZSet[Row]) -> st.ZSet[All]:
    return st.aggregate(a, lambda r: r.k, All, **AGGREGATES)


def stepper_of(query: Callable[..., Any], **options: Any) -> st.Stepper[Any, Any]:
    graph: Any = st.compile(query, **options)
    return st.Stepper(graph, st.StoreMemory.from_graph(graph))


def row(k: str | None, x: float | None = None, n: int | None = None, d: str | None = None) -> Row:
    return Row(k=k, x=x, n=n, d=None if d is None else Decimal(d))


def some_rows(source: random.Random, many: int) -> list[Row]:
    """Rows whose floats are small binary fractions, which Spark's sums are exact for."""
    return [
        row(
            source.choice(("a", "b", None)),
            source.choice((None, 0.5, -0.25, 3.0, 0.0)),
            source.choice((None, 1, 2, 2**40, -5)),
            source.choice((None, "0.01", "-3.33", "9999999999.99")),
        )
        for _ in range(many)
    ]


# -- against Spark SQL


def test_every_aggregate_is_that_of_spark_sql(spark: SparkSession) -> None:
    source = random.Random(1)
    stepper = stepper_of(everything)
    table: Any = Z()
    shown: Any = Z()
    for step in range(6):
        change = Z([(r, 1) for r in some_rows(source, 8)])
        if step:
            change = change - Z([(r, n) for r, n in table.iter() if source.random() < 0.6])
        if step == 4:
            change = -table
        table = table + change
        shown = shown + stepper.step((change,))[0].to_python()
        counted = [(r, n) for r, n in table.iter() for _ in range(n)]
        assert all(n > 0 for _, n in counted)
        assert {r: 1 for r, _ in shown.iter()} == dict(shown.iter())
        assert normal(shown) == normal_sql(spark, [r for r, _ in counted])


def normal(z: Any) -> set[tuple[Any, ...]]:
    names = list(All.__row_fields__())
    return {tuple(getattr(r, n) for n in names) for r, _ in z.iter()}


def normal_sql(spark: SparkSession, rows: list[Row]) -> set[tuple[Any, ...]]:
    if not rows:
        return set()
    frame = Z([(r, 1) for r in rows]).to_dataframe(spark)
    frame.createOrReplaceTempView("aggregated")
    table = "(SELECT k, x, n, d FROM aggregated LATERAL VIEW explode(sequence(1, _count_)) c AS i)"
    found = spark.sql(SQL.format(key="k,", table=table, group="GROUP BY k")).collect()
    return {tuple(r) for r in found}


def spread(a: st.ZSet[Row]) -> st.ZSet[Spread]:
    return st.aggregate(
        a,
        lambda r: r.k,
        Spread,
        of_floats=agg.stddev(lambda r: r.x),
        of_ints=agg.stddev(lambda r: r.n),
        of_decimals=agg.stddev(lambda r: r.d),
    )


def some_spread() -> list[Row]:
    source = random.Random(5)
    return [
        row(k, 1e8 + source.random(), source.randrange(-9, 9), f"{source.random():.2f}")
        for k in "abc"
        for _ in range(9)
    ] + [row("d", 5.0), row("e"), row("f", NAN), row("f", 1.0), row("g", INF), row("g", 2.0)]


def test_the_deviation_is_that_of_exact_arithmetic_and_close_to_that_of_spark(
    spark: SparkSession,
) -> None:
    rows = some_spread()
    (out,) = stepper_of(spread).step((Z([(r, 1) for r in rows]),))
    found = {r.k: r for r, _ in out.to_python().iter()}
    frame = Z([(r, 1) for r in rows]).to_dataframe(spark).groupBy("k")
    for k, *wanted in frame.agg(*(F.stddev(name) for name in "xnd")).collect():
        shown = (found[k].of_floats, found[k].of_ints, found[k].of_decimals)
        assert [x is None for x in shown] == [x is None for x in wanted]
        for ours, theirs in zip(shown, wanted, strict=True):
            assert theirs is None or ours == pytest.approx(theirs, rel=1e-6, nan_ok=True)
    for k in "abc":
        exact = statistics.stdev([Fraction(r.x) for r in rows if r.k == k and r.x is not None])
        assert found[k].of_floats == pytest.approx(float(exact), rel=1e-14)


def test_the_deviation_is_bit_for_bit_the_same_on_the_driver_and_in_spark(
    spark: SparkSession,
) -> None:
    def query(a: st.ZSet[Row]) -> st.ZSet[Summed]:
        return st.aggregate(a, lambda r: r.k, Summed, total=agg.stddev(lambda r: r.x))

    graph = st.compile(query)
    change = Z([(r, 1) for r in some_spread()])
    wanted = st.reference(graph).step((change,))[0]
    for local_rows in (st.Limits.local_rows, 0):
        stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
        assert stepper.step((change,))[0] == wanted
        assert stepper.step((-change,))[0] == -wanted


# -- the values that are hard


def test_a_group_whose_sum_is_zero_stays_and_one_without_rows_goes() -> None:
    def query(a: st.ZSet[Row]) -> st.ZSet[Summed]:
        return st.aggregate(a, lambda r: r.k, Summed, total=agg.sum(lambda r: r.x))

    stepper = stepper_of(query)
    (out,) = stepper.step((Z({row("a", 5.0): 1, row("a", -5.0): 1}),))
    assert out == Z({Summed(k="a", total=0.0): 1})
    (out,) = stepper.step((Z({row("a", 5.0): -1, row("a", -5.0): -1}),))
    assert out == Z({Summed(k="a", total=0.0): -1})
    (out,) = stepper.step((Z({row("a"): 1}),))
    assert out == Z({Summed(k="a", total=None): 1})


def test_what_was_added_to_a_float_can_be_taken_away() -> None:
    def query(a: st.ZSet[Row]) -> st.ZSet[Summed]:
        return st.aggregate(a, lambda r: r.k, Summed, total=agg.sum(lambda r: r.x))

    stepper = stepper_of(query)
    stepper.step((Z({row("a", 1e16): 1, row("a", 1.0): 1, row("a", NAN): 2, row("a", INF): 1}),))
    (out,) = stepper.step((Z({row("a", 1e16): -1, row("a", NAN): -2, row("a", INF): -1}),))
    assert out.get_count(Summed(k="a", total=1.0)) == 1


def test_extremes_are_in_the_order_of_spark() -> None:
    class Floats(st.Data):
        least: float | None
        most: float | None
        list: list[float | None]

    def query(a: st.ZSet[Row]) -> st.ZSet[Floats]:
        return st.aggregate(
            a,
            None,
            Floats,
            least=agg.min(lambda r: r.x),
            most=agg.max(lambda r: r.x),
            list=agg.first_n(st.Index.pick(Row, lambda r: r.x, ascending=False), 9, lambda r: r.x),
        )

    stepper = stepper_of(query)
    values = [NAN, INF, -INF, -0.0, None, 1.0]
    (out,) = stepper.step((Z([(row("a", x), 1) for x in values]),))
    ((found, n),) = out.to_python().iter()
    assert n == 1
    assert found.least == -INF
    assert repr(found.most) == "nan"
    assert repr(found.list) == "(nan, inf, 1.0, 0.0, -inf, None)"


def test_without_a_key_there_is_one_row_also_of_nothing() -> None:
    def query(a: st.ZSet[Row]) -> st.ZSet[Total]:
        return st.aggregate(a, None, Total, n=agg.count(), total=agg.sum(lambda r: r.n))

    stepper = stepper_of(query)
    (out,) = stepper.step((None,))
    assert out == Z({Total(n=0, total=None): 1})
    (out,) = stepper.step((Z({row("a", n=3): 2, row("a"): 1}),))
    assert out == Z({Total(n=0, total=None): -1, Total(n=3, total=6): 1})


@pytest.mark.spark
@pytest.mark.parametrize("local_rows", [st.Limits.local_rows, 0], ids=["driver", "spark"])
def test_a_sum_of_ints_beyond_64_bits_is_an_error_and_changes_nothing(local_rows: int) -> None:
    def query(a: st.ZSet[Row]) -> st.ZSet[Total]:
        return st.aggregate(a, None, Total, n=agg.count(), total=agg.sum(lambda r: r.n))

    graph = st.compile(query)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
    stepper.step((Z({row("a", n=2**62): 1}),))
    with pytest.raises(st.StepError, match=r"beyond"):
        stepper.step((Z({row("b", n=2**62): 1}),))
    (out,) = stepper.step((Z({row("b", n=1): 1}),))
    assert out.get_count(Total(n=2, total=2**62 + 1)) == 1


# -- what a query may say


def test_incrementalize_gives_the_lifted_circuit() -> None:
    def whole(a: st.ZSet[Row]) -> st.ZSet[All]:
        return linear.aggregate(a, lambda r: r.k, All, **AGGREGATES)

    assert st.compile(st.incrementalize(whole)) == st.compile(everything)


def test_parts_of_the_key_go_to_the_fields_of_their_names() -> None:
    class Keyed(st.Data):
        n: int | None
        many: int
        k: str | None

    def query(a: st.ZSet[Row]) -> st.ZSet[Keyed]:
        return st.aggregate(a, lambda r: (r.k, r.n), Keyed, many=agg.count())

    (out,) = st.reference(st.compile(query)).step((Z({row("a", n=1): 2}),))
    assert out == Z({Keyed(k="a", n=1, many=2): 1})


def refused(aggregates: dict[str, Any], by: Any = lambda r: r.k, into: Any = Extremes) -> str:
    def query(a: st.ZSet[Row]) -> Any:
        return st.aggregate(a, by, into, **aggregates)

    with pytest.raises(st.CompileError) as e:
        st.compile(query)
    return str(e.value)


def test_a_row_as_key_fills_fields_by_the_names_of_its_own() -> None:
    class Name(st.Data):
        word: str

    class Longest(st.Data):
        n: int
        word: str

    def query(a: st.ZSet[str]) -> st.ZSet[Longest]:
        return st.aggregate(a, by=lambda w: Name(word=w), into=Longest, n=agg.count())

    (given,) = st.reference(st.compile(query)).step((st.ZSetPython({"a": 2}),))
    assert given == st.ZSetPython({Longest(word="a", n=2): 1})


def test_fields_and_aggregates_that_do_not_fit_are_refused() -> None:
    least: Any = agg.min(lambda r: r.n)
    assert "no field 'mean'" in refused({"least": least, "most": least, "mean": least})
    assert "nothing fills most of Extremes (the key gives k)" in refused({"least": least})
    assert "no aggregate is asked for" in refused({})
    assert "str | None cannot be added up" in refused(
        {"least": agg.sum(lambda r: r.k), "most": least}
    )
    assert "expected an aggregate" in refused({"least": 1, "most": least})
    assert "expected int | None, found float | None" in refused(
        {"least": agg.max(lambda r: r.x), "most": least}
    )
    assert "n should be an int from 1" in refused(
        {"least": agg.first_n(lambda r: r.n, 0), "most": least}
    )
    assert "expected a st.Data" in refused({"n": agg.count()}, into=int)


class Money(st.Data):
    month: str | None
    value: float | None


@pytest.mark.parametrize("make", [agg.sum, agg.avg, agg.min, agg.any_value])
def test_a_decimal_becomes_no_float_without_a_cast(make: Any) -> None:
    remedy = r"declare it Annotated\[Decimal, st.Precision\(\d+, \d\)\], or cast the Decimal"
    said = refused({"value": make(lambda r: r.d)}, into=Money)
    assert re.search(rf"field 'value': expected float \| None, found Decimal.*; {remedy}", said)


def test_a_decimal_that_is_cast_becomes_a_float(spark: SparkSession) -> None:
    def query(a: st.ZSet[Row]) -> st.ZSet[Money]:
        return st.aggregate(
            a,
            by=lambda r: functions.lower(r.k),
            into=Money,
            value=agg.avg(lambda r: functions.col(r.d).cast("double")),
        )

    stepper = stepper_of(query)
    (out,) = stepper.step((Z({row("A", d="0.25"): 1, row("A", d="0.50"): 1}),))
    assert out == Z({Money(month="a", value=0.375): 1})


def test_a_field_of_another_type_names_what_fills_it_as_the_user_wrote_it(
    spark: SparkSession,
) -> None:
    said = refused({"value": agg.max(lambda r: r.x)}, lambda r: F.length(r.k), Money)
    assert "field 'month': expected str | None, found int | None, from length(k); " in said


def test_a_field_that_may_be_null_must_say_so() -> None:
    class Bare(st.Data):
        n: int
        total: int

    aggregates: dict[str, Any] = {"n": agg.count(), "total": agg.sum(lambda r: 1)}
    assert "declare it int | None" in refused(aggregates, None, Bare)


# -- plans, and what a step reads


class Year(st.Data):
    year: int
    last: int


def years(days: st.ZSet[str]) -> st.ZSet[Year]:
    year: Any = lambda day: F.to_date(day)  # noqa: E731
    return st.aggregate(
        days,
        by=lambda day: F.year(year(day)),
        into=Year,
        last=agg.max(lambda day: F.month(year(day))),
    )


def test_what_spark_says_may_be_null_is_believed_to_be_what_the_field_says(
    spark: SparkSession,
) -> None:
    graph = st.compile(years)
    (out,) = st.Stepper(graph, st.StoreMemory.from_graph(graph)).step((Z({"2024-02-03": 1}),))
    assert out == Z({Year(year=2024, last=2): 1})


def even(number: Any) -> Any:
    return F.when(number % 2 == 0, number)


def plain(number: Any) -> Any:
    return number


@pytest.mark.turn(2)
@pytest.mark.parametrize("local_rows", [st.Limits.local_rows, 0], ids=["on the driver", "as jobs"])
@pytest.mark.parametrize(
    ("by", "last"),
    [(even, agg.max(plain)), (plain, agg.min(even)), (plain, agg.sum(even))],
    ids=["key", "least", "sum"],
)
def test_a_null_where_the_field_says_that_there_is_none_is_an_error(
    spark: SparkSession, by: Any, last: Any, local_rows: int
) -> None:
    def query(numbers: st.ZSet[int]) -> st.ZSet[Year]:
        return st.aggregate(numbers, by=by, into=Year, last=last)

    graph = st.compile(query)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
    with pytest.raises(st.StepError, match="is NULL, and its type says that it never is"):
        stepper.step((Z({1: 1}),))
    (out,) = stepper.step((Z({2: 1}),))
    assert out == Z({Year(year=2, last=2): 1})


def test_the_plan_says_which_aggregate_is_computed_how() -> None:
    def query(a: st.ZSet[Row]) -> st.ZSet[Extremes]:
        return st.aggregate(
            a, lambda r: r.k, Extremes, least=agg.min(lambda r: r.n), most=agg.sum(lambda r: r.n)
        )

    (plan,) = st.explain(st.compile(query)).reductions
    assert str(plan) == (
        "aggregate by k into Extremes\n"
        "  hierarchical, bucketed: least = min(n)\n"
        "    keeps all rows, by key; the first row, and in large groups of each of 256 buckets, "
        "by key\n"
        "  accumulable: most = sum(n)\n"
        "    keeps the number of rows and 2 sums, by key\n"
        "  collation: one row of the parts of each key"
    )
    (plan,) = st.explain(st.compile(query, append_only=("a",))).reductions
    monotonic = plan.parts[0]
    assert (monotonic.kind, monotonic.keeps) == ("hierarchical, monotonic", "the first row, by key")


KEPT = "all rows, by key; the first row, and in large groups of each of {} buckets, by key"


@pytest.mark.parametrize(
    ("size", "registers", "kept"),
    [
        (1_024, 1, "all rows, by key"),
        (1_025, 2, KEPT.format("32")),
        (1_000_000, 2, KEPT.format("1,024")),
    ],
)
def test_the_size_of_groups_says_how_many_buckets_there_are(
    size: int, registers: int, kept: str
) -> None:
    def query(a: st.ZSet[Row]) -> st.ZSet[Least]:
        return st.aggregate(a, lambda r: r.k, Least, group_size=size, least=agg.min(lambda r: r.n))

    graph = st.compile(query)
    (plan,) = st.explain(graph).reductions
    assert plan.parts[0].keeps == kept
    assert len(plan_of(graph).registers) == registers


@pytest.mark.parametrize("size", [0, -1, 2.5, True, "many"])
def test_the_size_of_groups_is_a_number_of_rows(size: Any) -> None:
    def least(a: st.ZSet[Row]) -> st.ZSet[Least]:
        return st.aggregate(a, lambda r: r.k, Least, group_size=size, least=agg.min(lambda r: r.n))

    def first(a: st.ZSet[Row]) -> st.ZSet[Row]:
        return st.first_n(a, lambda r: r.n, 2, group_size=size)

    for query in (least, first):
        with pytest.raises(st.CompileError, match=r"group_size=.*: expected about how many rows"):
            st.compile(query)


def test_aggregates_of_one_kind_need_no_collation() -> None:
    def query(a: st.ZSet[Row]) -> st.ZSet[Total]:
        return st.aggregate(a, None, Total, n=agg.count(), total=agg.sum(lambda r: r.n))

    graph = st.compile(query)
    assert "collat" not in str(graph)
    assert "  collation" not in str(st.explain(graph))
    assert "recomputed in full" not in str(st.explain(graph))


def least_of_all(a: st.ZSet[int]) -> st.ZSet[int]:
    return st.first_n(a, lambda n: n, 1)


@pytest.mark.driver
def test_deleting_the_least_of_a_million_rows_reads_buckets_and_not_the_group(
    spark: SparkSession,
) -> None:
    stepper = stepper_of(least_of_all)
    (out,) = stepper.step((st.ZSetSpark.from_dataframe(spark.range(1_000_000), int),))
    assert out == Z({0: 1})
    (out,) = stepper.step((Z({0: -1}),))
    assert out == Z({0: -1, 1: 1})
    read = sum(v.rows_in or 0 for v in stepper.metrics[-1].vertices.values())
    assert read < 2 * 256 + 10  # the first rows of 256 buckets, twice, and some of one bucket
    assert stepper.metrics[-1].jobs == 0


@pytest.mark.spark
def test_an_append_only_input_keeps_the_first_rows_alone() -> None:
    stepper = stepper_of(least_of_all, append_only=("a",))
    stepper.step((Z(dict.fromkeys(range(10, 10_000), 1)),))
    (out,) = stepper.step((Z({3: 1, 50: 1}),))
    assert out == Z({10: -1, 3: 1})
    assert sum(v.rows_in or 0 for v in stepper.metrics[-1].vertices.values()) == 3
    with pytest.raises(st.InputError, match=r"input 'a': append-only.* -1 for 3"):
        stepper.step((Z({3: -1}),))
    (out,) = stepper.step((Z({2: 1}),))
    assert out == Z({3: -1, 2: 1})


def test_only_an_input_of_rows_can_be_append_only() -> None:
    with pytest.raises(st.CompileError, match=r"expected names of parameters.*those are a"):
        st.compile(least_of_all, append_only=("b",))


def test_append_only_inputs_give_what_others_give() -> None:
    def query(a: st.ZSet[Row], b: st.ZSet[Row]) -> st.ZSet[Extremes]:
        both = st.join(a, b, on_left=lambda r: r.k, on_right=lambda r: r.k)
        return st.aggregate(
            st.distinct(both),
            lambda p: p.left.k,
            Extremes,
            least=agg.min(lambda p: p.right.n),
            most=agg.max(lambda p: p.left.n),
        )

    growing, other = st.compile(query, append_only=("a", "b")), st.compile(query)
    assert "bucketed_top" not in str(growing)
    assert "bucketed_top" in str(other)
    source = random.Random(3)
    one, two = st.reference(growing), st.reference(other)
    for _ in range(5):
        a, b = (Z([(r, 1) for r in some_rows(source, 3)]) for _ in range(2))
        assert one.step((a, b)) == two.step((a, b))
