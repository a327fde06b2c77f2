"""Iceberg tables as sinks: by key, with counts, as a change feed; exactly once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

import stepping_spark as st
from stepping_spark.base.errors import SinkError
from stepping_spark.pipeline.iceberg import sink as iceberg_sink
from tests.cases import User, Z
from tests.pipeline.field_types import FIELDS, NAMES, Odd, nested, odd
from tests.pipeline.iceberg_writers import compact
from tests.pipeline.shop import (
    Note,
    Shop,
    Total,
    amounts,
    as_it_is,
    names,
    pipeline,
    read,
    totals,
)

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture
def lake(catalog: Catalog) -> Catalog:
    """A catalog without a namespace: the sink makes it."""
    return catalog


def table_of(lake: Catalog, name: str = "shop.view", **given: Any) -> st.IcebergTable:
    return st.IcebergTable(name, catalog=lake, **given)


def rows_of(lake: Catalog, name: str = "shop.view") -> list[dict[str, Any]]:
    return lake.load_table(name).scan().to_arrow().to_pylist()


# -- what is written


@pytest.mark.parametrize(
    "seed", [1, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(2, 8))]
)
def test_views_of_tables_that_change_at_random_equal_the_plain_query(
    lake: Catalog, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg_sink, "MERGED_EVERY", 3)
    shop = Shop(seed)
    steps = [shop.change()]
    changes: Counter[tuple[Any, ...]] = Counter()
    seen: dict[int, Any] = {}

    def run() -> None:
        into: dict[str, Any] = {
            "totals": [
                table_of(lake, "shop.totals", key="name"),
                table_of(lake, "shop.feed", key="name", changes=True),
            ],
            "amounts": table_of(lake, "shop.deep.amounts"),
        }
        sources: dict[str, Any] = {
            "orders": [(i, o) for i, (o, _) in enumerate(steps, 1)],
            "users": [(i, u) for i, (_, u) in enumerate(steps, 1)],
        }
        queries: Any = {"totals": totals, "amounts": amounts}
        with st.Pipeline(
            queries, store=f"parquet:{tmp_path / 'state'}", into=into, **sources
        ) as running:
            running.run()
        with st.Pipeline(
            as_it_is(Total),
            store=f"parquet:{tmp_path / 'second'}",
            rows=table_of(lake, "shop.totals"),
            into={"view": lambda step, change: seen.update({step: change.to_python()})},
        ) as second:
            second.run()

    for _ in range(5):
        run()
        found = [Total(**row) for row in rows_of(lake, "shop.totals")]
        assert len(set(found)) == len(found)
        assert set(found) == shop.totals
        assert sum(seen.values(), Z({})) == Z(dict.fromkeys(shop.totals, 1))
        counted = {r["_value_"]: r["_count_"] for r in rows_of(lake, "shop.deep.amounts")}
        assert Counter(counted) == shop.amounts
        changes.clear()
        for row in rows_of(lake, "shop.feed"):
            changes[(row["_change_type"], row["_step"], row["name"])] += 1
        assert set(changes.values()) <= {1}
        steps += [shop.change() for _ in range(2)]


def test_a_step_is_one_snapshot_that_says_the_step(lake: Catalog) -> None:
    a, b, c = Note(id=1, text="a"), Note(id=2, text="b"), Note(id=1, text="c")
    items = [(1, Z({a: 1, b: 1})), (2, Z({a: -1, c: 1})), (3, Z({b: -1}))]
    pipeline(Note, items, table_of(lake, key="id")).run()
    table = lake.load_table("shop.view")
    said = [s.summary.additional_properties for s in table.snapshots() if s.summary]
    assert [s[iceberg_sink.STEP] for s in said] == ["1", "2", "3"]
    assert table.properties[iceberg_sink.STEP] == "3"
    assert rows_of(lake) == [{"id": 1, "text": "c"}]


def test_only_files_that_may_hold_the_keys_are_read(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = [Note(id=i, text=f"n{i}") for i in range(100)]
    items = [(n, Z(dict.fromkeys(notes[10 * n : 10 * n + 10], 1))) for n in range(1, 10)]
    table, state = table_of(lake, key="id"), "memory"
    scanned: list[int] = []
    scan = ArrowScan.to_table

    def counted(self: ArrowScan, tasks: Any) -> pa.Table:
        listed = list(tasks)
        scanned.extend(task.file.record_count for task in listed)
        return scan(self, listed)

    monkeypatch.setattr(ArrowScan, "to_table", counted)
    more = [(10, Z({notes[55]: -1, Note(id=55, text="new"): 1, Note(id=1_000, text=None): 1}))]
    pipeline(Note, [*items, *more], table, store=state).run()
    assert scanned == [10, 10]  # one file: its keys, then its rows
    assert len(rows_of(lake)) == 91


@pytest.mark.turn(3)
@pytest.mark.parametrize("name", FIELDS)
def test_a_field_of_each_type_goes_into_a_table_and_out_of_it_two_deep(
    lake: Catalog, name: str
) -> None:
    made, rows = nested(name)
    keyed, counted = table_of(lake, key=("id", "plain")), table_of(lake, "shop.counted")
    if name == "timedelta":
        for look in (st.Pipeline.dry_run, st.Pipeline.run):
            with pytest.raises(SinkError, match=r"column plain is a duration\[us\], which Iceberg"):
                look(pipeline(made, [], keyed))
        return
    if name == "data":
        with pytest.raises(SinkError, match=r"column twice\[\]\[\]\.a b is in a list of lists"):
            pipeline(made, [], keyed).run()
        return
    if name == "zset":
        with pytest.raises(SinkError, match="column none has NULL for a list of structs"):
            pipeline(made, [(1, Z(dict.fromkeys(rows, 1)))], keyed).run()
        return
    first, rest = rows[0], rows[1:]
    items = [(1, Z(dict.fromkeys(rows, 2))), (2, Z({first: -2})), (3, Z({first: 1}))]
    items.append((4, Z(dict.fromkeys(rest, -2))))
    pipeline(made, items, counted).run()
    assert [row["_count_"] for row in rows_of(lake, "shop.counted")] == [1]
    once = [
        (n, change if n == 3 else Z({r: i // 2 for r, i in change.iter()})) for n, change in items
    ]
    pipeline(made, once, keyed).run()
    assert read(keyed, made) == Z({first: 1})


def test_columns_may_have_any_name_at_any_depth(lake: Catalog) -> None:
    # finding 25
    table = table_of(lake, key=("number", "kind"))
    items = [
        (1, Z({odd(1, "a"): 1, odd(2, None): 1, odd(3, "c"): 1})),
        (2, Z({odd(2, None): -1, odd(4, None): 1})),
        (3, Z({odd(1, "a"): -1})),
    ]
    pipeline(Odd, items, table).run()
    assert read(table, Odd) == Z({odd(3, "c"): 1, odd(4, None): 1})
    made = lake.load_table("shop.view").schema()
    assert [field.name for field in made.fields] == NAMES
    assert "an x, in side" in str(made)
    counted = table_of(lake, "shop.counted", columns={"id": "the id, counted", "text": "Text"})
    pipeline(Note, [(1, Z({Note(id=1, text=None): 2}))], counted).run()
    assert rows_of(lake, "shop.counted") == [{"the id, counted": 1, "Text": None, "_count_": 2}]


# -- what is refused


def following(lake: Catalog, tmp_path: Path, state: str = "state", n: int = 1) -> st.Pipeline:
    items = [(i, Z({User(id=i, name=f"n{i}"): 1})) for i in range(1, n + 1)]
    return st.Pipeline(
        names,
        store=f"parquet:{tmp_path / state}",
        users=items,
        into={"names": table_of(lake, key="_value_")},
    )


def value(*texts: str) -> pa.Table:
    fields = pa.schema([pa.field("_value_", pa.string(), nullable=False)])
    return pa.table([pa.array(texts)], schema=fields)


def names_in(lake: Catalog) -> list[str]:
    return sorted(row["_value_"] for row in rows_of(lake))


def test_rows_that_others_write_are_found_and_mended_by_a_rollback(
    lake: Catalog, tmp_path: Path
) -> None:
    with following(lake, tmp_path) as running:
        running.run()
    table = lake.load_table("shop.view")
    mine = table.current_snapshot()
    assert mine is not None
    table.append(value("alien"))
    for look in (st.Pipeline.dry_run, st.Pipeline.run):
        with (
            following(lake, tmp_path, n=2) as running,
            pytest.raises(SinkError, match="somebody else has changed its rows in snapshot"),
        ):
            look(running)
    table.manage_snapshots().rollback_to_snapshot(mine.snapshot_id).commit()
    with following(lake, tmp_path, n=2) as running:
        running.run()
    assert names_in(lake) == ["n1", "n2"]


def test_a_compaction_and_expired_snapshots_are_no_change(lake: Catalog, tmp_path: Path) -> None:
    for n in range(1, 5):
        with following(lake, tmp_path, n=n) as running:
            assert running.run() == 1
        table = lake.load_table("shop.view")
        if n % 2:
            compact(table)
        current = table.refresh().current_snapshot()
        old = [s.snapshot_id for s in table.snapshots() if s != current]
        if old:
            table.maintenance.expire_snapshots().by_ids(old).commit()
    assert names_in(lake) == ["n1", "n2", "n3", "n4"]


def test_an_older_snapshot_than_the_state_is_refused(lake: Catalog, tmp_path: Path) -> None:
    with following(lake, tmp_path, n=3) as running:
        running.run()
    table = lake.load_table("shop.view")
    table.manage_snapshots().rollback_to_snapshot(table.snapshots()[0].snapshot_id).commit()
    with (
        following(lake, tmp_path, n=4) as running,
        pytest.raises(SinkError, match="one of the two is an older copy"),
    ):
        running.run()


def test_a_second_pipeline_and_a_table_of_others_are_refused(lake: Catalog, tmp_path: Path) -> None:
    with following(lake, tmp_path) as running:
        running.run()
    for look in (st.Pipeline.dry_run, st.Pipeline.run):
        with (
            following(lake, tmp_path, "other") as other,
            pytest.raises(
                SinkError, match="another pipeline or view writes it, and has written step 1"
            ),
        ):
            look(other)
    lake.drop_table("shop.view")
    lake.create_table("shop.view", value().schema).append(value("mine"))
    with (
        following(lake, tmp_path, "third") as third,
        pytest.raises(SinkError, match="it has rows that no pipeline wrote"),
    ):
        third.run()
    assert names_in(lake) == ["mine"]


@pytest.mark.parametrize("changes", [False, True])
def test_of_two_commits_at_the_same_moment_one_is_fenced(
    lake: Catalog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: bool
) -> None:
    def pipeline(state: str) -> st.Pipeline:
        into = {"names": table_of(lake, changes=changes)}
        items = [(1, Z({User(id=1, name="a"): 1}))]
        return st.Pipeline(names, store=f"parquet:{tmp_path / state}", users=items, into=into)

    with pipeline("one") as one, pipeline("two") as two:
        two.lag()
        sink: Any = two._outlets[0]._sink
        commit = sink._commit
        monkeypatch.setattr(sink, "_commit", lambda *given: (one.run(), commit(*given)))
        with pytest.raises(SinkError, match="somebody else wrote it at the same time"):
            two.run()
    assert names_in(lake) == ["a"]


@pytest.mark.parametrize(
    ("types", "said"),
    [
        ((IntegerType(), StringType()), "column id is int32 in the table, and int64 NOT NULL in"),
        ((LongType(), LongType()), "column text is int64 in the table, and string in the view"),
        ((LongType(),), "the table has the columns id, and the view is written as id, text"),
    ],
)
def test_a_table_that_is_there_with_other_columns_is_refused(
    lake: Catalog, types: Any, said: str
) -> None:
    fields = zip(("id", "text"), types, strict=False)
    schema = Schema(*[NestedField(i, name, t) for i, (name, t) in enumerate(fields, 1)])
    lake.create_namespace("shop")
    lake.create_table("shop.view", schema)
    for look in (st.Pipeline.dry_run, st.Pipeline.run):
        with pytest.raises(SinkError, match=said):
            look(pipeline(Note, [], table_of(lake, key="id")))


def test_a_partitioned_table_takes_a_change_feed_and_no_rows_by_key(lake: Catalog) -> None:
    def partitioned(name: str, *more: NestedField) -> Table:
        fields = NestedField(1, "id", LongType()), NestedField(2, "text", StringType())
        spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
        return lake.create_table(name, Schema(*fields, *more), partition_spec=spec)

    lake.create_namespace("shop")
    partitioned("shop.view")
    with pytest.raises(SinkError, match=r"it is partitioned, .* changes=True"):
        pipeline(Note, [], table_of(lake, key="id")).run()
    kind, step = NestedField(3, "_change_type", StringType()), NestedField(4, "_step", LongType())
    partitioned("shop.feed", kind, step)
    a = Note(id=1, text="a")
    items = [(1, Z({a: 1})), (2, Z({a: -1}))]
    pipeline(Note, items, table_of(lake, "shop.feed", changes=True)).run()
    said = sorted((r["_step"], r["_change_type"]) for r in rows_of(lake, "shop.feed"))
    assert said == [(1, "insert"), (2, "delete")]


def test_a_catalog_that_fails_is_a_sink_error_without_its_password(tmp_path: Path) -> None:
    secret = "postgresql+nothing://app:hunter2@db/lake"
    table = st.IcebergTable(
        "shop.view", catalog="lake", key="id", options={"type": "sql", "uri": secret}
    )
    with pytest.raises(SinkError, match=r"Iceberg table shop\.view: its catalog cannot be") as told:
        pipeline(Note, [], table).run()
    assert "hunter2" not in str(told.value)


def test_small_files_are_merged_now_and_then(
    lake: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg_sink, "MERGED_EVERY", 10)
    items = [(i, Z({Note(id=i, text="x"): 1})) for i in range(1, 25)]
    pipeline(Note, items, table_of(lake, key="id")).run()
    assert len(list(lake.load_table("shop.view").scan().plan_files())) == 5
    assert len(rows_of(lake)) == 24
