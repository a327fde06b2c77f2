"""Semijoins, outer joins, half joins and delta joins: the named cases, and what they keep."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as hs
from pyspark.sql import DataFrame, SparkSession

import stepping_spark as st
from stepping_spark import functions as F
from stepping_spark.execution.sql_scope import SqlScope
from stepping_spark.language import linear
from tests.cases import Z
from tests.queries import QUERIES, Query
from tests.strategies import Step, add_up, streams_of


class Fact(st.Data):
    id: int
    user: int | None


class User(st.Data):
    id: int
    addr: int | None


class Addr(st.Data):
    id: int
    zipcode: str | None


class Agent(st.Data):
    zipcode: str
    name: str


class Link(st.Data):
    a: int
    b: int


class Row(st.Data):
    id: int
    next: int | None


FACT, USER, ADDR = Fact(id=1, user=1), User(id=1, addr=1), Addr(id=1, zipcode="N1")
AGENT = Agent(zipcode="N1", name="Ann")

both_rules = pytest.mark.parametrize("optimize", [True, False], ids=["optimized", "as written"])
every_join = pytest.mark.parametrize(
    "query", [q for q in QUERIES if "join" in q.name and "group" not in q.name], ids=str
)


def run(query: Callable[..., Any], *steps: Sequence[object], optimize: bool = True) -> list[Any]:
    """The output of each step, in plain Python."""
    reference = st.reference(st.compile(query, optimize=optimize))
    return [reference.step(step)[0] for step in steps]


def enriched(ops: Any, how: str) -> Callable[..., Any]:
    """facts → users → addrs → agent."""

    def query(
        facts: st.ZSet[Fact], users: st.ZSet[User], addrs: st.ZSet[Addr], agent: st.ZSet[Agent]
    ) -> Any:
        kind = cast(Any, how)
        return ops.delta_join(
            facts,
            st.Lookup(users, key=lambda u: u.id, on=lambda row: row[0].user, how=kind),
            st.Lookup(addrs, key=lambda a: a.id, on=lambda row: row[1].addr, how=kind),
            st.Lookup(agent, key=lambda a: a.zipcode, on=lambda row: row[2].zipcode, how=kind),
        )

    return query


def left_join(facts: st.ZSet[Fact], users: st.ZSet[User]) -> st.ZSet[st.Pair[Fact, User | None]]:
    return st.outer_join(facts, users, on_left=lambda f: f.user, on_right=lambda u: u.id)


def pair(left: object, right: object) -> Any:
    return st.Pair(left=left, right=right)


# -- self-join


@both_rules
def test_self_join(optimize: bool) -> None:
    """{(1, 1): 2} joined with itself in one step has weight 4."""

    def joined(a: st.ZSet[Link]) -> st.ZSet[st.Pair[Link, Link]]:
        return st.join(a, a, on_left=lambda x: x.b, on_right=lambda x: x.a)

    def looked_up(a: st.ZSet[Link]) -> st.ZSet[tuple[Link, Link]]:
        return st.delta_join(a, st.Lookup(a, key=lambda x: x.a, on=lambda row: row[0].b))

    one = Link(a=1, b=1)
    assert run(joined, (Z({one: 2}),), optimize=optimize) == [Z({pair(one, one): 4})]
    assert run(looked_up, (Z({one: 2}),), optimize=optimize) == [Z({(one, one): 4})]


# -- outer join


def test_outer_join_of_a_row_that_matches_two() -> None:
    facts = Z({FACT: 1})
    users = Z({USER: 1, User(id=1, addr=2): 1})
    (out,) = run(left_join, (facts, users))
    assert out == Z({pair(FACT, USER): 1, pair(FACT, User(id=1, addr=2)): 1})


def test_outer_join_when_the_last_match_leaves() -> None:
    two = User(id=1, addr=2)
    changes = [Z({USER: 1, two: 1}), Z({USER: -1}), Z({two: -1}), Z({two: 1})]
    outs = run(left_join, (Z({FACT: 1}), changes[0]), *((None, c) for c in changes[1:]))
    assert outs[1] == Z({pair(FACT, USER): -1})
    assert outs[2] == Z({pair(FACT, two): -1, pair(FACT, None): 1})
    assert outs[3] == Z({pair(FACT, two): 1, pair(FACT, None): -1})


@pytest.mark.parametrize("how", ["left", "right", "full"])
def test_outer_join_of_null_keys(how: str) -> None:
    def query(a: st.ZSet[Fact], b: st.ZSet[Row]) -> Any:
        return st.outer_join(
            a, b, on_left=lambda f: f.user, on_right=lambda r: r.next, how=cast(Any, how)
        )

    nobody, nothing = Fact(id=2, user=None), Row(id=3, next=None)
    (out,) = run(query, (Z({nobody: 2}), Z({nothing: 3})))
    left, right = {pair(nobody, None): 2}, {pair(None, nothing): 3}
    assert out == Z({"left": left, "right": right, "full": {**left, **right}}[how])


def test_outer_join_of_a_match_with_itself_has_no_more_rows_than_sql(spark: SparkSession) -> None:
    facts = [(i, i % 4 or None) for i in range(1, 9)]
    users = [(i % 5 + 1, i) for i in range(1, 9)]
    (out,) = run(
        left_join,
        (
            Z({Fact(id=i, user=u): 1 for i, u in facts}),
            Z({User(id=i, addr=a): 1 for i, a in users}),
        ),
    )
    spark.createDataFrame(facts, "id BIGINT, user BIGINT").createOrReplaceTempView("facts_sql")
    spark.createDataFrame(users, "id BIGINT, addr BIGINT").createOrReplaceTempView("users_sql")
    rows = spark.sql(
        "SELECT f.id, f.user, u.id, u.addr FROM facts_sql f LEFT JOIN users_sql u ON f.user = u.id"
    ).collect()
    wanted = [
        pair(Fact(id=f, user=k), None if u is None else User(id=u, addr=a)) for f, k, u, a in rows
    ]
    assert out == Z([(row, 1) for row in wanted])


def test_an_outer_join_has_one_of_three_kinds() -> None:
    def query(a: st.ZSet[Fact]) -> Any:
        return st.outer_join(
            a, a, on_left=lambda f: f.id, on_right=lambda f: f.id, how=cast(Any, "outer")
        )

    with pytest.raises(st.CompileError, match="how='outer' of an outer_join; it is 'left'"):
        st.compile(query)


# -- semijoin


def test_a_semijoin_keeps_weights_and_an_antijoin_has_the_rest() -> None:
    def semi(facts: st.ZSet[Fact], users: st.ZSet[User]) -> st.ZSet[Fact]:
        return st.semijoin(facts, users, on_left=lambda f: f.user, on_right=lambda u: u.id)

    def anti(facts: st.ZSet[Fact], users: st.ZSet[User]) -> st.ZSet[Fact]:
        return st.antijoin(facts, users, on_left=lambda f: f.user, on_right=lambda u: u.id)

    alone, nobody = Fact(id=2, user=7), Fact(id=3, user=None)
    step = (Z({FACT: 3, alone: 2, nobody: 1}), Z({USER: 2, User(id=1, addr=None): 1}))
    gone = (None, Z({USER: -2, User(id=1, addr=None): -1}))
    assert run(semi, step, gone) == [Z({FACT: 3}), Z({FACT: -3})]
    assert run(anti, step, gone) == [Z({alone: 2, nobody: 1}), Z({FACT: 3})]


# -- half join


@pytest.mark.parametrize("state", ["new", "old"])
def test_a_half_join_meets_the_new_or_the_old_state_and_keeps_none_of_its_left(state: str) -> None:
    def query(facts: st.ZSet[Fact], users: st.ZSet[User]) -> st.ZSet[st.Pair[Fact, User]]:
        return st.half_join(
            facts,
            users,
            on_left=lambda f: f.user,
            on_right=lambda u: u.id,
            state=cast(Any, state),
        )

    met = Z({pair(FACT, USER): 1})
    outs = run(query, (Z({FACT: 1}), Z({USER: 1})), (None, Z({USER: 1})), (Z({FACT: 1}), None))
    assert outs == [met if state == "new" else Z(), Z(), met + met]
    ((name, key),) = st.explain(st.compile(query)).arrangements
    assert (name, key) == ("query.users by id", ("id",))


def test_the_join_is_two_half_joins() -> None:
    def halves(facts: st.ZSet[Fact], users: st.ZSet[User]) -> st.ZSet[Any]:
        by_users = st.half_join(
            users, facts, on_left=lambda u: u.id, on_right=lambda f: f.user, state="new"
        )
        by_facts = st.half_join(
            facts, users, on_left=lambda f: f.user, on_right=lambda u: u.id, state="old"
        )
        turned = st.map(by_users, f=lambda p: st.Pair(left=p.right, right=p.left))
        return st.add(turned, by_facts)

    def whole(facts: st.ZSet[Fact], users: st.ZSet[User]) -> st.ZSet[Any]:
        return st.join(facts, users, on_left=lambda f: f.user, on_right=lambda u: u.id)

    steps = [(Z({FACT: 2}), Z({USER: 1})), (Z({FACT: -1}), Z({USER: 3})), (None, Z({USER: -4}))]
    typed = [_annotated(f, st.ZSet[st.Pair[Fact, User]]) for f in (halves, whole)]
    assert run(typed[0], *steps) == run(typed[1], *steps)


def _annotated(query: Callable[..., Any], gives: Any) -> Callable[..., Any]:
    query.__annotations__["return"] = gives
    return query


# -- delta join


@pytest.mark.parametrize("how", ["inner", "left"])
def test_delta_join_of_facts_users_addrs_and_agent_keeps_six_arrangements(how: str) -> None:
    """Those of seed 001: each input by what it is looked up by, and nothing that is joined."""
    explained = st.explain(st.compile(enriched(st, how)))
    assert sorted(name for name, _ in explained.arrangements) == [
        "query.addrs by id",
        "query.addrs by zipcode",
        "query.agent by zipcode",
        "query.facts by user",
        "query.users by addr",
        "query.users by id",
    ]
    assert "in full" not in str(explained)


@pytest.mark.parametrize("how", ["inner", "left"])
@both_rules
def test_delta_join_when_all_inputs_change_in_one_step(how: str, optimize: bool) -> None:
    """The term of an input reads the new state of those before it, and the old of those after."""
    all_at_once = (Z({FACT: 2}), Z({USER: 3}), Z({ADDR: 5}), Z({AGENT: 7}))
    row = (FACT, USER, ADDR, AGENT)
    again = tuple(z + z for z in all_at_once)
    outs = run(enriched(st, how), all_at_once, again, optimize=optimize)
    assert outs == [Z({row: 210}), Z({row: 81 * 210 - 210})]


def test_delta_join_by_left_lookups_takes_back_its_nulls() -> None:
    steps = [
        (Z({FACT: 1, Fact(id=2, user=None): 1}), None, None, None),
        (None, Z({USER: 1}), None, None),
        (None, None, None, Z({AGENT: 1})),
        (None, None, Z({ADDR: 1}), None),
        (None, Z({USER: -1}), None, None),
    ]
    query = enriched(st, "left")
    nobody = (Fact(id=2, user=None), None, None, None)
    assert run(query, *steps) == [
        Z({(FACT, None, None, None): 1, nobody: 1}),
        Z({(FACT, None, None, None): -1, (FACT, USER, None, None): 1}),
        Z(),
        Z({(FACT, USER, None, None): -1, (FACT, USER, ADDR, AGENT): 1}),
        Z({(FACT, USER, ADDR, AGENT): -1, (FACT, None, None, None): 1}),
    ]


def test_a_left_lookup_by_null_finds_nothing(spark: SparkSession) -> None:
    def query(facts: st.ZSet[Fact], users: st.ZSet[User]) -> Any:
        by_user: Any = st.Lookup(users, key=lambda u: u.id, on=lambda row: row[0].user, how="left")
        return st.delta_join(facts, by_user)

    query.__annotations__.pop("return")
    nobody = Fact(id=2, user=None)
    for local_rows in (st.Limits.local_rows, 0):
        stepper = stepper_of(query, local_rows)
        (out,) = stepper.step((Z({FACT: 1, nobody: 2}), Z({USER: 1})))
        assert out == Z({(FACT, USER): 1, (nobody, None): 2})


def stack(n: int, on: Callable[[int], Callable[[Any], Any]]) -> Callable[..., Any]:
    """So many left lookups, one upon the other."""

    def query(*tables: Any) -> Any:
        base, *rest = tables
        return st.delta_join(
            base,
            *(st.Lookup(r, key=lambda x: x.id, on=on(i), how="left") for i, r in enumerate(rest)),
        )

    names = [f"r{i}" for i in range(n + 1)]
    inner: dict[str, Any] = {"query": query, "st": st, "Row": Row}
    parameters = ", ".join(f"{name}: st.ZSet[Row]" for name in names)
    exec(f"def stacked({parameters}):\n    return query({', '.join(names)})", inner)
    return cast("Callable[..., Any]", inner["stacked"])


SHAPES: dict[str, Callable[[int], Callable[[Any], Any]]] = {
    "chain": lambda i: lambda row: row[i].next,
    "star": lambda i: lambda row: row[0].next,
}


@pytest.mark.parametrize("shape", SHAPES)
def test_a_stack_of_thirty_left_lookups_compiles_in_five_seconds_and_steps(
    spark: SparkSession, shape: str
) -> None:
    begun = time.process_time()
    graph = st.compile(stack(30, SHAPES[shape]))
    store = st.StoreMemory.from_graph(graph)
    assert time.process_time() - begun < 5
    assert len(graph.vertices) < 1000
    stepper = st.Stepper(graph, store)
    row, first = Row(id=1, next=1), Row(id=0, next=1)
    nothing = (None,) * 30
    (out,) = stepper.step((Z({first: 1}), *nothing))
    assert out == Z({(first,) + (None,) * 30: 1})
    (out,) = stepper.step((None, *(Z({row: 1}) for _ in nothing)))
    assert out == Z({(first,) + (None,) * 30: -1, (first,) + (row,) * 30: 1})
    (out,) = stepper.step((None,) * 30 + (Z({row: -1}),))
    assert out == Z({(first,) + (row,) * 30: -1, (first,) + (row,) * 29 + (None,): 1})


def test_a_key_that_is_there_where_its_row_is_not_cannot_be_followed_back() -> None:
    def query(a: st.ZSet[Row], b: st.ZSet[Row], c: st.ZSet[Row]) -> Any:
        return st.delta_join(
            a,
            st.Lookup(b, key=lambda r: r.id, on=lambda row: row[0].next, how="left"),
            st.Lookup(c, key=lambda r: F.col(r.next).isNull(), on=lambda row: row[1].next.isNull()),
        )

    with pytest.raises(st.CompileError, match="no part of the key is read from one input alone"):
        st.compile(query)


@pytest.mark.parametrize(
    ("lookups", "message"),
    [
        pytest.param(lambda r: (), "needs at least one st.Lookup", id="none"),
        pytest.param(lambda r: (r,), "takes a stream and then lookups, found", id="a stream"),
        pytest.param(
            lambda r: (st.Lookup(r, key=lambda x: x.id, on=lambda row: 1),),
            "no part of the key is read from one input alone",
            id="a constant",
        ),
        pytest.param(
            lambda r: (st.Lookup(r, key=lambda x: x.id, on=lambda row: row[0].id == 1),),
            "a lookup takes keys of one type, found on=id = 1 of type bool",
            id="another type",
        ),
        pytest.param(
            lambda r: (st.Lookup(r, key=lambda x: x.id, on=lambda row: row),),
            "on returns the whole row so far",
            id="all of it",
        ),
        pytest.param(
            lambda r: (
                st.Lookup(r, key=lambda x: x.id, on=lambda row: row[0].id, how=cast(Any, "full")),
            ),
            "how='full' of a Lookup; it is 'inner' or 'left'",
            id="another kind",
        ),
    ],
)
def test_a_delta_join_refuses(lookups: Callable[[Any], tuple[Any, ...]], message: str) -> None:
    def query(a: st.ZSet[Row], r: st.ZSet[Row]) -> Any:
        return st.delta_join(a, *lookups(r))

    with pytest.raises(st.CompileError, match=message):
        st.compile(query)


def test_a_picture_says_by_which_keys_the_tables_are_kept(tmp_path: Path) -> None:
    st.write_dot(st.compile(enriched(st, "left")), tmp_path / "enriched.dot")
    keys = set(re.findall(r"\bby (\w+)", (tmp_path / "enriched.dot").read_text()))
    assert keys == {"addr", "id", "user", "zipcode"}


# -- all of them


@every_join
def test_incrementalized_joins_are_the_lifted_circuits(query: Query) -> None:
    assert st.compile(st.incrementalize(query.whole)).same_as(st.compile(query.changes))


@every_join
@settings(max_examples=8)
@given(data=hs.data())
def test_the_sum_of_the_changes_is_the_join_of_the_sum(query: Query, data: hs.DataObject) -> None:
    steps: list[Step] = data.draw(streams_of(*query.rows, max_steps=4))
    outs = run(query.changes, *steps)
    (whole,) = run(query.whole, add_up(steps[1:], steps[0]))
    assert sum(outs[1:], outs[0]) == whole


@pytest.mark.parametrize("how", ["inner", "left"])
def test_a_whole_delta_join_is_that_of_whole_tables(how: str) -> None:
    tables = (Z({FACT: 1}), Z({USER: 1}), Z({ADDR: 1}), Z({AGENT: 1}))
    assert run(enriched(linear, how), tables) == run(enriched(st, how), tables)


# -- what runs


def stepper_of(query: Callable[..., Any], local_rows: int) -> st.Stepper[Any, Any]:
    graph = st.compile(query)
    return st.Stepper(graph, st.StoreMemory.from_graph(graph), local_rows=local_rows)


@pytest.mark.parametrize("local_rows", [st.Limits.local_rows, 0])
def test_batches_are_added_up_before_a_join_expands_them(
    spark: SparkSession, local_rows: int
) -> None:
    stepper = stepper_of(left_join, local_rows=local_rows)
    stepper.step((Z({Fact(id=i, user=i): 1 for i in range(100)}), None))
    stepper.step((Z({Fact(id=7, user=7): -1, Fact(id=107, user=7): 1}), None))
    user = User(id=7, addr=None)
    (out,) = stepper.step((None, Z({user: 1})))
    now = Fact(id=107, user=7)
    assert out == Z({pair(now, user): 1, pair(now, None): -1})
    # The fact of user 7 came in one batch and went in the other: what is left is the new one.
    read = stepper.metrics[-1].vertices["left_join.outer_join.add_2"].rows_in
    assert read == 4  # the user and the key that is there now, and the new fact for each
    assert ", added up}" in str(st.explain(st.compile(left_join)))


class Exchanges:
    """Counts what Spark shuffles, and its queries, while steps run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.plans: list[str] = []
        original = SqlScope.sql

        def watched(sources: SqlScope, text: str, uses: Iterable[str]) -> DataFrame:
            frame = original(sources, text, uses)
            self.plans.append(str(frame._jdf.queryExecution().executedPlan().toString()))
            return frame

        monkeypatch.setattr(SqlScope, "sql", watched)

    @property
    def count(self) -> int:
        return sum(plan.count("Exchange") for plan in self.plans)


@pytest.mark.usefixtures("by_queries")
def test_a_map_and_a_filter_after_a_join_cost_no_shuffle_and_no_job(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    def joined(facts: st.ZSet[Fact], users: st.ZSet[User]) -> st.ZSet[st.Pair[Fact, User]]:
        return st.join(facts, users, on_left=lambda f: f.user, on_right=lambda u: u.id)

    def mapped(facts: st.ZSet[Fact], users: st.ZSet[User]) -> st.ZSet[tuple[int, int]]:
        kept = st.filter(joined(facts, users), f=lambda p: p.left.id > 1)
        return st.map(kept, f=lambda p: (p.left.id, p.right.id))

    limits = st.Limits(local_rows=0, fetched_rows=0)
    exchanges = Exchanges(monkeypatch)
    found = []
    for query in (joined, mapped):
        graph = st.compile(query)
        stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), limits=limits)
        for n in range(2):
            exchanges.plans.clear()
            facts = Z({Fact(id=i, user=i % 3): 1 for i in range(4 * n, 4 * n + 4)})
            users = Z({User(id=i, addr=n): 1 for i in range(3)})
            stepper.step((facts, users))
        stages = st.explain(st.compile(query)).plan.count("stage ")
        found.append((stages, stepper.metrics[-1].jobs, len(exchanges.plans), exchanges.count))
    assert found[0] == found[1]
    assert found[0][3] > 0
