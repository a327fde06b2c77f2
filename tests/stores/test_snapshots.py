"""Snapshots of a state that another store object, as another process has, goes on writing."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

import stepping_spark as st
from stores.parquet.transaction import KEPT

by_start = st.Cache[tuple[int, int]](name="by_start")
ends = st.Cache[int](name="ends")


def query(edges: st.ZSet[tuple[int, int]]) -> st.ZSet[int]:
    _ = by_start[edges](lambda e: st.integrate_indexed(e, indexes=(lambda r: r[0],)))
    found = st.map(edges, f=lambda e: e[1])
    _ = ends[found](lambda e: st.integrate(e))
    return found


graph = st.compile(query)


@pytest.fixture(params=["parquet", "postgres"])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Any, Any]]:
    """A writer, and a reader of the same state."""
    with ExitStack() as opened:

        def of(**how: Any) -> Any:
            store: AbstractContextManager[Any]
            if request.param == "parquet":
                store = st.StoreParquet.from_graph(graph, tmp_path / "s", **how)
            else:
                url = request.getfixturevalue("postgres").url
                store = st.StorePostgres.from_graph(graph, url, schema=tmp_path.name, **how)
            return opened.enter_context(store)

        yield of(create=True), of(read_only=True)


def step(writer: Any, *numbers: int) -> None:
    for n in numbers:
        change = [((n, -n), 1), ((0, 0), 1)]
        st.iteration(writer, graph, (st.ZSetPython(change),), step=n)


def seen(reader: Any) -> tuple[Any, ...]:
    return (
        reader.last_step(),
        by_start.zset(reader).to_python(),
        ends.zset(reader).to_python(),
        list(by_start.zset(reader).iter_by_index(lambda r: r[0], {0, 1, 4})),
    )


def test_two_caches_are_of_one_step_within_a_snapshot_and_not_without(
    spark: object, both: tuple[Any, Any]
) -> None:
    writer, reader = both
    step(writer, 1, 2)
    edges = by_start.zset(reader).to_python()
    step(writer, 3)
    assert len(ends.zset(reader).to_python()) > len(edges)  # as it is without a snapshot
    with reader.snapshot():
        before = seen(reader)
        step(writer, 4)
        assert seen(reader) == before
        assert {(e, n) for (_, e), n in before[1].iter()} == set(before[2].iter())
        assert st.Stepper(graph, reader).step((None,), step=3)[0] == st.ZSetPython({0: 1, -3: 1})
    assert seen(reader)[0] == 4


@pytest.mark.parametrize("both", ["parquet"], indirect=True)
def test_a_snapshot_whose_step_another_process_no_longer_keeps_says_so(
    spark: object, both: tuple[Any, Any]
) -> None:
    writer, reader = both
    step(writer, 1)
    with reader.snapshot():
        step(writer, *range(2, 2 + KEPT + 1))
        writer.compact()
        writer.close()  # which waits until files are removed
        with pytest.raises(st.StoreUnavailable, match="step 1, which this snapshot is of, is gone"):
            by_start.zset(reader).to_python()
    assert reader.last_step() == 2 + KEPT


@pytest.mark.parametrize("both", ["parquet"], indirect=True)
def test_the_writer_keeps_what_a_snapshot_of_its_own_reads_and_removes_it_after(
    spark: object, both: tuple[Any, Any], tmp_path: Path
) -> None:
    writer, _ = both
    step(writer, 1)
    with writer.snapshot(), ThreadPoolExecutor(1) as other:
        other.submit(step, writer, *range(2, 12)).result()
        assert ends.zset(writer).to_python() == st.ZSetPython({0: 1, -1: 1})
        assert len(list(tmp_path.glob("s/manifests/*.json"))) == 11
    step(writer, 12)
    writer.close()
    assert len(list(tmp_path.glob("s/manifests/*.json"))) == KEPT


@pytest.mark.parametrize("both", ["postgres"], indirect=True)
def test_a_snapshot_whose_connection_is_lost_says_so(
    spark: object, both: tuple[Any, Any], postgres: Any
) -> None:
    writer, reader = both
    step(writer, 1)
    with reader.snapshot():
        ends.zset(reader)
        with psycopg.connect(postgres.url, autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend((SELECT pid FROM pg_stat_activity "
                "WHERE application_name LIKE 'stepping_spark reader%' "
                "ORDER BY backend_start DESC LIMIT 1))"
            )
        with pytest.raises(st.StoreUnavailable):  # which is how it is noticed
            ends.zset(reader)
        with pytest.raises(st.StoreUnavailable, match="snapshot of step 1 was lost"):
            ends.zset(reader)
    assert seen(reader)[0] == 1
