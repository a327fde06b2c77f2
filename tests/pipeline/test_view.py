"""`@st.view`: queries that say where they read and where they write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import stepping_spark as st
from stepping_spark.base.errors import CompileError, InputError
from tests.cases import User, Z
from tests.pipeline.shop import View

USERS = [(1, Z({User(id=1, name="ann"): 1, User(id=2, name="ann"): 1, User(id=3, name="bo"): 1}))]


def declared() -> tuple[Any, Any, View, View]:
    """Two views, the second of the first, and their sinks."""
    first, second = View(), View()

    @st.view(users=USERS, into=first, comment="Each name once")
    def names(users: st.ZSet[User]) -> st.ZSet[str]:
        return st.distinct(st.map(users, f=lambda u: u.name))

    @st.view(into=[second], name="short_names")
    def shorter(names: st.ZSet[str]) -> st.ZSet[str]:
        return st.filter(names, f=lambda n: n != "ann")

    return names, shorter, first, second


def test_a_view_is_run_with_its_own_sources_and_sinks() -> None:
    names, _, into, _ = declared()
    pipeline = st.Pipeline(names, store="memory")
    assert pipeline.views == ("names",)
    assert pipeline.run() == 1
    assert into.rows == Z({"ann": 1, "bo": 1})
    assert pipeline.dry_run().comments == {"names": "Each name once"}
    assert "names (Each name once): reads the change of users" in str(pipeline.dry_run())


def test_views_that_read_each_other_are_one_pipeline_whatever_their_order() -> None:
    names, shorter, first, second = declared()
    pipeline = st.Pipeline([shorter, names], store="memory")
    assert pipeline.views == ("short_names", "names")
    pipeline.run()
    assert first.rows == Z({"ann": 1, "bo": 1})
    assert second.rows == Z({"bo": 1})


def test_a_view_alone_has_its_name_and_wants_a_source_for_each_input() -> None:
    _, shorter, _, second = declared()
    with pytest.raises(InputError, match="has the inputs names, and sources are given for none"):
        st.Pipeline(shorter, store="memory")
    pipeline = st.Pipeline(shorter, store="memory", names=[(1, Z({"bo": 2}))])
    assert pipeline.views == ("short_names",)
    pipeline.run()
    assert second.rows == Z({"bo": 2})


def test_what_is_given_to_the_pipeline_comes_first() -> None:
    names, _, into, _ = declared()
    seen: dict[int, Any] = {}
    users = [(1, Z({User(id=7, name="eve"): 1}))]
    st.Pipeline(names, store="memory", users=users, into={"names": seen.setdefault}).run()
    assert seen[1] == Z({"eve": 1})
    assert not into.steps
    pipeline = st.Pipeline({"renamed": names}, store="memory")
    pipeline.run()
    assert (pipeline.views, into.rows) == (("renamed",), Z({"ann": 1, "bo": 1}))


def test_a_view_is_still_a_function_that_is_called_and_compiled() -> None:
    names, _, _, _ = declared()

    def twice(users: st.ZSet[User]) -> st.ZSet[str]:
        return st.add(names(users), names(users))

    assert str(st.compile(names)).startswith("graph names\n")
    assert st.compile(twice).name == "twice"

    @st.view
    def plain(users: st.ZSet[User]) -> st.ZSet[User]:
        return users

    seen: dict[int, Any] = {}
    st.Pipeline([plain], store="memory", users=USERS, into={"plain": seen.setdefault}).run()
    assert seen[1] == USERS[0][1]


def test_the_same_table_for_two_views_is_one_source_and_two_tables_are_refused(
    tmp_path: Path,
) -> None:
    def of(first: Any, second: Any, **given: Any) -> st.Pipeline:
        @st.view(users=first)
        def one(users: st.ZSet[User]) -> st.ZSet[User]:
            return users

        @st.view(users=second)
        def two(users: st.ZSet[User]) -> st.ZSet[User]:
            return st.distinct(users)

        return st.Pipeline([one, two], store="memory", **given)

    table = tmp_path / "users"
    of(st.DeltaTable(table), st.DeltaTable(f"{table}/"))
    with pytest.raises(InputError, match=r"test_view\.py:\d+, in .*: input 'users' is DeltaTable"):
        of(st.DeltaTable(table), st.DeltaTable(f"{table}2"))
    of(st.DeltaTable(table), st.DeltaTable(f"{table}2"), users=USERS)


def test_what_is_no_view_is_refused_at_the_users_line() -> None:
    def query(users: st.ZSet[User]) -> st.ZSet[User]:
        return users

    text: Any = "revenue"
    number: Any = 3
    cases: list[tuple[Any, str]] = [
        (lambda: st.view(into=print, user=USERS)(query), "has a source for user, and the parame"),
        (lambda: st.view(name="")(query), "name='': expected the name of the view"),
        (lambda: st.view(text), "stands above a query function, found 'revenue'"),
        (lambda: st.view(into=print)(User), "stands above a query function"),
        (lambda: st.Pipeline([query, query], store="memory"), "two views are called 'query'"),
        (lambda: st.Pipeline([number], store="memory"), "a query is a function, found"),
        (lambda: st.Pipeline(text, store="memory"), "expected a query function, found"),
    ]
    for call, said in cases:
        with pytest.raises((InputError, CompileError), match=said) as told:
            call()
        assert str(told.value).startswith("test_view.py:")
