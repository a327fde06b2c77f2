"""The dbt project of the examples, as it is: each table is what DuckDB makes of the same SQL."""

from __future__ import annotations

import csv
import datetime as dt
import json
import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pytest
from click.testing import CliRunner

import stepping_spark as st
from stepping_spark.cli import main
from tests.dbt.compiled import PROJECT, plain

SEEDS = {
    "raw_shops": "id BIGINT, name VARCHAR, opened DATE",
    "raw_guests": "id BIGINT, name VARCHAR",
    "raw_bills": "id BIGINT, shop BIGINT, guest BIGINT, closed_at TIMESTAMP, paid BOOLEAN, "
    "cancelled BOOLEAN",
    "raw_items": "id BIGINT, bill BIGINT, product VARCHAR, price BIGINT",
}
TABLES = ("bills", "favourites", "guests", "revenue")
ROUNDS = 25


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the project, whose seeds may be edited."""
    return Path(shutil.copytree(PROJECT, tmp_path / "sandwiches"))


class Seeds:
    """The rows of the seeds, by their ids, and random edits of them."""

    def __init__(self, number: int) -> None:
        self._chance = random.Random(number)
        self.rows: dict[str, dict[int, tuple[Any, ...]]] = {name: {} for name in SEEDS}
        for name in SEEDS:
            for id_ in range(1, 9):
                self.rows[name][id_] = self._row(name, id_)

    def edit(self) -> None:
        """Some rows come, go and change."""
        for _ in range(self._chance.randrange(1, 9)):
            name = self._chance.choice(list(SEEDS))
            id_ = self._chance.randrange(1, 16)
            gone = len(self.rows[name]) > 2 and self._chance.random() < 0.4
            if gone:
                self.rows[name].pop(id_, None)
            else:
                self.rows[name][id_] = self._row(name, id_)

    def write(self, folder: Path) -> None:
        """Write the CSV files."""
        for name, columns in SEEDS.items():
            with (folder / "seeds" / f"{name}.csv").open("w", newline="") as file:
                lines = csv.writer(file)
                lines.writerow([c.split()[0] for c in columns.split(", ")])
                lines.writerows(map(self._text, self.rows[name].values()))

    @staticmethod
    def _text(row: tuple[Any, ...]) -> list[str]:
        return ["" if v is None else str(v).lower() if isinstance(v, bool) else str(v) for v in row]

    def _row(self, name: str, id_: int) -> tuple[Any, ...]:
        chance = self._chance
        day = dt.datetime(2024, 3, 1, 12) + dt.timedelta(hours=chance.randrange(24 * 6))
        match name:
            case "raw_shops":
                return id_, chance.choice(["Harbour", "Station", "Market, old"]), day.date()
            case "raw_guests":
                return id_, chance.choice(["Ada", "Ben", 'Cem "C" Öz', None])
            case "raw_bills":
                shop, guest = chance.randrange(1, 12), chance.randrange(1, 10)
                paid = chance.choice([True, True, None, False])
                return id_, shop, guest, day, paid, chance.random() < 0.2
        bill, product = chance.randrange(1, 14), chance.choice(["tea", "club", "reuben"])
        return id_, bill, product, chance.choice([320, 850, 990, None])


class Database:
    """DuckDB with the seeds as tables, and the models as views with the SQL of the manifest."""

    def __init__(self, folder: Path) -> None:
        self._database = duckdb.connect(str(folder / "sandwiches.duckdb"))
        for name, columns in SEEDS.items():
            self._database.execute(f"CREATE TABLE {name} ({columns})")
        nodes = json.loads((folder / "target" / "manifest.json").read_text("utf-8"))["nodes"]
        left = [n for n in nodes.values() if n["resource_type"] == "model" and n["relation_name"]]
        while left:
            waiting = {n["unique_id"] for n in left}
            node = next(n for n in left if not waiting & reads(nodes, n))
            self._database.execute(f"CREATE VIEW {node['name']} AS {node['compiled_code']}")
            left.remove(node)

    def load(self, seeds: Seeds) -> None:
        """Replace the rows of the seeds."""
        for name, rows in seeds.rows.items():
            self._database.execute(f"DELETE FROM {name}")
            marks = ", ".join("?" * len(SEEDS[name].split(", ")))
            self._database.executemany(f"INSERT INTO {name} VALUES ({marks})", list(rows.values()))

    def rows(self, table: str) -> Counter[Any]:
        """The rows of a model."""
        return Counter(self._database.sql(f"SELECT * FROM {table}").fetchall())


def reads(nodes: dict[str, Any], node: dict[str, Any]) -> set[str]:
    """The ids of what a model reads, also by way of ephemeral ones."""
    direct = set(node["depends_on"].get("nodes") or ())
    return direct.union(*(reads(nodes, nodes[id_]) for id_ in direct))


@pytest.mark.slow
def test_each_table_is_what_duckdb_computes_after_each_edit_of_the_seeds(folder: Path) -> None:
    seeds, database = Seeds(3), Database(folder)
    found: dict[str, Counter[Any]] = {name: Counter() for name in TABLES}

    def into(name: str) -> Any:
        def add(step: int, change: Any) -> None:
            for row, n in change.iter():
                found[name][tuple(vars(row).values())] += n

        return add

    seeds.write(folder)
    project = st.dbt_project(folder)
    sinks = {name: into(name) for name in TABLES}
    deleted = 0
    with st.Pipeline(project, store="memory", into=sinks) as pipeline:
        for round_ in range(ROUNDS):
            assert pipeline.run() == 1, round_
            database.load(seeds)
            for name in TABLES:
                there = Counter({row: n for row, n in found[name].items() if n})
                assert there == database.rows(name), (round_, name)
            before = {(n, id_) for n, rows in seeds.rows.items() for id_ in rows}
            edited = json.dumps(seeds.rows, default=str)
            while json.dumps(seeds.rows, default=str) == edited:
                seeds.edit()
            deleted += len(before - {(n, id_) for n, rows in seeds.rows.items() for id_ in rows})
            seeds.write(folder)
    assert deleted > 20


def test_the_command_line_runs_the_project_into_tables_with_the_keys_of_the_models(
    folder: Path, tmp_path: Path
) -> None:
    seeds, database = Seeds(5), Database(folder)
    said = ["--dbt", folder, "--store", f"parquet:{tmp_path / 'state'}"]
    said += ["--into", f"delta:{tmp_path / 'lake'}", "--sink", f"guests=delta:{tmp_path / 'own'}"]
    for _ in range(2):
        seeds.write(folder)
        done = CliRunner().invoke(main, ["run", *map(str, said)])
        assert (done.exit_code, "1 step taken" in done.output) == (0, True), done.output
        database.load(seeds)
        for name in TABLES:
            place = tmp_path / ("own" if name == "guests" else f"lake/{name}")
            rows = deltalake.DeltaTable(place).to_pyarrow_table().to_pylist()
            assert Counter(tuple(row.values()) for row in rows) == database.rows(name), name
        seeds.edit()


def test_the_circuit_reads_each_written_model_once(folder: Path) -> None:
    project = st.dbt_project(folder, checks=False)
    assert project.__name__ == "sandwiches"
    assert project.written == {
        "bills": ("bill_id",),
        "favourites": ("guest_id",),
        "guests": ("guest_id",),
        "revenue": ("shop_name", "closed_on"),
    }
    alone = len(st.explain(st.compile(st.dbt_project(folder, select=["bills"]))).arrangements)
    both = st.dbt_project(folder, select=["bills", "revenue"], checks=False)
    with_revenue = len(st.explain(st.compile(both)).arrangements)
    assert with_revenue <= alone + 5


def test_the_manifest_says_neither_where_nor_when_it_was_written() -> None:
    text = (PROJECT / "target" / "manifest.json").read_text("utf-8")
    manifest = json.loads(text)
    assert plain(json.loads(text)) == manifest
    assert "/home" not in text
    assert "/tmp" not in text
    files = {n["original_file_path"] for n in manifest["nodes"].values()}
    there = {str(p.relative_to(PROJECT)) for p in PROJECT.rglob("models/**/*.sql")}
    assert there <= files


@pytest.mark.parametrize("name", ["bills", "revenue", "stg_bills"])
def test_the_manifest_is_of_the_files_that_are_there(name: str) -> None:
    nodes = json.loads((PROJECT / "target" / "manifest.json").read_text("utf-8"))["nodes"]
    node = nodes[f"model.sandwiches.{name}"]
    written = (PROJECT / node["original_file_path"]).read_text("utf-8")
    assert node["raw_code"].strip() == written.strip(), "python -m tests.dbt.compiled dbt"
