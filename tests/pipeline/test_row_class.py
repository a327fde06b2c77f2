"""Row classes made of tables and schemas, and rows that are filled from other rows by name."""

from __future__ import annotations

import datetime as dt
import keyword
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as hs
from pyspark.sql import SparkSession
from pyspark.sql import types as T

import stepping_spark as st
from stepping_spark.base.errors import CompileError, InputError
from stepping_spark.cli import main
from stepping_spark.rows.data import NoSuchRow
from stepping_spark.rows.row_class import class_of, code_of, field_name
from tests.cases import Z

COLUMNS: dict[str, Any] = {
    "id": pa.int32(),
    "Sample Number": pa.int64(),
    "class": pa.string(),
    "_id": pa.large_string(),
    "a.b": pa.decimal128(10, 2),
    "at": pa.timestamp("ns", "Europe/Oslo"),
    "local": pa.timestamp("s"),
    "day": pa.date64(),
    "span": pa.duration("ms"),
    "raw": pa.binary(3),
    "kind": pa.dictionary(pa.int8(), pa.string()),
    "ratio": pa.float16(),
    "done": pa.bool_(),
    "items": pa.list_(pa.field("item", pa.struct([("x.y", pa.int8())]), nullable=False)),
    "one": pa.struct([("x", pa.list_(pa.int8()))]),
}
LEFT_OUT: dict[str, Any] = {
    "time": pa.time64("us"),
    "point": pa.opaque(pa.null(), "point", "PostgreSQL"),
    "map": pa.map_(pa.string(), pa.int64()),
    "empty": pa.struct([]),
    "times": pa.list_(pa.struct([("at", pa.time32("s"))])),
}


def test_a_class_has_a_field_for_each_column_under_a_name_of_python() -> None:
    """Finding 33."""
    made: Any = class_of(pa.schema({**COLUMNS, **LEFT_OUT}), "Order", required=["id"])
    assert list(made.__row_fields__()) == [
        *("id", "Sample_Number", "class_", "id_2", "a_b", "at", "local", "day", "span", "raw"),
        *("kind", "ratio", "done", "items", "one"),
    ]
    assert made.__doc__.startswith("Left out: time (time64[us]), point (point), map (map<")
    assert str(st.ZSet[made])
    given = dict.fromkeys(made.__row_fields__(), None)
    row = made(**{**given, "id": 1, "a_b": Decimal("1.50"), "local": dt.datetime(2024, 1, 1)})
    assert row.a_b == Decimal("1.50")
    with pytest.raises(NoSuchRow, match=r"Order.id is int, found None"):
        made(**given)


def test_the_code_of_a_class_makes_the_same_class() -> None:
    made = class_of(pa.schema({**COLUMNS, **LEFT_OUT}), "Order")
    code = code_of(made)
    names: dict[str, Any] = {"__name__": "code"}
    exec(compile(code, "code", "exec"), names)
    again = names["Order"]
    assert code_of(again) == code
    assert again.__row_columns__ == made.__row_columns__
    assert "class OrderItems(st.Data):\n    x_y: Annotated[int | None, st.Column('x.y')]" in code


@given(hs.lists(hs.text(min_size=1), min_size=1, max_size=6, unique=True))
def test_columns_of_any_name_are_fields_that_find_them(columns: list[str]) -> None:
    columns = [c for c in columns if c != "_count_" and c.isprintable()]
    if not columns:
        return
    table = pa.table({c: [i] for i, c in enumerate(columns)})
    made: Any = class_of(table.schema, "Row")
    names = list(made.__row_fields__())
    assert all(n.isidentifier() and not keyword.iskeyword(n) for n in names)
    row = made(**{n: i for i, n in enumerate(names)})
    if len({c.lower() for c in columns}) == len(columns):
        assert st.ZSetSpark.from_arrow(table, made) == Z({row: 1})


def test_names_that_are_no_fields_are_changed_a_little() -> None:
    assert [field_name(c) for c in ("a", "class", "_id", "1st", "a b", "%", "é")] == [
        *("a", "class_", "id", "c_1st", "a_b", "c", "é"),
    ]


def total(rows: Any, of: Any) -> Any:
    def query(rows: Any) -> Any:
        return st.map(rows, f=lambda r: r.cents)

    query.__annotations__ = {"rows": st.ZSet[of], "return": st.ZSet[int]}
    seen: dict[int, Any] = {}
    st.Pipeline(query, store="memory", rows=rows, into=seen.__setitem__).run()
    return seen[1]


def test_a_class_is_made_of_a_source_a_path_and_a_table(tmp_path: Path) -> None:
    """Finding 33."""
    rows = pa.table({"id": [1], "cents": [100], "class": ["x"]})
    lake, files = tmp_path / "lake", tmp_path / "files"
    feed = {"delta.enableChangeDataFeed": "true"}
    deltalake.write_deltalake(str(lake), rows, configuration=feed)
    files.mkdir()
    pq.write_table(rows, files / "a.parquet")
    (tmp_path / "json").mkdir()
    (tmp_path / "json" / "a").write_text('{"id": 1, "cents": 100, "class": "x"}\n')
    json = st.Files(tmp_path / "json", "json")
    required = ["id", "cents"]
    for of in (lake, str(files), st.DeltaTable(lake), st.Files(files), json, rows, rows.schema):
        made = st.row_class(of, name="Order", required=required)
        assert list(made.__row_fields__()) == ["id", "cents", "class_"]
        if not isinstance(of, pa.Table | pa.Schema | str | Path):
            assert total(of, made) == Z({100: 1})


@pytest.mark.spark
def test_a_class_is_made_of_a_schema_of_spark_and_of_ddl(spark: SparkSession) -> None:
    ddl = "id INT NOT NULL, `class` DECIMAL(10, 2), items ARRAY<STRUCT<x: DATE>>, v STRING"
    frame = spark.createDataFrame([], ddl)
    codes = {code_of(st.row_class(of, name="Order")) for of in (ddl, frame, frame.schema)}
    (code,) = codes
    assert "    id: int\n" in code
    assert "items: list[OrderItems | None] | None" in code
    odd = T.StructType([T.StructField("m", T.MapType(T.StringType(), T.LongType())), *frame.schema])
    assert "Left out: m (map<string,bigint>)" in str(st.row_class(odd).__doc__)
    with pytest.raises(InputError, match=r"'id INTT' is no DDL"):
        st.row_class("id INTT")


def test_what_has_no_columns_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"test_row_class.*there is no table at '/nowhere'"):
        st.row_class("/nowhere")
    with pytest.raises(InputError, match="does not say its columns"):
        st.row_class([(1, None)])
    with pytest.raises(InputError, match="required= names 'x', and the columns are a"):
        st.row_class(pa.schema({"a": pa.int64()}), required=["x"])
    with pytest.raises(InputError, match=r"columns t \(time64\[us\]\)"):
        st.row_class(pa.schema({"t": pa.time64("us")}))


def test_the_command_prints_the_class(tmp_path: Path) -> None:
    rows = pa.table({"id": [1], "Sample Number": [100]})
    deltalake.write_deltalake(str(tmp_path / "raw_orders"), rows)
    done = CliRunner().invoke(
        main, ["source", "class", str(tmp_path / "raw_orders"), "--required", "id"]
    )
    assert (done.exit_code, done.output) == (
        0,
        "from typing import Annotated\n\nimport stepping_spark as st\n\n\n"
        "class RawOrders(st.Data):\n    id: int\n"
        "    Sample_Number: Annotated[int | None, st.Column('Sample Number')]\n",
    )
    done = CliRunner().invoke(main, ["source", "class", str(tmp_path / "none")])
    assert (done.exit_code, "there is no table at" in done.stderr) == (2, True)


# -- rows that are filled by name


class Order(st.Data):
    id: int
    customer: int
    cents: int


class Customer(st.Data):
    id: int
    country: str | None


class Sold(Order):
    euros: float
    country: str | None


def sold(orders: st.ZSet[Order], customers: st.ZSet[Customer]) -> st.ZSet[Sold]:
    joined = st.join(orders, customers, on_left=lambda o: o.customer, on_right=lambda c: c.id)
    return st.map(joined, f=lambda p: Sold.of(p, id=p.left.id, euros=p.left.cents / 100))


def test_fields_are_filled_from_rows_by_name() -> None:
    """Finding 33: `SELECT *, …`."""
    orders = Z({Order(id=1, customer=7, cents=150): 1})
    customers = Z({Customer(id=7, country="Chile"): 1})
    expected = Sold(id=1, customer=7, cents=150, euros=1.5, country="Chile")
    graph = st.compile(sold)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    assert stepper.step((orders, customers)) == (Z({expected: 1}),)
    ((order, _),), ((customer, _),) = orders.iter(), customers.iter()
    assert Sold.of(order, customer, id=1, euros=1.5) == expected
    assert Sold.of(st.Pair(left=order, right=customer), id=1, euros=1.5) == expected


def test_a_field_that_two_rows_have_is_named() -> None:
    def query(orders: st.ZSet[Order], customers: st.ZSet[Customer]) -> st.ZSet[Sold]:
        joined = st.join(orders, customers, on_left=lambda o: o.customer, on_right=lambda c: c.id)
        return st.map(joined, f=lambda p: Sold.of(p, euros=1.0))

    with pytest.raises(CompileError, match=r"Sold.of: 2 rows have a field 'id'.*id=…"):
        st.compile(query)


def test_what_is_no_row_and_what_is_missing_are_told() -> None:
    with pytest.raises(NoSuchRow, match=r"Sold.of: expected rows, found 7 \(int\)"):
        Sold.of(7)
    with pytest.raises(NoSuchRow, match="no value for 'euros', 'country'"):
        Sold.of(Order(id=1, customer=1, cents=1))


class Odd(st.Data):
    of: str  # type: ignore[assignment]
    left: int


def test_a_field_may_have_the_name_of_the_method() -> None:
    assert Odd(of="x", left=1).of == "x"
    with pytest.raises(NoSuchRow, match="no value for 'of'"):
        Odd(left=1)  # type: ignore[call-arg]
    made: Any = Odd.of
    assert made(Odd(of="x", left=1), left=2) == Odd(of="x", left=2)


def test_rows_need_no_class_of_their_own() -> None:
    """Finding 33: a query whose result needs no name."""

    def query(orders: st.ZSet[Order], customers: st.ZSet[Customer]) -> Any:
        joined = st.join(orders, customers, on_left=lambda o: o.customer, on_right=lambda c: c.id)
        priced = st.map(joined, f=lambda p: st.row(p, id=p.left.id, euros=p.left.cents / 100))
        sums: Any = st.aggregate(priced, by=lambda r: r.country, n=st.agg.count())
        return st.window(sums, order=lambda s: s.n, place=st.win.row_number())

    graph = st.compile(query)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    orders = Z({Order(id=i, customer=7, cents=150): 1 for i in range(3)})
    (out,) = stepper.step((orders, Z({Customer(id=7, country="Chile"): 1})))
    ((row, n),) = out.iter()
    assert (repr(row), n) == ("Row(country='Chile', n=3, place=1)", 1)
    assert row == st.row(country="Chile", n=3, place=1)
    assert st.compile(query) == graph


def test_a_part_of_a_key_without_a_name_needs_a_class() -> None:
    def parity(orders: st.ZSet[Order]) -> st.ZSet[Any]:
        return st.aggregate(orders, by=lambda o: o.cents * 2, n=st.agg.count())

    with pytest.raises(CompileError, match=r"a part of the key, .*has no name .*give into="):
        st.compile(parity)

    def ranked(numbers: st.ZSet[int]) -> st.ZSet[Any]:
        return st.window(numbers, order=lambda n: n, place=st.win.row_number())

    with pytest.raises(CompileError, match="a row that is int has no names of fields; give into="):
        st.compile(ranked)


def test_columns_that_are_called_like_a_parameter_of_python_or_not_at_all() -> None:
    made: Any = class_of(pa.schema([(n, pa.int64()) for n in ("self", "cls", "", "args")]), "Odd")
    assert made.__doc__ == "Left out: a column without a name (int64)."
    row = made(self=1, cls=2, args=3)
    assert (row.self, row.cls, made.of(row, cls=5).cls) == (1, 2, 5)


def test_the_command_knows_directories_of_text(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("id,name\n1,x\n")
    done = CliRunner().invoke(main, ["source", "class", str(tmp_path), "--name", "Person"])
    assert "class Person(st.Data):\n    id: int | None\n    name: str | None" in done.output
    done = CliRunner().invoke(main, ["source", "class", str(tmp_path / "none")])
    assert done.stderr.startswith("Error: there is no table at"), done.stderr
