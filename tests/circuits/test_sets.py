"""Unions, intersections and differences, against Spark SQL."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark.language import linear
from tests.against_sql import held_to_sql
from tests.every_store import MakeStore

NAN = float("nan")


class Left(st.Data):
    name: str | None
    x: float | None


Z = st.ZSet


def left(source: random.Random) -> Left:
    return Left(name=source.choice(("a", None)), x=source.choice((0.0, -0.0, NAN, None, 2.5)))


def sets(
    a: Z[Left], b: Z[Left]
) -> tuple[Z[Left], Z[Left], Z[Left], Z[Left], Z[Left], Z[Left], Z[str | None], Z[Left]]:
    names = [st.map(z, f=lambda r: r.name) for z in (a, b)]
    return (
        st.union(a, b),
        st.union(a, b, all=True),
        st.intersect(a, b),
        st.intersect(a, b, all=True),
        st.except_(a, b),
        st.except_(a, b, all=True),
        st.except_(*names),
        st.symmetric_difference(a, b),
    )


SQL = {
    "union": "SELECT * FROM a UNION SELECT * FROM b",
    "union all": "SELECT * FROM a UNION ALL SELECT * FROM b",
    "intersect": "SELECT * FROM a INTERSECT SELECT * FROM b",
    "intersect all": "SELECT * FROM a INTERSECT ALL SELECT * FROM b",
    "except": "SELECT * FROM a EXCEPT SELECT * FROM b",
    "except all": "SELECT * FROM a EXCEPT ALL SELECT * FROM b",
    "except of names": "SELECT name FROM a EXCEPT SELECT name FROM b",
    "symmetric difference": (
        "(SELECT * FROM a EXCEPT SELECT * FROM b) UNION ALL "
        "(SELECT * FROM b EXCEPT SELECT * FROM a)"
    ),
}


@pytest.mark.turn(2)
@pytest.mark.parametrize(
    ("local_rows", "optimize", "seed"),
    [(2_000_000, True, 1), (0, True, 2), pytest.param(0, False, 3, marks=pytest.mark.long)],
    ids=["driver", "spark", "as written"],
)
def test_rows_and_how_often_they_come_are_those_of_sql(
    spark: SparkSession, local_rows: int, optimize: bool, seed: int
) -> None:
    graph = st.compile(sets, optimize=optimize)
    stepper: Any = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
    held_to_sql(spark, graph, lambda: stepper, SQL, {"a": left, "b": left}, steps=3, seed=seed)


@pytest.mark.long
def test_a_state_that_is_opened_anew_goes_on_as_sql_says(
    spark: SparkSession, make_store: MakeStore
) -> None:
    graph: Any = st.compile(sets)
    store = make_store(graph)

    def stepper() -> st.Stepper[Any, Any]:
        nonlocal store
        store = make_store.reopen(store, graph)
        return st.Stepper(graph, store)

    held_to_sql(spark, graph, stepper, SQL, {"a": left, "b": left}, seed=4)


def test_the_lifted_circuits_are_those_of_whole_values() -> None:
    def whole(a: Z[Left], b: Z[Left]) -> tuple[Z[Left], Z[Left], Z[Left]]:
        return (
            linear.union(a, b),
            linear.intersect(a, b, all=True),
            linear.except_(a, b),
        )

    def lifted(a: Z[Left], b: Z[Left]) -> tuple[Z[Left], Z[Left], Z[Left]]:
        return st.union(a, b), st.intersect(a, b, all=True), st.except_(a, b)

    assert st.compile(st.incrementalize(whole)) == st.compile(lifted)


def test_per_group_each_group_has_its_own_difference() -> None:
    def query(a: Z[tuple[int, str]]) -> Z[st.Pair[tuple[int, str], int]]:
        return st.flatten(
            st.per_group[st.group(a, by=lambda r: r[0])](
                lambda g: st.except_(g, st.filter(g, f=lambda r: r[1] == "x"), all=True)
            )
        )

    (out,) = st.reference(st.compile(query)).step((st.ZSetPython({(1, "x"): 2, (2, "y"): 3}),))
    assert dict(out.iter()) == {st.Pair(left=(2, "y"), right=2): 3}


def test_streams_of_other_rows_are_refused() -> None:
    def query(a: Z[int], b: Z[str]) -> Z[int]:
        return st.except_(a, b)  # type: ignore[arg-type]

    with pytest.raises(
        st.CompileError, match=r"except_ takes two ZSets of the same rows, found int"
    ):
        st.compile(query)
