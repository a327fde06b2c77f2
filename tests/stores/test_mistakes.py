"""What is given to a store in the place of another thing: one clear error, and nothing is made."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import stepping_spark as st

URL = "postgresql://me:secret@localhost:1/db"


def query(a: st.ZSet[str]) -> st.ZSet[str]:
    return st.distinct(a)


GRAPH: Any = st.compile(query)


def refused(call: Any, *parts: str) -> None:
    """The call is refused, names the user's line where it was made, and shows no password."""
    with pytest.raises(st.SteppingError) as e:
        call()
    for part in parts:
        assert part in str(e.value)
    assert "secret" not in str(e.value)


@pytest.mark.parametrize("given", [GRAPH, query, [GRAPH], "registers"])
@pytest.mark.parametrize(
    ("make", "remedy"),
    [
        (lambda given, _: st.StoreMemory(given), "st.StoreMemory.from_graph(graph)"),
        (
            lambda given, path: st.StoreParquet(path, given, create=True),
            "st.StoreParquet.from_graph(graph, path)",
        ),
        (lambda given, _: st.StorePostgres(URL, given), "st.StorePostgres.from_graph(graph, url)"),
        (lambda given, _: st.StoreMemory().open(given), "st.StoreMemory.from_graph(graph)"),
    ],
    ids=["memory", "parquet", "postgres", "open"],
)
def test_what_is_no_registers(make: Any, remedy: str, given: Any, tmp_path: Path) -> None:
    where = tmp_path / "state"
    refused(lambda: make(given, where), "test_mistakes.py:", "expected registers, found", remedy)
    assert not where.exists()


@pytest.mark.parametrize("given", [GRAPH, None, 3])
@pytest.mark.parametrize(
    ("make", "remedy"),
    [
        (st.StoreParquet, "st.StoreParquet.from_graph(graph, path)"),
        (st.StorePostgres, "st.StorePostgres.from_graph(graph, url)"),
    ],
)
def test_what_is_no_place(make: Any, remedy: str, given: Any) -> None:
    refused(lambda: make(given, []), "test_mistakes.py:", f"found {type(given).__name__}", remedy)
    refused(lambda: make.from_graph(GRAPH, given), f"found {type(given).__name__}", remedy)


@pytest.mark.parametrize("given", [query, "path", None])
@pytest.mark.parametrize("store", [st.StoreMemory, st.StoreParquet, st.StorePostgres])
def test_what_is_no_graph(store: Any, given: Any) -> None:
    more = () if store is st.StoreMemory else ("path",)
    refused(
        lambda: store.from_graph(given, *more),
        f"found {type(given).__name__}; the graph comes first: from_graph(st.compile(query), …)",
    )


@pytest.mark.parametrize("url", [URL, URL.replace("postgresql", "postgres"), f"postgres:{URL}"])
def test_a_url_of_postgres_in_the_place_of_a_path(url: str) -> None:
    refused(
        lambda: st.StoreParquet.from_graph(GRAPH, url, create=True),
        "a URL of Postgres",
        "st.StorePostgres.from_graph(graph, url)",
    )


def test_a_place_of_the_command_line_in_the_place_of_a_path(tmp_path: Path) -> None:
    refused(
        lambda: st.StoreParquet.from_graph(GRAPH, f"parquet:{tmp_path}", create=True),
        "parquet: says on a command line",
        "leave it out",
    )


@pytest.mark.parametrize("path", ["state", "/var/state", "s3://key:secret@bucket/x", Path("state")])
def test_a_path_in_the_place_of_a_url_of_postgres(path: Any) -> None:
    refused(
        lambda: st.StorePostgres.from_graph(GRAPH, path),
        "st.StoreParquet.from_graph(graph, path)",
        "postgresql://user:password@host:5432/database",
    )


def test_a_path_is_shown_in_the_place_of_a_url() -> None:
    refused(lambda: st.StorePostgres.from_graph(GRAPH, "my/state"), "'my/state'")


def test_a_password_in_what_is_no_uri_is_not_shown() -> None:
    refused(lambda: st.StoreParquet.from_graph(GRAPH, "s4:s3://key:secret@bucket/x"), "not clear")


@pytest.mark.parametrize("store", ["state", None, st.StoreMemory])
def test_what_is_no_store(store: Any) -> None:
    remedy = re.escape("st.StoreMemory.from_graph(graph)")
    with pytest.raises(st.InputError, match=f"expected a store, found .*{remedy}"):
        st.Stepper(GRAPH, store)
    with pytest.raises(st.InputError, match=f"expected a store, found .*{remedy}"):
        st.iteration(store, GRAPH, (None,))
