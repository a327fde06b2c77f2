"""Tables of a lake as sinks: what Delta and Iceberg refuse alike."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from pyiceberg.catalog import Catalog

import stepping_spark as st
from stepping_spark.base.errors import SinkError
from tests.cases import Z
from tests.pipeline.shop import Note, numbered, pipeline, read

Tables = Callable[..., st.DeltaTable | st.IcebergTable]


@pytest.fixture(params=["delta", "marked", "iceberg"])
def table_of(request: pytest.FixtureRequest, tmp_path: Path, catalog: Catalog) -> Tables:
    """Makes a sink, with what is given, of a table that is not there yet."""
    if request.param == "delta":
        return lambda **given: st.DeltaTable(tmp_path / "table", **given)
    if request.param == "marked":
        return lambda **given: st.DeltaTable(
            tmp_path / "table", deletion_vectors="changes" not in given, **given
        )
    return lambda **given: st.IcebergTable("shop.view", catalog=catalog, **given)


class Count(st.Data):
    n: Annotated[int, st.Column("_COUNT_")]


class Twice(st.Data):
    a: int
    b: Annotated[int, st.Column("A")]


class Step(st.Data):
    a: Annotated[str, st.Column("_change_type")]


@pytest.mark.parametrize(
    ("of", "given", "said"),
    [
        (Count, {}, "_COUNT_ and _count_ would be one column"),
        (Step, {"changes": True}, "_change_type and _change_type would be one"),
        (Twice, {"key": "a"}, "a and A would be one column"),
    ],
    ids=["count", "feed", "case"],
)
def test_names_that_would_be_one_column_are_refused(
    table_of: Tables, of: Any, given: dict[str, Any], said: str
) -> None:
    for look in (st.Pipeline.dry_run, st.Pipeline.run):
        with pytest.raises(SinkError, match=said):
            look(pipeline(of, [], table_of(**given)))


def test_a_column_called_count_is_fine_by_key_and_is_read_again(table_of: Tables) -> None:
    table = table_of(key="n")
    items = [(1, Z({Count(n=1): 1, Count(n=2): 1})), (2, Z({Count(n=1): -1}))]
    pipeline(Count, items, table).run()
    assert read(table, Count) == Z({Count(n=2): 1})


class Sum(st.Data):
    cents: Annotated[int, st.Column("Preis in ¢")]
    place: Annotated[str, st.Column("cents")]


@pytest.mark.parametrize("kind", ["delta", "marked", "iceberg", "files", "postgres"])
@pytest.mark.parametrize("key", ["Preis in ¢", "cents"])  # a field before a column of its name
def test_a_key_may_name_columns(
    kind: str, key: str, request: pytest.FixtureRequest, tmp_path: Path, catalog: Catalog
) -> None:
    table: Any = {
        "delta": lambda **given: st.DeltaTable(tmp_path / "t", **given),
        "marked": lambda **given: st.DeltaTable(tmp_path / "t", deletion_vectors=True, **given),
        "iceberg": lambda **given: st.IcebergTable("shop.t", catalog=catalog, **given),
        "files": lambda **given: st.Files(tmp_path / "t", changes=True, **given),
        "postgres": lambda **given: st.Postgres(
            request.getfixturevalue("postgres").url, table=f"keys by {key}", **given
        ),
    }[kind]
    with pytest.raises(SinkError, match=r"key= names x, .* cents \(column Preis in ¢\), place \("):
        pipeline(Sum, [], table(key="x")).run()
    rows = [Z({Sum(cents=n, place="b"): max(1, n - 1)}) for n in (1, 2, 3)]
    with pipeline(Sum, numbered(rows), table(key=key)) as running:
        assert running.run(max_steps=2) == 2
        with pytest.raises(SinkError, match=r"several rows with the key cents = \{'cents': 3\}"):
            running.run()


def test_a_field_and_its_column_are_the_same_key(tmp_path: Path) -> None:
    state, rows = f"parquet:{tmp_path / 'state'}", [Z({Sum(cents=n, place="b"): 1}) for n in (1, 2)]
    for number, key in enumerate(("cents", "Preis in ¢"), 1):
        table = st.DeltaTable(tmp_path / "t", key=key)
        with pipeline(Sum, numbered(rows[:number]), table, store=state) as running:
            assert running.run() == 1
    other = st.DeltaTable(tmp_path / "t", key="place")
    with pytest.raises(SinkError, match="written by another key"):
        pipeline(Sum, [], other, store=state).run()


def test_a_key_that_is_not_unique_is_refused_before_the_commit_and_a_corrected_source_goes_on(
    table_of: Tables, tmp_path: Path
) -> None:
    # finding 26
    a, b, c = Note(id=1, text="a"), Note(id=1, text="b"), Note(id=2, text="c")
    table = table_of(key="id")
    state = f"parquet:{tmp_path / 'state'}"
    with pytest.raises(SinkError, match=r"several rows with the key id = \{'id': 1\}"):
        pipeline(Note, [(1, Z({a: 1, b: 1}))], table, store=state).run()
    with pipeline(Note, [(1, Z({a: 1}))], table, store=state) as running:
        assert running.run() == 1
    with pipeline(Note, [(1, None), (2, Z({b: 1}))], table, store=state) as running:
        with pytest.raises(SinkError, match=r"several rows with the key id = \{'id': 1\}"):
            running.run()
        assert running.stepper.store.last_step() == 1
    with pipeline(Note, [(1, None), (2, Z({b: 1, a: -1, c: 1}))], table, store=state) as running:
        assert running.run() == 1
    assert read(table, Note) == Z({b: 1, c: 1})


@pytest.mark.parametrize("steps", [0, 1])
def test_a_run_that_is_refused_makes_no_table(tmp_path: Path, steps: int) -> None:
    state, items = f"parquet:{tmp_path / 'state'}", numbered([Z({Note(id=1, text="a"): 1})])
    first, other = st.DeltaTable(tmp_path / "first", key="id"), st.DeltaTable(tmp_path / "other")
    if steps:
        with pipeline(Note, items, first, store=state) as running:
            assert running.run() == steps
    wrong = st.DeltaTable(tmp_path / "wrong", key="nothing")
    for sinks in ([first, wrong, other],) if steps else ([first, wrong], [other, first, wrong]):
        with (
            pytest.raises(SinkError, match="key= names nothing"),
            pipeline(Note, items, sinks, store=state) as running,
        ):
            running.run()
    there = {p.name for p in tmp_path.iterdir()} - {"state"}
    assert there == ({"first"} if steps else set())
    if steps:
        with (
            pytest.raises(SinkError, match="which is new; run with --evolve"),
            pipeline(Note, items, [first, other], store=state) as running,
        ):
            running.run()
        assert not (tmp_path / "other").exists()
