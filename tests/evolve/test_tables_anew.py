"""A table of a view that is made anew, renamed, or beside the old one: for each kind of sink."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import deltalake
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import stepping_spark as st

Rows = list[tuple[str, int]]


class Order(st.Data):
    country: str
    cents: int


@dataclass(frozen=True)
class Kind:
    """A kind of tables: the sink of a name, the rows that a table has, and how it is removed."""

    sink: Callable[[str], Any]
    rows: Callable[[str], Rows]
    remove: Callable[[str], None]


def sorted_rows(table: pa.Table) -> Rows:
    return sorted((row["country"], row["cents"]) for row in table.to_pylist())


def in_delta(place: Path) -> Kind:
    return Kind(
        lambda name: st.DeltaTable(str(place / name), key="country"),
        lambda name: sorted_rows(deltalake.DeltaTable(str(place / name)).to_pyarrow_table()),
        lambda name: shutil.rmtree(place / name),
    )


def in_files(place: Path) -> Kind:
    return Kind(
        lambda name: st.Files(str(place / name)),
        lambda name: sorted_rows(pq.read_table(max((place / name).glob("*.parquet")))),
        lambda name: shutil.rmtree(place / name),
    )


def in_postgres(url: str) -> Kind:
    schema = f"s{uuid4().hex}"

    def asked(text: str) -> Any:
        with psycopg.connect(url, autocommit=True) as connection:
            return connection.execute(text)

    asked(f"CREATE SCHEMA {schema}")
    return Kind(
        lambda name: st.Postgres(url, schema=schema, table=name, key="country"),
        lambda name: sorted(asked(f"SELECT country, cents FROM {schema}.{name}").fetchall()),
        lambda name: asked(f"DROP TABLE {schema}.{name}"),
    )


@pytest.fixture(params=["delta", "files", "postgres"])
def kind(request: pytest.FixtureRequest, tmp_path: Path) -> Kind:
    if request.param == "postgres":
        return in_postgres(request.getfixturevalue("postgres").url)
    return in_delta(tmp_path) if request.param == "delta" else in_files(tmp_path)


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    rows = pa.table({"country": ["de", "de", "fr"], "cents": [5, 10, 7]})
    feed = {"delta.enableChangeDataFeed": "true"}
    deltalake.write_deltalake(str(tmp_path / "orders"), rows, configuration=feed)
    return tmp_path / "orders"


OLD, NEW = [("de", 15), ("fr", 7)], [("de", 10), ("fr", 7)]
LATER = [("de", 10), ("fr", 7), ("it", 9)]


def pipeline(orders: Path, sink: Any, *, more: int = 0, state: str = "state") -> st.Pipeline:
    text = f"SELECT country, sum(cents) AS cents FROM orders WHERE cents > {more} GROUP BY 1"
    return st.Pipeline(
        {"sums": st.sql(text, orders=Order)},
        store=f"parquet:{orders.parent / state}",
        orders=st.DeltaTable(str(orders)),
        into={"sums": sink},
        evolve=True,
    )


def run(orders: Path, sink: Any, *, more: int = 0, state: str = "state") -> None:
    with pipeline(orders, sink, more=more, state=state) as running:
        running.run()


def test_a_table_that_is_removed_gets_all_rows_of_its_view(orders: Path, kind: Kind) -> None:
    run(orders, kind.sink("sums"))
    assert kind.rows("sums") == OLD
    kind.remove("sums")
    pipeline(orders, kind.sink("sums")).dry_run()
    run(orders, kind.sink("sums"))
    assert kind.rows("sums") == OLD
    rows = pa.table({"country": ["it"], "cents": [9]})
    deltalake.write_deltalake(str(orders), rows, mode="append")
    run(orders, kind.sink("sums"))
    kind.remove("sums")
    run(orders, kind.sink("sums"), more=6)
    assert kind.rows("sums") == LATER
    run(orders, kind.sink("sums"))
    assert kind.rows("sums") == [("de", 15), ("fr", 7), ("it", 9)]


def test_a_table_with_another_name_gets_all_rows_and_the_old_one_stays(
    orders: Path, kind: Kind
) -> None:
    run(orders, kind.sink("sums"))
    run(orders, kind.sink("totals"), more=6)
    assert (kind.rows("sums"), kind.rows("totals")) == (OLD, NEW)
    rows = pa.table({"country": ["it"], "cents": [9]})
    deltalake.write_deltalake(str(orders), rows, mode="append")
    run(orders, kind.sink("totals"), more=6)
    assert (kind.rows("sums"), kind.rows("totals")) == (OLD, LATER)


def test_old_and_new_tables_are_beside_each_other_until_the_old_pipeline_ends(
    orders: Path, kind: Kind
) -> None:
    run(orders, kind.sink("blue"))
    shutil.copytree(orders.parent / "state", orders.parent / "state2")
    run(orders, kind.sink("green"), more=6, state="state2")
    assert (kind.rows("blue"), kind.rows("green")) == (OLD, NEW)
    rows = pa.table({"country": ["it"], "cents": [9]})
    deltalake.write_deltalake(str(orders), rows, mode="append")
    run(orders, kind.sink("blue"))
    run(orders, kind.sink("green"), more=6, state="state2")
    assert (kind.rows("blue"), kind.rows("green")) == ([("de", 15), ("fr", 7), ("it", 9)], LATER)
