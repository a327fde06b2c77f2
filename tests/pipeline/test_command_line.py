"""Pipelines of views in SQL from the command line: tables that are said, and texts that change."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyarrow import csv

from stepping_spark.cli import main

FEED = {"delta.enableChangeDataFeed": "true"}
SOLD = "CREATE VIEW sold AS SELECT id, customer, cents FROM orders"
STATED = 'sql = "v.sql"\nstore = "parquet:state"\n'
READ = f'{STATED}[sources.orders]\ndelta = "orders"\n'


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder with a table of orders."""
    monkeypatch.chdir(tmp_path)
    rows = pa.table({"id": [1, 2, 3, 4], "customer": [1, 1, 2, 2], "cents": [1, 2, 3, 4]})
    deltalake.write_deltalake("orders", rows, configuration=FEED)


def run(
    text: str, *more: str, source: str = "orders=delta:orders", store: str = "state"
) -> tuple[int, str]:
    """Run a text of SQL; gives the exit code, and what is said in one line."""
    Path("views.sql").write_text(text)
    said = ["run", "views.sql", "--store", f"parquet:{store}", "--source", source, *more]
    done = CliRunner().invoke(main, said)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, " ".join(done.output.split())


def toml(text: str, *more: str) -> tuple[int, str]:
    """Run a TOML file."""
    Path("shop.toml").write_text(text)
    done = CliRunner().invoke(main, ["run", "shop.toml", *more])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, " ".join(done.output.split())


def content(path: str, *columns: str) -> list[tuple[Any, ...]]:
    """The rows of a table, in order."""
    table = deltalake.DeltaTable(path).to_pyarrow_table().select(list(columns))
    return sorted(tuple(row.values()) for row in table.to_pylist())


def test_a_view_may_have_several_sinks() -> None:
    sinks = ["--sink", "sold=delta:a:id", "--sink", "sold=delta:b:id"]
    assert run(SOLD, *sinks)[0] == 0
    assert content("a", "id") == content("b", "id") == [(1,), (2,), (3,), (4,)]
    code, said = toml(
        'sql = "views.sql"\nstore = "parquet:state"\n[sources.orders]\ndelta = "orders"\n'
        '[[sinks.sold]]\ndelta = "a"\nkey = "id"\n[[sinks.sold]]\ndelta = "b"\nkey = ["id"]\n'
    )
    assert (code, "0 steps taken" in said) == (0, True)


def test_an_input_has_one_source() -> None:
    code, said = run(SOLD, "--source", "orders=delta:others")
    assert (code, "the source orders is said 2 times" in said) == (2, True)


FILES = [
    '{"id": 1, "day": "2024-01-01", "note": "a"}\n{"id": 2, "day": "2024-01-02", "note": "b"}',
    '{"id": 3, "day": "2024-01-03"}',
    '{"id": 4.5, "day": "2024-01-04", "note": "x"}\n{"id": 4, "day": null, "note": 7}\n{"id": 5',
    "",
    '{"id": 6, "day": "2024-01-06", "note": "c", "more": [1]}',
]


@pytest.mark.parametrize("stated", [False, True])
@pytest.mark.parametrize("kind", ["sql", "toml"])
def test_views_of_json_files_go_on_whatever_files_come(kind: str, *, stated: bool) -> None:
    Path("landing").mkdir()
    ddl = "id BIGINT, day DATE, note STRING"
    text = "CREATE VIEW notes AS SELECT id, upper(note) AS note FROM landing"
    text += " WHERE day < DATE '2030-01-01'" if stated else ""
    Path("v.sql").write_text(text)
    for number, lines in enumerate(FILES, 1):
        Path("landing", f"{number}.json").write_text(lines)
        code, said = toml(
            f'{STATED}[sources.landing]\nfiles = "landing"\nkind = "json"\non_invalid = "drop"\n'
            + (f'ddl = "{ddl}"\n' if stated and kind == "toml" else "")
            + '[sinks.notes]\ndelta = "notes"\nkey = "id"\n',
            *(["--columns", f"landing={ddl}"] if stated and kind == "sql" else ()),
        )
        assert code == 0, said
    assert content("notes", "id", "note") == [(1, "A"), (2, "B"), (3, None), (6, "C")]


def test_a_table_of_postgres_may_be_said_with_its_kind() -> None:
    for kind in ("postgres:", ""):
        sink = f"sold={kind}postgresql://nobody@127.0.0.1:1/db#shop.sold:id"
        code, said = run(SOLD, "--sink", sink)
        where = "table 'sold': postgresql://nobody@127.0.0.1:1/db, schema 'shop'"
        assert (code, where in said) == (2, True), said


def test_the_name_of_a_source_may_differ_in_case_from_the_table_in_sql() -> None:
    code, said = run(
        "SELECT a.id FROM ORDERS a JOIN Orders b USING (id)", source="oRders=delta:orders"
    )
    assert code == 0, said
    code, said = run(SOLD, source="Orders=delta:orders", store="other")
    assert code == 0, said


def test_columns_that_are_stated_are_those_of_the_table() -> None:
    code, said = run(SOLD, "--columns", "orders=id BIGINT, customer BIGINT, cents STRING")
    assert (code, "column 'cents': expected str (string), found int64" in said) == (2, True), said
    code, said = run("SELECT id FROM Orders", "--columns", "ORDERS=id BIGINT", store="other")
    assert code == 0, said
    code, said = run(SOLD, "--columns", "ordrs=id BIGINT")
    assert (code, "views.sql reads no table ordrs; leave them out" in said) == (2, True), said
    code, said = run(SOLD, "--columns", "orders")
    assert (code, "--columns orders: expected NAME=DDL, such as orders='id" in said) == (2, True)
    code, said = run("SELECT id FROM orders", "--columns", "orders=id BIGINT, more INT")
    assert (code, "there is no column more" in said) == (2, True), said
    code, said = run("SELECT id FROM orders", "--columns", "orders=id BIGINT")
    assert code == 0, said


@pytest.mark.parametrize("whole_rows", [True, False])
def test_a_file_may_say_that_a_state_keeps_whole_rows(whole_rows: bool) -> None:
    text = (
        "CREATE VIEW met AS SELECT a.customer AS id, sum(b.{}) AS total "
        "FROM orders a JOIN orders b ON a.id = b.id GROUP BY a.customer"
    )
    Path("v.sql").write_text(text.format("id"))
    Path("v.toml").write_text(
        f"whole_rows = {str(whole_rows).lower()}\n{READ}[sinks.met]\ndelta = 'met'\nkey = 'id'\n"
    )
    done = CliRunner().invoke(main, ["run", "v.toml"])
    assert done.exit_code == 0, done.output
    Path("v.sql").write_text(text.format("cents"))
    plan = CliRunner().invoke(main, ["run", "v.toml", "--evolve", "--dry-run"]).output
    assert ("read again: input orders" in plan) != whole_rows, plan
    done = CliRunner().invoke(main, ["run", "v.toml", "--evolve"])
    assert done.exit_code == 0, done.output
    rows = deltalake.DeltaTable("met").to_pyarrow_table().to_pylist()
    assert sorted(tuple(row.values()) for row in rows) == [(1, 3), (2, 7)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('sql = "nowhere.sql"', "there is no file nowhere.sql"),
        ('sql = "v.sql"\nsources = ["orders"]', "Expected `object`, got `array` - at `sources`"),
        ('sql = "v.sql"\n[sinks]\nsold = "delta:a"', "[sinks.sold]: Expected `object`, got `str`"),
        (
            'sql = "v.sql"\n[[sources.orders]]\ndelta = "orders"',
            "[sources.orders]: Expected `object`",
        ),
        ('sql = "v.sql"\nwhole_rows = "yes"', "Expected `bool`, got `str` - at `whole_rows`"),
        (
            'sql = "v.sql"\n[sinks.a]\ndelta = "a"\nkey = 3',
            "[sinks.a]: Expected `str | array`",
        ),
        (
            'sql = "v.sql"\n[sinks.a]\ndelta = "a"\nchanges = "yes"',
            "[sinks.a]: Expected `bool`",
        ),
        ('sql = "v.sql"\ninto = "delta:a"', "'into' is not known without dbt = …; it may say"),
        (
            f'{STATED}[sources.orders]\nfiles = "landing"\nformat = "csv"',
            "the source orders: files has no 'format' as a source; beside its address it may say "
            "kind, order, columns, on_invalid, ddl",
        ),
        (
            f'{STATED}[sources.orders]\ndelta = "orders"\nkey = "id"',
            "the source orders: delta has no 'key' as a source; beside its address it may say "
            "diff, columns, on_invalid, options, ddl",
        ),
        (
            f'{READ}[sinks.sold]\ndelta = "sold"\non_invalid = "drop"',
            "the sink sold: delta has no 'on_invalid' as a sink; beside its address it may say "
            "key, changes, columns, options, vacuum, deletion_vectors",
        ),
        (STATED, "there is no source for orders; write [sources.orders] in it, or give --source"),
        (
            f'{READ}[sinks.sold]\npostgres = "postgresql://host/shop"',
            "the sink sold: postgres lacks 'table'; beside its address it may say table, schema",
        ),
        (
            f'{READ}[sinks.sold]\ndetla = "sold"',
            "the sink sold has no kind, but detla; say one of delta, files, iceberg, postgres",
        ),
        (
            f'{READ}[sinks.sold]\npostgres = "postgresql://nobody@127.0.0.1:1/db#shop.sold"',
            "table 'sold': postgresql://nobody@127.0.0.1:1/db, schema 'shop'",
        ),
        (
            f'{READ}[sources.others]\ndelta = "others"',
            "sources are given for orders, others; leave out others, or have a view read it",
        ),
    ],
)
def test_a_file_that_says_something_else_is_refused(text: str, said: str) -> None:
    Path("v.sql").write_text(SOLD)
    code, output = toml(text)
    assert (code, said in output) == (2, True), output


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_all_sinks_that_refuse_are_told_at_once(dry: tuple[str, ...]) -> None:
    views = "; ".join(f"CREATE VIEW v{i} AS SELECT id{{}} FROM orders" for i in range(4))
    sinks = [part for i in range(3) for part in ("--sink", f"v{i}=delta:t{i}:id")]
    assert run(views.replace("{}", ""), *sinks)[0] == 0
    new = ("--sink", "v3=delta:t3:id", "--evolve", *dry)
    code, said = run(views.replace("{}", ", cents"), *sinks, *new)
    assert code == 2
    assert "3 sinks refuse what they are to be written: - Delta table t0: the table has" in said
    assert "- Delta table t2: the table has the columns id, and the view is written as id" in said
    assert not Path("t3").exists()


@pytest.mark.parametrize("evolve", [(), ("--evolve",)])
@pytest.mark.parametrize("before", ["delta:sold:id", "files:sold"])
def test_a_table_is_not_written_by_another_key(before: str, evolve: tuple[str, ...]) -> None:
    kind = before.partition(":")[0]
    after = {"delta": "delta:sold:customer", "files": "files:sold:id"}[kind]
    assert run(SOLD, "--sink", f"sold={before}")[0] == 0
    code, said = run(SOLD, "--sink", f"sold={after}", *evolve)
    assert (code, "was written by another key" in said) == (2, True), said
    code, _ = run(SOLD, "--sink", f"sold={before}", *evolve)
    assert code == 0


def test_a_table_that_was_removed_is_written_by_another_key() -> None:
    totals = "CREATE VIEW sold AS SELECT customer, max(id) AS id FROM orders GROUP BY customer"
    assert run(totals, "--sink", "sold=delta:sold:id")[0] == 0
    Path("sold").rename("old")
    code, said = run(totals, "--sink", "sold=delta:sold:customer", "--evolve")
    assert code == 0, said
    deltalake.DeltaTable("orders").delete("id = 4")
    assert run(totals, "--sink", "sold=delta:sold:customer")[0] == 0
    assert content("sold", "customer", "id") == [(1, 2), (2, 3)]


def test_a_condition_on_the_time_comes_and_goes() -> None:
    timed = f"{SOLD} WHERE date_add(DATE '2020-01-01', CAST(id AS INT)) <= current_date"
    sink = ["--sink", "sold=delta:sold:id"]
    for text in (SOLD, f"{timed} AND id < 3", f"{timed} AND id > 1", SOLD):
        assert run(text, *sink, "--evolve", "--dry-run")[0] == 0
        code, said = run(text, *sink, "--evolve")
        assert code == 0, said
        deltalake.write_deltalake(
            "orders", pa.table({"id": [9], "customer": [9], "cents": [9]}), mode="append"
        )
        assert run(text, *sink)[0] == 0
        deltalake.DeltaTable("orders").delete("id = 9")
        assert run(text, *sink)[0] == 0
        kept = {"< 3": (1, 2), "> 1": (2, 3, 4)}.get(text[-3:], (1, 2, 3, 4))
        assert content("sold", "id") == [(i,) for i in kept]


def test_a_first_run_that_fails_is_in_nobodys_way() -> None:
    wrong = "CREATE VIEW sold AS SELECT customer, cents FROM orders"
    right = "CREATE VIEW sold AS SELECT customer, max(cents) AS cents FROM orders GROUP BY customer"
    sink = ["--sink", "sold=delta:sold:customer"]
    code, said = run(wrong, *sink)
    assert (code, "several rows with the key customer" in said) == (2, True)
    code, said = run(right, *sink)
    assert code == 0, said
    assert content("sold", "customer", "cents") == [(1, 2), (2, 4)]


@pytest.mark.spark
def test_a_dry_run_is_refused_where_the_run_is() -> None:
    sink = ["--sink", "sold=delta:sold:id"]
    assert run(f"{SOLD} WHERE levenshtein(CAST(cents AS STRING), 'a') <> 0", *sink)[0] == 0
    changed = f"{SOLD} WHERE levenshtein(CAST(customer AS STRING), 'a') <> 0"
    for more in ([], ["--dry-run"], ["--dry-run", "--count"]):
        code, said = run(changed, *sink, "--evolve", *more)
        assert (code, "--evolve --refresh sold" in said) == (2, True), said
    assert run(changed, *sink, "--evolve", "--refresh", "sold")[0] == 0
    assert content("sold", "id") == [(1,), (2,), (3,), (4,)]


@pytest.mark.parametrize(("kind", "written"), [("parquet", "csv"), ("csv", "parquet")])
def test_a_file_that_is_named_after_another_kind_is_read_as_that(kind: str, written: str) -> None:
    Path("landing").mkdir()
    rows = deltalake.DeltaTable("orders").to_pyarrow_table()
    (csv.write_csv if written == "csv" else pq.write_table)(rows, f"landing/1.{written}")
    Path("v.sql").write_text(SOLD)
    text = STATED + '[sinks.sold]\ndelta = "sold"\n[sources.orders]\nfiles = "landing"\nkind = '
    code, said = toml(f'{text}"{kind}"')
    assert (code, f"read it as kind='{written}', or correct or remove the file" in said) == (
        2,
        True,
    )
    code, said = toml(f'{text}"{written}"')
    assert code == 0, said
    assert content("sold", "id") == [(1,), (2,), (3,), (4,)]


def test_rows_that_wait_for_their_time_are_named_after_their_input() -> None:
    timed = f"{SOLD} WHERE date_add(DATE '2020-01-01', CAST(id AS INT)) <= current_date"
    for dry in (("--dry-run",), ("--dry-run", "--verbose"), ()):
        code, said = run(timed, "--sink", "sold=delta:sold:id", *dry)
        assert (code, "core.py" in said) == (0, False), said
        assert "some orders whose time is to come (views.sql:1, in sold)" in said or not dry
    code, said = run(SOLD, "--sink", "sold=delta:sold:id")
    assert (code, "dropped: some orders whose time is to come" in said) == (2, True), said


def test_what_is_said_of_another_input_names_the_file_and_no_line_of_the_library() -> None:
    assert run(SOLD, "--sink", "sold=delta:sold:id")[0] == 0
    for dry in (("--dry-run",), ()):
        code, said = run(
            SOLD.replace("orders", "sales"),
            *("--sink", "sold=delta:sold:id", "--evolve", "--renamed", "order=sales", *dry),
            source="sales=delta:orders",
        )
        assert (code, "Error: views.sql: renamed= says that the input 'order'" in said) == (2, True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[sources.orders]\ndelta = 5", "the source orders: delta = 5: expected its address"),
        ('[sources.orders]\ndelta = "orders"\ndiff = "snap"', "the source orders: diff='snap'"),
        ('[sources.orders]\nfiles = "orders"\nkind = "cvs"', "the source orders: kind='cvs'"),
        ('[sources.orders]\nfiles = "orders"\norder = "tim"', "the source orders: order='tim'"),
        ('[sources.orders]\niceberg = "orders"', "the source orders: expected the name of an Ice"),
        ('[sources.orders]\ndelta = "orders"\noptions = "x"', "the source orders: options=: expe"),
        ('[sources.orders]\npostgres = 5\ntable = "x"', "the source orders: postgres = 5"),
        ("[sources]\norders = 5", "shop.toml, [sources.orders]: Expected `object`"),
        ('[[sinks.sold]]\nkey = 5\ndelta = "x"', "shop.toml, [sinks.sold]: Expected `str | array`"),
        ('[sinks.sold]\nvacuum = 5\ndelta = "x"', "the sink sold: vacuum=: expected True or False"),
    ],
)
def test_an_error_of_a_table_in_a_file_names_the_table(text: str, said: str) -> None:
    Path("v.sql").write_text(SOLD)
    source = "" if "sources" in text else '[sources.orders]\ndelta = "orders"\n'
    code, output = toml(f"{STATED}{source}{text}")
    assert code == 2
    assert f"Error: {said}" in output


def test_views_in_sql_are_a_file_and_a_project_is_a_folder() -> None:
    Path("sub").mkdir()
    Path("v.sql").write_text(SOLD)
    assert "there is no file sub" in toml('sql = "sub"\nstore = "parquet:state"')[1]
    assert "there is no folder v.sql" in toml('dbt = "v.sql"\nstore = "parquet:state"')[1]
    assert "at `strict`" in toml(f"strict = 3\n{READ}")[1]


@pytest.mark.parametrize("command", [["run"], ["state", "evolve", "state"], ["report"]])
@pytest.mark.parametrize("file", ["v.sql", "shop.toml"])
def test_views_in_sql_are_not_run_as_python(command: list[str], file: str) -> None:
    Path("v.sql").write_text(SOLD)
    assert toml(READ)[0] == 0
    target = file if command == ["report"] else f"{file}:sold"
    done = CliRunner().invoke(main, [*command, target])
    assert done.exit_code == 2
    assert f"{file} is not Python" in " ".join(done.output.split())


def test_metrics_have_a_port_that_there_is() -> None:
    Path("v.sql").write_text(SOLD)
    assert "99999 is not in the range" in toml(READ, "--metrics-port", "99999")[1]
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        assert "give another port" in toml(READ, "--metrics-port", port)[1]
