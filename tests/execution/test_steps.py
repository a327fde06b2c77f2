"""How steps are run: what is counted, what is refused, and where it is computed."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import stepping_spark as st
from stepping_spark.plan.planner import plan_of
from tests.cases import Z, everywhere, stepper_of
from tests.every_store import MakeStore


class Order(st.Data):
    id: int
    item: str | None


def item(o: Any) -> Any:
    """The column that an order's item is in a row function."""
    return o.item


@pytest.fixture
def ansi_off(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    yield
    spark.conf.set("spark.sql.ansi.enabled", str(before))


def join(a: st.ZSet[int], b: st.ZSet[int]) -> st.ZSet[st.Pair[int, int]]:
    return st.join(a, b, on_left=lambda x: x, on_right=lambda x: x)


@everywhere
def test_weights_beyond_64_bits_are_an_error_also_with_ansi_off(
    ansi_off: None, local_rows: int
) -> None:
    stepper = stepper_of(join, st.Limits(local_rows=local_rows))
    with pytest.raises(st.StepError, match="join"):
        stepper.step((Z({1: 2**40}), Z({1: 2**40})))
    assert stepper.store.last_step() == 0
    (out,) = stepper.step((Z({1: 2**31}), Z({1: 2**31})))
    assert out == Z({st.Pair(left=1, right=1): 2**62})


def double(a: st.ZSet[int]) -> st.ZSet[int]:
    return st.add(a, a)


@everywhere
def test_sums_of_weights_beyond_64_bits_are_an_error_also_with_ansi_off(
    ansi_off: None, local_rows: int
) -> None:
    stepper = stepper_of(double, st.Limits(local_rows=local_rows))
    with pytest.raises(st.StepError, match="BIGINT"):
        stepper.step((Z({1: 2**62}),))
    assert stepper.store.last_step() == 0


@everywhere
def test_a_null_where_the_type_has_none_is_an_error_that_names_the_field(
    spark: SparkSession, local_rows: int
) -> None:
    class Item(st.Data):
        name: str

    upper: Any = F.upper

    def query(a: st.ZSet[Order]) -> st.ZSet[st.Pair[int, Item]]:
        return st.map(a, f=lambda o: st.Pair(left=o.id, right=Item(name=upper(item(o)))))

    stepper = stepper_of(query, st.Limits(local_rows=local_rows))
    with pytest.raises(st.StepError, match=r"query\.map.*right\.name is NULL.*coalesce"):
        stepper.step((Z({Order(id=1, item=None): 1}),))
    frame = spark.sql("SELECT id, CAST(NULL AS STRING) AS item FROM range(200000)")
    with pytest.raises(st.StepError, match=r"query\.map.*right\.name is NULL"):
        stepper.step((st.ZSetSpark.from_dataframe(frame, Order),))
    (out,) = stepper.step((Z({Order(id=1, item="tea"): 1}),))
    assert out == Z({st.Pair(left=1, right=Item(name="TEA")): 1})


@pytest.mark.driver
def test_what_streams_want_of_a_relation_is_asked_of_spark_at_once(spark: SparkSession) -> None:
    def query(
        a: st.ZSet[Order], b: st.ZSet[Order]
    ) -> tuple[st.ZSet[str], st.ZSet[str], st.ZSet[st.Pair[Order, Order]]]:
        loud = st.distinct(st.map(a, f=lambda o: F.base64(item(o)), to=str))
        short = st.distinct(st.map(a, f=lambda o: F.hex(item(o)), to=str))
        key: Any = lambda o: F.ascii(item(o))  # noqa: E731
        return loud, short, st.join(a, b, on_left=key, on_right=key)

    graph = st.compile(query)
    ours, by_jobs = (
        st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=n)
        for n in (st.Limits.local_rows, 0)
    )
    for i, names in enumerate((("milk", "tea"), ("mint", "tofu"), ("oil", "tea"))):
        change = Z({Order(id=i, item=name): 1 for name in names})
        assert ours.step((change, change)) == by_jobs.step((change, change))
    first, *others = [m.queries for m in ours.metrics]
    # The key of each input's register, what else is wanted of `a`, and keys of old rows.
    assert others == [5, 5]
    assert first == 4
    assert sum(m.jobs or 0 for m in ours.metrics) == 0


@pytest.mark.driver
def test_of_functions_that_are_asked_at_once_the_one_that_fails_is_told(
    spark: SparkSession,
) -> None:
    def query(a: st.ZSet[Order]) -> tuple[st.ZSet[str], st.ZSet[int]]:
        loud = st.distinct(st.map(a, f=lambda o: F.hex(item(o)), to=str))
        as_number: Any = lambda o: item(o).cast("float").cast("bigint")  # noqa: E731
        number = st.map(a, f=as_number, to=int, name="number")
        return loud, st.distinct(number)

    stepper = stepper_of(query)
    stepper.step((Z({Order(id=1, item="1"): 1}),))
    stepper.step((Z({Order(id=2, item="2"): 1}),))
    with pytest.raises(st.StepError, match=r"number.*tea"):
        stepper.step((Z({Order(id=3, item="tea"): 1}),))
    assert stepper.step((Z({Order(id=3, item="3"): 1}),)) == (Z({"33": 1}), Z({3: 1}))
    assert stepper.metrics[-1].queries == 1


def by_number(o: Any) -> Any:
    return o.item.cast("float").cast("bigint")


OF_NUMBER: dict[str, tuple[Callable[[Any], Any], str]] = {
    "map": (lambda a: st.map(a, f=by_number, to=int), "map failed"),
    "filter": (lambda a: st.filter(a, f=lambda o: by_number(o) > 0), "filter failed"),
    "key": (
        lambda a: st.join(a, a, on_left=by_number, on_right=by_number),
        "query.a by .*: a key of its rows failed",
    ),
    "partition": (lambda a: st.first_n(a, lambda o: o.id, 1, by=by_number), "map failed"),
}


@pytest.mark.turn(2)
@pytest.mark.driver
@pytest.mark.parametrize("rows", [1, 6, 5_002])
@pytest.mark.parametrize("what", OF_NUMBER)
def test_an_error_of_spark_names_the_row_that_has_the_value(
    spark: SparkSession, rows: int, what: str
) -> None:
    of, said = OF_NUMBER[what]

    def query(a: st.ZSet[Order]) -> Any:
        return of(a)

    stepper = stepper_of(query)
    bad = rows * 2 // 3
    orders = [Order(id=i, item="tea" if i == bad else str(i)) for i in range(rows)]
    with pytest.raises(st.StepError, match=rf"{said} for the row \(id={bad}, item='tea'\): "):
        stepper.step((Z(dict.fromkeys(orders, 1)),))
    assert stepper.store.last_step() == 0
    stepper.step((Z({o: 1 for o in orders if o.id != bad}),))


@pytest.mark.driver
def test_steps_of_tests_run_where_they_are_asked_to(
    spark: SparkSession, request: pytest.FixtureRequest
) -> None:
    def query(a: st.ZSet[Order]) -> st.ZSet[Order]:
        return st.distinct(a)

    stepper = stepper_of(query)
    stepper.step((Z({Order(id=1, item="tea"): 1}),))
    asked = "spark" if request.config.getoption("--in-spark") else "driver"
    assert {v.how for v in stepper.metrics[-1].vertices.values()} == {asked}


@pytest.mark.driver
def test_functions_of_few_rows_are_evaluated_without_a_job(spark: SparkSession) -> None:
    def query(a: st.ZSet[Order]) -> st.ZSet[str]:
        long = st.filter(a, f=lambda o: F.length(item(o)) > 2)
        return st.map(long, f=lambda o: F.concat(item(o), F.lit("!")), to=str)

    stepper = stepper_of(query)
    for name in ("milk", "tea"):
        stepper.step((Z({Order(id=1, item=name): 1, Order(id=2, item=None): 1}),))
    (out,) = stepper.step((Z({Order(id=1, item="milk"): -1}),))
    assert out == Z({"milk!": -1})
    assert [m.jobs for m in stepper.metrics] == [0, 0, 0]


@pytest.mark.driver
def test_all_jobs_of_a_step_are_counted_and_no_cost_is_counted_twice(spark: SparkSession) -> None:
    def query(a: st.ZSet[Order]) -> tuple[st.ZSet[Order], st.ZSet[str]]:
        named = st.map(a, f=st.python(lambda o: o.item or "", to=str))
        return st.distinct(a), st.distinct(named)

    stepper = stepper_of(query)
    stepper.step((Z({Order(id=1, item="tea"): 1}),))
    frame = spark.range(5).selectExpr("id", "CAST(id AS STRING) AS item")
    stepper.step((st.ZSetSpark.from_dataframe(frame, Order),))
    small, large = stepper.metrics
    assert small.jobs == 0
    for metrics in (small, large):
        vertices = metrics.vertices.values()
        assert metrics.jobs is not None
        assert sum(v.jobs or 0 for v in vertices) <= metrics.jobs
        assert sum(v.ms for v in vertices) <= metrics.ms
    read = {v.path: (v.rows_in, v.rows_out) for v in large.vertices.values()}
    assert read["query.named"] == (5, 5)


def test_a_state_is_not_taken_for_that_of_a_query_with_another_condition() -> None:
    def query_above(n: int) -> Any:
        def query(a: st.ZSet[int]) -> st.ZSet[int]:
            return st.distinct(st.filter(a, f=lambda x: x > n))

        return query

    one, two = (st.compile(query_above(n)) for n in (1, 2))
    store = st.StoreMemory.from_graph(one)
    st.Stepper(st.compile(query_above(1)), store)
    with pytest.raises(st.StoreMismatch, match=r"x > 1|> 1.*> 2"):
        st.Stepper(two, store)


def test_of_registers_that_differ_those_are_named_whose_own_operator_does() -> None:
    def query_above(n: int) -> Any:
        def query(a: st.ZSet[Order], b: st.ZSet[Order]) -> st.ZSet[st.Pair[Order, Order]]:
            large = st.filter(a, f=lambda o: o.id > n)
            return st.distinct(st.join(large, b, on_left=item, on_right=item))

        return query

    one, two = (st.compile(query_above(n)) for n in (1, 2))
    with pytest.raises(st.StoreMismatch) as e:
        st.Stepper(two, st.StoreMemory.from_graph(one))
    assert str(e.value).splitlines()[1:-1] == [
        "  register 'query.large by item': the state is the sum of filter [id > 1] by item, the "
        "circuit sums filter [id > 2] by item",
        "  1 more register differs in what it is computed from",
    ]


def test_where_no_register_differs_in_its_own_operator_the_first_one_is_named() -> None:
    cache = st.Cache[int](name="kept")

    def query_of(f: Any) -> Any:
        def query(a: st.ZSet[int]) -> st.ZSet[int]:
            once = st.distinct(st.map(a, f=st.python(f, to=int)))
            twice = st.distinct(st.map(st.add(once, a), f=lambda x: x + 1))
            return cache[twice](lambda a: st.integrate(a))

        return query

    one, two = (st.compile(query_of(f)) for f in (lambda x: x + 1, lambda x: x + 2))
    with pytest.raises(st.StoreMismatch) as e:
        st.Stepper(two, st.StoreMemory.from_graph(one))
    first, more = str(e.value).splitlines()[1:-1]
    assert first.startswith("  register 'query.map by row': the state and the circuit both sum map")
    assert first.endswith("of other streams or with another function")
    assert more == "  2 more registers differ in what they are computed from"


def test_what_a_register_sums_is_told_in_the_same_words_by_each_process(
    spark: SparkSession,
) -> None:
    def query(a: st.ZSet[Order]) -> st.ZSet[Order]:
        last = F.udf(lambda s: s[-1:], "string")
        parts = st.filter(a, f=lambda o: F.exists(F.split(item(o), ","), lambda x: x != ""))
        return st.distinct(st.filter(parts, f=lambda o: last(item(o)) == "x"))

    told = [[dataclasses.astuple(r) for r in plan_of(st.compile(query)).registers] for _ in "ab"]
    assert told[0] == told[1]


def test_columns_that_mean_the_same_share_one_vertex(spark: SparkSession) -> None:
    def query(
        a: st.ZSet[Order], b: st.ZSet[int]
    ) -> tuple[st.ZSet[st.Pair[Order, int]], st.ZSet[Order]]:
        one, two = (
            st.join(a, b, on_left=lambda o: F.length(item(o)).cast("bigint"), on_right=lambda x: x)
            for _ in range(2)
        )
        return one, st.map(two, f=lambda p: p.left)

    def other(a: st.ZSet[Order]) -> tuple[st.ZSet[Order], st.ZSet[Order]]:
        one = st.filter(a, f=lambda o: F.length(item(o)) == F.lit(1))
        return one, st.filter(a, f=lambda o: F.length(item(o)) == F.lit(2))

    assert len(plan_of(st.compile(query)).registers) == 2
    assert len({*st.compile(other).outputs}) == 2


def test_an_identity_print_that_nothing_reads_prints_and_a_printed_integral_is_whole(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def query(a: st.ZSet[int]) -> st.ZSet[int]:
        st.identity_print(a, "change")
        return st.differentiate(st.identity_print(st.integrate(a), "whole"))

    stepper = stepper_of(query)
    for n in (1, 2):
        assert stepper.step((Z({n: 1}),)) == (Z({n: 1}),)
    shown = capsys.readouterr().out
    assert f"change: {Z({2: 1})!r}".replace("Python", "Spark") in shown
    assert f"whole: {Z({1: 1, 2: 1})!r}".replace("Python", "Spark") in shown


def echo(a: st.ZSet[int]) -> st.ZSet[int]:
    return st.integrate(a)


def test_the_steps_of_a_source_are_taken_once_whoever_runs_them() -> None:
    graph = st.compile(echo)
    store = st.StoreMemory.from_graph(graph)
    changes = [(Z({n: 1}),) for n in range(5)]

    def interrupted() -> Iterator[tuple[st.ZSetPython[int]]]:
        yield from changes[:2]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        st.Stepper(graph, store).run(interrupted(), source="numbers")
    assert dict(store.last_offsets()) == {"numbers": 2}
    outs = st.Stepper(graph, store).run(changes, source="numbers")
    assert [out.to_python() for (out,) in outs] == [
        Z(dict.fromkeys(range(k), 1)) for k in (3, 4, 5)
    ]
    assert st.Stepper(graph, store).run(changes, source="numbers") == []
    assert len(st.Stepper(graph, store).run(changes[:1], source="others")) == 1
    assert dict(store.last_offsets()) == {"numbers": 5, "others": 1}


def test_the_progress_bar_of_a_source_begins_where_it_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    graph = st.compile(echo)
    store = st.StoreMemory.from_graph(graph)
    changes = [(Z({n: 1}),) for n in range(5)]
    st.Stepper(graph, store).run(changes[:2], source="numbers")
    st.Stepper(graph, store, progress=True).run(changes, source="numbers")
    assert "5/5" in capsys.readouterr().out


def test_a_closed_store_is_neither_stepped_nor_read_nor_opened_again(
    make_store: MakeStore,
) -> None:
    kept = st.Cache[int](name="kept")

    def query(a: st.ZSet[int]) -> st.ZSet[int]:
        return kept[a](lambda a: st.integrate(a))

    graph = st.compile(query)
    store = make_store(graph)
    stepper = st.Stepper(graph, store)
    (numbers,) = st.actions(store, graph)
    numbers.insert(1)
    store.close()
    change = (Z({2: 1}),)
    uses: list[Callable[[], object]] = [
        lambda: stepper.step(change),
        lambda: stepper.run([change], source="numbers"),
        lambda: st.iteration(store, graph, change),
        lambda: st.iteration(store, st.compile(query), change),
        lambda: st.Stepper(graph, store),
        lambda: numbers.insert(2),
        lambda: kept.zset(store),
    ]
    for use in uses:
        with pytest.raises(st.StoreError, match=r"the store is closed.*; .* with .*from_graph"):
            use()


def test_a_store_in_memory_is_closed_by_a_with() -> None:
    graph = st.compile(echo)
    with st.StoreMemory.from_graph(graph) as store:
        st.iteration(store, graph, (Z({1: 1}),))
    with pytest.raises(st.StoreError, match="what it kept is gone"):
        store.last_step()
