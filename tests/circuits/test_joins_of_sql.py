"""Joins with conditions, on NULL keys, and without a key, against Spark SQL."""

from __future__ import annotations

import random
from typing import Any

import pytest
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark.language import linear
from tests.against_sql import held_to_sql

Z = st.ZSet


class L(st.Data):
    k: str | None
    j: int | None
    x: int


class R(st.Data):
    k: str | None
    j: int
    y: int | None


def left(source: random.Random) -> L:
    return L(
        k=source.choice("ab") if source.random() < 0.7 else None,
        j=source.choice((None, 1, 2)),
        x=source.randrange(3),
    )


def right(source: random.Random) -> R:
    return R(
        k=source.choice("ab") if source.random() < 0.7 else None,
        j=source.choice((1, 2)),
        y=source.choice((None, 0, 1, 2)),
    )


def by(row: Any) -> Any:
    return row.k, row.j


def k(row: Any) -> Any:
    return row.k


def j(row: Any) -> Any:
    return row.j


def x(row: Any) -> Any:
    return row.x


def larger(p: Any) -> Any:
    return p.left.x > p.right.y


def flat(pairs: Any) -> Any:
    return st.map(
        pairs, f=lambda p: (p.left.k, p.left.j, p.left.x, p.right.k, p.right.j, p.right.y)
    )


def conditional(ops: Any) -> Any:
    def query(a: Z[L], b: Z[R]) -> Any:
        on: Any = {"on_left": k, "on_right": k, "where": larger}
        return (
            flat(ops.join(a, b, **on)),
            flat(ops.outer_join(a, b, **on)),
            flat(ops.outer_join(a, b, **on, how="right")),
            flat(ops.outer_join(a, b, **on, how="full", null_safe=True)),
            ops.semijoin(a, b, **on, null_safe=True),
            ops.antijoin(a, b, **on),
            flat(ops.cross_join(a, b, how="left", where=larger)),
        )

    return query


CONDITIONAL = {
    "join": "SELECT * FROM a JOIN b ON a.k = b.k AND a.x > b.y",
    "left": "SELECT * FROM a LEFT JOIN b ON a.k = b.k AND a.x > b.y",
    "right": "SELECT * FROM a RIGHT JOIN b ON a.k = b.k AND a.x > b.y",
    "full, null safe": "SELECT * FROM a FULL JOIN b ON a.k <=> b.k AND a.x > b.y",
    "semi, null safe": "SELECT * FROM a LEFT SEMI JOIN b ON a.k <=> b.k AND a.x > b.y",
    "anti": "SELECT * FROM a LEFT ANTI JOIN b ON a.k = b.k AND a.x > b.y",
    "cross": "SELECT * FROM a LEFT JOIN b ON a.x > b.y",
}


def null_safe(ops: Any) -> Any:
    def query(a: Z[L], b: Z[R]) -> Any:
        on: Any = {"on_left": by, "on_right": by, "null_safe": True}
        inner = st.Lookup(b, key=k, on=lambda t: t[0].k, null_safe=True)
        last = st.Lookup(
            a,
            key=lambda r: (r.k, r.x),
            on=lambda t: (t[1].k, t[0].x),
            null_safe=True,
            where=lambda t: t[0].x > t[1].y,
        )
        or_none = st.Lookup(b, key=by, on=lambda t: (t[0].k, t[0].j), null_safe=True, how="left")
        return (
            flat(ops.join(a, b, **on)),
            flat(ops.outer_join(a, b, **on, how="full")),
            ops.semijoin(a, b, **on),
            ops.antijoin(a, b, **on),
            st.map(ops.delta_join(a, inner, last), f=lambda t: (t[0].k, t[0].x, t[1].y, t[2].j)),
            st.map(ops.delta_join(a, or_none), f=lambda t: (t[0].k, t[0].x, t[1].k, t[1].y)),
            flat(ops.cross_join(a, b)),
        )

    return query


NULL_SAFE = {
    "join": "SELECT * FROM a JOIN b ON a.k <=> b.k AND a.j <=> b.j",
    "full": "SELECT * FROM a FULL JOIN b ON a.k <=> b.k AND a.j <=> b.j",
    "semi": "SELECT * FROM a LEFT SEMI JOIN b ON a.k <=> b.k AND a.j <=> b.j",
    "anti": "SELECT * FROM a LEFT ANTI JOIN b ON a.k <=> b.k AND a.j <=> b.j",
    "delta": """
        SELECT a.k, a.x, b.y, c.j FROM a JOIN b ON a.k <=> b.k
        JOIN a c ON b.k <=> c.k AND a.x = c.x AND a.x > b.y
    """,
    "left lookup": """
        SELECT a.k, a.x, b.k, b.y FROM a LEFT JOIN b ON a.k <=> b.k AND a.j <=> b.j
    """,
    "cross": "SELECT * FROM a CROSS JOIN b",
}


def looked_up(ops: Any) -> Any:
    """Left lookups with conditions: alone, and with others before and after them."""

    def query(a: Z[L], b: Z[R]) -> Any:
        larger_one = st.Lookup(
            b, key=k, on=lambda t: t[0].k, how="left", where=lambda t: t[0].x > t[1].y
        )
        alone = ops.delta_join(a, larger_one)
        between = ops.delta_join(
            a,
            st.Lookup(a, key=k, on=lambda t: t[0].k),
            st.Lookup(b, key=j, on=lambda t: t[1].j, how="left", where=lambda t: t[0].x > t[2].y),
            st.Lookup(b, key=k, on=lambda t: t[2].k, how="left", where=lambda t: t[3].y < t[1].x),
            st.Lookup(a, key=x, on=lambda t: t[2].y, where=lambda t: t[4].x <= t[0].x),
        )
        return (
            st.map(alone, f=lambda t: (t[0].k, t[0].x, t[1].y)),
            st.map(between, f=lambda t: (t[0].x, t[1].x, t[2].k, t[2].y, t[3].y, t[4].j)),
        )

    return query


LOOKED_UP = {
    "alone": "SELECT a.k, a.x, b.y FROM a LEFT JOIN b ON a.k = b.k AND a.x > b.y",
    "between": """
        SELECT a.x, c.x, b.k, b.y, d.y, e.j FROM a JOIN a c ON a.k = c.k
        LEFT JOIN b ON c.j = b.j AND a.x > b.y
        LEFT JOIN b d ON b.k = d.k AND d.y < c.x
        JOIN a e ON b.y = e.x AND e.x <= a.x
    """,
}


@pytest.mark.parametrize(
    ("make", "texts", "local_rows", "optimize"),
    [
        (looked_up, LOOKED_UP, 2_000_000, True),
        pytest.param(looked_up, LOOKED_UP, 0, True, marks=pytest.mark.long),
        (conditional, CONDITIONAL, 2_000_000, True),
        (null_safe, NULL_SAFE, 2_000_000, True),
        (conditional, CONDITIONAL, 0, True),
        pytest.param(null_safe, NULL_SAFE, 0, True, marks=pytest.mark.long),
        pytest.param(conditional, CONDITIONAL, 0, False, marks=pytest.mark.long),
        pytest.param(null_safe, NULL_SAFE, 0, False, marks=pytest.mark.long),
    ],
)
def test_pairs_and_rows_without_a_match_are_those_of_sql(
    spark: SparkSession, make: Any, texts: dict[str, str], local_rows: int, optimize: bool
) -> None:
    graph: Any = st.compile(make(st), optimize=optimize)
    stepper: Any = st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)
    held_to_sql(spark, graph, lambda: stepper, texts, {"a": left, "b": right}, steps=3)


@pytest.mark.parametrize("make", [conditional, null_safe, looked_up])
def test_the_lifted_circuits_are_those_of_whole_values(make: Any) -> None:
    whole: Any = st.compile(st.incrementalize(make(linear)))
    assert whole == st.compile(make(st))


def test_explain_says_that_a_cross_join_reads_all_of_a_side() -> None:
    def query(a: Z[L], b: Z[R]) -> Z[st.Pair[L, R]]:
        return st.cross_join(a, b)

    (hint,) = st.explain(st.compile(query)).hints
    assert "reads all of one side for each change of the other" in hint


def test_per_group_rows_are_joined_within_their_group() -> None:
    class Up(st.Data):
        k: str | None
        x: int

    def query(a: Z[L]) -> Z[st.Pair[st.Pair[L, Up | None], str | None]]:
        def larger_ones(g: Z[L]) -> Any:
            others = st.map(g, f=lambda r: Up(k=r.k, x=r.x))
            on: Any = {"on_left": k, "on_right": k, "null_safe": True}
            return st.outer_join(g, others, **on, where=lambda p: p.left.x < p.right.x)

        return st.flatten(st.per_group[st.group(a, by=k)](larger_ones))

    rows = [L(k=None, j=None, x=1), L(k=None, j=None, x=2), L(k="a", j=1, x=9)]
    graph = st.compile(query)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    reference = st.reference(graph)
    shown: Any = st.ZSetPython()
    for change in (st.ZSetPython([(r, 1) for r in rows]), st.ZSetPython({rows[1]: -1})):
        (out,) = stepper.step((change,))
        assert out == reference.step((change,))[0]
        shown = shown + out.to_python()
    alone = [st.Pair(left=st.Pair(left=r, right=None), right=r.k) for r in (rows[0], rows[2])]
    assert shown == st.ZSetPython([(p, 1) for p in alone])


def refused(query: Any) -> str:
    with pytest.raises(st.CompileError) as e:
        st.compile(query)
    return str(e.value)


def test_what_cannot_be_joined_so_is_refused_with_the_remedy() -> None:
    def crossed(a: Z[L], b: Z[R]) -> Z[Any]:
        return st.cross_join(a, b, how="full")  # type: ignore[call-overload, no-any-return]

    def no_condition(a: Z[L], b: Z[R]) -> Z[Any]:
        return st.join(a, b, on_left=k, on_right=k, where=lambda p: p.left.x)

    def after_a_left_one(a: Z[L], b: Z[R]) -> Z[Any]:
        first = st.Lookup(b, key=k, on=lambda t: t[0].k, how="left")
        return st.delta_join(a, first, st.Lookup(a, key=k, on=lambda t: t[1].k, null_safe=True))

    assert "null_safe of lookup 2, which reads a left one before it" in refused(after_a_left_one)
    assert "how='full' of a cross_join; it is 'inner' or 'left'" in refused(crossed)
    assert "compare it with something" in refused(no_condition)
