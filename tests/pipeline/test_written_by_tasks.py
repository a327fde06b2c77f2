"""Views with changes that are too large for the driver: Spark's tasks write them into tables."""

from __future__ import annotations

import datetime as dt
import random
import re
import threading
import time
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import IcebergType, ListType, LongType, NestedField
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark.base.errors import SinkError
from stepping_spark.pipeline import by_tasks
from stepping_spark.pipeline.delta.sink import DeltaSink
from stepping_spark.relations.relation import SparkRelation
from stepping_spark.rows.schema import ZSetType
from stepping_spark.rows.types import row_type
from tests.cases import Z, constants
from tests.pipeline.shop import View, as_it_is, numbered, read

pytestmark = pytest.mark.spark


class Item(st.Data):
    id: int
    name: Annotated[str, st.Column("the name")] | None
    price: Annotated[Decimal, st.Precision(9, 2)]
    day: dt.date


NAMES = (None, "", "a", "ü/b", "x" * 40)
KEYED = {"key": "id"}
FORMS: dict[str, dict[str, Any]] = {
    "by key": KEYED,
    "with counts": {},
    "changes": {"changes": True},
    "changes by key": {"changes": True, **KEYED},
    "vectors": {"deletion_vectors": True, **KEYED},
    "vectors with counts": {"deletion_vectors": True},
}
"""What a table has, and the arguments of a place for it."""


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes of any size in Spark are written by tasks."""
    monkeypatch.setattr(by_tasks, "WRITTEN_BYTES", 0)
    monkeypatch.setattr(by_tasks, "REWRITTEN", 1_000_000)


def item(i: int, chance: random.Random) -> Item:
    """A row with a key."""
    day = dt.date(2024, 1, 1) + dt.timedelta(days=chance.randrange(3))
    return Item(id=i, name=chance.choice(NAMES), price=Decimal(chance.randrange(9)), day=day)


def steps_of(seed: int, n: int) -> list[st.ZSetPython[Item]]:
    """Changes of a view that has each key once: rows come, change and go."""
    chance = random.Random(seed)
    view: dict[int, Item] = {}
    steps = []
    for _ in range(n):
        change: Counter[Item] = Counter()
        for i in chance.sample(range(40), 12):
            old = view.pop(i, None)
            if old is not None:
                change[old] -= 1
            if old is None or chance.random() < 0.6:
                view[i] = item(i, chance)
                change[view[i]] += 1
        steps.append(Z({row: count for row, count in change.items() if count}))
    return steps


ITEMS = ZSetType(row_type(Item))


def in_spark(change: st.ZSetPython[Item], spark: SparkSession) -> st.ZSetSpark[Item]:
    """A change that Spark has, as a large step gives it."""
    table = st.ZSetSpark.of_rows(change.iter(), ITEMS, "test").to_arrow()
    return st.ZSetSpark(SparkRelation(spark.createDataFrame(table), ITEMS.schema), ITEMS)


def arrow(change: st.ZSetPython[Item]) -> st.ZSetSpark[Item]:
    """A change on the driver."""
    return st.ZSetSpark.of_rows(change.iter(), ITEMS, "test")


FIELDS: list[pa.Field[Any]] = [
    pa.field("id", pa.int64(), nullable=False),
    pa.field("name", pa.string(), metadata={"column": "the name"}),
    pa.field("price", pa.decimal128(9, 2), nullable=False),
    pa.field("day", pa.date32(), nullable=False),
]
COLUMNS = pa.schema(FIELDS)


@dataclass
class Table:
    """A table, its sink, and a pipeline that follows its rows by what is said of changes."""

    place: Any
    kind: str
    lake: Catalog

    def __post_init__(self) -> None:
        self.sink = self.place.sink()
        self.sink.open(COLUMNS, "000000000001 items")
        self._seen = View()
        self._follows: st.Pipeline | None = None

    def write(self, step: int, change: Any) -> None:
        """Write a step, as a pipeline does."""
        self.sink.prepare(step, change)
        self.sink.write(step, change)
        assert self.sink.last_step() == step

    def content(self) -> Counter[str]:
        """The rows of the table, as others read them."""
        if self.kind == "delta":
            table = QueryBuilder().register("t", DeltaTable(self.place.path))
            rows: Any = table.execute("SELECT * FROM t").read_all()
        else:
            rows = self.lake.load_table(self.place.name).scan().to_arrow()
        return Counter(repr(sorted(row.items())) for row in pa.table(rows).to_pylist())

    def followed(self) -> st.ZSet[Any]:
        """The rows that a pipeline has which reads the changes of the table."""
        if self._follows is None:
            source = type(self.place)(**self._address)
            self._follows = st.Pipeline(
                as_it_is(Item), store="memory", rows=source, into={"view": self._seen}
            )
        self._follows.run()
        return self._seen.rows

    @property
    def _address(self) -> dict[str, Any]:
        if self.kind == "delta":
            return {"path": self.place.path}
        return {"name": self.place.name, "catalog": self.lake}


def table_of(kind: str, form: str, name: str, folder: Path, lake: Catalog) -> Table:
    """A table of a kind and a form."""
    if kind == "delta":
        return Table(st.DeltaTable(folder / name, **FORMS[form]), kind, lake)
    return Table(st.IcebergTable(f"shop.{name}", catalog=lake, **FORMS[form]), kind, lake)


BOTH = [("delta", form) for form in FORMS]
BOTH += [("iceberg", form) for form in FORMS if "vectors" not in form]


@pytest.mark.parametrize(("kind", "form"), BOTH)
@pytest.mark.turn(6)
def test_tasks_write_what_the_driver_writes(
    spark: SparkSession, tmp_path: Path, lake: Catalog, large: None, kind: str, form: str
) -> None:
    """Each step by tasks or by the driver; beside it a table that only the driver writes."""
    chance = random.Random(f"{kind} {form}")
    mixed, plain = (table_of(kind, form, name, tmp_path, lake) for name in ("mixed", "plain"))
    view: st.ZSetPython[Item] = Z({})
    for step, change in enumerate(steps_of(chance.randrange(99), 5), 1):
        there, here = in_spark(change, spark), arrow(change)
        mixed.write(step, there if step == 1 or chance.random() < 0.7 else here)
        plain.write(step, here)
        assert mixed.content() == plain.content(), step
        view = view + change
        if "changes" not in form and "counts" not in form:
            assert mixed.followed() == view, step


@pytest.mark.parametrize(("kind", "form"), [x for x in BOTH if "changes" not in x[1]])
@pytest.mark.turn(6)
def test_tasks_write_a_view_in_the_place_of_what_a_table_has(
    spark: SparkSession, tmp_path: Path, lake: Catalog, large: None, kind: str, form: str
) -> None:
    first, second = steps_of(1, 1) + steps_of(2, 1)
    mixed, plain = (table_of(kind, form, name, tmp_path, lake) for name in ("mixed", "plain"))
    for table in (mixed, plain):
        table.write(1, in_spark(first, spark) if table is mixed else arrow(first))
        table.sink.anew = True
        table.write(2, in_spark(second, spark) if table is mixed else arrow(second))
    assert mixed.content() == plain.content()
    if form in ("by key", "vectors"):
        assert mixed.followed() == second


SEVERAL = re.escape("several rows with the key id = {'id': 7}; correct the")


@pytest.mark.turn(2)
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_key_of_several_rows_is_refused_by_tasks_as_by_the_driver(
    spark: SparkSession, tmp_path: Path, lake: Catalog, large: None, kind: str
) -> None:
    a, b = (Item(id=7, name=name, price=Decimal(1), day=dt.date(2024, 1, 1)) for name in "ab")
    table = table_of(kind, "by key", "items", tmp_path, lake)
    with pytest.raises(SinkError, match=SEVERAL):
        table.sink.prepare(1, in_spark(Z({a: 1, b: 1}), spark))
    table.write(1, in_spark(Z({a: 1}), spark))
    before = table.content()
    with pytest.raises(SinkError, match=SEVERAL):
        table.sink.prepare(2, in_spark(Z({b: 1}), spark))
    assert table.content() == before
    table.write(2, in_spark(Z({a: -1, b: 1}), spark))
    assert sum(table.content().values()) == 1


def test_files_that_somebody_merged_meanwhile_are_written_anew(
    spark: SparkSession, tmp_path: Path, lake: Catalog, large: None
) -> None:
    one, two, three = steps_of(5, 3)
    table = table_of("delta", "by key", "items", tmp_path, lake)
    table.write(1, in_spark(one, spark))
    table.write(2, arrow(two))
    change = in_spark(three, spark)
    table.sink.prepare(3, change)
    DeltaTable(table.place.path).optimize.compact()
    table.sink.write(3, change)
    assert table.followed() == one + two + three


def test_a_table_that_deltalake_must_write_is_written_by_the_driver(
    spark: SparkSession, tmp_path: Path, lake: Catalog, large: None
) -> None:
    one, two = steps_of(6, 2)
    table = table_of("delta", "by key", "items", tmp_path, lake)
    constraint = {"few": "id < 1000"}
    DeltaTable(table.place.path).alter.add_constraint(constraint)
    for step, change in enumerate((one, two), 1):
        table.write(step, in_spark(change, spark))
    assert table.followed() == one + two


@pytest.mark.turn(4)
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("error", [ModuleNotFoundError, PermissionError])
def test_the_driver_writes_where_workers_cannot(
    spark: SparkSession,
    tmp_path: Path,
    lake: Catalog,
    large: None,
    kind: str,
    error: type[Exception],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def missing(*_: object) -> None:
        raise error("it is not there")

    monkeypatch.setattr(by_tasks, "_write", missing)  # the task gets this function
    (change,) = steps_of(7, 1)
    table = table_of(kind, "by key", "items", tmp_path, lake)
    table.write(1, in_spark(change, spark))
    assert table.followed() == change
    assert "the driver writes it: " in caplog.text
    assert "it is not there" in caplog.text


@pytest.mark.turn(4)
def test_a_cancelled_job_ends_the_step_and_leaves_the_table(
    spark: SparkSession,
    tmp_path: Path,
    lake: Catalog,
    large: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def waiting(*_: object) -> None:
        time.sleep(60)

    def cancel() -> None:
        while not spark.sparkContext.statusTracker().getActiveJobsIds():
            time.sleep(0.1)
        spark.sparkContext.cancelAllJobs()

    one, two = steps_of(7, 2)
    table = table_of("delta", "by key", "items", tmp_path, lake)
    table.write(1, in_spark(one, spark))
    monkeypatch.setattr(by_tasks, "_write", waiting)  # the task gets this function
    user = threading.Thread(target=cancel)
    user.start()
    with pytest.raises(Exception, match="SPARK_JOB_CANCELLED"):
        table.write(2, in_spark(two, spark))
    user.join()
    assert table.followed() == one
    monkeypatch.undo()
    table.write(2, in_spark(two, spark))
    assert table.followed() == one + two


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_large_table_is_not_written_anew_for_a_small_change(
    spark: SparkSession,
    tmp_path: Path,
    lake: Catalog,
    large: None,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one, two = steps_of(8, 2)
    table = table_of(kind, "by key", "items", tmp_path, lake)
    table.write(1, in_spark(one, spark))
    monkeypatch.setattr(by_tasks, "REWRITTEN", 0)
    monkeypatch.setattr(by_tasks, "_a_task_each", None)  # that would read the table
    table.write(2, in_spark(two, spark))
    assert table.followed() == one + two


def test_a_table_that_is_no_more_for_tasks_when_a_step_is_written(
    spark: SparkSession, tmp_path: Path, lake: Catalog, large: None
) -> None:
    one, two = steps_of(3, 2)
    table = table_of("delta", "by key", "items", tmp_path, lake)
    table.write(1, in_spark(one, spark))
    change = in_spark(two, spark)
    table.sink.prepare(2, change)
    DeltaTable(table.place.path).alter.add_constraint({"few": "id < 1000"})
    table.sink.write(2, change)
    assert table.followed() == one + two


class Tagged(st.Data):
    id: int
    tags: list[int]


@pytest.mark.parametrize("columns", [("id", "tags"), ("tags", "id")], ids=",".join)
def test_a_table_may_have_lists_and_another_order_of_columns(
    spark: SparkSession, lake: Catalog, large: None, columns: tuple[str, str]
) -> None:
    """Without a key; pyiceberg finds rows by their lists, and Delta refuses such tables."""
    types: dict[str, IcebergType] = {
        "id": LongType(),
        "tags": ListType(10, LongType(), element_required=True),
        "_count_": LongType(),
    }
    fields = [
        NestedField(i, name, types[name], required=True)
        for i, name in enumerate((*columns, "_count_"), 1)
    ]
    lake.create_table("shop.tagged", Schema(*fields))
    sink: Any = st.IcebergTable("shop.tagged", catalog=lake).sink()
    tagged = ZSetType(row_type(Tagged))
    of_rows: list[pa.Field[Any]] = [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("tags", pa.list_(pa.field("item", pa.int64(), nullable=False)), nullable=False),
    ]
    sink.open(pa.schema(of_rows), "000000000001 tagged")
    a, b, c = (Tagged(id=i, tags=tags) for i, tags in enumerate(([1], [], [2, 3])))
    view: st.ZSetPython[Tagged] = Z({})
    for step, change in enumerate((Z({a: 2, b: 1}), Z({a: -1, b: -1, c: 3})), 1):
        table = st.ZSetSpark.of_rows(change.iter(), tagged, "test").to_arrow()
        held = SparkRelation(spark.createDataFrame(table), tagged.schema)
        given: st.ZSetSpark[Tagged] = st.ZSetSpark(held, tagged)
        sink.prepare(step, given)
        sink.write(step, given)
        view = view + change
        rows = lake.load_table("shop.tagged").scan().to_arrow().to_pylist()
        found = {Tagged(id=r["id"], tags=r["tags"]): r["_count_"] for r in rows}
        assert Z(found) == view


def pairs(items: st.ZSet[Item]) -> st.ZSet[Pair]:
    """Many more rows than there are items."""
    joined = st.join(items, items, on_left=lambda i: i.day, on_right=lambda i: i.day)
    return st.map(joined, f=lambda p: Pair(left=p.left.id, right=p.right.id, name=p.left.name))


class Pair(st.Data):
    left: int
    right: int
    name: str | None


def plain_pairs(view: st.ZSetPython[Item]) -> st.ZSetPython[Pair]:
    """The same, in plain Python."""
    items = [row for row, _ in view.iter()]
    return Z(
        {
            Pair(left=a.id, right=b.id, name=a.name): 1
            for a in items
            for b in items
            if a.day == b.day
        }
    )


@pytest.mark.turn(2)
@pytest.mark.parametrize("store", ["memory", "parquet"])
@constants(kept_bytes=100)
def test_a_large_output_stays_in_spark_from_the_step_to_the_table(
    spark: SparkSession,
    tmp_path: Path,
    large: None,
    monkeypatch: pytest.MonkeyPatch,
    store: str,
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the rows of a view pass the driver")

    monkeypatch.setattr(DeltaSink, "_append", refuse)
    monkeypatch.setattr(DeltaSink, "_by_key", refuse)
    limits = st.Limits(local_rows=0, fetched_rows=1)
    steps = steps_of(9, 3)
    table = st.DeltaTable(tmp_path / "pairs", key=("left", "right"))
    url = "memory" if store == "memory" else f"parquet:{tmp_path / 'state'}"
    pipeline = st.Pipeline(
        pairs, store=url, limits=limits, items=numbered(steps), into={"pairs": table}
    )
    view: st.ZSetPython[Item] = Z({})
    with pipeline:
        for change in steps:
            assert pipeline.run(max_steps=1) == 1
            view = view + change
            assert pipeline.stepper.metrics[-1].not_in_tasks == ""
            assert read(table, Pair) == plain_pairs(view)
