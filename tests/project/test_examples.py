"""Runs every example as a user would."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cases import ROOT
from tests.postgres_server import PostgresServer

EXAMPLES = {
    "enrichment.py": f"{ROOT / 'examples' / 'enrichment.py'}",
    "flights.py": "-m stepping_spark.cli demo --days 6 --png flights.png",
    "join.py": f"{ROOT / 'examples' / 'join.py'}",
    "meters.py": f"{ROOT / 'examples' / 'meters.py'}",
    "receipts.py": f"{ROOT / 'examples' / 'receipts.py'}",
    "recent.py": f"{ROOT / 'examples' / 'recent.py'}",
    "shop.py": f"{ROOT / 'examples' / 'shop.py'}",
    "revenue.py": f"{ROOT / 'examples' / 'revenue.py'}",
    "routes.py": f"{ROOT / 'examples' / 'routes.py'} --days 4 --steps 12 --png routes.png",
}
COLUMNS = 80


def run(folder: Path, arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in an empty folder, in a terminal of the usual width."""
    return subprocess.run(
        [sys.executable, *arguments.split()],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": str(COLUMNS)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def test_every_example_is_run_here() -> None:
    assert {p.name for p in (ROOT / "examples").glob("*.py")} == set(EXAMPLES)


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.turn(3, number=2)
def test_the_demo_shows_that_the_maintained_view_is_the_plain_query(tmp_path: Path) -> None:
    done = run(tmp_path, EXAMPLES["flights.py"])
    assert done.returncode == 0, done.stderr
    said = done.stdout
    assert "It equals, exactly, what one plain Spark SQL query gives on the final tables." in said
    assert "7 steps" in said
    assert "cancelled\n" in said  # the last column of the table, not cut off
    assert max(map(len, said.splitlines())) <= COLUMNS
    assert (tmp_path / "flights.png").read_bytes().startswith(b"\x89PNG")
    assert "delays_by_route took 7 steps" in (tmp_path / "flights.html").read_text("utf-8")


@pytest.mark.turn(2)
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        pytest.param("--days 0", "'--days'", id="no days"),
        pytest.param("--days 366", "'--days'", id="more days than there are"),
    ],
)
def test_the_demo_refuses(tmp_path: Path, arguments: str, complaint: str) -> None:
    done = run(tmp_path, f"-m stepping_spark.cli demo {arguments}")
    assert done.returncode == 2
    assert complaint in done.stderr
    assert not list(tmp_path.iterdir())


def test_the_help_of_the_demo_says_how_it_is_called(tmp_path: Path) -> None:
    done = run(tmp_path, "-m stepping_spark.cli demo --help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: stepping-spark demo [OPTIONS]")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.turn(3, number=1)
def test_the_ten_views_of_the_shop_are_the_plain_queries(tmp_path: Path) -> None:
    done = run(tmp_path, EXAMPLES["shop.py"])
    assert (done.returncode, done.stderr) == (0, "")
    assert "Each of 10 views is what plain Spark SQL gives on the tables." in done.stdout


@pytest.mark.turn(3)
@pytest.mark.spark
@pytest.mark.slow
def test_the_enrichment_is_the_plain_query_and_keeps_inputs_only(tmp_path: Path) -> None:
    done = run(tmp_path, EXAMPLES["enrichment.py"])
    assert (done.returncode, done.stderr) == (0, "")
    assert "6 arrangements, all of inputs." in done.stdout
    assert "It equals, exactly, what one plain Spark SQL query gives on the final tables." in (
        done.stdout
    )


def test_the_join_runs_without_a_word_beside_its_output(tmp_path: Path) -> None:
    done = run(tmp_path, EXAMPLES["join.py"])
    assert (done.returncode, done.stderr) == (0, "")
    assert "│        -1 │ Oslo    │ Cairo │" in done.stdout
    assert (tmp_path / "join.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    ("example", "said"),
    [
        ("meters.py", "After each of 4 steps the bills were what all readings add up to."),
        ("recent.py", "On each of 7 days it was what the orders of the last 30 days add up to."),
    ],
)
def test_an_example_is_at_each_step_what_is_computed_anew(
    tmp_path: Path, example: str, said: str
) -> None:
    done = run(tmp_path, EXAMPLES[example])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(f"{said}\n")
    assert max(map(len, done.stdout.splitlines())) <= COLUMNS


@pytest.mark.spark
@pytest.mark.slow
def test_the_receipts_are_read_by_day_after_a_restart(tmp_path: Path) -> None:
    done = run(tmp_path, EXAMPLES["receipts.py"])
    assert (done.returncode, done.stderr) == (0, "")
    before, after = done.stdout.split("The milk was 1.09:")
    assert "2024-03-04:\n  receipt 1: 2 items, 14.10\n  receipt 2: 1 items, 4.50\n" in before
    assert "2024-03-04:\n  receipt 1: 2 items, 4.29\n  receipt 2: 1 items, 4.50\n" in after
    assert after.endswith("2024-03-05:\n  receipt 3: 1 items, 2.75\n")


@pytest.mark.spark
@pytest.mark.slow
def test_the_routes_show_that_the_maintained_views_are_what_networkx_finds(tmp_path: Path) -> None:
    done = run(tmp_path, EXAMPLES["routes.py"])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("equals what networkx finds") == 3
    assert max(map(len, done.stdout.splitlines())) <= COLUMNS
    assert (tmp_path / "routes.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.turn(3)
@pytest.mark.slow
def test_the_views_of_a_pipeline_that_was_killed_are_the_plain_query(
    tmp_path: Path, postgres: PostgresServer
) -> None:
    done = run(tmp_path, f"{EXAMPLES['revenue.py']} {postgres.url}")
    assert (done.returncode, done.stderr) == (0, "")
    assert "ended by SIGTERM with 0; the shop goes on" in done.stdout
    assert "ended by SIGKILL with -9; the shop goes on" in done.stdout
    assert "The view in Delta is what one plain query gives.\n" in done.stdout
    assert done.stdout.endswith("The view in Postgres is what one plain query gives.\n")
