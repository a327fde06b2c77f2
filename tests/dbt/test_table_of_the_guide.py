"""The table of from-dbt.md: each of its rows has tests, which do what it says."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import stepping_spark as st
from tests.dbt import test_dbt_project as of_projects
from tests.dbt import test_sandwiches as of_sandwiches
from tests.dbt.projects import model, project
from tests.dbt.test_dbt_project import ORDERS, REVENUE, STG
from tests.documents import GUIDE

ROWS: dict[str, list[Callable[..., None]]] = {
    "`materialized='view'`, `'ephemeral'`": [
        of_projects.test_views_are_composed_and_tables_are_the_views_of_the_query,
        of_projects.test_a_view_that_nothing_reads_is_left_out_and_may_be_selected,
        of_projects.test_an_ephemeral_model_may_be_selected,
    ],
    "`materialized='table'`, `'incremental'`": [
        of_sandwiches.test_each_table_is_what_duckdb_computes_after_each_edit_of_the_seeds,
    ],
    "`unique_key`": [
        of_projects.test_views_are_composed_and_tables_are_the_views_of_the_query,
        of_projects.test_the_key_of_a_table_is_its_column_that_is_unique_and_not_null,
    ],
    "`is_incremental()` and a `max(updated_at)` filter": [
        of_projects.test_a_text_that_is_no_view_is_refused,
        of_sandwiches.test_each_table_is_what_duckdb_computes_after_each_edit_of_the_seeds,
    ],
    "`source('shop', 'orders')`": [
        of_projects.test_a_source_that_is_called_like_a_model_has_the_name_of_its_source_before_it,
        of_projects.test_a_pipeline_has_the_sources_and_their_columns,
    ],
    "a seed": [of_projects.test_a_seed_that_is_edited_is_a_change],
    "data tests, also your own": [
        of_projects.test_a_step_after_which_a_test_fails_is_not_committed
    ],
    "`dbt run --select`, `--exclude`": [
        of_projects.test_a_view_that_nothing_reads_is_left_out_and_may_be_selected,
        of_projects.test_a_step_after_which_a_test_fails_is_not_committed,
    ],
}


def row(text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The test of a row, by its first cell."""

    def of(f: Callable[..., None]) -> Callable[..., None]:
        ROWS.setdefault(text, []).append(f)
        return f

    return of


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A project with a model, whose source is a table of Delta."""
    project(tmp_path, ORDERS, STG, REVENUE)
    add(tmp_path, ("AT", 5), ("AT", 7), ("CH", 3))
    return tmp_path


def add(shop: Path, *orders: tuple[str, int]) -> None:
    table = pa.table(
        {
            "id": list(range(len(orders))),
            "country": [country for country, _ in orders],
            "cents": [cents for _, cents in orders],
        }
    )
    path = str(shop / "orders")
    deltalake.write_deltalake(
        path, table, mode="append", configuration={"delta.enableChangeDataFeed": "true"}
    )


def run(shop: Path, state: str = "state", *, evolve: bool = True, **into: Any) -> None:
    with st.Pipeline(
        st.dbt_project(shop),
        store=f"parquet:{shop / state}",
        orders=st.DeltaTable(str(shop / "orders")),
        into=into,
        evolve=evolve,
    ) as pipeline:
        pipeline.run()


def mart(shop: Path, name: str) -> st.DeltaTable:
    return st.DeltaTable(str(shop / name), key="country")


def rows(shop: Path, name: str) -> list[tuple[str, int]]:
    table = deltalake.DeltaTable(str(shop / name)).to_pyarrow_table()
    return sorted((r["country"], r["cents"]) for r in table.to_pylist())


@row("a model that is added or changed")
def test_a_model_that_is_added_or_changed_leaves_the_rest_as_it_is(shop: Path) -> None:
    run(shop, revenue=mart(shop, "revenue"))
    more = {"config": {"materialized": "table"}}
    best = model(
        "best", 'select * from "db"."lake"."revenue" where cents > 4', REVENUE["unique_id"], **more
    )
    changed = REVENUE | {
        "compiled_code": REVENUE["compiled_code"].replace("group", "where cents > 4 group")
    }
    for revenue, found in ((REVENUE, [("AT", 12), ("CH", 3)]), (changed, [("AT", 12)])):
        project(shop, ORDERS, STG, revenue, best)
        run(shop, revenue=mart(shop, "revenue"), best=mart(shop, "best"))
        assert (rows(shop, "revenue"), rows(shop, "best")) == (found, [("AT", 12)])


@row("`dbt run --full-refresh`")
def test_a_table_or_all_of_them_are_made_anew(shop: Path) -> None:
    run(shop, revenue=mart(shop, "revenue"))
    add(shop, ("CH", 2))
    for removed in (["revenue"], ["revenue", "state"]):
        for name in removed:
            shutil.rmtree(shop / name)
        run(shop, revenue=mart(shop, "revenue"))
        assert rows(shop, "revenue") == [("AT", 12), ("CH", 5)]


@row("unit tests")
def test_a_model_is_tried_on_a_few_rows(tmp_path: Path) -> None:
    query = st.dbt_project(project(tmp_path, ORDERS, STG, REVENUE), orders=of_projects.Order)
    assert of_projects.answer(query, of_projects.order(1, "AT", 5)) == [[("AT", 5)]]


@row("snapshots (SCD 2)")
def test_a_table_of_changes_has_what_a_snapshot_has(shop: Path) -> None:
    sink = st.DeltaTable(str(shop / "history"), changes=True)
    run(shop, revenue=sink)
    add(shop, ("CH", 2))
    run(shop, revenue=sink)
    table = deltalake.DeltaTable(str(shop / "history")).to_pyarrow_table().to_pylist()
    found = [(r["_step"], r["_change_type"], r["country"], r["cents"]) for r in table]
    assert sorted(found) == [
        (1, "insert", "AT", 12),
        (1, "insert", "CH", 3),
        (2, "delete", "CH", 3),
        (2, "insert", "CH", 5),
    ]


@row("hooks, grants, documentation")
def test_hooks_grants_and_documentation_are_not_read(shop: Path) -> None:
    run(shop, revenue=mart(shop, "revenue"))
    more = {"post-hook": [{"sql": "drop table x"}], "grants": {"select": ["bob"]}}
    revenue = REVENUE | {"config": REVENUE["config"] | more, "description": "By country."}
    hook = model("shop-on-run-end-0", "drop table x") | {
        "unique_id": "operation.shop.shop-on-run-end-0",
        "resource_type": "operation",
    }
    project(shop, ORDERS, STG, revenue, hook)
    run(shop, evolve=False, revenue=mart(shop, "revenue"))
    assert rows(shop, "revenue") == [("AT", 12), ("CH", 3)]


def test_each_row_of_the_table_has_tests() -> None:
    page = (GUIDE / "how-to" / "from-dbt.md").read_text(encoding="utf-8")
    lines = [line for line in page.splitlines() if line.startswith("| ")]
    assert [line.split("|")[1].strip() for line in lines[1:]] == list(ROWS)
    assert all(f.__name__.startswith("test_") for found in ROWS.values() for f in found)
