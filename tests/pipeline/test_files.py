"""Directories of files as sources and sinks."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import stepping_spark as st
from stepping_spark.base.errors import InputError, SinkError, SourceError, SteppingError
from tests.cases import Order, User, Z
from tests.pipeline.shop import Note, Shop, Total, View, names, numbered, totals


def add(folder: Path, name: str, rows: list[Any], kind: str = "parquet") -> None:
    """A file of rows, which appears whole."""
    folder.mkdir(exist_ok=True)
    table = pa.table({n: [getattr(r, n) for r in rows] for n in type(rows[0]).__annotations__})
    made = folder / f"_{name}"
    if kind == "parquet":
        pq.write_table(table, made)
    elif kind == "csv":
        pacsv.write_csv(table, made)
    else:
        import json

        made.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    made.rename(folder / name)


def user(i: int) -> User:
    return User(id=i, name=f"n{i}")


def pipeline(tmp_path: Path, kind: str = "parquet", **given: Any) -> st.Pipeline:
    order = given.pop("order", "name")
    return st.Pipeline(
        names,
        store=f"parquet:{tmp_path / 'state'}",
        users=st.Files(tmp_path / "users", kind, order=order),
        into={"names": st.Files(tmp_path / "names")},
        **given,
    )


def newest(folder: Path) -> list[dict[str, Any]]:
    """The view: the rows of the newest snapshot."""
    return pq.read_table(max(folder.glob("*.parquet"))).to_pylist()


def names_in(tmp_path: Path) -> list[str]:
    return sorted(row["_value_"] for row in newest(tmp_path / "names"))


@pytest.mark.parametrize("kind", ["parquet", "json", "csv"])
def test_files_that_are_added_are_steps_of_many_files_or_of_pieces_of_one(
    tmp_path: Path, kind: str
) -> None:
    folder = tmp_path / "users"
    add(folder, "a", [user(i) for i in range(5)], kind)
    with pipeline(tmp_path, kind) as running:
        assert running.lag() == {"users": 1}
        assert running.run() == 1
    add(folder, "b", [user(5)], kind)
    add(folder, "c", [user(6)], kind)
    (folder / "_d").write_text("half a file")
    with pipeline(tmp_path, kind) as running:
        assert running.run() == 1
    add(folder, "d", [user(i) for i in range(7, 57)], kind)
    steps = 0
    while True:  # a process for each piece
        with pipeline(tmp_path, kind, max_rows=20) as running:
            if not running.run(max_steps=1):
                break
            steps += 1
    assert steps == 3
    assert names_in(tmp_path) == sorted(user(i).name for i in range(57))
    assert len(list((tmp_path / "names").iterdir())) == 2


def test_the_order_of_times_takes_a_file_with_an_earlier_name_that_came_later(
    tmp_path: Path,
) -> None:
    add(tmp_path / "users", "b", [user(1)])
    os.utime(tmp_path / "users" / "b", (1, 1))
    with pipeline(tmp_path, order="time") as running:
        running.run()
        add(tmp_path / "users", "a", [user(2)])
        assert running.run() == 1
    assert names_in(tmp_path) == ["n1", "n2"]


@pytest.mark.parametrize("how", ["removed", "changed", "came before", "no directory"])
def test_files_that_are_not_only_added_are_refused_and_mended(tmp_path: Path, how: str) -> None:
    folder = tmp_path / "users"
    add(folder, "b", [user(1)])
    add(folder, "c", [user(2)])
    with pipeline(tmp_path) as running:
        running.run()
        shutil.copytree(folder, tmp_path / "copy")
        if how == "removed":
            (folder / "b").unlink()
        elif how == "changed":
            add(folder, "b", [user(i) for i in range(9)])
        elif how == "came before":
            add(folder, "a", [user(3)])
        else:
            shutil.rmtree(folder)
        said = "could not be listed" if how == "no directory" else "are not those that were read"
        with pytest.raises(SourceError, match=said):
            running.run()
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(tmp_path / "copy", folder)
        add(folder, "d", [user(4)])
        assert running.run() == 1
    assert names_in(tmp_path) == ["n1", "n2", "n4"]


@pytest.mark.parametrize("n", [1, 5])
def test_files_that_come_before_others_are_named_and_may_be_renamed(tmp_path: Path, n: int) -> None:
    folder = tmp_path / "users"
    for name in "bcd":
        add(folder, name, [user(1)])
    with pipeline(tmp_path) as running:
        running.run()
        for i in range(n):
            add(folder, f"c{i}", [user(2 + i)])
        add(folder, "e", [user(9)])
        some = r"c0 came later" if n == 1 else r"c0, c1, c2 and 2 others came later"
        with pytest.raises(SourceError, match=some):
            running.run()
        for i in range(n):
            (folder / f"c{i}").rename(folder / f"f{i}")
        assert running.run() == 1
    assert names_in(tmp_path) == ["n1", *(f"n{2 + i}" for i in range(n)), "n9"]


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("removed", "those that were read: found 1. New files"),
        ("changed", r"b was written last, at 20\d\d-.* UTC"),
    ],
)
def test_what_may_be_wrong_with_the_files_is_said(tmp_path: Path, how: str, said: str) -> None:
    folder = tmp_path / "users"
    add(folder, "b", [user(1)])
    add(folder, "c", [user(2)])
    with pipeline(tmp_path) as running:
        running.run()
        if how == "removed":
            (folder / "c").unlink()
        else:
            add(folder, "b", [user(3)])
        with pytest.raises(SourceError, match=said):
            running.run()


def test_directories_within_the_directory_are_refused(tmp_path: Path) -> None:
    add(tmp_path / "users", "a", [user(1)])
    (tmp_path / "users" / "_temporary").mkdir()
    with pipeline(tmp_path) as running:
        assert running.run() == 1
        add(tmp_path / "users" / "day=2026-01-01", "b", [user(2)])
        with pytest.raises(SourceError, match="it has the directory 'day=2026-01-01'"):
            running.run()
        shutil.rmtree(tmp_path / "users" / "day=2026-01-01")
        add(tmp_path / "users", "b", [user(2)])
        assert running.run() == 1
    assert names_in(tmp_path) == ["n1", "n2"]


def test_a_damaged_file_and_a_missing_column_name_the_file(tmp_path: Path) -> None:
    folder = tmp_path / "users"
    folder.mkdir()
    (folder / "a").write_text("no parquet")
    with pipeline(tmp_path) as running:
        with pytest.raises(SourceError, match="a cannot be read"):
            running.run()
        (folder / "a").unlink()
        pq.write_table(pa.table({"id": [1]}), folder / "a")
        with pytest.raises(SourceError, match="there is no column name; the columns are id"):
            running.run()
        pq.write_table(pa.table({"id": [1], "name": [7]}), folder / "a")
        with pytest.raises(
            SourceError, match=r"column 'name': expected str \(string\), found int64"
        ):
            running.run()
        texts = pa.array(["n1"]).dictionary_encode()
        pq.write_table(pa.table({"id": pa.array([1], pa.int32()), "name": texts}), folder / "a")
        assert running.run() == 1
    assert names_in(tmp_path) == ["n1"]


@pytest.mark.parametrize("kind", ["parquet", "json", "csv"])
def test_a_column_more_is_not_read(tmp_path: Path, kind: str) -> None:
    add(tmp_path / "users", "1", [user(1)], kind)
    with pipeline(tmp_path, kind) as running:
        running.run()
        add(tmp_path / "users", "2", [Aged(id=2, name="n2", age=7)], kind)
        assert running.run() == 1
    assert names_in(tmp_path) == ["n1", "n2"]


class Aged(st.Data):
    id: int
    name: str
    age: int


@pytest.mark.parametrize("gone", ["state", "names"])
def test_a_directory_that_was_deleted_is_an_error_until_it_is_restored(
    tmp_path: Path, gone: str
) -> None:
    with pipeline(tmp_path) as running:
        for i in (1, 2):
            add(tmp_path / "users", f"{i}", [user(i)])
            running.run()
        add(tmp_path / "users", "3", [user(3)])
        shutil.copytree(tmp_path / gone, tmp_path / "copy")
        shutil.rmtree(tmp_path / gone)
        with pytest.raises(SteppingError, match=f"/{gone}"):
            running.run()
    shutil.rmtree(tmp_path / gone, ignore_errors=True)
    with (
        pytest.raises(SinkError, match=r"has no step of this pipeline|is not of this pipeline"),
        pipeline(tmp_path) as running,
    ):
        running.run()  # the other of the two is there
    shutil.rmtree(tmp_path / gone, ignore_errors=True)
    (tmp_path / "copy").rename(tmp_path / gone)
    with pipeline(tmp_path) as running:
        running.run()
    assert names_in(tmp_path) == ["n1", "n2", "n3"]


def test_a_directory_has_the_view_after_each_step_and_its_changes(tmp_path: Path) -> None:
    shop = Shop(3)
    changes = [shop.change() for _ in range(8)]
    steps = [numbered(o for o, _ in changes), numbered(u for _, u in changes)]
    with st.Pipeline(
        {"totals": totals, "changes": totals, "amounts": same},
        store=f"parquet:{tmp_path / 'state'}",
        orders=steps[0],
        users=steps[1],
        into={
            "totals": st.Files(tmp_path / "totals"),
            "changes": st.Files(tmp_path / "changes", changes=True),
            "amounts": st.Files(tmp_path / "amounts"),
        },
    ) as running:
        running.run()
    assert {Total(**row) for row in newest(tmp_path / "totals")} == shop.totals
    found: dict[Total, int] = {}
    for path in sorted((tmp_path / "changes").iterdir()):
        for row in pq.read_table(path).to_pylist():
            kind, _ = row.pop("_change_type"), row.pop("_step")
            found[Total(**row)] = found.get(Total(**row), 0) + (1 if kind == "insert" else -1)
    assert {row for row, n in found.items() if n} == shop.totals
    amounts = sorted(row["_value_"] for row in newest(tmp_path / "amounts"))
    assert amounts == sorted(shop.amounts.elements())


def same(orders: st.ZSet[Order]) -> st.ZSet[int]:
    return st.map(orders, f=lambda o: o.amount)


def test_files_of_others_and_a_full_disk_are_refused(tmp_path: Path) -> None:
    (tmp_path / "names").mkdir()
    (tmp_path / "names" / "alien.parquet").write_text("")
    add(tmp_path / "users", "a", [user(1)])
    with pipeline(tmp_path) as running:
        with pytest.raises(SinkError, match=r"alien\.parquet is not of this pipeline"):
            running.run()
        (tmp_path / "names" / "alien.parquet").unlink()
        assert running.run() == 1
    (tmp_path / "state").rename(tmp_path / "gone")
    with pytest.raises(SinkError, match="is not of this pipeline"), pipeline(tmp_path) as running:
        running.run()


def test_a_dry_run_refuses_a_directory_that_a_run_refuses(tmp_path: Path) -> None:
    add(tmp_path / "users", "1", [user(1)])
    add(tmp_path / "names", "alien", [user(1)])
    with pytest.raises(SinkError, match="is not of this pipeline"):
        pipeline(tmp_path).dry_run()
    shutil.rmtree(tmp_path / "names")
    (tmp_path / "names").write_text("a file")
    with pytest.raises(SinkError, match="could not be listed"):
        pipeline(tmp_path).dry_run()


def test_a_dry_run_knows_the_state_in_memory_of_a_pipeline_that_runs(tmp_path: Path) -> None:
    add(tmp_path / "users", "1", [user(1)])
    running = st.Pipeline(
        names,
        store="memory",
        users=st.Files(tmp_path / "users"),
        into={"names": st.Files(tmp_path / "names")},
    )
    running.run()
    assert running.dry_run().step == 1
    add(tmp_path / "users", "2", [user(2)])
    assert running.dry_run().waiting == {"users": 1}
    assert running.run() == 1
    assert names_in(tmp_path) == ["n1", "n2"]


def test_an_empty_field_of_csv_is_an_empty_text_or_null(tmp_path: Path) -> None:
    class Line(st.Data):
        id: int
        text: str | None
        size: int | None

    def lines(lines: st.ZSet[Line]) -> st.ZSet[Line]:
        return lines

    (tmp_path / "a.csv").write_text('id,text,size\n1,,\n2,"a,b\nc",3\n')
    view = View()
    source = st.Files(tmp_path, "csv")
    st.Pipeline(lines, store="memory", lines=source, into={"lines": view}).run()
    wanted = Line(id=1, text="", size=None), Line(id=2, text="a,b\nc", size=3)
    assert view.rows == Z(dict.fromkeys(wanted, 1))


def test_a_row_that_comes_and_goes_with_nulls_leaves_the_snapshot(tmp_path: Path) -> None:
    def notes(notes: st.ZSet[Note]) -> st.ZSet[Note]:
        return notes

    a, b = Note(id=1, text=None), Note(id=1, text="x")
    items = [(1, Z({a: 2, b: 1})), (2, Z({a: -1, b: -1}))]
    into = {"notes": st.Files(tmp_path / "notes")}
    st.Pipeline(notes, store="memory", notes=items, into=into).run()
    assert newest(tmp_path / "notes") == [{"id": 1, "text": None}]


def test_kinds_and_orders_that_there_are_not_and_secrets_in_paths_are_refused() -> None:
    with pytest.raises(InputError, match="kind='xml'"):
        st.Files("x", "xml")
    with pytest.raises(InputError, match="order='size'"):
        st.Files("x", order="size")
    for place in (st.Files, st.DeltaTable):
        with pytest.raises(InputError) as told:
            place("s3://KEY:SECRET@bucket/x")
        assert "SECRET" not in str(told.value)
    with pytest.raises(InputError, match="views are written as Parquet"):
        st.Pipeline(names, store="memory", users=[], into={"names": st.Files("x", "csv")})
