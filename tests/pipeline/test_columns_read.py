"""A pipeline of SQL reads the columns that its views read: what becomes of others stops no view."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import Catalog

import stepping_spark as st
from stepping_spark.base.errors import CompileError, InputError
from tests.pipeline.following import Database

FEED = {"delta.enableChangeDataFeed": "true"}
NAMES = "CREATE VIEW names AS SELECT name, count(*) AS n FROM t GROUP BY name"
LARGEST = "CREATE VIEW largest AS SELECT max(id) AS id FROM t"

Write: TypeAlias = "Callable[[list[int], pa.Array[Any]], None]"
"""Write rows with these ids, and a column `note` that no view reads."""


def rows(ids: list[int], note: pa.Array[Any]) -> pa.Table:
    return pa.table({"id": ids, "name": ["a" if i % 2 else "b" for i in ids], "note": note})


def delta(folder: Path, diff: str) -> tuple[Any, Write]:
    def write(ids: list[int], note: pa.Array[Any]) -> None:
        before = DeltaTable(folder / "t").to_pyarrow_table() if (folder / "t").exists() else None
        new = rows(ids, note)
        is_other = before is not None and before.schema.field("note").type != note.type
        if before is not None and is_other and not pa.types.is_struct(note.type):
            whole = pa.concat_tables([before.drop_columns("note"), new.drop_columns("note")])
            new = whole.append_column("note", pa.nulls(whole.num_rows, note.type))
            write_deltalake(folder / "t", new, mode="overwrite", schema_mode="overwrite")
        else:
            write_deltalake(
                folder / "t", new, mode="append", schema_mode="merge", configuration=FEED
            )

    return st.DeltaTable(folder / "t", diff=diff), write


def iceberg(catalog: Catalog) -> tuple[Any, Write]:
    def write(ids: list[int], note: pa.Array[Any]) -> None:
        new = rows(ids, note)
        if not catalog.table_exists("shop.t"):
            catalog.create_table("shop.t", new.schema)
        table = catalog.load_table("shop.t")
        if pa.types.is_struct(note.type):
            with table.update_schema() as update:
                update.union_by_name(new.schema)
        elif table.schema().as_arrow().field("note").type != note.type:
            with table.update_schema(allow_incompatible_changes=True) as update:
                update.delete_column("note")
            with table.update_schema() as update:
                update.union_by_name(new.schema)
        table.append(new)

    return st.IcebergTable("shop.t", catalog=catalog), write


def files(folder: Path) -> tuple[Any, Write]:
    (folder / "t").mkdir()

    def write(ids: list[int], note: pa.Array[Any]) -> None:
        pq.write_table(
            rows(ids, note), folder / "t" / f"{len(list((folder / 't').iterdir()))}.parquet"
        )

    return st.Files(folder / "t"), write


def postgres(db: Database) -> tuple[Any, Write]:
    db.run("CREATE TABLE t (id bigint PRIMARY KEY, name text, note text)")
    db.table("t").install()

    def write(ids: list[int], note: pa.Array[Any]) -> None:
        kind = {pa.string(): "text", pa.int64(): "bigint"}.get(note.type, "timestamp")
        db.run(f"ALTER TABLE t ALTER note TYPE {kind} USING NULL")
        for row in rows(ids, note.cast(pa.string())).to_pylist():
            db.run("INSERT INTO t VALUES (%s, %s, %s)", *row.values())

    return db.table("t"), write


@pytest.fixture(params=["feed", "snapshot", "iceberg", "files", "postgres"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Any, Write]]:
    match request.param:
        case "iceberg":
            yield iceberg(request.getfixturevalue("lake"))
        case "files":
            yield files(tmp_path)
        case "postgres":
            db = Database(request.getfixturevalue("postgres").url)
            yield postgres(db)
            db.connection.close()
        case diff:
            yield delta(tmp_path, diff)


def ran(tmp_path: Path, query: Any, source: Any, **options: Any) -> dict[str, list[dict[str, Any]]]:
    """The rows of the views after a run; the pipeline is closed then, and the state stays."""
    into = {n: st.DeltaTable(tmp_path / n, key=k) for n, k in (("names", "name"), ("largest", ()))}
    state = f"parquet:{tmp_path / 'state'}"
    with st.Pipeline(query, store=state, t=source, into=into, **options) as pipeline:
        pipeline.run()
    columns = {"names": ["n", "name"], "largest": ["id"]}
    shown = {
        n: DeltaTable(tmp_path / n).to_pyarrow_table(columns=columns[n]).to_pylist() for n in into
    }
    return {n: sorted(view, key=repr) for n, view in shown.items()}


TEXTS = pa.array(["x", None])
OTHERS = [
    pa.array([1, None]),
    pa.array([dt.datetime(1, 1, 1), None], pa.timestamp("us")),
]


@pytest.mark.parametrize("others", OTHERS, ids=str)
def test_a_view_goes_on_when_a_column_that_it_does_not_read_has_another_type(
    table: tuple[Any, Write], tmp_path: Path, others: pa.Array[Any]
) -> None:
    source, write = table
    write([1, 2], TEXTS)
    queries = [st.sql(NAMES), st.sql(LARGEST)]
    found = ran(tmp_path, queries, source)
    assert found["names"] == [{"n": 1, "name": "a"}, {"n": 1, "name": "b"}]
    write([3, 4], others)
    found = ran(tmp_path, queries, source)
    assert found["names"] == [{"n": 2, "name": "a"}, {"n": 2, "name": "b"}]
    assert found["largest"] == [{"id": 4}]


def test_a_change_of_a_column_that_no_view_reads_changes_nothing(tmp_path: Path) -> None:
    source, write = delta(tmp_path, "feed")
    write([1, 2], TEXTS)
    query = st.sql(f"{NAMES}; {LARGEST}")
    found = ran(tmp_path, query, source)
    DeltaTable(tmp_path / "t").update(updates={"note": "'other'"})
    with st.Pipeline(query, store=f"parquet:{tmp_path / 'state'}", t=source) as pipeline:
        assert pipeline.run() == 0
    assert ran(tmp_path, query, source) == found


def test_a_later_text_may_read_further_columns(tmp_path: Path) -> None:
    source, write = delta(tmp_path, "feed")
    write([1, 2], TEXTS)
    ran(tmp_path, [st.sql(NAMES), st.sql(LARGEST)], source)
    write([3], pa.array(["y"]))
    noted = "CREATE VIEW largest AS SELECT max(id) AS id FROM t WHERE note IS NOT NULL"
    queries = [st.sql(noted), st.sql(NAMES)]
    assert ran(tmp_path, queries, source, evolve=True)["largest"] == [{"id": 3}]
    write([4, 6], TEXTS)
    found = ran(tmp_path, queries, source)
    assert found["largest"] == [{"id": 4}]
    assert found["names"] == [{"n": 2, "name": "a"}, {"n": 3, "name": "b"}]


def test_lateness_may_be_of_a_column_that_no_view_reads(tmp_path: Path) -> None:
    source, write = delta(tmp_path, "feed")
    write([1, 2], TEXTS)
    lateness = {"t": (lambda row: row.id, 1)}
    query = st.sql(NAMES)
    with st.Pipeline(query, store="memory", t=source, lateness=lateness) as pipeline:
        assert pipeline.run() == 1
        write([3], pa.array(["y"]))
        assert pipeline.run() == 1


class Named(st.Data):
    id: int
    name: str | None


def of_one(t: st.ZSet[Named]) -> st.ZSet[Named]:
    return st.filter(t, lambda row: row.id == 1)


def test_texts_and_a_query_in_python_share_a_table(tmp_path: Path) -> None:
    source, write = delta(tmp_path, "feed")
    write([1, 2], TEXTS)
    with st.Pipeline([st.sql(NAMES), of_one, st.sql(LARGEST)], store="memory", t=source) as all_of:
        assert all_of.run() == 1
        assert [n for v in all_of.graph.inputs for n, _ in v.type.schema.columns] == ["id", "name"]
    with pytest.raises(CompileError, match="there is no column note; the columns are id, name"):
        st.Pipeline([of_one, st.sql("SELECT note FROM t")], store="memory", t=source)


def test_a_table_without_a_source_is_named(tmp_path: Path) -> None:
    source, write = delta(tmp_path, "feed")
    write([1], TEXTS[:1])
    join = st.sql("SELECT t.id FROM t JOIN other USING (id)")
    with pytest.raises(CompileError, match="the columns of table other are not known"):
        st.Pipeline([join, st.sql(NAMES)], store="memory", t=source)


def test_views_that_have_a_name_each_are_a_list(tmp_path: Path) -> None:
    source, write = delta(tmp_path, "feed")
    write([1], pa.array(["x"]))
    with st.Pipeline([st.sql(NAMES), st.sql(LARGEST)], store="memory", t=source) as pipeline:
        assert pipeline.views == ("names", "largest")
        assert "t'), 2 of 3 columns, not read yet" in str(pipeline.dry_run())
        assert [column for v in pipeline.graph.inputs for column, _ in v.type.schema.columns] == [
            "id",
            "name",
        ]


X_OF = "CREATE VIEW largest AS SELECT max(note.x) AS id FROM t"
Y_OF = "CREATE VIEW largest AS SELECT max(note.y) AS id FROM t"


@pytest.mark.parametrize("kind", ["feed", "snapshot", "iceberg"])
def test_a_part_that_was_added_to_a_struct_is_null_in_rows_from_before(
    kind: str, tmp_path: Path, lake: Catalog
) -> None:
    source, write = iceberg(lake) if kind == "iceberg" else delta(tmp_path, kind)
    write([1, 2], pa.array([{"x": 1}, None]))
    assert ran(tmp_path, [st.sql(NAMES), st.sql(X_OF)], source)["largest"] == [{"id": 1}]
    write([3, 4], pa.array([{"x": 2, "y": 7}, None]))
    write([5], pa.array([{"x": 3, "y": 6}]))
    assert ran(tmp_path, [st.sql(NAMES), st.sql(X_OF)], source)["largest"] == [{"id": 3}]
    queries = [st.sql(NAMES), st.sql(Y_OF)]
    assert ran(tmp_path, queries, source, evolve=True)["largest"] == [{"id": 7}]
    write([6], pa.array([{"x": 0, "y": 8}]))
    assert ran(tmp_path, queries, source)["largest"] == [{"id": 8}]


@pytest.mark.parametrize("on_invalid", ["fail", "drop"])
def test_rows_that_do_not_fit_a_changed_class_are_an_error_unless_they_are_dropped(
    tmp_path: Path, on_invalid: str
) -> None:
    _, write = delta(tmp_path, "feed")
    write([1, 2, 3], pa.array(["x", None, "y"]))
    text = "CREATE VIEW names AS SELECT name, count(*) AS n, max(note) AS note FROM t GROUP BY name"
    source = st.DeltaTable(tmp_path / "t", on_invalid=on_invalid)
    kinds = "id BIGINT, name STRING, note STRING"

    def run(columns: str, **given: Any) -> None:
        query = {"names": st.sql(text, t=columns)}
        with st.Pipeline(query, store=f"parquet:{tmp_path / 'state'}", t=source, **given) as p:
            p.run()

    run(kinds)
    if on_invalid == "drop":
        run(f"{kinds} NOT NULL", evolve=True)
    else:
        with pytest.raises(InputError, match=r"column 'note'.*NULL.*correct the rows"):
            run(f"{kinds} NOT NULL", evolve=True)
        run(kinds)  # the state is as it was
