"""Rows that do not fit their input: an error, left out, or delivered to a sink of their own."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hs
from pyspark.sql import SparkSession

import stepping_spark as st
from tests.cases import Z


class Order(st.Data):
    id: int
    cents: int
    note: str | None


def total(orders: st.ZSet[Order]) -> st.ZSet[int]:
    return st.map(orders, f=lambda o: o.cents)


def lines(*rows: tuple[int | None, int | None], counts: list[int] | None = None) -> pa.Table:
    """Rows of orders, of which a column may be NULL, with their counts."""
    ids, cents = ([row[i] for row in rows] for i in (0, 1))
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "cents": pa.array(cents, pa.int64()),
            "note": pa.nulls(len(rows), pa.string()),
            "_count_": pa.array(counts or [1] * len(rows), pa.int64()),
        }
    )


GOOD, BAD = (1, 100), (2, None)


def pipeline(
    items: list[Any], on_invalid: object, seen: dict[int, Any], **more: Any
) -> st.Pipeline:
    orders = st.Items(items, on_invalid=on_invalid)
    more.setdefault("store", "memory")
    return st.Pipeline(total, orders=orders, into={"total": seen.__setitem__}, **more)


def test_a_row_that_does_not_fit_is_an_error_that_says_where_and_what_would_do() -> None:
    """Finding 30."""
    seen: dict[int, Any] = {}
    with pytest.raises(st.InputError) as e:
        pipeline([(7, lines(GOOD, BAD))], "fail", seen).run()
    assert str(e.value) == (
        "input 'orders', position 7, column 'cents': expected int, found NULL, in the row "
        '{"id": 2, "cents": null, "note": null}; correct the rows, or say what becomes of rows '
        'that do not fit: on_invalid="drop", or on_invalid= with a sink for them'
    )
    assert not seen


def test_rows_that_do_not_fit_may_be_left_out_and_are_counted() -> None:
    seen: dict[int, Any] = {}
    made = pipeline([(1, lines(GOOD, BAD, BAD)), (2, lines(BAD, counts=[-2]))], "drop", seen)
    assert made.run() == 2  # nothing fits in the second, and nobody need read it again
    assert seen == {1: Z({100: 1})}
    assert "stepping_spark_rows_rejected_total" in made.metrics()
    assert made.report().numbers["rejected"] == {"orders": 4}


def test_a_deletion_of_a_row_that_did_not_fit_is_none_in_the_view() -> None:
    seen: dict[int, Any] = {}
    rejected: list[tuple[st.Rejected, int]] = []
    items = [(1, lines(GOOD, BAD)), (2, lines(BAD, GOOD, counts=[-1, -1]))]
    made = pipeline(items, lambda step, rows: rejected.extend(rows.iter()), seen)
    made.run()
    assert seen == {1: Z({100: 1}), 2: Z({100: -1})}
    told = [(r.input, r.position, r.change, r.row, r.reason, n) for r, n in rejected]
    row, reason = (
        '{"id": 2, "cents": null, "note": null}',
        "column 'cents': expected int, found NULL",
    )
    assert told == [
        ("orders", "position 1", "insert", row, reason, 1),
        ("orders", "position 2", "delete", row, reason, 1),
    ]


def test_rows_that_come_and_go_in_one_batch_fit_whatever_they_are() -> None:
    """Finding 17, of any source."""
    seen: dict[int, Any] = {}
    pipeline([(1, lines(GOOD, BAD, BAD, counts=[1, 1, -1]))], "fail", seen).run()
    assert seen == {1: Z({100: 1})}


class Wide(st.Data):
    n: int
    x: float
    price: Annotated[Decimal, st.Precision(4, 2)]
    at: st.LocalDateTime
    inner: list[Order] | None


def wide(rows: st.ZSet[Wide]) -> st.ZSet[Wide]:
    return st.distinct(rows)


def wide_row(**other: Any) -> dict[str, Any]:
    orders = [{"id": 1, "cents": 2, "note": "x"}]
    right = {"n": 1, "x": 1, "price": Decimal("1.50"), "at": 0, "inner": orders}
    return {**right, **other}


ORDER: Any = pa.struct([("id", pa.int64()), ("cents", pa.int64()), ("note", pa.string())])
TYPES: dict[str, Any] = {
    "n": pa.uint64(),
    "x": pa.int64(),
    "price": pa.decimal128(10, 3),
    "at": pa.int64(),
    "inner": pa.list_(ORDER),
}
WIDE = pa.schema(TYPES)
MISFITS: dict[str, tuple[dict[str, Any], str]] = {
    "too large for 64 bits": ({"n": 2**63}, "column 'n': expected int (int64), found 9223372036"),
    "too large for a float": ({"x": 2**53 + 1}, "column 'x': expected float (double), found 9007"),
    "more digits": ({"price": Decimal("1.505")}, "column 'price': expected Decimal(4, 2)"),
    "larger": ({"price": Decimal("100.000")}, "column 'price': expected Decimal(4, 2)"),
    "year 12000": ({"at": 316_000_000_000_000}, "column 'at': expected a year from 1 to 9999"),
    "NULL in a list": (
        {"inner": [{"id": 1, "cents": 1, "note": None}, {"id": None, "cents": 1, "note": None}]},
        "column 'inner', items.id: expected int, found NULL",
    ),
    "NULL as an item": ({"inner": [None]}, "column 'inner', items: expected Order, found NULL"),
}


def wide_table(*rows: dict[str, Any]) -> pa.Table:
    table = pa.Table.from_pylist(list(rows), WIDE)
    return table.set_column(3, "at", table.column("at").cast(pa.timestamp("ms")))


@pytest.mark.parametrize(("other", "reason"), MISFITS.values(), ids=MISFITS.keys())
def test_each_value_that_does_not_fit_is_told_with_its_row(
    other: dict[str, Any], reason: str
) -> None:
    seen: dict[int, Any] = {}
    rejected: list[tuple[st.Rejected, int]] = []
    rows = wide_table(wide_row(), wide_row(**other), wide_row(n=3))
    items = st.Items([(1, rows)], on_invalid=lambda step, found: rejected.extend(found.iter()))
    made = st.Pipeline(wide, store="memory", rows=items, into={"wide": seen.__setitem__})
    made.run()
    ((row, n),) = rejected
    assert (n, row.reason[: len(reason)]) == (1, reason)
    assert sorted(row.n for row, _ in seen[1].iter()) == [1, 3]


@settings(max_examples=30, deadline=None)
@given(
    steps=hs.lists(
        hs.dictionaries(
            hs.tuples(
                hs.one_of(hs.none(), hs.integers(0, 3)), hs.one_of(hs.none(), hs.integers(0, 3))
            ),
            hs.integers(-2, 2).filter(bool),
        ),
        max_size=5,
    ),
)
def test_the_view_is_the_query_of_the_rows_that_fit(steps: list[dict[Any, int]]) -> None:
    seen: dict[int, Any] = {}
    rejected: Counter[tuple[str, str]] = Counter()

    def reject(step: int, rows: Any) -> None:
        for row, n in rows.iter():
            rejected[row.row] += n if row.change == "insert" else -n

    items = [
        (i, lines(*step, counts=list(step.values())) if step else None)
        for i, step in enumerate(steps, 1)
    ]
    pipeline(items, reject, seen).run()
    view: Counter[int] = Counter()
    for change in seen.values():
        for value, n in change.iter():
            view[value] += n
    wanted: Counter[int] = Counter()
    others = 0
    for step in steps:
        for (i, cents), n in step.items():
            if i is None or cents is None:
                others += n
            else:
                wanted[cents] += n
    assert {k: n for k, n in view.items() if n} == {k: n for k, n in wanted.items() if n}
    assert sum(rejected.values()) == others


def test_rows_of_python_may_not_fit_either() -> None:
    seen: dict[int, Any] = {}
    rejected: list[Any] = []
    rows: Any = st.ZSetPython([(5, 1), ("five", 2), (2**70, -1)])

    def numbers(numbers: st.ZSet[int]) -> st.ZSet[int]:
        return st.distinct(numbers)

    items = st.Items([(1, rows)], on_invalid=lambda step, found: rejected.extend(found.iter()))
    st.Pipeline(numbers, store="memory", numbers=items, into=seen.__setitem__).run()
    assert seen == {1: Z({5: 1})}
    assert sorted((r.row, r.change, n) for r, n in rejected) == [
        ("'five'", "insert", 2),
        (str(2**70), "delete", 1),
    ]


@pytest.mark.spark
def test_a_dataframe_may_have_rows_that_do_not_fit(spark: SparkSession) -> None:
    seen: dict[int, Any] = {}
    rejected: list[Any] = []
    df = spark.createDataFrame([(1, 5, "a"), (2, None, "b")], "id int, cents int, note string")
    made = pipeline([(1, df)], lambda step, rows: rejected.extend(rows.iter()), seen)
    made.run()
    assert seen == {1: Z({5: 1})}
    ((row, n),) = rejected
    assert (row.change, n) == ("insert", 1)
    assert row.reason == "column 'cents': expected int, found NULL"
    assert row.row == '{"id":2,"note":"b"}'


def test_a_state_goes_on_when_rows_that_do_not_fit_get_a_sink(tmp_path: Path) -> None:
    """The remedy of the message, tried: with the state that refused them, and back again."""
    source = tmp_path / "orders"
    source.mkdir()

    def add(name: str, *rows: tuple[int | None, int | None]) -> None:
        pq.write_table(lines(*rows).drop_columns(["_count_"]), source / name)

    def run(on_invalid: object) -> int:
        orders = st.Files(source, on_invalid=on_invalid)
        view = st.DeltaTable(tmp_path / "view")
        with st.Pipeline(
            total, store=f"parquet:{tmp_path / 'state'}", orders=orders, into=view
        ) as made:
            return made.run()

    add("1.parquet", GOOD)
    assert run("fail") == 1
    add("2.parquet", (3, 300), BAD)
    with pytest.raises(st.InputError, match=r"2\.parquet, column 'cents': expected int"):
        run("fail")
    rejected = st.DeltaTable(tmp_path / "rejected", changes=True)
    assert run(rejected) == 1
    found = deltalake.DeltaTable(str(tmp_path / "rejected")).to_pyarrow_table().to_pylist()
    assert [(r["input"], r["change"], r["_step"]) for r in found] == [("orders", "insert", 2)]
    add("3.parquet", BAD)
    assert run(rejected) == 1
    add("4.parquet", (4, 400), BAD)
    assert run("drop") == 1
    add("5.parquet", (5, 500))
    assert run("fail") == 1
    view = deltalake.DeltaTable(str(tmp_path / "view")).to_pyarrow_table().to_pylist()
    assert sorted(row["_value_"] for row in view) == [100, 300, 400, 500]
    assert len(deltalake.DeltaTable(str(tmp_path / "rejected")).to_pyarrow_table()) == 2


def test_on_invalid_is_fail_drop_or_a_sink() -> None:
    with pytest.raises(
        st.InputError, match=r"on_invalid='skip'.*expected 'fail', 'drop', or a sink"
    ):
        pipeline([], "skip", {})
    with pytest.raises(st.InputError, match="on_invalid of input 'orders' is 7"):
        pipeline([], 7, {})


def test_a_dry_run_says_where_rows_that_do_not_fit_go() -> None:
    found = pipeline([(1, lines(GOOD))], print, {}).dry_run()
    assert "rows that do not fit go to print" in str(found)
    dropped = pipeline([(1, lines(GOOD))], "drop", {}).dry_run()
    assert "rows that do not fit are left out" in str(dropped)


def test_rows_that_do_not_fit_are_read_and_counted_once(tmp_path: Path) -> None:
    """A batch without a row that fits moves the position all the same."""
    source = tmp_path / "orders"
    source.mkdir()
    pq.write_table(lines(BAD).drop_columns(["_count_"]), source / "1.parquet")
    steps = []
    for _ in range(3):
        orders = st.Files(source, on_invalid="drop")
        with st.Pipeline(total, store=f"parquet:{tmp_path / 'state'}", orders=orders) as made:
            steps.append((made.run(), made.report().numbers.get("rejected", {})))
    assert steps == [(1, {"orders": 1}), (0, {}), (0, {})]


def test_rows_that_do_not_fit_may_go_to_several_sinks_without_a_key(tmp_path: Path) -> None:
    seen: list[Any] = []
    out = st.Files(tmp_path / "rejected", changes=True)
    sinks = [out, lambda step, rows: seen.extend(rows.iter())]
    pipeline([(1, lines(BAD, BAD))], sinks, {}).run()
    ((_, n),) = seen
    assert n == pq.read_table(tmp_path / "rejected").num_rows == 2
    with pytest.raises(st.InputError, match="rows that do not fit have none"):
        pipeline([], st.Files(tmp_path / "x", changes=True, key="row"), {})


def test_a_column_of_counts_may_be_a_field() -> None:
    class Counted(st.Data):
        n: Annotated[int, st.Column("_count_")]

    def query(rows: st.ZSet[Counted]) -> st.ZSet[Counted]:
        return rows

    seen: dict[int, Any] = {}
    items = [(1, pa.table({"_count_": [5, 7]}))]
    st.Pipeline(query, store="memory", rows=items, into=seen.__setitem__).run()
    assert seen == {1: Z({Counted(n=5): 1, Counted(n=7): 1})}
