"""Iceberg tables as sources: what differs between snapshots is what they changed."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import DataScan, Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

import stepping_spark as st
from stepping_spark.base.errors import InputError, SourceError
from stepping_spark.pipeline import Portion, Position, Source
from tests.cases import User, Z
from tests.pipeline.iceberg_writers import compact, delete_positions, files_of
from tests.pipeline.shop import View, names

TYPES: dict[str, pa.DataType] = {"id": pa.int64(), "name": pa.string()}
COLUMNS = pa.schema(TYPES)
SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "name", StringType()))
ALL = Portion()


def users(lake: Catalog, spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC) -> Table:
    return lake.create_table("shop.users", SCHEMA, partition_spec=spec)


def arrow(*rows: tuple[int, str]) -> pa.Table:
    ids, texts = [i for i, _ in rows], [text for _, text in rows]
    return pa.table([pa.array(ids, pa.int64()), pa.array(texts, pa.string())], schema=COLUMNS)


def opened(lake: Catalog) -> Source:
    source = st.IcebergTable("shop.users", catalog=lake).source()
    source.open(COLUMNS)
    return source


class Reader:
    """Reads a source as a pipeline does, each time in a new process if it must be."""

    def __init__(self, lake: Catalog, *, anew: bool = False) -> None:
        self._lake = lake
        self._anew = anew
        self.source = opened(lake)
        self.position: Position | None = None
        self.rows: st.ZSet[User] = Z({})
        self.sizes: list[int] = []

    def read(self, portion: Portion = ALL) -> bool:
        """Read once; whether there was something."""
        if self._anew:
            self.source.close()
            self.source = opened(self._lake)
        batch = self.source.read(self.position, portion)
        if batch is None:
            return False
        for change in batch.changes:
            assert isinstance(change, pa.Table)
            self.sizes.append(change.num_rows)
            self.rows = self.rows + Z(
                [(User(id=r["id"], name=r["name"]), r["_count_"]) for r in change.to_pylist()]
            )
        self.position = batch.position
        return True

    def read_all(self, portion: Portion = ALL) -> int:
        """Read until there is nothing new; how often there was something."""
        return sum(1 for _ in iter(lambda: self.read(portion), False))


def there(table: Table) -> st.ZSet[User]:
    """What is in a table, as pyiceberg reads it."""
    rows = table.refresh().scan().to_arrow().to_pylist()
    return Z([(User(id=r["id"], name=r["name"]), 1) for r in rows])


def change(table: Table, rng: random.Random) -> None:
    """Change a table as another program does."""
    i = rng.randrange(20)
    row = (i, f"n{rng.randrange(4)}")
    what: list[Callable[[], object]] = [
        lambda: table.append(arrow(row, row)),
        lambda: table.append(arrow(row)),
        lambda: table.delete(f"id = {i}"),
        lambda: table.overwrite(arrow(row), overwrite_filter=f"id > {i}"),
        lambda: table.delete(f"name = '{row[1]}' and id < {i}"),
    ]
    rng.choice(what)()


BY_NAME = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "name"))


@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
@pytest.mark.parametrize(
    ("seed", "spec"),
    [
        (1, UNPARTITIONED_PARTITION_SPEC),
        (2, BY_NAME),
        *(
            pytest.param(seed, spec, marks=pytest.mark.long)
            for seed in range(3, 9)
            for spec in (UNPARTITIONED_PARTITION_SPEC, BY_NAME)
        ),
    ],
    ids=lambda given: "by name" if given is BY_NAME else None,
)
def test_what_is_read_of_a_table_that_changes_at_random_adds_up_to_the_table(
    lake: Catalog, seed: int, spec: PartitionSpec
) -> None:
    rng = random.Random(seed)
    table = users(lake, spec)
    readers = [
        (Reader(lake), ALL),
        (Reader(lake), Portion(versions=1)),
        (Reader(lake, anew=True), Portion(versions=2, rows=2)),
    ]
    for _ in range(4):
        for _ in range(rng.randrange(1, 4)):
            change(table, rng)
        for reader, portion in readers:
            reader.read_all(portion)
            assert reader.rows == there(table)
            assert reader.source.behind(reader.position) == 0


def test_only_files_that_differ_are_read(lake: Catalog) -> None:
    table = users(lake)
    table.append(arrow(*((i, "old") for i in range(1_000))))
    reader = Reader(lake)
    reader.read_all()
    table.append(arrow((5_000, "new")))
    reader.read_all()
    table.delete("id = 5000")
    reader.read_all()
    assert reader.sizes == [1_000, 1, 1]


def test_rows_that_are_deleted_by_their_positions_go(lake: Catalog) -> None:
    table = users(lake)
    table.append(arrow(*((i, f"n{i}") for i in range(6))))
    table.append(arrow((6, "n6"), (7, "n7")))
    whole, pieces = Reader(lake), Reader(lake, anew=True)
    readers = [(whole, ALL), (pieces, Portion(versions=1, rows=2))]
    first, second = sorted(files_of(table), key=lambda path: len(rows_in(path)))[::-1]
    for positions in ({first: [1, 3]}, {first: [0], second: [1]}, {second: [0]}, {}):
        if positions:
            delete_positions(table, positions)
        else:
            table.overwrite(arrow((9, "n9")), overwrite_filter="id = 2")  # rewrites what is deleted
        for reader, portion in readers:
            reader.read_all(portion)
            assert reader.rows == there(table)
            assert reader.source.behind(reader.position) == 0
    assert there(table) == Z({User(id=i, name=f"n{i}"): 1 for i in (4, 5, 9)})


def test_a_compaction_reads_no_rows_and_is_not_waited_for(lake: Catalog) -> None:
    table = users(lake)
    reader = Reader(lake)
    for i in range(3):
        table.append(arrow((i, f"n{i}")))
    reader.read_all()
    before = there(table)
    compact(table)
    compact(table)
    assert len(files_of(table)) == 1
    assert reader.source.behind(reader.position) == 0
    batch = reader.source.read(reader.position, ALL)
    assert batch is not None
    # The position is committed, for the snapshot before it expires.
    assert (batch.changes, batch.versions, batch.final) == ((), 2, True)
    assert reader.read_all() == 1
    table.append(arrow((7, "n7")))
    reader.read_all()
    assert reader.rows == there(table) == before + Z({User(id=7, name="n7"): 1})


def rows_in(path: str) -> pa.Table:
    return pq.read_table(path.removeprefix("file://"))


def test_files_are_planned_once_and_rows_are_read_once_above_the_rows_of_a_step(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = users(lake)
    for n in range(9):
        table.append(arrow(*((10 * n + i, "a") for i in range(10))))
        if not n:
            reader = Reader(lake)
            reader.read_all()
    planned: list[int | None] = []
    scanned: list[int] = []
    plan, scan = DataScan.plan_files, ArrowScan.to_record_batches

    def counted_plan(self: DataScan) -> Any:
        planned.append(self.snapshot_id)
        return plan(self)

    def counted_scan(self: ArrowScan, tasks: Any) -> Any:
        listed = list(tasks)
        scanned.extend(task.file.record_count for task in listed)
        return scan(self, listed)

    monkeypatch.setattr(DataScan, "plan_files", counted_plan)
    monkeypatch.setattr(ArrowScan, "to_record_batches", counted_scan)
    assert reader.read(Portion(rows=15))
    assert reader.sizes == [10, 10]
    assert len(planned) == len(set(planned)) == 5  # that before, and 8, 4, 2 and 1 after it
    assert scanned == [10]


def test_a_table_without_rows_is_read_when_some_come(lake: Catalog) -> None:
    table = users(lake)
    reader = Reader(lake)
    assert not reader.read()
    assert reader.source.behind(None) == 0
    table.append(arrow((1, "ann")))
    assert reader.source.behind(None) == 1
    assert reader.read_all() == 1


def test_a_transaction_of_several_snapshots_is_one_step(lake: Catalog) -> None:
    table = users(lake)
    table.append(arrow((1, "ann"), (2, "bob")))
    reader = Reader(lake)
    reader.read()
    table.upsert(arrow((1, "eve"), (3, "joe")), join_cols=["id"])
    assert len(table.snapshots()) > 2
    assert reader.read_all() == 1
    assert reader.rows == there(table)


def test_a_table_that_is_rolled_back_takes_its_rows_back(lake: Catalog) -> None:
    table = users(lake)
    table.append(arrow((1, "ann")))
    first = table.current_snapshot()
    assert first is not None
    table.append(arrow((2, "bob")))
    reader = Reader(lake)
    reader.read_all()
    table.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
    assert reader.read_all() == 1
    assert reader.rows == there(table) == Z({User(id=1, name="ann"): 1})


def test_columns_may_come_and_one_that_is_made_anew_is_another(lake: Catalog) -> None:
    table = users(lake)
    table.append(arrow((1, "ann")))
    reader = Reader(lake)
    reader.read_all()
    with table.update_schema() as update:
        update.add_column("age", LongType())
    table.append(arrow((2, "bob")).append_column("age", pa.array([7], pa.int64())))
    reader.read_all()
    with table.update_schema() as update:
        update.rename_column("name", "old_name")
    with table.update_schema() as update:
        update.add_column("name", StringType())
    rows = pa.table({"id": [3], "old_name": ["x"], "age": [1], "name": ["eve"]})
    table.append(rows)
    batch = reader.source.read(reader.position, ALL)
    assert batch is not None
    (found,) = batch.changes
    assert isinstance(found, pa.Table)
    said = sorted((r["id"], str(r["name"]), r["_count_"]) for r in found.to_pylist())
    expected = [(1, "None", 1), (1, "ann", -1), (2, "None", 1), (2, "bob", -1), (3, "eve", 1)]
    assert said == expected


def test_what_cannot_be_read_says_so(lake: Catalog) -> None:
    with pytest.raises(SourceError, match=r"Iceberg table shop\.users: it cannot be loaded: "):
        opened(lake).read(None, ALL)
    table = users(lake)
    table.append(arrow((1, "ann")))
    source = st.IcebergTable("shop.users", catalog=lake).source()
    source.open(COLUMNS.set(1, pa.field("mail", pa.string())))
    with pytest.raises(SourceError, match="there is no column mail; the columns are id, name"):
        source.read(None, ALL)
    reader = Reader(lake)
    reader.read()
    lake.drop_table("shop.users")
    users(lake).append(arrow((2, "bob")))
    with pytest.raises(SourceError, match="this is another table than the one that was read"):
        Reader.read(reader)


def test_a_snapshot_that_was_expired_says_so(lake: Catalog) -> None:
    table = users(lake)
    table.append(arrow((1, "ann")))
    reader = Reader(lake)
    reader.read()
    old = table.current_snapshot()
    table.append(arrow((2, "bob")))
    assert old is not None
    table.maintenance.expire_snapshots().by_id(old.snapshot_id).commit()
    with pytest.raises(SourceError, match=f"snapshot {old.snapshot_id}, which was read last"):
        reader.read()


def test_a_password_among_the_options_is_not_shown() -> None:
    secret = "postgresql+nothing://app:hunter2@db/lake"
    table = st.IcebergTable("shop.users", catalog="lake", options={"type": "sql", "uri": secret})
    source = table.source()
    source.open(COLUMNS)
    with pytest.raises(SourceError) as told:
        source.read(None, ALL)
    assert "hunter2" not in f"{told.value} {table!r}"


def test_what_is_given_is_checked(lake: Catalog) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"name": "users"}, "the name of an Iceberg table with its namespace"),
        ({"name": "shop.users", "catalog": 3}, "the name of a catalog"),
        ({"name": "shop.users", "catalog": lake, "options": {"a": "b"}}, "leave options= out"),
    ]
    for given, said in wrong:
        with pytest.raises(InputError, match=said):
            st.IcebergTable(**given)


def test_without_pyiceberg_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*sys.modules]:
        if name.startswith(("pyiceberg", "stepping_spark.pipeline.iceberg.")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyiceberg", None)
    for side in (st.IcebergTable.source, st.IcebergTable.sink):
        with pytest.raises(InputError, match=r"pip install 'stepping-spark\[iceberg\]'"):
            side(st.IcebergTable("shop.users"))


def test_a_pipeline_follows_an_iceberg_table_and_goes_on(lake: Catalog, tmp_path: Path) -> None:
    table = users(lake)
    table.append(arrow((1, "ann"), (2, "bob")))
    view = View()

    def pipeline() -> st.Pipeline:
        return st.Pipeline(
            names,
            store=f"parquet:{tmp_path / 'state'}",
            users=st.IcebergTable("shop.users", catalog=lake),
            into={"names": view},
        )

    with pipeline() as running:
        assert running.run() == 1
        assert view.rows == Z({"ann": 1, "bob": 1})
        table.delete("id = 2")
        assert running.lag() == {"users": 1}
        assert running.run() == 1
    table.append(arrow((3, "eve")))
    with pipeline() as running:
        assert running.run() == 1
        assert running.lag() == {"users": 0}
    assert view.rows == Z({"ann": 1, "eve": 1})
