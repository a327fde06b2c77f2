"""Tables with more rows than the driver takes: Spark's tasks read them, if a session runs."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import stepping_spark as st
from stepping_spark.base.errors import SourceError
from stepping_spark.pipeline import Batch, Portion
from stepping_spark.pipeline.by_tasks import frame_of_files
from stepping_spark.pipeline.delta import source as delta_source
from stepping_spark.pipeline.delta.files import path_in, reads
from stepping_spark.spark.session import raised_in_worker
from tests.pipeline.delta_writers import add, commit, metadata, protocol, remove
from tests.pipeline.iceberg_writers import delete_positions, files_of
from tests.postgres_server import PostgresServer

FEED = {"delta.enableChangeDataFeed": "true"}
TYPES: dict[str, pa.DataType] = {"id": pa.int64(), "name": pa.string()}
COLUMNS = pa.schema(TYPES)
ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3, 4, 5], pa.int32()),
        "name": pa.array(["a/b", "ü", None, "50%", ""]),
        "day": pa.array([dt.date(2024, 1, d) if d else None for d in (1, 2, 0, 1, 2)]),
        "at": pa.array([dt.datetime(2024, 1, 1, d, tzinfo=dt.UTC) for d in range(5)]),
        "local": pa.array([dt.datetime(2024, 1, 1, d) for d in range(5)]),
        "price": pa.array([None, 1.5, 2.25, 3.0, 4.0]).cast(pa.decimal128(7, 2)),
        "tags": pa.array([["x"], [], None, ["y", None], ["z"]]),
        "place": pa.array([{"city": "A", "n": 1}, None, {"city": None, "n": 2}] + [None] * 2),
        "bytes": pa.array([b"\x00", None, b"", b"x", b"y"]),
        "yes": pa.array([True, False, None, True, True]),
        "half": pa.array([0.5, None, -1e10, 3.0, 0.1]),
    }
)


def to_arrow(change: Any) -> pa.Table:
    return change.toArrow() if isinstance(change, DataFrame) else change


def rows_of(change: Any) -> Counter[str]:
    return Counter(map(repr, to_arrow(change).to_pylist()))


def both(table: Any, spark: SparkSession, columns: pa.Schema) -> tuple[Any, Any]:
    """What a table gives as a whole, and where only one row may pass the driver."""
    source = table.source()
    source.open(columns)
    whole = source.read(None, Portion())
    large = source.read(None, Portion(rows=1, tasks=lambda: spark))
    source.close()
    return whole.changes[0], large.changes[0]


PARTITIONS = [[], ["name"], ["day", "name"], ["at"], ["local"], ["price"], ["yes"], ["half"]]


@pytest.mark.spark
@pytest.mark.parametrize("partitions", PARTITIONS, ids=",".join)
def test_tasks_read_what_the_driver_reads(
    spark: SparkSession, tmp_path: Path, partitions: list[str]
) -> None:
    path = str(tmp_path / "table")
    given = ROWS.slice(0, 4)
    write_deltalake(path, given, partition_by=partitions, configuration=FEED)
    more = given.append_column("new", pa.array(range(4), pa.int64()))
    write_deltalake(path, more, mode="append", schema_mode="merge")
    DeltaTable(path).delete("id = 4")
    whole, large = both(st.DeltaTable(path), spark, more.schema)
    assert isinstance(large, DataFrame)
    assert rows_of(large) == rows_of(whole)
    assert rows_of(whole).total() == 6
    write_deltalake(path, with_an_empty_name(more), mode="append")
    whole, large = both(st.DeltaTable(path), spark, more.schema)
    assert isinstance(large, pa.Table) == ("name" in partitions)
    assert "name" in partitions or rows_of(large) == rows_of(whole)
    if partitions and "name" not in partitions:
        whole, large = both(st.DeltaTable(path), spark, only(more, partitions))
        assert rows_of(large) == rows_of(whole)
        assert rows_of(whole).total() == 7


def only(rows: pa.Table, columns: list[str]) -> pa.Schema:
    """These columns alone, which no data file has."""
    return pa.schema([rows.schema.field(column) for column in columns])


def with_an_empty_name(like: pa.Table) -> pa.Table:
    i = like.schema.names.index("name")
    return like.slice(0, 1).set_column(i, "name", pa.array([""]))


@pytest.mark.spark
@pytest.mark.parametrize("partitioned", [False, True])
def test_tasks_read_a_snapshot_of_iceberg_without_what_was_deleted(
    spark: SparkSession, lake: Catalog, partitioned: bool
) -> None:
    fields = NestedField(1, "id", LongType()), NestedField(2, "name", StringType())
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))
    spec = spec if partitioned else UNPARTITIONED_PARTITION_SPEC
    table = lake.create_table("shop.users", Schema(*fields), partition_spec=spec)
    for i in range(3):
        table.append(
            pa.table([pa.array([i, i + 10], pa.int64()), pa.array(["a", None])], schema=COLUMNS)
        )
    if not partitioned:
        delete_positions(table, {files_of(table)[0]: [0]})
    source = st.IcebergTable("shop.users", catalog=lake)
    whole, large = both(source, spark, COLUMNS)
    assert isinstance(large, DataFrame)
    assert rows_of(large) == rows_of(whole)
    assert rows_of(whole).total() == 5 + partitioned


@pytest.mark.spark
def test_a_type_that_spark_does_not_have_is_not_for_tasks(spark: SparkSession) -> None:
    schema = pa.schema([pa.field("at", pa.time64("us"))])
    assert frame_of_files(spark, [], schema, "the rows cannot be read") is None


def counted(changes: list[Any]) -> Counter[str]:
    """The sum of changes: the count of each row."""
    sums: Counter[str] = Counter()
    for change in changes:
        for row in to_arrow(change).to_pylist():
            n = row.pop("_count_")
            sums[repr(row)] += n
    return Counter({row: n for row, n in sums.items() if n})


def changes_after(source: Any, at: Any, spark: SparkSession) -> tuple[list[Any], Any]:
    """All changes after a position, where only one row may pass the driver; and the last one."""
    changes: list[Any] = []
    while (batch := source.read(at, Portion(rows=1, tasks=lambda: spark))) is not None:
        changes += batch.changes
        at = batch.position
    return changes, at


@pytest.mark.spark
@pytest.mark.parametrize("partitions", [*PARTITIONS, ["name", "id"]], ids=",".join)
def test_tasks_read_the_changes_that_the_driver_reads(
    spark: SparkSession, tmp_path: Path, partitions: list[str]
) -> None:
    path = str(tmp_path / "table")
    rows = ROWS.slice(0, 3).append_column("new", pa.array(range(3), pa.int64()))
    write_deltalake(path, rows.drop_columns(["new"]), partition_by=partitions, configuration=FEED)
    write_deltalake(path, rows, mode="append", schema_mode="merge")
    source: Any = st.DeltaTable(path).source()
    source.open(rows.schema)
    at = source.read(None, Portion()).position
    write_deltalake(path, rows, mode="append")
    DeltaTable(path).delete("id = 2")
    DeltaTable(path).update({"local": "local + INTERVAL '1 hour'"}, predicate="id = 1")
    DeltaTable(path).optimize.compact()
    write_deltalake(path, rows.slice(1), mode="overwrite")
    whole = source.read(at, Portion())
    large, at = changes_after(source, at, spark)
    source.close()
    assert at == whole.position
    assert counted(large) == counted(list(whole.changes))
    assert {isinstance(change, DataFrame) for change in large} == {True}
    assert len(large) == 4


@pytest.mark.spark
@pytest.mark.parametrize("mode", ["name", "id"])
def test_tasks_read_columns_that_have_other_names_in_files(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    """Arrow reads columns by their names in files. By ids, only deltalake reads them."""
    table = tmp_path / "table"
    physical = {"id": "c1", "name": "c2"}
    fields = {"id": "long", "name": "string"}
    properties = {"delta.columnMapping.mode": mode}
    made = metadata(fields, physical=physical, properties=properties)
    first = add(table, pa.table({"c1": [1, 2], "c2": ["a", "b"]}))
    commit(table, protocol(["columnMapping"], ["changeDataFeed"]), made, first)
    source: Any = st.DeltaTable(table).source()
    source.open(COLUMNS)
    at = source.read(None, Portion()).position
    whole, large = both(st.DeltaTable(table), spark, COLUMNS)
    assert isinstance(large, DataFrame) == (mode == "name")
    commit(table, add(table, pa.table({"c1": [3, 4], "c2": ["c", "d"]})))
    commit(table, remove(first), add(table, pa.table({"c2": ["a"], "c1": [1]})))
    changes, _ = changes_after(source, at, spark)
    rows_read = sum(len(to_arrow(change)) for change in changes)
    source.close()
    if mode == "name":
        assert rows_of(large) == rows_of(whole)
        assert {isinstance(change, DataFrame) for change in changes} == {True}
        assert rows_read == 2 + 3  # and not the rows of both versions
    rows = [*((i, x, 1) for i, x in ((3, "c"), (4, "d"))), (2, "b", -1)]
    assert counted(changes) == {repr({"id": i, "name": x}): n for i, x, n in rows}


@pytest.mark.spark
def test_an_update_that_lacks_rows_in_the_feed_is_compared_by_tasks_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    """deltalake writes no new row for an updated row that equals another row of the table."""
    path = str(tmp_path / "table")
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "name": pa.array(["a", "b", "c"])})
    write_deltalake(path, rows, configuration=FEED)
    source: Any = st.DeltaTable(path).source()
    source.open(COLUMNS)
    at = source.read(None, Portion()).position
    DeltaTable(path).update({"id": "1", "name": "'a'"}, predicate="id > 1")
    changes, _ = changes_after(source, at, spark)
    source.close()
    gone = {"{'id': 2, 'name': 'b'}": -1, "{'id': 3, 'name': 'c'}": -1}
    assert counted(changes) == {"{'id': 1, 'name': 'a'}": 2, **gone}


def with_times_of_spark(path: Path) -> None:
    """Write all files of a table again with INT96 for times, as Spark does by default."""
    sizes = {}
    for file in path.rglob("*.parquet"):
        if "_delta_log" not in file.parts:
            rows = pq.read_table(file, partitioning=None)
            pq.write_table(rows, file, use_deprecated_int96_timestamps=True, store_schema=False)
            sizes[str(file.relative_to(path))] = file.stat().st_size
    for file in (path / "_delta_log").glob("*.json"):
        actions = list(map(json.loads, file.read_text().splitlines()))
        for action in (x for a in actions for kind, x in a.items() if kind in ("add", "cdc")):
            action["size"] = sizes[action["path"]]
        file.write_text("\n".join(map(json.dumps, actions)))


@pytest.mark.spark
def test_times_of_any_year_that_spark_has_written_are_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Arrow and deltalake would take them as nanoseconds, from 1677 to 2262."""
    path = tmp_path / "table"
    years = [1, 1500, 2024, 2263, 9999]
    times = [dt.datetime(year, 12, 31, 23, 59, 59, 999_999, dt.UTC) for year in years]
    rows = pa.table({"id": pa.array(years, pa.int64()), "at": pa.array(times)})
    write_deltalake(path, rows.slice(0, 4), configuration=FEED)
    source: Any = st.DeltaTable(path).source()
    source.open(rows.schema)
    at = source.read(None, Portion()).position
    write_deltalake(path, rows.slice(4), mode="append")
    DeltaTable(path).delete("id = 1")
    DeltaTable(path).update({"id": "id + 1"}, predicate="id = 9999")
    with_times_of_spark(path)
    table = rows.slice(1).to_pylist()
    table[-1]["id"] += 1
    expected = Counter({repr(row): 1 for row in table})
    for snapshot in both(st.DeltaTable(path), spark, rows.schema):
        assert counted([snapshot]) == expected
    changes = Counter({repr(rows.slice(0, 1).to_pylist()[0]): -1, repr(table[-1]): 1})
    assert counted(list(source.read(at, Portion()).changes)) == changes
    assert counted(changes_after(source, at, spark)[0]) == changes
    source.close()
    compared: Any = st.DeltaTable(path, diff="snapshot").source()
    compared.open(rows.schema)
    assert counted(list(compared.read(at, Portion()).changes)) == changes
    compared.close()


@pytest.mark.spark
def test_tasks_read_a_version_from_before_a_column_was_added(
    spark: SparkSession, tmp_path: Path
) -> None:
    path = str(tmp_path / "table")
    days = pa.array([dt.date(2024, 1, 1), None])
    rows = pa.table({"id": pa.array([1, 2], pa.int64()), "day": days})
    write_deltalake(path, rows, configuration=FEED)
    more = pa.schema([("new", pa.string()), *rows.schema])
    old: Any = st.DeltaTable(path).source()
    old.open(rows.schema)
    at = old.read(None, Portion()).position
    write_deltalake(path, rows, mode="append")
    added = rows.append_column("new", pa.array(["x", "y"]))
    write_deltalake(path, added, mode="append", schema_mode="merge")
    write_deltalake(path, added, mode="append")
    source: Any = st.DeltaTable(path).source()
    source.open(more)
    changes, _ = changes_after(source, at, spark)
    by_tasks = [isinstance(change, DataFrame) for change in changes]
    assert (by_tasks[0], by_tasks[1], by_tasks[-1]) == (True, False, True)  # one is compared
    assert counted(changes) == counted(list(source.read(at, Portion()).changes))
    assert counted(changes).total() == 6
    source.close()


def test_a_file_is_found_by_its_path_in_the_table() -> None:
    paths = ["p=1/part-0.parquet", "p=2/part-0.parquet", "other.parquet"]
    for path in paths:
        assert path_in(paths, f"s3://lake/table/{path}") == path
        assert path_in(paths, path) == path
    assert (
        path_in(["a%20b.parquet", "p=2/a.parquet", "a.parquet"], "/t/p=2/a.parquet")
        == "p=2/a.parquet"
    )
    assert path_in(["a/b/c.parquet"], "file:///elsewhere/c.parquet") == "a/b/c.parquet"


@pytest.mark.parametrize(
    ("partitions", "action", "are_read"),
    [
        ({"day": pa.date32()}, {"partitionValues": {"day": "2024-01-01"}}, True),
        ({"day": pa.date32()}, {"partitionValues": {"day": None}}, True),
        ({"day": pa.date32()}, {"partitionValues": {}}, False),
        ({"day": pa.date32()}, {"partitionValues": None}, False),
        ({"shop": pa.string()}, {"partitionValues": {"shop": ""}}, False),
        ({"bytes": pa.binary()}, {"partitionValues": {"bytes": "x"}}, False),
        ({}, {}, True),
        ({}, {"path": "s3://elsewhere/a.parquet"}, False),
        ({}, {"path": "/elsewhere/a.parquet"}, False),
    ],
)
def test_files_that_only_deltalake_reads_are_left_to_it(
    partitions: dict[str, pa.DataType], action: dict[str, Any], are_read: bool
) -> None:
    assert reads(pa.schema(partitions), [{"path": "a.parquet", **action}]) == are_read


@pytest.mark.spark
def test_nanoseconds_are_cut_off(spark: SparkSession, tmp_path: Path) -> None:
    """As pandas writes them, before the table was converted to Delta."""
    times = pa.array([1_500, -1_500, -1, None], pa.int64()).cast(pa.timestamp("ns"))
    inner = pa.StructArray.from_arrays([times], ["at"])
    rows = pa.table({"at": times, "in": inner})
    table = tmp_path / "table"
    micros = pa.schema(
        [("at", pa.timestamp("us")), ("in", pa.struct([("at", pa.timestamp("us"))]))]
    )
    write_deltalake(table, micros.empty_table(), configuration=FEED)
    source: Any = st.DeltaTable(table).source()
    source.open(micros)
    at = source.read(None, Portion()).position
    write_deltalake(table, rows.cast(micros, safe=False), mode="append")
    (file,) = [p for p in table.glob("*.parquet") if pq.read_metadata(p).num_rows]
    pq.write_table(rows, file)
    for changes in (source.read(at, Portion()).changes, changes_after(source, at, spark)[0]):
        found = [c.toArrow() if isinstance(c, DataFrame) else c for c in changes]
        (values,) = [c.column("at").cast(pa.int64()).to_pylist() for c in found if c.num_rows]
        assert sorted(values, key=str) == [-1, 0, 1, None]
    source.close()


@pytest.mark.spark
def test_tasks_read_a_table_with_deletion_vectors(spark: SparkSession, tmp_path: Path) -> None:
    table = st.DeltaTable(tmp_path / "table", key="id", deletion_vectors=True)
    numbers = [(1, st.ZSetPython({Number(id=i): 1 for i in range(9)}))]
    numbers.append((2, st.ZSetPython({Number(id=3): -1})))
    with st.Pipeline(same, store="memory", numbers=numbers, into=table) as pipeline:
        pipeline.run()
    read = st.DeltaTable(tmp_path / "table", diff="snapshot")
    for _ in range(2):
        whole, large = both(read, spark, pa.schema({"id": pa.int64()}))
        assert isinstance(large, DataFrame)
        assert rows_of(large) == rows_of(whole)
        assert rows_of(whole).total() == 8
        DeltaTable(tmp_path / "table").create_checkpoint()
    (tmp_path / "table" / "_delta_log" / "_last_checkpoint").unlink()
    for old in (tmp_path / "table" / "_delta_log").glob("*0.json"):
        old.unlink()  # deltalake finds the checkpoint, and we do not
    whole, large = both(read, spark, pa.schema({"id": pa.int64()}))
    assert isinstance(large, pa.Table)
    assert large.num_rows < whole.num_rows == 8


class Number(st.Data):
    id: int


def same(numbers: st.ZSet[Number]) -> st.ZSet[Number]:
    return numbers


def written(path: Path, n: int) -> None:
    for half in range(2):
        ids = range(half * n, (half + 1) * n)
        names = [None if i % 900 == 7 else f"s{i % 900}" for i in ids]
        rows = pa.table([pa.array(ids, pa.int64()), pa.array(names)], names=["id", "shop"])
        write_deltalake(str(path), rows, mode="append", configuration=None if half else FEED)


def loading(path: Path, store: str = "", **more: Any) -> st.Pipeline:
    """A pipeline whose driver takes some thousand rows at once."""
    return st.Pipeline(
        st.sql("SELECT shop, count(*) AS n, max(id) AS most FROM orders GROUP BY shop"),
        store=store or f"parquet:{path / 'state'}",
        orders=st.DeltaTable(path / "orders", on_invalid=more.pop("on_invalid", "fail")),
        into=st.DeltaTable(path / "view", key="shop"),
        limits=st.Limits(working_bytes=5_000_000, local_rows=20_000),
        **more,
    )


def view(path: Path) -> dict[str | None, tuple[int, int]]:
    rows = DeltaTable(str(path / "view")).to_pyarrow_table().to_pylist()
    return {row["shop"]: (row["n"], row["most"]) for row in rows}


def shops(n: int) -> dict[str | None, tuple[int, int]]:
    """The view of so many orders."""
    names = {i % 900: None if i % 900 == 7 else f"s{i % 900}" for i in range(n)}
    ids = {name: range(i, n, 900) for i, name in names.items()}
    return {name: (len(some), some[-1]) for name, some in ids.items()}


@pytest.mark.spark
@pytest.mark.parametrize("limited", [False, True])
def test_a_large_table_is_loaded_by_tasks_in_one_step(
    spark: SparkSession, tmp_path: Path, limited: bool
) -> None:
    """Unless the user says how many rows a step takes."""
    written(tmp_path / "orders", 45_000)
    with loading(tmp_path, max_rows=50_000 if limited else None) as pipeline:
        assert (pipeline.run() > 1) == limited
        metrics = pipeline.stepper.metrics[0]
        assert sum(n or 0 for n in metrics.inputs.values()) < 60_000 if limited else 90_000
        if not limited:
            assert {v.how for v in metrics.vertices.values()} == {"tasks"}
    assert view(tmp_path) == shops(90_000)
    DeltaTable(str(tmp_path / "orders")).delete("id >= 89998")
    with loading(tmp_path) as pipeline:
        assert pipeline.run() == 1
    assert view(tmp_path) == shops(89_998)


@pytest.mark.driver
@pytest.mark.spark
def test_a_large_version_is_read_by_tasks_in_one_step(spark: SparkSession, tmp_path: Path) -> None:
    """It begins a table anew; before it, and after it, versions are small."""
    written(tmp_path / "orders", 10)
    with loading(tmp_path) as pipeline:
        pipeline.run()
    ids = pa.array(range(20, 90_000), pa.int64())
    names = [None if i % 900 == 7 else f"s{i % 900}" for i in range(20, 90_000)]
    write_deltalake(str(tmp_path / "orders"), pa.table({"id": ids, "shop": names}), mode="append")
    DeltaTable(str(tmp_path / "orders")).delete("id >= 89998")
    with loading(tmp_path) as pipeline:
        assert pipeline.run() == 2
        first, second = pipeline.stepper.metrics
        assert {v.how for v in first.vertices.values()} == {"tasks"}
        assert {v.how for v in second.vertices.values()} == {"driver"}
    assert view(tmp_path) == shops(89_998)


@pytest.mark.spark
@pytest.mark.turn(3, number=1)
def test_tasks_load_a_large_table_into_a_state_in_postgres(
    spark: SparkSession, tmp_path: Path, postgres: PostgresServer
) -> None:
    written(tmp_path / "orders", 45_000)
    state = f"postgres:{postgres.url}?schema=loaded_by_tasks"
    with loading(tmp_path, state) as pipeline:
        assert pipeline.run() == 1
        how = {v.how for v in pipeline.stepper.metrics[0].vertices.values()}
    assert how == {"tasks"}
    assert view(tmp_path) == shops(90_000)
    DeltaTable(str(tmp_path / "orders")).delete("id >= 89998")
    with loading(tmp_path, state) as pipeline:
        assert pipeline.run() == 1
    assert view(tmp_path) == shops(89_998)


@pytest.mark.spark
def test_a_file_that_a_task_cannot_read_is_named_and_can_come_back(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delta_source, "at_most", lambda *_: None)  # else the driver sees it first
    written(tmp_path / "orders", 45_000)
    file = next((tmp_path / "orders").glob("*.parquet"))
    file.rename(tmp_path / "away")
    with loading(tmp_path) as pipeline:
        with pytest.raises(SourceError, match=r"the rows of version 1 cannot be read: .*run again"):
            pipeline.run()
        (tmp_path / "away").rename(file)
        assert pipeline.run() == 1
    assert view(tmp_path) == shops(90_000)


class Lacking:
    """Files whose package is not there."""

    def __reduce__(self) -> Any:
        return __import__, ("a_package_that_nobody_has",)


@pytest.mark.spark
def test_workers_that_lack_a_package_are_told_with_what_would_do(spark: SparkSession) -> None:
    frame: Any = frame_of_files(spark, [cast(Any, Lacking())], COLUMNS, "the rows cannot be read")
    with pytest.raises(PySparkException) as e:
        frame.toArrow()
    told = raised_in_worker(cast(Any, e.value))
    assert told is not None
    assert re.search(r"read by Spark's.*a_package_that_nobody_has.*give the pipeline max", told[1])


@pytest.mark.spark
def test_rows_that_do_not_fit_are_refused_or_left_out(spark: SparkSession, tmp_path: Path) -> None:
    written(tmp_path / "orders", 45_000)

    class Order(st.Data):
        id: int
        shop: str

    def names(orders: st.ZSet[Order]) -> st.ZSet[str]:
        return st.distinct(st.map(orders, lambda o: o.shop))

    def loading(on_invalid: str) -> st.Pipeline:
        return st.Pipeline(
            names,
            store="memory",
            orders=st.DeltaTable(tmp_path / "orders", on_invalid=on_invalid),
            into={"names": seen.setdefault},
            limits=st.Limits(working_bytes=5_000_000, local_rows=20_000),
        )

    seen: dict[int, Any] = {}
    with (
        loading("fail") as pipeline,
        pytest.raises(st.InputError, match="column 'shop': expected str, found NULL"),
    ):
        pipeline.run()
    with loading("drop") as pipeline:
        pipeline.run()
    assert seen == {1: st.ZSetPython({f"s{i}": 1 for i in range(900) if i != 7})}


def in_files(folder: Path, *tables: pa.Table) -> st.Files:
    """A directory with a Parquet file for each table."""
    folder.mkdir()
    for n, table in enumerate(tables):
        pq.write_table(table, folder / f"{n}.parquet")
    return st.Files(folder)


def read(source: Any, portion: Portion) -> Batch:
    """What a source gives first."""
    batch: Batch | None = source.read(None, portion)
    assert batch is not None
    return batch


@pytest.mark.spark
def test_tasks_read_a_directory_of_parquet_files(spark: SparkSession, tmp_path: Path) -> None:
    """One file has its columns in another order, in another case, and one in a narrower type."""
    narrow = ROWS.set_column(0, "id", ROWS["id"].cast(pa.int16()))
    turned = narrow.select(ROWS.column_names[::-1]).rename_columns(
        [name.upper() for name in ROWS.column_names[::-1]]
    )
    files = in_files(tmp_path / "rows", ROWS, turned, ROWS.slice(0, 0), ROWS.slice(3))
    source = files.source()
    source.open(ROWS.schema)
    whole = read(source, Portion())
    large = read(source, Portion(rows=1, tasks=lambda: spark))
    assert isinstance(large.changes[0], DataFrame)
    assert rows_of(large.changes[0]) == sum(map(rows_of, whole.changes), Counter())
    assert rows_of(large.changes[0]).total() == 12
    assert (large.position, large.versions) == (whole.position, 4)
    assert source.read(large.position, Portion(rows=1, tasks=lambda: spark)) is None
    some = read(source, Portion(versions=2, rows=1, tasks=lambda: spark))
    assert (rows_of(some.changes[0]).total(), some.versions) == (10, 2)


def with_column(name: str, values: Any) -> pa.Table:
    """The rows, with another column in place of one."""
    return ROWS.set_column(ROWS.column_names.index(name), name, values)


UNLIKE = {
    "text in one": with_column("id", ROWS["id"].cast(pa.string())),
    "wider ints": with_column("id", ROWS["id"].cast(pa.int64())),
    "more digits": with_column("price", ROWS["price"].cast(pa.decimal128(9, 2))),
    "a struct without a field": with_column(
        "place", pa.array([{"city": "A"}] * 5, pa.struct([("city", pa.string())]))
    ),
    "times of nanoseconds": with_column("local", ROWS["local"].cast(pa.timestamp("ns"))),
}


@pytest.mark.spark
@pytest.mark.parametrize("unlike", UNLIKE.values(), ids=UNLIKE)
@pytest.mark.parametrize("first", [False, True])
def test_the_driver_reads_files_of_which_only_each_value_tells_whether_it_fits(
    spark: SparkSession, tmp_path: Path, unlike: pa.Table, first: bool
) -> None:
    tables = [unlike, ROWS] if first else [ROWS, unlike]
    source = in_files(tmp_path / "rows", *tables).source()
    source.open(ROWS.schema)
    batch = read(source, Portion(rows=5, tasks=lambda: spark))
    assert [rows_of(rows).total() for rows in batch.changes] == [5]


@pytest.mark.spark
def test_the_driver_reads_files_of_a_file_system_that_only_it_knows(
    spark: SparkSession, tmp_path: Path
) -> None:
    in_files(tmp_path / "rows", ROWS)
    within = pafs.SubTreeFileSystem(str(tmp_path), pafs.LocalFileSystem())
    source = st.Files("rows", filesystem=within).source()
    source.open(ROWS.schema)
    (rows,) = read(source, Portion(nbytes=1, tasks=lambda: spark)).changes
    source.close()
    assert isinstance(rows, pa.Table)


@pytest.mark.spark
@pytest.mark.parametrize("nbytes", [1, 1_000_000])
def test_a_large_directory_is_read_by_tasks_whatever_its_files_unpack_to(
    spark: SparkSession, tmp_path: Path, nbytes: int
) -> None:
    """A file of equal rows is small, and a thousand times as large in memory."""
    equal = pa.table([pa.array([7] * 200_000), pa.array(["a"] * 200_000)], schema=COLUMNS)
    source = in_files(tmp_path / "rows", equal).source()
    source.open(COLUMNS)
    (rows,) = read(source, Portion(nbytes=nbytes, tasks=lambda: spark)).changes
    assert isinstance(rows, DataFrame)
    assert rows.count() == 200_000


@pytest.mark.spark
def test_a_damaged_file_is_named_and_the_directory_is_read_when_it_is_back(
    spark: SparkSession, tmp_path: Path
) -> None:
    orders = tmp_path / "orders"
    many = pa.table({"id": pa.array(range(90_000), pa.int64())})
    many = many.append_column("shop", pa.array([f"s{i % 900}" for i in range(90_000)]))
    in_files(orders, many.slice(0, 45_000), many.slice(45_000))
    good = (orders / "1.parquet").read_bytes()

    def loading() -> st.Pipeline:
        return st.Pipeline(
            st.sql("SELECT shop, count(*) AS n, max(id) AS most FROM orders GROUP BY shop"),
            store=f"parquet:{tmp_path / 'state'}",
            orders=st.Files(orders),
            into=st.DeltaTable(tmp_path / "view", key="shop"),
            limits=st.Limits(working_bytes=5_000_000, local_rows=20_000),
        )

    for bad in (good[:-4], good[:4] + bytes(len(good) - 2_000) + good[4 - 2_000 :]):
        (orders / "1.parquet").write_bytes(bad)
        said = pytest.raises(SourceError, match=r"1\.parquet.*cannot be read")
        with said, loading() as pipeline:
            pipeline.run()
    (orders / "1.parquet").write_bytes(good)
    with loading() as pipeline:
        assert pipeline.run() == 1
        assert {v.how for v in pipeline.stepper.metrics[0].vertices.values()} == {"tasks"}
    assert view(tmp_path) == {f"s{i}": (100, 89_100 + i) for i in range(900)}
