"""`st.dbt_project`: names of tables, what is refused and why, tests as checks, and seeds."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from click.testing import CliRunner

import stepping_spark as st
from stepping_spark.base.errors import CompileError, InputError, SourceError, StepError
from stepping_spark.cli import main
from stepping_spark.cli.tables import of_models
from tests.dbt.projects import data_test, model, project, seed, table

ORDERS = table("shop", "orders")
STG = model(
    "stg_orders",
    'select id as order_id, country, cents from "db"."shop"."orders"',
    ORDERS["unique_id"],
    config={"materialized": "view"},
)
REVENUE = model(
    "revenue",
    'with revenue as (select * from "db"."lake"."stg_orders")\n'
    "select country, sum(cents) as cents from revenue group by country",
    STG["unique_id"],
    config={"materialized": "incremental", "unique_key": "country"},
)
DDL = "id BIGINT, country STRING, cents BIGINT"


class Order(st.Data):
    id: int | None
    country: str | None
    cents: int | None


def order(id_: int, country: str | None, cents: int) -> Order:
    return Order(id=id_, country=country, cents=cents)


def answer(query: Any, *rows: Order) -> list[Any]:
    """The rows of each output."""
    outs = st.reference(st.compile(query)).step((st.ZSetPython(dict.fromkeys(rows, 1)),))
    return [sorted(tuple(vars(row).values()) for row, _ in out.iter()) for out in outs]


def refused(path: Path, **options: Any) -> str:
    with pytest.raises(CompileError) as e:
        st.compile(st.dbt_project(path, **options))
    return str(e.value)


# -- names


def test_views_are_composed_and_tables_are_the_views_of_the_query(tmp_path: Path) -> None:
    query = st.dbt_project(project(tmp_path, ORDERS, STG, REVENUE), orders=Order)
    assert (query.written, query.left_out) == ({"revenue": ("country",)}, {})
    assert st.compile(query).single
    assert answer(query, order(1, "AT", 5), order(2, "AT", 7)) == [[("AT", 12)]]


@pytest.mark.parametrize(
    ("adapter", "name"),
    [
        ("spark", "`lake`.`stg_orders`"),
        ("databricks", "`db`.`lake`.`stg_orders`"),
        ("postgres", '"db"."lake"."stg_orders"'),
        ("bigquery", "`db`.`lake`.`stg_orders`"),
        ("snowflake", "DB.lake.STG_ORDERS"),
    ],
)
def test_a_table_is_known_by_the_name_that_each_adapter_writes(
    tmp_path: Path, adapter: str, name: str
) -> None:
    code = f"with stg_orders as (select * from {name}) select max(cents) as most from stg_orders"
    stg = STG | {"relation_name": name, "compiled_code": "select * from shop.orders"}
    nodes = [ORDERS, stg, model("most", code, STG["unique_id"])]
    query = st.dbt_project(project(tmp_path, *nodes, adapter=adapter), orders=Order)
    assert answer(query, order(1, None, 5)) == [[(5,)]]


def test_a_table_may_have_another_name_than_its_model_and_columns_are_named_by_it(
    tmp_path: Path,
) -> None:
    stg = STG | {"alias": "o", "relation_name": '"db"."lake"."o"'}
    code = 'select o.cents + 1 as "Cents" from "db"."lake"."o" where "o"."country" is not null'
    nodes = [ORDERS, stg, model("more", code, STG["unique_id"])]
    query = st.dbt_project(project(tmp_path, *nodes), orders=Order)
    assert answer(query, order(1, "AT", 5), order(2, None, 5)) == [[(6,)]]


def test_a_source_that_is_called_like_a_model_has_the_name_of_its_source_before_it(
    tmp_path: Path,
) -> None:
    orders = model("orders", 'select * from "db"."shop"."orders"', ORDERS["unique_id"])
    query = st.dbt_project(project(tmp_path, ORDERS, orders), shop_orders=Order)
    assert list(query.rows) == ["shop_orders"]
    assert query.written == {"orders": ()}


def test_a_model_in_between_is_computed_once_for_all_that_read_it(tmp_path: Path) -> None:
    per = model("per", REVENUE["compiled_code"], STG["unique_id"], config={"materialized": "view"})
    tops = [
        model(f"top{i}", f'select max(cents) + {i} as m from "db"."lake"."per"', per["unique_id"])
        for i in range(3)
    ]
    query = st.dbt_project(project(tmp_path, ORDERS, STG, per, *tops), orders=Order)
    sums = [name for name, _ in st.explain(st.compile(query)).arrangements]
    alone = st.dbt_project(tmp_path, select=["top0"], orders=Order)
    assert len(sums) == len(st.explain(st.compile(alone)).arrangements)
    assert answer(query, order(1, "AT", 5), order(2, "AT", 7)) == [[(12,)], [(13,)], [(14,)]]


def test_a_pipeline_has_the_sources_and_their_columns(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], "country": ["AT", "AT"], "cents": [5, 7]})
    feed = {"delta.enableChangeDataFeed": "true"}
    deltalake.write_deltalake(tmp_path / "orders", rows, configuration=feed)
    path = project(tmp_path, ORDERS, STG, REVENUE)
    here = st.DeltaTable(tmp_path / "orders")
    seen: dict[str, Any] = {}
    for name, query in {
        "given to the project": st.dbt_project(path, orders=here),
        "given to the pipeline": st.dbt_project(path),
    }.items():
        sources = {} if name == "given to the project" else {"orders": here}
        into = {"revenue": lambda step, change, name=name: seen.update({name: change})}
        pipeline = st.Pipeline(query, store="memory", sources=sources, into=into)
        assert pipeline.run() == 1
        read = [n for v in pipeline.graph.inputs for n, _ in v.type.schema.columns]
        assert read == ["country", "cents"]  # no model reads the id
    assert {k: [r.cents for r, _ in v.iter()] for k, v in seen.items()} == {
        "given to the project": [12],
        "given to the pipeline": [12],
    }


def test_a_view_that_nothing_reads_is_left_out_and_may_be_selected(tmp_path: Path) -> None:
    other = table("shop", "other")
    view = {"config": {"materialized": "view"}}
    alone = model("alone", "select x from shop.other", other["unique_id"], **view)
    unique = data_test("unique_x", "select x from lake.alone where x > 1", alone["unique_id"])
    path = project(tmp_path, ORDERS, STG, REVENUE, other, alone, unique)
    query = st.dbt_project(path, orders=Order)
    assert list(query.rows) == ["orders"]
    assert query.left_out == {
        "alone": "it is no table, and nothing that is maintained reads it",
        "unique_x": "it tests what is not maintained",
    }
    both: dict[str, Any] = {"orders": Order, "other": "x INT"}
    assert list(st.dbt_project(path, select=["alone"], **both).rows) == ["other"]
    assert list(st.dbt_project(path, **both).rows) == ["orders"]
    done = call("sql", "--dbt", tmp_path, "--columns", f"orders={DDL}", "--columns", "other=x INT")
    assert (done.exit_code, "revenue: reads the change of orders" in done.output) == (0, True)
    done = call("sql", "--dbt", tmp_path, "--columns", "other=x INT", "--select", "alone")
    assert (done.exit_code, "unique_x: reads the change of other" in done.output) == (0, True)
    options = ["--columns", "other=x INT", "--select", "alone", "--no-checks"]
    done = call("sql", "--dbt", tmp_path, *options)
    assert (done.exit_code, "unique_x" in done.output) == (0, False)


def test_an_ephemeral_model_may_be_selected(tmp_path: Path) -> None:
    ephemeral = STG | {"config": {"materialized": "ephemeral"}, "relation_name": None}
    path = project(tmp_path, ORDERS, ephemeral)
    query = st.dbt_project(path, select=["stg_orders"], orders=Order)
    assert answer(query, order(1, "AT", 5)) == [[(1, "AT", 5)]]


# -- refusals


def test_all_models_that_cannot_be_maintained_are_listed_with_the_place(tmp_path: Path) -> None:
    bad = model("bad", 'select id,\n  rand() as r from "db"."shop"."orders"', ORDERS["unique_id"])
    on_bad = model("on_bad", 'select * from "db"."lake"."bad"', bad["unique_id"])
    python = model("forecast", "def model(dbt, session): ...", language="python")
    typo = model("typo", 'select nothing from "db"."lake"."revenue"', REVENUE["unique_id"])
    nodes = [ORDERS, STG, REVENUE, bad, on_bad, python, typo]
    path = project(tmp_path, *nodes)
    said = refused(path, orders=Order)
    assert "dbt project shop: 4 of 6 models and tests cannot be maintained" in said
    assert "forecast: it is a Python model, and only SQL is maintained" in said
    assert "typo: model typo (models/typo.sql), line 1, column 8: there is no column noth" in said
    assert "bad: model bad (models/bad.sql), line 2, column 3: " in said
    assert "on_bad: it reads bad" in said
    assert "exclude=['forecast', 'typo', 'bad'] (--exclude forecast --exclude typo" in said
    query = st.dbt_project(path, orders=Order, exclude=["forecast", "typo", "bad"])
    assert query.written == {"revenue": ("country",)}
    assert query.left_out["on_bad"] == "it reads bad, which is left out"
    assert st.compile(st.dbt_project(path, orders=Order, select=["revenue"]))


def test_an_error_of_a_composed_view_is_that_of_the_view(tmp_path: Path) -> None:
    code = 'select id as order_id, country,\nrand() as cents from "db"."shop"."orders"'
    stg = STG | {"compiled_code": code}
    said = refused(project(tmp_path, ORDERS, stg, REVENUE), orders=Order)
    assert "stg_orders: model stg_orders (models/stg_orders.sql), line 2" in said
    assert "revenue: it reads stg_orders" in said
    assert "exclude=['stg_orders']" in said


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ('select * from "db"."lake"."revenue"', "is_incremental() was true when it was compiled"),
        ("select * from elsewhere.orders", "the project has no table elsewhere.orders; use ref"),
        ('select * from "db"."lake"."history"', "history is a snapshot; read the table"),
        ('select * from "db"."lake"."later"', "db.lake.later is read without ref; use ref"),
        ("select 1 as x; select 2 as y", "it has 2 statements; write one SELECT"),
        ("select", "model revenue (models/revenue.sql)"),
    ],
)
def test_a_text_that_is_no_view_is_refused(tmp_path: Path, code: str, said: str) -> None:
    history = model("history", None) | {
        "unique_id": "snapshot.shop.history",
        "resource_type": "snapshot",
    }
    revenue = REVENUE | {"compiled_code": code}
    later = model("later", 'select 1 as x from "db"."lake"."revenue"', REVENUE["unique_id"])
    path = project(tmp_path, ORDERS, STG, history, revenue, later)
    assert said in refused(path, orders=Order)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"select": ["revenu"]}, "select= names 'revenu'; name some of revenue, stg_orders"),
        ({"exclude": "revenue"}, r"write a list, exclude=\['revenue'\]"),
        ({"exclude": ["stg_orders"], "select": ["revenue"]}, "leave it out of one of the two"),
        ({"exclude": ["revenue"]}, "no model is materialized as table, incremental"),
        ({"order": Order}, "order=… is given, and the inputs are orders"),
    ],
)
def test_options_that_name_nothing_are_refused(
    tmp_path: Path, options: dict[str, Any], said: str
) -> None:
    path = project(tmp_path, ORDERS, STG, REVENUE)
    with pytest.raises(InputError, match=said):
        st.dbt_project(path, **options)


def test_a_manifest_that_is_none_or_has_no_compiled_sql_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no manifest at .* run `dbt compile --full-ref"):
        st.dbt_project(tmp_path)
    path = project(tmp_path, ORDERS, STG | {"compiled_code": None}, REVENUE)
    with pytest.raises(InputError, match=r"no compiled SQL of 1 model \(stg_orders\)"):
        st.dbt_project(path)
    for text in ("{", "[]", '{"nodes": {}}'):
        path.write_text(text)
        with pytest.raises(InputError, match="is no manifest of dbt"):
            st.dbt_project(path)


def test_the_columns_of_a_source_that_are_not_known_are_asked_for(tmp_path: Path) -> None:
    query = st.dbt_project(project(tmp_path, ORDERS, STG, REVENUE))
    with pytest.raises(CompileError, match="the columns of table orders are not known"):
        st.compile(query)


# -- checks

UNIQUE = (
    'select order_id as unique_field, count(*) as n_records from "db"."lake"."stg_orders" '
    "where order_id is not null group by order_id having count(*) > 1"
)


def run(path: Path, *changes: dict[Order, int], **options: Any) -> tuple[Any, list[Any]]:
    """A pipeline on changes, and what its view got."""
    got: list[Any] = []
    items = [(i, st.ZSetPython(change)) for i, change in enumerate(changes, 1)]
    query = st.dbt_project(path, orders=Order, **options)
    into = {"revenue": lambda step, change: got.append((step, [r.cents for r, _ in change.iter()]))}
    return st.Pipeline(query, store="memory", sources={"orders": items}, into=into), got


def test_a_step_after_which_a_test_fails_is_not_committed(tmp_path: Path) -> None:
    unique = data_test("unique_stg_orders_order_id", UNIQUE, STG["unique_id"])
    path = project(tmp_path, ORDERS, STG, REVENUE, unique)
    first, again = {order(1, "AT", 5): 1}, {order(1, "AT", 7): 1}
    pipeline, got = run(path, first, again)
    assert pipeline.run(max_steps=1) == 1
    with pytest.raises(StepError, match=r"unique_stg_orders_order_id fails.*unique_field=1"):
        pipeline.run()
    assert got == [(1, [5])]
    assert pipeline.stepper.store.last_step() == 1
    for options in ({"checks": False}, {"exclude": ["unique_stg_orders_order_id"]}):
        assert run(path, first, again, **options)[0].run() == 2


def test_a_test_that_warns_lets_the_step_pass(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    unique = data_test("unique_id", UNIQUE, STG["unique_id"], config={"severity": "WARN"})
    path = project(tmp_path, ORDERS, STG, REVENUE, unique)
    pipeline, _ = run(path, {order(1, "AT", 5): 1, order(1, "AT", 7): 1})
    with caplog.at_level(logging.WARNING, "stepping_spark.pipeline"):
        assert pipeline.run() == 1
    assert "step 1: the check unique_id fails" in caplog.text


def test_the_key_of_a_table_is_its_column_that_is_unique_and_not_null(tmp_path: Path) -> None:
    revenue = REVENUE | {"config": {"materialized": "table"}}
    tests = [
        data_test(
            f"{kind}_country", "select 1 as x from db.lake.revenue", revenue["unique_id"],
            column_name="country", test_metadata={"name": kind},
        )
        for kind in ("unique", "not_null")
    ]  # fmt: skip
    path = project(tmp_path, ORDERS, STG, revenue, *tests)
    assert st.dbt_project(path, checks=False).written == {"revenue": ("country",)}
    path = project(tmp_path, ORDERS, STG, revenue, tests[0])
    assert st.dbt_project(path, checks=False).written == {"revenue": ()}


def test_a_test_with_a_threshold_is_refused_and_can_be_left_out(tmp_path: Path) -> None:
    unique = data_test("unique_id", UNIQUE, STG["unique_id"], config={"error_if": "> 10"})
    path = project(tmp_path, ORDERS, STG, REVENUE, unique)
    assert "unique_id: its error_if is '> 10'" in refused(path, orders=Order)
    assert st.compile(st.dbt_project(path, orders=Order, exclude=["unique_id"]))


def test_any_view_may_be_a_check_and_may_have_a_sink_too() -> None:
    def negative(cents: st.ZSet[int]) -> st.ZSet[int]:
        return st.filter(cents, f=lambda n: n < 0)

    seen: dict[int, Any] = {}
    changes = [(1, st.ZSetPython({-1: 1, 5: 1})), (2, st.ZSetPython({-1: -1}))]
    warned: list[Any] = [st.Check(warn=True), seen.setdefault]
    assert st.Pipeline(negative, store="memory", cents=changes, into=warned).run() == 2
    assert seen[1] == st.ZSetPython({-1: 1})
    with pytest.raises(
        StepError, match="step 1: the check negative fails: its view gets the rows -1"
    ):
        st.Pipeline(negative, store="memory", cents=changes, into=st.Check()).run()


def test_a_check_is_not_given_the_last_step_again_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def negative(cents: st.ZSet[int]) -> st.ZSet[int]:
        return st.filter(cents, f=lambda n: n < 0)

    taken: list[int] = []
    step: Any = st.Stepper.step

    def counted(self: Any, *inputs: Any, **more: Any) -> Any:
        taken.append(1)
        return step(self, *inputs, **more)

    monkeypatch.setattr(st.Stepper, "step", counted)
    changes = [(1, st.ZSetPython({5: 1}))]
    store = f"parquet:{tmp_path / 'state'}"
    for steps in (1, 0):
        with st.Pipeline(negative, store=store, cents=changes, into=st.Check()) as pipeline:
            assert pipeline.run() == steps
    assert len(taken) == 1


# -- seeds

RAW = seed("raw", column_types={"id": "integer", "price": "numeric(8,2)"})
OF_RAW = model("prices", 'select id, price, note from "db"."lake"."raw"', RAW["unique_id"])


def with_seed(folder: Path, text: str) -> Path:
    (folder / "seeds").mkdir(exist_ok=True)
    (folder / "seeds" / "raw.csv").write_text(text)
    return project(folder, RAW, OF_RAW)


def prices(path: Path, store: Path) -> list[Any]:
    """The changes of the steps that a run takes."""
    got: list[Any] = []

    def into(step: int, change: Any) -> None:
        got.append({(r.id, str(r.price), r.note): n for r, n in change.iter()})

    query = st.dbt_project(path)
    with st.Pipeline(query, store=f"parquet:{store}", into={"prices": into}) as pipeline:
        steps = pipeline.run()
    return got[len(got) - steps :]


def test_a_seed_that_is_edited_is_a_change(tmp_path: Path) -> None:
    store = tmp_path / "state"
    path = with_seed(tmp_path, 'id,price,note\n1,0.50,"a, b"\n2,1,\n')
    assert prices(path, store) == [{(1, "0.50", "a, b"): 1, (2, "1.00", None): 1}]
    assert prices(path, store) == []
    with_seed(tmp_path, "id,price,note\n2,1.00,\n3,,null\n")
    assert prices(path, store) == [{(1, "0.50", "a, b"): -1, (3, "None", None): 1}]


def test_an_edited_seed_whose_copy_is_gone_is_refused_until_it_is_as_it_was(
    tmp_path: Path,
) -> None:
    store, text = tmp_path / "state", "id,price,note\n1,0.50,a\n"
    path = with_seed(tmp_path, text)
    prices(path, store)
    for copy in (tmp_path / "target" / "stepping_spark").iterdir():
        copy.unlink()
    assert prices(path, store) == []
    with_seed(tmp_path, "id,price,note\n1,0.60,a\n")
    with pytest.raises(SourceError, match="the copy of its earlier content"):
        prices(path, store)
    with_seed(tmp_path, text)
    assert prices(path, store) == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id,price,note\nx,1,a\n", "invalid value 'x'; correct the file, or give the column"),
        ("", "it is empty; write a line with the names"),
        ("id,price,note\n1,2\n", "Expected 3 columns, got 2"),
    ],
)
def test_a_seed_that_is_no_table_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SourceError, match=said):
        st.dbt_project(with_seed(tmp_path, text))


def test_a_seed_that_is_not_there_or_has_an_unknown_type_is_refused(tmp_path: Path) -> None:
    path = with_seed(tmp_path, "id,price,note\n")
    (tmp_path / "seeds" / "raw.csv").unlink()
    with pytest.raises(SourceError, match=r"raw.csv: it cannot be read: No such file"):
        st.dbt_project(path)
    odd = RAW | {"config": {"column_types": {"id": "geometry"}}}
    with pytest.raises(InputError, match="seed raw: the type of column id, 'geometry'"):
        st.dbt_project(project(tmp_path, odd, OF_RAW))


# -- the command line


def call(*arguments: Any) -> Any:
    return CliRunner().invoke(main, [str(a) for a in arguments])


def test_a_toml_file_may_name_a_project(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    with_seed(tmp_path / "shop", "id,price,note\n1,2,a\n")
    (tmp_path / "shop.toml").write_text(
        f'dbt = "shop"\nselect = ["prices"]\nstore = "parquet:{tmp_path / "state"}"\n'
        f'into = "delta:{tmp_path / "lake"}"\n[sinks.prices]\nkey = "id"\n'
        f'delta = "{tmp_path / "own"}"\n'
    )
    done = call("run", tmp_path / "shop.toml")
    assert (done.exit_code, "1 step taken" in done.output) == (0, True), done.output
    rows = deltalake.DeltaTable(tmp_path / "own").to_pyarrow_table().to_pylist()
    assert [(row["id"], str(row["price"]), row["note"]) for row in rows] == [(1, "2.00", "a")]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--dbt", "."], "give --store"),
        ([], "give either a file"),
        (["views.sql", "--select", "a"], "are for --dbt"),
        (["--dbt", ".", "--store", "memory", "--into", "lake"], "expected KIND:ADDRESS, such as"),
        (["both.toml"], "it says sql and dbt"),
        (["--dbt", "sourced", "--store", "memory"], "give --source orders=delta:lake/orders"),
        (["none.toml"], "it says neither sql = … nor dbt = …"),
        (["--dbt", ".", "--store", "memory", "--exclude", "x"], "exclude= names 'x'"),
    ],
)
def test_what_the_command_line_cannot_run_it_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], said: str
) -> None:
    with_seed(tmp_path, "id,price,note\n1,2,a\n")
    monkeypatch.chdir(tmp_path)
    project(tmp_path / "sourced", ORDERS, STG, REVENUE)
    (tmp_path / "both.toml").write_text('sql = "a.sql"\ndbt = "."\n')
    (tmp_path / "none.toml").write_text('store = "memory"\n')
    done = call("run", *arguments)
    assert done.exit_code == 2
    assert said in " ".join(done.output.split())


@pytest.mark.parametrize(
    ("place", "table"),
    [
        ("delta:lake/", {"delta": "lake/a"}),
        ("files:lake", {"files": "lake/a"}),
        ("iceberg:shop", {"iceberg": "shop.a"}),
        ("postgresql://u@h/db", {"postgres": "postgresql://u@h/db", "table": "a"}),
        ("postgresql://u@h/db#s", {"postgres": "postgresql://u@h/db", "table": "a", "schema": "s"}),
    ],
)
def test_a_table_of_a_model_is_within_the_place_of_all(place: str, table: dict[str, str]) -> None:
    key = {} if "files" in table else {"key": ["id"]}
    assert of_models({"a": ["id"]}, {}, place) == {"a": [table | key]}
