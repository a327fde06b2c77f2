"""Delta tables at their edges: names that deltalake has, and tables that are made again."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import stepping_spark as st
from stepping_spark.base.errors import SinkError, SourceError
from tests.cases import Z
from tests.pipeline.shop import Note, numbered


def notes(notes: st.ZSet[Note]) -> st.ZSet[Note]:
    return notes


A, B, C = Note(id=1, text="a"), Note(id=2, text="b"), Note(id=2, text="c")
STEPS = [{A: 1}, {B: 1}, {B: -1, C: 1}, {A: -1}]


def seen(source: Any, store: str) -> list[tuple[Any, int]]:
    """What a pipeline reads that is new in a table of notes."""
    found: list[tuple[Any, int]] = []
    into = {"notes": lambda step, change: found.extend(change.iter())}
    with st.Pipeline(notes, store=store, notes=source, into=into) as running:
        running.run()
    return found


# -- names that deltalake has

OWN = (
    "_change_type", "_Commit_Version", "_commit_timestamp", "__delta_rs_operation",
    "__delta_rs_source", "__delta_rs_c_id",
)  # fmt: skip


@pytest.mark.parametrize("form", [{}, {"key": "id"}], ids=["counted", "by key"])
@pytest.mark.parametrize("name", OWN)
def test_names_that_deltalake_cannot_merge_are_refused_when_a_table_is_opened(
    tmp_path: Path, name: str, form: Any
) -> None:
    sink = st.DeltaTable(tmp_path / "out", columns={"text": name}, **form)
    pipeline = st.Pipeline(notes, store="memory", notes=numbered(map(Z, STEPS)), into=sink)
    with pytest.raises(SinkError, match=f"names {name} for columns of its own"):
        pipeline.dry_run()
    with pytest.raises(SinkError, match=r"rename the field, or give its column"), pipeline:
        pipeline.run()


@pytest.mark.parametrize(
    "form", [{}, {"key": "id"}, {"changes": True}], ids=["counted", "by key", "a feed"]
)
@pytest.mark.parametrize("name", ["_gone_", "_metadata", "s", "a.b", 'x"y', "_commit"])
def test_other_names_are_written_and_read_again(tmp_path: Path, name: str, form: Any) -> None:
    columns, store = {"text": name}, f"parquet:{tmp_path / 'state'}"
    sink = st.DeltaTable(tmp_path / "out", columns=columns, **form)
    source = st.DeltaTable(tmp_path / "out", columns=columns)
    items = numbered(map(Z, STEPS))
    with st.Pipeline(notes, store="memory", notes=items, into=sink) as running:
        running.run(max_steps=1)
        assert seen(source, store) == [(A, 1)]
        running.run()
    found = deltalake.DeltaTable(tmp_path / "out").to_pyarrow_table().to_pylist()
    later = dict(seen(source, store))
    if "changes" in form:  # finding D: the changes of a table that has _change_type
        assert len(found) == 5
        assert later == {A: 1, B: 2, C: 1}
    else:
        assert [(row["id"], row[name]) for row in found] == [(2, "c")]
        assert later == {A: -1, C: 1}


# -- a table that is made again


def make(path: Path, versions: int, first: int = 0) -> None:
    """A table with so many versions, each of two rows."""
    shutil.rmtree(path, ignore_errors=True)
    for n in range(first, first + versions):
        rows = pa.table({"id": [2 * n, 2 * n + 1], "text": ["a", "b"]})
        feed = {"delta.enableChangeDataFeed": "true"}
        deltalake.write_deltalake(path, rows, mode="append", configuration=feed)


ANOTHER = r"another table than the one .* start with a new store, and remove the tables"


@pytest.mark.parametrize("versions", [1, 3, 4, 5, 9])
@pytest.mark.parametrize("goes_on", [True, False])
@pytest.mark.parametrize("diff", ["feed", "snapshot"])
def test_a_table_that_was_made_again_is_another_one_however_long_it_is(
    tmp_path: Path, versions: int, goes_on: bool, diff: str
) -> None:
    store, into = f"parquet:{tmp_path / 'state'}", {"notes": lambda step, change: None}
    source = st.DeltaTable(tmp_path / "t", diff=diff)
    make(tmp_path / "t", 4)
    one = st.Pipeline(notes, store=store, notes=source, into=into)
    with one:
        one.run()
        if goes_on:
            make(tmp_path / "t", versions, first=9)
            with pytest.raises(SourceError, match=ANOTHER):
                one.run()
    if not goes_on:
        make(tmp_path / "t", versions, first=9)
    two = st.Pipeline(notes, store=store, notes=source, into=into)
    with pytest.raises(SourceError, match=ANOTHER):
        two.dry_run()
    with pytest.raises(SourceError, match=ANOTHER), two:
        two.run()


@pytest.mark.parametrize("first", [True, False])
def test_a_table_that_was_made_again_between_two_pieces_of_a_version_is_another_one(
    tmp_path: Path, first: bool
) -> None:
    store, into = f"parquet:{tmp_path / 'state'}", {"notes": lambda step, change: None}
    source = st.DeltaTable(tmp_path / "t")
    make(tmp_path / "t", 4)
    pipeline = st.Pipeline(notes, store=store, notes=source, into=into, max_rows=1)
    with pipeline:
        pipeline.run(max_steps=3 if first else None)
        if not first:
            rows = pa.table({"id": [91, 92], "text": ["a", "b"]})
            deltalake.write_deltalake(tmp_path / "t", rows, mode="append")
            pipeline.run(max_steps=1)
    make(tmp_path / "t", 1, first=9)
    for refused in (pipeline.dry_run, pipeline.run):
        with pytest.raises(SourceError, match=ANOTHER):
            refused()
    pipeline.close()
