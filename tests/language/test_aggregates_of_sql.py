"""Percentiles, modes, lists, moments and grouping sets, against Spark SQL."""

from __future__ import annotations

import itertools
import random
import statistics
from decimal import Decimal
from typing import Annotated, Any

import pytest
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark.language import linear
from tests.against_sql import changes, held_to_sql
from tests.every_store import MakeStore

PAIRED = (
    *("covar_pop", "covar_samp", "regr_slope", "regr_intercept", "regr_r2", "regr_count"),
    *("regr_avgx", "regr_avgy", "regr_sxx", "regr_syy", "regr_sxy"),
)
NAN, INF = float("nan"), float("inf")
agg = st.agg
Z = st.ZSet


class Row(st.Data):
    k: str | None
    x: float | None
    y: float
    n: int | None
    d: Annotated[Decimal, st.Precision(12, 2)] | None
    s: str | None
    b: bool | None


def draw(source: random.Random) -> Row:
    """A row whose floats are small binary fractions, which Spark's sums are exact for."""
    return Row(
        k=source.choice(("a", "b", None)),
        x=source.choice((None, 0.5, -0.25, 3.0, 0.0, -0.0, NAN, INF)),
        y=source.choice((1.0, 2.5, -4.0)),
        n=source.choice((None, 1, 2, 2**40, -5)),
        d=source.choice((None, Decimal("0.01"), Decimal("-3.33"))),
        s=source.choice((None, "", "x", "Zoë")),
        b=source.choice((None, True, True, False)),
    )


class All(st.Data):
    k: str | None
    median: float | None
    ninth: float | None
    of_decimals: float | None
    some: str | None
    every: bool | None
    any: bool | None
    often: int | None
    letters: list[str]
    joined: str | None
    variance: float | None
    of_population: float | None
    deviation: float | None
    corr: float | None


class More(st.Data):
    k: str | None
    covar_pop: float | None
    covar_samp: float | None
    regr_slope: float | None
    regr_intercept: float | None
    regr_r2: float | None
    regr_count: int
    regr_avgx: float | None
    regr_avgy: float | None
    regr_sxx: float | None
    regr_syy: float | None
    regr_sxy: float | None
    of_floats: float | None
    skewness: float | None
    kurtosis: float | None
    of_special: float | None
    bit_and: int | None
    bit_or: int | None
    bit_xor: int | None
    mean: float | None
    mean_of_decimals: Annotated[Decimal, st.Precision(16, 6)] | None
    letters: list[str]
    joined: str | None


MORE: dict[str, Any] = {
    **{name: getattr(agg, name)(lambda r: r.n, lambda r: r.y) for name in PAIRED},
    "of_floats": agg.regr_sxy(lambda r: r.d, lambda r: r.x),
    "skewness": agg.skewness(lambda r: r.d),
    "kurtosis": agg.kurtosis(lambda r: r.y),
    "of_special": agg.kurtosis(lambda r: r.x),
    "bit_and": agg.bit_and(lambda r: r.n),
    "bit_or": agg.bit_or(lambda r: r.n),
    "bit_xor": agg.bit_xor(lambda r: r.n),
    "mean": agg.avg_distinct(lambda r: r.n),
    "mean_of_decimals": agg.avg_distinct(lambda r: r.d),
    "letters": agg.collect_set(lambda r: r.s),
    "joined": agg.string_agg(lambda r: r.s, "-", order=lambda r: r.s.desc(), distinct=True),
}
MORE_TEXTS = f"""{", ".join(f"{name}(n, y)" for name in PAIRED)}, regr_sxy(d, x), skewness(d),
    kurtosis(y), kurtosis(x), bit_and(n), bit_or(n), bit_xor(n), avg(DISTINCT n), avg(DISTINCT d),
    array_sort(collect_set(s)),
    CASE WHEN count(s) > 0 THEN array_join(reverse(array_sort(collect_set(s))), '-') END"""


ALL: dict[str, Any] = {
    "median": agg.median(lambda r: r.x),
    "ninth": agg.percentile(lambda r: r.n, 0.9),
    "of_decimals": agg.percentile(lambda r: r.d, 0.25),
    "some": agg.any_value(lambda r: r.s),
    "every": agg.bool_and(lambda r: r.b),
    "any": agg.bool_or(lambda r: r.b),
    "often": agg.mode(lambda r: r.n),
    "letters": agg.collect_list(lambda r: r.s, order=lambda r: r.n),
    "joined": agg.string_agg(
        lambda r: r.s, ", ", order=st.Index.pick(Row, lambda r: r.y, ascending=False)
    ),
    "variance": agg.variance(lambda r: r.y),
    "of_population": agg.variance(lambda r: r.x, population=True),
    "deviation": agg.stddev(lambda r: r.n, population=True),
    "corr": agg.corr(lambda r: r.n, lambda r: r.y),
}
TEXTS = """median(x), percentile(n, 0.9), percentile(d, 0.25), min(s), bool_and(b), bool_or(b),
    mode(n, true), transform(array_sort(collect_list(struct(n, s)) FILTER (WHERE s IS NOT NULL)),
    v -> v.s), listagg(s, ', ') WITHIN GROUP (ORDER BY y DESC, s), variance(y), var_pop(x),
    stddev_pop(n), corr(n, y)"""


class Cubed(st.Data):
    k: str | None
    s: str | None
    id: int
    rows: int
    least: int | None
    typical: float | None


class Rolled(st.Data):
    k: str | None
    s: str | None
    y: float | None
    values: int


class Chosen(st.Data):
    k: str | None
    x: float | None
    often: str | None


def everything(a: Z[Row]) -> tuple[Z[All], Z[All], Z[Cubed], Z[Rolled], Z[Chosen]]:
    return (
        st.aggregate(a, lambda r: r.k, All, fields=ALL),
        st.aggregate(a, None, All, fields={"k": agg.max(lambda r: r.k), **ALL}),
        st.aggregate(
            a,
            st.cube(lambda r: (r.k, r.s)),
            Cubed,
            id=agg.grouping_id(),
            rows=agg.count(),
            least=agg.min(lambda r: r.n),
            typical=agg.median(lambda r: r.n),
        ),
        st.aggregate(
            a,
            st.rollup(lambda r: (r.k, r.s, r.y)),
            Rolled,
            values=agg.count_distinct(lambda r: r.n),
        ),
        st.aggregate(
            a,
            st.grouping_sets(lambda r: (r.x, r.k), lambda r: r.k, None),
            Chosen,
            often=agg.mode(lambda r: r.s),
        ),
    )


SQL = {
    "by key": f"SELECT k, {TEXTS} FROM a GROUP BY k",
    "of all": f"SELECT max(k), {TEXTS} FROM a",
    "cube": "SELECT k, s, grouping_id(), count(*), min(n), median(n) FROM a GROUP BY CUBE (k, s)",
    "rollup": "SELECT k, s, y, count(DISTINCT n) FROM a GROUP BY ROLLUP (k, s, y)",
    "grouping sets": """
        SELECT k, x, mode(s, true) FROM a GROUP BY GROUPING SETS ((x, k), (k), ())
    """,
}


class Twice(st.Data):
    k: str | None
    s: str | None
    id: int
    rows: int


def more(a: Z[Row]) -> tuple[Z[More], Z[More], Z[Twice]]:
    return (
        st.aggregate(a, lambda r: r.k, More, fields=MORE),
        st.aggregate(a, None, More, fields={"k": agg.max(lambda r: r.k), **MORE}),
        st.aggregate(
            a,
            st.grouping_sets(lambda r: (r.k, r.s), lambda r: (r.s, r.k), lambda r: r.k, None, None),
            Twice,
            id=agg.grouping_id(),
            rows=agg.count(),
        ),
    )


MORE_SQL = {
    "by key": f"SELECT k, {MORE_TEXTS} FROM a GROUP BY k",
    "of all": f"SELECT max(k), {MORE_TEXTS} FROM a",
    "equal sets": """
        SELECT k, s, grouping_id(k, s), count(*) FROM a
        GROUP BY GROUPING SETS ((k, s), (s, k), (k), (), ())
    """,
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("local_rows", "optimize"),
    [
        # Spark takes a minute to plan the queries of these steps.
        pytest.param(0, True, marks=pytest.mark.turn(6, number=2), id="spark"),
        pytest.param(0, False, marks=pytest.mark.turn(6, number=5), id="spark, as written"),
        pytest.param(2_000_000, True, marks=pytest.mark.turn(2, number=1), id="driver"),
        pytest.param(
            2_000_000, False, marks=pytest.mark.turn(2, number=0), id="driver, as written"
        ),
    ],
)
def test_covariances_shapes_bits_and_sets_are_those_of_spark_sql(
    spark: SparkSession, local_rows: int, optimize: bool
) -> None:
    graph: Any = st.compile(more, optimize=optimize)
    stepper: Any = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
    held_to_sql(spark, graph, lambda: stepper, MORE_SQL, {"a": draw}, steps=3, seed=local_rows + 9)


@pytest.mark.long
def test_a_state_of_them_is_opened_anew(spark: SparkSession, make_store: MakeStore) -> None:
    graph: Any = st.compile(more)
    store = make_store(graph)

    def stepper() -> st.Stepper[Any, Any]:
        nonlocal store
        store = make_store.reopen(store, graph)
        return st.Stepper(graph, store)

    held_to_sql(spark, graph, stepper, MORE_SQL, {"a": draw}, seed=11)


def by_key(a: Z[Row]) -> Z[All]:
    return st.aggregate(a, lambda r: r.k, All, fields=ALL)


@pytest.mark.parametrize(
    ("query", "local_rows", "optimize", "seed"),
    [
        (everything, 2_000_000, True, 1),
        pytest.param(by_key, 0, True, 2, marks=pytest.mark.long),
        pytest.param(everything, 0, True, 3, marks=pytest.mark.long),
        pytest.param(everything, 2_000_000, False, 4, marks=pytest.mark.long),
        pytest.param(everything, 0, False, 5, marks=pytest.mark.long),
    ],
    ids=["driver", "spark", "all in spark", "driver, as written", "spark, as written"],
)
def test_they_are_those_of_spark_sql(
    spark: SparkSession, query: Any, local_rows: int, optimize: bool, seed: int
) -> None:
    graph: Any = st.compile(query, optimize=optimize)
    stepper: Any = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
    texts = SQL if query is everything else {"by key": SQL["by key"]}
    held_to_sql(spark, graph, lambda: stepper, texts, {"a": draw}, steps=3, seed=seed)


def test_per_group_they_are_those_of_the_key() -> None:
    def both(a: Z[Row]) -> tuple[Z[All], Z[All]]:
        of_each = st.per_group[st.group(a, by=lambda r: r.k)](
            lambda g: st.aggregate(g, None, All, fields={"k": agg.max(lambda r: r.k), **ALL})
        )
        return by_key(a), st.map(st.flatten(of_each), f=lambda p: p.left)

    graph = st.compile(both)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    for _, change in changes({"a": draw}, steps=4, many=12, seed=6):
        (a,) = change
        keyed, grouped = stepper.step((a,))
        assert keyed == grouped


@pytest.mark.long
def test_a_state_that_is_opened_anew_goes_on_as_sql_says(
    spark: SparkSession, make_store: MakeStore
) -> None:
    graph: Any = st.compile(everything)
    store = make_store(graph)

    def stepper() -> st.Stepper[Any, Any]:
        nonlocal store
        store = make_store.reopen(store, graph)
        return st.Stepper(graph, store)

    held_to_sql(spark, graph, stepper, SQL, {"a": draw}, seed=5)


# -- exactness


class Moments(st.Data):
    k: str | None
    corr: float | None
    variance: float | None


def moments(a: Z[Row]) -> Z[Moments]:
    return st.aggregate(
        a,
        lambda r: r.k,
        Moments,
        corr=agg.corr(lambda r: r.x, lambda r: r.y),
        variance=agg.variance(lambda r: r.x),
    )


def row(x: float | None, y: float) -> Row:
    return Row(k="a", x=x, y=y, n=None, d=None, s=None, b=None)


@pytest.mark.spark
@pytest.mark.parametrize(
    "local_rows",
    [st.Limits.local_rows, pytest.param(0, marks=pytest.mark.long)],
    ids=["driver", "spark"],
)
def test_what_was_deleted_leaves_no_trace_in_a_correlation_or_variance(local_rows: int) -> None:
    graph = st.compile(moments)
    source = random.Random(3)
    kept = [row(1e6 + source.random(), source.random()) for _ in range(50)]
    noise = [row(1e9 * source.random(), -1e12 * source.random()) for _ in range(200)]
    (fresh,) = st.reference(graph).step((st.ZSetPython([(r, 1) for r in kept]),))
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
    shown = st.ZSetPython[Moments]()
    for rows, n in ((kept[:20] + noise, 1), (kept[20:], 1), (noise, -1)):
        (out,) = stepper.step((st.ZSetPython([(r, n) for r in rows]),))
        shown = shown + out.to_python()
    assert shown == fresh
    ((found, _),) = fresh.iter()
    xs, ys = [r.x or 0.0 for r in kept], [r.y for r in kept]
    assert found.corr == pytest.approx(statistics.correlation(xs, ys), rel=1e-9)
    assert found.variance == pytest.approx(statistics.variance(xs), rel=1e-12)


def test_a_correlation_of_a_line_is_one_and_of_a_constant_is_none() -> None:
    graph = st.compile(moments)

    def corr(*rows: Row) -> list[float | None]:
        (out,) = st.reference(graph).step((st.ZSetPython([(r, 1) for r in rows]),))
        return [r.corr for r, _ in out.iter()]

    assert corr(row(0.1, 0.3), row(0.2, 0.6), row(0.7, 2.1)) == [pytest.approx(1.0)]
    assert corr(row(0.1, 0.3), row(0.1, 0.6)) == [None]
    assert corr(row(None, 0.3), row(0.1, 0.6)) == [None]
    (found,) = corr(row(INF, 0.3), row(0.1, 0.6))
    assert str(found) == "nan"


# -- what a query may say


def refused(query: Any) -> str:
    with pytest.raises(st.CompileError) as e:
        st.compile(query)
    return str(e.value)


def of(by: Any, into: type = Chosen, **fields: Any) -> str:
    def query(a: Z[Row]) -> Any:
        return st.aggregate(a, by, into, fields=fields)

    return refused(query)


class Paid(st.Data):
    k: int
    x: float


class Typical(st.Data):
    k: int
    median: float
    third: float


def test_percentiles_are_those_of_spark_to_the_last_bit(spark: SparkSession) -> None:
    def typical(a: Z[Paid]) -> Z[Typical]:
        return st.aggregate(
            a,
            lambda r: r.k,
            Typical,
            median=agg.median(lambda r: r.x),
            third=agg.percentile(lambda r: r.x, 0.3),
        )

    source = random.Random(3)
    special = [float("inf"), -float("inf"), 1e308, -1e308, 2.5]
    given = [(k, v) for k, pair in enumerate(itertools.product(special, special)) for v in pair]
    given += [(100 + n % 40, source.randrange(10**6) / 100) for n in range(150)]
    change = st.ZSetPython((Paid(k=k, x=x), 1) for k, x in given)
    spark.createDataFrame(given, "k long, x double").createOrReplaceTempView("paid")
    sql = "SELECT k, median(x), percentile(x, 0.3) FROM paid GROUP BY k"
    wanted = sorted(repr(tuple(r)) for r in spark.sql(sql).collect())
    graph: Any = st.compile(typical)
    small, none = st.Limits(), st.Limits(local_rows=0)
    steppers = [
        st.Stepper(graph, st.StoreMemory.from_graph(graph), limits=x) for x in (small, none)
    ]
    for stepper in steppers:
        (out,) = stepper.step((change,))
        found = [(r.k, r.median, r.third) for r, _ in out.iter()]
        assert sorted(map(repr, found)) == wanted


def test_what_does_not_fit_is_refused_with_the_remedy() -> None:
    by: Any = st.grouping_sets(lambda r: (r.x, r.k), lambda r: r.k)
    assert "a number from 0 to 1, found 90" in of(by, often=agg.percentile(lambda r: r.n, 90))
    assert ".cast('string')" in of(by, often=agg.string_agg(lambda r: r.n))
    assert "is not a bool" in of(by, often=agg.bool_and(lambda r: r.n))
    assert "float has no bits; these have: int" in of(by, often=agg.bit_xor(lambda r: r.y))
    assert "distinct values have no other order" in of(
        by, often=agg.string_agg(lambda r: r.s, order=lambda r: r.n, distinct=True)
    )
    assert "grouping_id() is of by=st.rollup" in of(
        lambda r: (r.x, r.k), Chosen, often=agg.grouping_id()
    )

    class Known(st.Data):
        y: float
        n: int

    assert "declare it float | None" in of(st.rollup(lambda r: r.y), Known, n=agg.count())


def test_the_lifted_circuit_is_that_of_whole_values() -> None:
    def whole(a: Z[Row]) -> Z[All]:
        return linear.aggregate(a, st.rollup(lambda r: r.k), All, fields=ALL)

    def lifted(a: Z[Row]) -> Z[All]:
        return st.aggregate(a, st.rollup(lambda r: r.k), All, fields=ALL)

    assert st.compile(st.incrementalize(whole)) == st.compile(lifted)


def test_explain_says_what_each_kind_keeps() -> None:
    def query(a: Z[Row]) -> Z[All]:
        return st.aggregate(a, st.rollup(lambda r: r.k), All, fields=ALL)

    text = str(st.explain(st.compile(query)))
    assert "aggregate by rollup (k); () into All" in text
    assert "basic: median(x)\n" in text
    assert "accumulable, then hierarchical: often = mode(n)\n" in text
