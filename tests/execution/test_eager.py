"""Joins whose sides are added up before they are joined: the same results, in less time."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any, TypeAlias

import pytest
from hypothesis import given, settings
from hypothesis import strategies as hs
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark.plan.planner import plan_of
from stepping_spark.plan.step_ir import Ref
from tests.cases import Z
from tests.every_store import InFiles, InMemory
from tests.strategies import zsets_of

Wide = Annotated[Decimal, st.Precision(38, 2)]
ALWAYS, NEVER = st.Limits(eager_rows=0), st.Limits(eager_rows=10**9)


class Fact(st.Data):
    dim: int | None
    day: int
    n: int | None
    price: float
    cost: Decimal
    wide: Wide | None


class Dim(st.Data):
    key: int | None
    name: str | None
    rate: int


class Summed(st.Data):
    name: str | None
    day: int
    rows: int
    known: int
    n: int | None
    mean: float | None
    price: float
    spread: float | None
    cost: Decimal
    wide: Wide | None


class Few(st.Data):
    name: str | None
    n: int
    least: int
    most: float
    days: int


class Rated(st.Data):
    day: int
    rate: int
    rated: int


class Wides(st.Data):
    day: int
    wide: Wide | None
    price: float


class Total(st.Data):
    rows: int
    price: float | None
    cost: Decimal | None


Facts: TypeAlias = st.ZSet[Fact]
Dims: TypeAlias = st.ZSet[Dim]
Pairs: TypeAlias = st.ZSet[st.Pair[Fact, Dim]]


def joined(facts: Facts, dims: Dims) -> Pairs:
    return st.join(facts, dims, on_left=lambda f: f.dim, on_right=lambda d: d.key)


def summed(facts: Facts, dims: Dims) -> st.ZSet[Summed]:
    return st.aggregate(
        joined(facts, dims),
        by=lambda p: (p.right.name, p.left.day),
        into=Summed,
        rows=st.agg.count(),
        known=st.agg.count(lambda p: p.left.n),
        n=st.agg.sum(lambda p: p.left.n),
        mean=st.agg.avg(lambda p: p.left.day),
        price=st.agg.sum(lambda p: p.left.price),
        spread=st.agg.variance(lambda p: p.left.day),
        cost=st.agg.sum(lambda p: p.left.cost),
        wide=st.agg.max(lambda p: p.left.wide),
    )


def few(facts: Facts, dims: Dims) -> st.ZSet[Few]:
    """Several reductions, each of other columns."""
    return st.aggregate(
        joined(facts, dims),
        by=lambda p: p.right.name,
        into=Few,
        n=st.agg.sum(lambda p: p.left.day),
        least=st.agg.min(lambda p: p.left.day),
        most=st.agg.max(lambda p: p.left.price),
        days=st.agg.count_distinct(lambda p: p.left.day),
    )


def rated(facts: Facts, dims: Dims) -> st.ZSet[Rated]:
    """Conditions and sums of each side and of both."""
    pairs = st.filter(joined(facts, dims), lambda p: (p.left.day != 2) & (p.right.rate > -1))
    pairs = st.filter(pairs, lambda p: p.left.day <= p.right.rate + 1)
    return st.aggregate(
        pairs,
        by=lambda p: p.left.day + p.right.rate % 2,
        into=Rated,
        rate=st.agg.sum(lambda p: p.right.rate % 4),
        rated=st.agg.sum(lambda p: (p.right.rate % 4) * (p.left.day % 4)),
    )


def total(facts: Facts, dims: Dims) -> st.ZSet[Total]:
    return st.aggregate(
        joined(facts, dims),
        by=None,
        into=Total,
        rows=st.agg.count(),
        price=st.agg.sum(lambda p: p.left.price),
        cost=st.agg.sum(lambda p: p.left.cost),
    )


def mapped(facts: Facts, dims: Dims) -> st.ZSet[tuple[str | None, int, Dim]]:
    return st.map(joined(facts, dims), lambda p: (p.right.name, p.left.day, p.right))


def less(facts: Facts, dims: Dims) -> st.ZSet[int]:
    """The days of dear dimensions, less those of all."""
    pairs = joined(facts, dims)
    dear = st.map(st.filter(pairs, lambda p: p.right.rate > 1), lambda p: p.left.day)
    return st.add(dear, st.neg(st.map(pairs, lambda p: p.left.day)))


def worth(facts: Facts, dims: Dims) -> st.ZSet[float]:
    """A sum of floats alone, without a key."""
    price: float = st.make_scalar(joined(facts, dims), pick_value=lambda p: p.left.price)
    return st.make_set(price)


def alone(facts: Facts, dims: Dims) -> st.ZSet[Wides]:
    """Sums without a join, and of Decimals of 38 digits."""
    return st.aggregate(
        facts,
        by=lambda f: f.day,
        into=Wides,
        wide=st.agg.sum(lambda f: f.wide),
        price=st.agg.avg(lambda f: f.price),
    )


def wides(facts: Facts, dims: Dims) -> st.ZSet[Wides]:
    return st.aggregate(
        joined(facts, dims),
        by=lambda p: p.left.day + p.right.rate % 2,
        into=Wides,
        wide=st.agg.sum(lambda p: p.left.wide),
        price=st.agg.avg(lambda p: p.left.price),
    )


def looked_up(facts: Facts, dims: Dims) -> st.ZSet[st.Pair[int, tuple[str | None, int]]]:
    """A row of the last table meets those that meet a row of the one before."""
    near: Any = st.Lookup(dims, on=lambda t: t[0].dim, key=lambda d: d.key)
    far: Any = st.Lookup(dims, on=lambda t: t[1].rate, key=lambda d: d.key)
    return st.group_reduce_flatten(
        st.delta_join(facts, near, far),
        by=lambda t: (t[2].name, t[0].day),
        zero=int,
        pick_value=lambda t: t[0].day,
    )


def in_groups(facts: Facts, dims: Dims) -> st.ZSet[int]:
    return st.distinct(st.map(joined(facts, facts_of(dims)), lambda p: p.left.day))


def facts_of(dims: Dims) -> Dims:
    return st.filter(dims, lambda d: d.rate > 0)


QUERIES: list[Callable[..., Any]] = [
    summed,
    few,
    rated,
    total,
    mapped,
    less,
    worth,
    wides,
    looked_up,
    in_groups,
]
WITHOUT_A_JOIN: list[Callable[..., Any]] = [alone]
steps = hs.lists(hs.tuples(zsets_of(Fact), zsets_of(Dim)), min_size=1, max_size=5)


@pytest.mark.turn(2)
@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("query", [*QUERIES, *WITHOUT_A_JOIN])
@settings(max_examples=25)
@given(changes=steps)
def test_the_result_is_that_of_all_pairs(
    query: Callable[..., Any], optimize: bool, changes: list[tuple[Any, Any]]
) -> None:
    graph: Any = st.compile(query, optimize=optimize)
    expected: Any = st.reference(graph)
    steppers: list[Any] = [
        st.Stepper(graph, InMemory()(graph), limits=of) for of in (ALWAYS, NEVER)
    ]
    for change in changes:
        (out,) = expected.step(change)
        for stepper in steppers:
            assert stepper.step(change) == (out,)


@pytest.mark.turn(4)
@pytest.mark.parametrize("optimize", [True, False])
@pytest.mark.parametrize("query", [*QUERIES, *WITHOUT_A_JOIN])
@settings(max_examples=25)
@given(changes=steps)
def test_the_result_from_files_is_that_of_all_pairs(
    query: Callable[..., Any],
    optimize: bool,
    changes: list[tuple[Any, Any]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    graph: Any = st.compile(query, optimize=optimize)
    expected: Any = st.reference(graph)
    files = InFiles(tmp_path_factory.mktemp("state"))
    stepper: Any = st.Stepper(graph, files(graph), limits=ALWAYS)
    for change in changes:
        assert stepper.step(change) == expected.step(change)
    files.close()


def stepped(query: Callable[..., Any], *changes: tuple[Any, Any]) -> Any:
    """A stepper that has taken these steps, and always adds up before it joins.

    Its state has whole rows, which differ in columns that are not read.
    """
    graph: Any = st.compile(query, whole_rows=True)
    stepper: Any = st.Stepper(graph, st.StoreMemory.from_graph(graph), limits=ALWAYS)
    for change in changes:
        stepper.step(change)
    return stepper


def fact(n: int, **values: Any) -> Fact:
    known = {"dim": 1, "day": n % 3, "n": n, "price": n / 10, "cost": Decimal(n), "wide": None}
    return Fact(**{**known, **values})


def facts(n: int) -> Any:
    return Z({fact(i): 1 for i in range(n)})


def dim(name: str, rate: int = 3) -> Dim:
    return Dim(key=1, name=name, rate=rate)


def some(source: random.Random) -> tuple[Any, Any]:
    """A change of both inputs."""
    pairs = [
        (
            fact(
                source.randrange(9),
                dim=source.choice((None, 1, 2)),
                day=source.randrange(4),
                wide=source.choice((None, Decimal("1.25"), Decimal(10) ** 33)),
            ),
            source.choice((-1, 1, 2)),
        )
        for _ in range(8)
    ]
    dims = [
        (
            Dim(
                key=source.choice((None, 1, 2)), name=source.choice("ab"), rate=source.randrange(4)
            ),
            source.choice((-1, 1)),
        )
        for _ in range(3)
    ]
    return Z(pairs), Z(dims)


@pytest.mark.parametrize("query", [*QUERIES, *WITHOUT_A_JOIN])
def test_many_steps_of_few_values_are_those_of_all_pairs(query: Callable[..., Any]) -> None:
    source = random.Random(7)
    stepper = stepped(query)
    expected: Any = st.reference(stepper.graph)
    for _ in range(12):
        change = some(source)
        assert stepper.step(change) == expected.step(change)


@pytest.mark.driver
@pytest.mark.parametrize("query", QUERIES)
def test_each_of_these_queries_adds_up_first(query: Callable[..., Any]) -> None:
    stepper = stepped(query, (facts(30), Z({dim("a"): 1})))
    stepper.step((None, Z({dim("a"): -1, dim("b", rate=0): 1})))
    whys = [v.why for v in stepper.metrics[-1].vertices.values()]
    reads_no_dim = query in (total, worth)
    said = "meet no change of what is read" if reads_no_dim else "rows were added up to"
    assert any(said in why for why in whys)


@pytest.mark.parametrize("is_output", [False, True])
def test_a_join_that_is_only_joined_again_is_not_added_up(is_output: bool) -> None:
    def query(facts: Facts, dims: Dims) -> Any:
        summed = looked_up(facts, dims)
        near: Any = st.Lookup(dims, on=lambda t: t[0].dim, key=lambda d: d.key)
        return (summed, st.delta_join(facts, near)) if is_output else summed

    plan = plan_of(st.compile(query))
    streams = {str(plan.names[m.vertex][0]): m for s in plan.stages for m in s.streams}
    (join,) = (m for path, m in streams.items() if path.endswith("delta_join.add"))
    assert plan.is_added_up_by_joins(Ref(join.vertex)) != is_output


@pytest.mark.driver
def test_a_change_of_what_nothing_reads_looks_at_no_fact() -> None:
    stepper = stepped(total, (facts(30), Z({dim("a"): 1})))
    (out,) = stepper.step((None, Z({dim("a"): -1, dim("b"): 1})))
    assert out.empty()
    (ran,) = (v for p, v in stepper.metrics[-1].vertices.items() if p.endswith("make_scalar"))
    assert ran.why.endswith("30 rows meet no change of what is read")


@pytest.mark.driver
def test_rows_that_differ_in_what_is_read_are_joined_with_that_alone() -> None:
    many = 20_000
    given = Z({fact(i, day=i): 1 for i in range(many)})
    graph: Any = st.compile(mapped)
    stepper: Any = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    (out,) = stepper.step((given, Z({dim("a"): 1})))
    assert out == Z({("a", i, dim("a")): 1 for i in range(many)})
    whys = {v.why for v in stepper.metrics[-1].vertices.values()}
    assert any("20,000 rows are mostly different in what is read of them" in w for w in whys)


class Share(st.Data):
    name: str | None
    share: int


def shares(facts: Facts, dims: Dims) -> st.ZSet[Share]:
    """A function that has no value for some pairs, which a condition leaves out."""
    pairs = st.filter(joined(facts, dims), lambda p: p.left.day != p.right.rate)
    return st.aggregate(
        pairs,
        by=lambda p: p.right.name,
        into=Share,
        share=st.agg.sum(lambda p: p.left.day * 2**62),
    )


def test_a_function_fails_for_pairs_alone_that_there_are(spark: SparkSession) -> None:
    """The product of the day 2 is beyond 64 bits."""
    stepper = stepped(shares)
    (out,) = stepper.step((facts(3), Z({dim("a", rate=2): 1})))
    assert out == Z({Share(name="a", share=2**62): 1})
    with pytest.raises(st.StepError, match=r"shares\.aggregate\.map .* beyond|overflow"):
        stepper.step((None, Z({dim("b", rate=1): 1})))


def test_a_sum_of_a_part_may_be_beyond_what_the_whole_is_within() -> None:
    """The weights of one group of facts are beyond 64 bits; those of the pairs are not."""
    large = 2**62
    stepper = stepped(mapped, (Z({fact(0): large, fact(3): large}), None))
    (out,) = stepper.step((Z({fact(3): -large}), Z({dim("a"): 1})))
    assert out == Z({("a", 0, dim("a")): large})


@pytest.mark.turn(3)
def test_aggregates_that_join_for_themselves_can_do_so_in_spark(spark: SparkSession) -> None:
    """The rows are more than the driver takes without an estimate, and its memory is little."""
    graph: Any = st.compile(few)
    little = st.Limits(eager_rows=0, working_bytes=1_000, parallelism=2)
    steppers: list[Any] = [
        st.Stepper(graph, st.StoreMemory.from_graph(graph), limits=limits)
        for limits in (st.Limits(), little)
    ]
    first = (Z({fact(i, day=i % 5): 1 for i in range(11_000)}), Z({dim("a"): 1}))
    second = (Z({fact(7): -1, fact(11_000, day=9): 1}), Z({dim("a"): -1, dim("b"): 1}))
    for change in (first, second):
        (expected,), (out,) = (stepper.step(change) for stepper in steppers)
        assert out == expected
    ran = steppers[1].metrics[-1].vertices
    assert {v.how for p, v in ran.items() if p.endswith("join.join")} == {"spark"}


def test_a_recursion_is_no_join_that_is_added_up() -> None:
    def reached(edges: st.ZSet[st.Pair[int, int]]) -> st.ZSet[st.Pair[int, int]]:
        return st.transitive_closure(edges)

    (out,) = stepped(reached).step((Z({st.Pair(left=i, right=i + 1): 1 for i in range(3)}),))
    assert out == Z({st.Pair(left=i, right=j): 1 for j in range(4) for i in range(j)})
