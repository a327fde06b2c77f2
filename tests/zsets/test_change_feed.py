"""Change feeds: Delta's `_change_type` rows and Debezium's records, as Z-sets."""

from __future__ import annotations

import uuid
from decimal import Decimal
from typing import Annotated, Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import stepping_spark as st
from stepping_spark.spark.session import JobCounter
from tests.cases import Z


class Item(st.Data):
    id: int
    name: str | None
    price: Annotated[Decimal, st.Precision(10, 2)]


class Owner(st.Data):
    key: uuid.UUID
    tags: list[str]
    op: str | None


def item(number: int, name: str | None, price: int = 1) -> Item:
    return Item(id=number, name=name, price=Decimal(price))


A, B, C, UNNAMED = item(1, "a"), item(1, "b"), item(2, "c"), item(3, None)

Change = tuple[str | None, Item]
Record = tuple[str | None, Item | None, Item | None]

ROW = "id INT, name STRING, price DECIMAL(8, 1)"  # what is narrower is widened
DELTA = f"{ROW}, _change_type STRING, _commit_version BIGINT, _commit_timestamp TIMESTAMP"
STRUCT = "STRUCT<id: INT, name: STRING, price: DECIMAL(8, 1)>"
RECORDS = f"op STRING, before {STRUCT}, after {STRUCT}, ts_ms BIGINT, source STRUCT<lsn: BIGINT>"


def parts(row: Item | None) -> Any:
    return None if row is None else (row.id, row.name, row.price)


def delta(spark: SparkSession, *changes: Change) -> DataFrame:
    rows = [(*parts(row), kind, 7, None) for kind, row in changes]
    return spark.createDataFrame(rows, DELTA)


def debezium(spark: SparkSession, *records: Record) -> DataFrame:
    rows = [(op, parts(before), parts(after), 0, (1,)) for op, before, after in records]
    return spark.createDataFrame(rows, RECORDS)


def in_payload(records: DataFrame) -> DataFrame:
    return records.selectExpr("'{}' AS schema", "struct(*) AS payload")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([("insert", A), ("insert", UNNAMED), ("insert", A)], {A: 2, UNNAMED: 1}),
        ([("delete", UNNAMED)], {UNNAMED: -1}),
        ([("update_postimage", B), ("update_preimage", A)], {A: -1, B: 1}),
        ([("update_preimage", A), ("update_postimage", A)], {}),
        (
            [
                ("insert", A),
                ("update_preimage", A),
                ("update_postimage", B),
                ("update_preimage", B),
                ("update_postimage", UNNAMED),
                ("insert", C),
                ("delete", C),
            ],
            {UNNAMED: 1},
        ),
        ([], {}),
    ],
)
def test_a_delta_feed_is_what_came_less_what_went(
    spark: SparkSession, changes: list[Change], expected: dict[Item, int]
) -> None:
    assert st.from_change_feed(delta(spark, *changes), Item) == Z(expected)


def test_icebergs_changelog_is_what_came_less_what_went(spark: SparkSession) -> None:
    feed = delta(
        spark, ("INSERT", A), ("UPDATE_BEFORE", B), ("UPDATE_AFTER", UNNAMED), ("DELETE", C)
    ).withColumnsRenamed({"_commit_version": "_change_ordinal"})
    assert "_change_ordinal" in feed.columns
    assert st.from_change_feed(feed, Item) == Z({A: 1, B: -1, UNNAMED: 1, C: -1})


def test_a_feed_may_be_an_arrow_table_which_is_looked_through_at_once() -> None:
    kinds = ["insert", "update_preimage", "update_postimage", "UPDATE_AFTER", "DELETE"]
    table = pa.table(
        {"_value_": [1, 2, 3, 4, 5], "_Change_Type": kinds, "_commit_version": [0] * 5}
    )
    assert st.from_change_feed(table, int) == Z({1: 1, 2: -1, 3: 1, 4: 1, 5: -1})
    for odd in ("upsert", None):
        table = pa.table({"_value_": [1], "_change_type": pa.array([odd], pa.string())})
        with pytest.raises(st.InputError, match=f"UPDATE_BEFORE, found {odd!r}; leave these rows"):
            st.from_change_feed(table, int)
    with pytest.raises(st.InputError, match=r"found x; .*ZSetSpark\.from_arrow"):
        st.from_change_feed(pa.table({"x": [1]}), int)


@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([("c", None, A), ("r", None, UNNAMED), ("c", None, A)], {A: 2, UNNAMED: 1}),
        ([("d", UNNAMED, None)], {UNNAMED: -1}),
        ([("u", A, B)], {A: -1, B: 1}),
        ([("u", A, A)], {}),
        (
            [
                ("c", None, A),
                ("u", A, B),
                ("u", B, UNNAMED),
                ("c", None, C),
                ("d", C, None),
            ],
            {UNNAMED: 1},
        ),
        ([("c", C, A), ("d", B, C)], {A: 1, B: -1}),  # the other side does not count
        ([], {}),
    ],
)
def test_records_of_debezium_are_what_came_less_what_went(
    spark: SparkSession, records: list[Record], expected: dict[Item, int]
) -> None:
    assert st.from_change_feed(debezium(spark, *records), Item) == Z(expected)


def test_records_may_be_wrapped_in_a_payload(spark: SparkSession) -> None:
    df = in_payload(debezium(spark, ("c", None, A), ("u", C, UNNAMED)))
    assert st.from_change_feed(df, Item) == Z({A: 1, C: -1, UNNAMED: 1})
    df = in_payload(debezium(spark, ("d", None, A)))
    with pytest.raises(st.InputError, match=r"'before': .* where payload\.op is 'd'"):
        st.from_change_feed(df, Item).to_python()


def test_fields_are_converted_by_name_as_those_of_a_dataframe(spark: SparkSession) -> None:
    key = uuid.UUID("0d5e0a4b-7a3c-4a0e-9d5b-2f6a3f1f6a11")
    row = f"named_struct('TAGS', array('x'), 'op', 'c', 'key', upper('{key}'))"
    df = spark.sql(f"SELECT 'c' AS op, {row} AS after, {row} AS before")
    assert st.from_change_feed(df, Owner) == Z({Owner(key=key, tags=["x"], op="c"): 1})
    df = df.selectExpr("'delete' AS _change_type", "after.*")
    assert st.from_change_feed(df, Owner) == Z({Owner(key=key, tags=["x"], op="c"): -1})


def test_rows_of_one_value_are_the_one_column_there_is(spark: SparkSession) -> None:
    df = spark.sql("SELECT 'insert' AS _change_type, 3 AS n")
    assert st.from_change_feed(df, int) == Z({3: 1})
    df = spark.sql(
        "SELECT 'u' AS op, named_struct('n', 3) AS before, named_struct('n', 4) AS after"
    )
    assert st.from_change_feed(df, int) == Z({3: -1, 4: 1})
    found = st.from_change_feed(df.where("false"), int)
    assert found.empty()


def test_a_feed_is_read_once(spark: SparkSession) -> None:
    row = "named_struct('left', id, 'right', uuid())"
    df = spark.range(5).selectExpr("'u' AS op", f"{row} AS before", f"{row} AS after")
    feed: st.ZSetSpark[Any] = st.from_change_feed(df, st.Pair[int, uuid.UUID])
    # uuid() would give others if it were read again.
    assert sorted(n for _, n in feed.iter()) == [-1] * 5 + [1] * 5
    assert list(feed.iter()) == list(feed.iter())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ([("insert", A), ("upsert", B)], "insert, update_postimage, delete, .* found upsert; "),
        ([(None, A)], "column '_change_type': expected one of .* found NULL; leave these rows out"),
    ],
)
def test_an_unknown_kind_of_change_in_a_delta_feed_is_shown(
    spark: SparkSession, changes: list[Change], said: str
) -> None:
    with pytest.raises(st.InputError, match=said):
        st.from_change_feed(delta(spark, *changes), Item).to_python()


@pytest.mark.turn(2)
@pytest.mark.parametrize(
    ("record", "said"),
    [
        (
            ("t", None, None),
            r"column 'op': expected one of c, r, u, d, found t \(a truncate\): it ",
        ),
        (("m", None, None), r"found m \(a message\): .*; leave such records out"),
        (("x", A, B), "found x; leave such records out"),
        ((None, None, None), 'found NULL: a tombstone, or .*"value IS NOT NULL"'),
        (("u", None, B), "column 'before': expected a row, found NULL, .*REPLICA IDENTITY FULL"),
        (("d", None, None), "column 'before': expected a row, found NULL, where op is 'd'"),
        (("c", None, None), "column 'after': expected a row, found NULL, where op is 'c'; correct"),
    ],
)
def test_a_record_that_tells_of_no_rows_is_shown(
    spark: SparkSession, record: Record, said: str
) -> None:
    df = debezium(spark, ("c", None, A), record)
    with pytest.raises(st.InputError, match=said):
        st.from_change_feed(df, Item).to_python()


def test_a_step_with_a_bad_feed_changes_nothing(spark: SparkSession) -> None:
    def query(items: st.ZSet[Item]) -> st.ZSet[Item]:
        return st.integrate(items)

    graph = st.compile(query)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    stepper.step((Z({C: 1}),))
    null = "CAST(NULL AS INT) AS id, 'a' AS name, 1BD AS price"
    bad = {
        "column 'op': .* found t": debezium(spark, ("c", None, A), ("t", None, None)),
        "column '_change_type': .* found x": delta(spark, ("insert", A), ("x", B)),
        "column 'id': expected int, found NULL, in the row": spark.sql(
            f"SELECT {null}, 'insert' AS _change_type"
        ),
    }
    for said, df in bad.items():
        with pytest.raises(st.InputError, match=f"^input 'items', {said}"):
            stepper.step((st.from_change_feed(df, Item),))
    assert stepper.step((None,)) == (Z({C: 1}),)


@pytest.mark.parametrize(
    ("ddl", "said"),
    [
        (ROW, "expected Delta's column _change_type, or Debezium's op, before and after .* found"),
        (f"op STRING, after {STRUCT}", "found op, after; a DataFrame of whole rows"),
        ("_change_type STRING, id INT, name STRING", "there is no column price; the"),
        ("_change_type STRING, id STRING, name STRING, price INT", "'id': expected int"),
        (f"op INT, before {STRUCT}, after {STRUCT}", "column 'op': expected STRING, found INT"),
        (f"op STRING, before STRING, after {STRUCT}", "before: expected a struct .*from_json"),
        (f"op STRING, before {STRUCT}, after STRUCT<id: INT>", "after: there is no column name"),
        (f"payload STRUCT<op: STRING, after: {STRUCT}>", "expected Delta's column"),
    ],
)
def test_columns_of_neither_form_are_one_clear_error_at_once(
    spark: SparkSession, ddl: str, said: str
) -> None:
    frame = spark.createDataFrame([], ddl)
    with (
        JobCounter(spark) as jobs,
        pytest.raises(st.InputError, match=f"^from_change_feed.*{said}"),
    ):
        st.from_change_feed(frame, Item)
    assert jobs.count == 0


@pytest.mark.parametrize("column", ["_change_type", "_CHANGE_TYPE"])
@pytest.mark.parametrize("arrow", [False, True])
def test_a_feed_is_not_taken_for_whole_rows(spark: SparkSession, column: str, arrow: bool) -> None:
    feed = delta(spark, ("insert", A), ("delete", A)).withColumnRenamed("_change_type", column)
    table: Any = feed.toArrow() if arrow else feed
    read: Any = st.ZSetSpark.from_arrow if arrow else st.ZSetSpark.from_dataframe
    with pytest.raises(st.InputError, match=f"{column}.*rows that a change feed deletes would be"):
        read(table, Item)
    assert st.from_change_feed(table, Item) == Z({})
    table = table.drop_columns([column]) if arrow else table.drop(column)
    assert read(table, Item) == Z({A: 2})


def test_a_stream_itself_is_refused(spark: SparkSession) -> None:
    with pytest.raises(st.InputError, match=r"from_change_feed: the DataFrame is a stream"):
        st.from_change_feed(spark.readStream.format("rate").load(), Item)
