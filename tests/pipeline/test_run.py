"""`stepping-spark run` and `stepping-spark source`, as somebody calls them."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psycopg
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from stepping_spark.cli import main
from tests.cases import ROOT
from tests.pipeline.test_files import add, user
from tests.postgres_server import PostgresServer

PROGRAM = """
import stepping_spark as st
from helper import PLACE

class User(st.Data):
    id: int
    name: str

def names(users: st.ZSet[User]) -> st.ZSet[str]:
    return st.distinct(st.map(users, f=lambda u: u.name))

pipeline = st.Pipeline(
    names,
    store=f"parquet:{PLACE}/state",
    users=st.Files(f"{PLACE}/users"),
    into={"names": st.Files(f"{PLACE}/names")},
    max_versions=1,
)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with a pipeline, beside a module that it imports."""
    for i in range(3):
        add(tmp_path / "users", f"{i}", [user(i)])
    (tmp_path / "helper.py").write_text(f"PLACE = {str(tmp_path)!r}\n")
    path = tmp_path / "names_of_users.py"
    path.write_text(PROGRAM)
    return path


def call(*arguments: str | Path) -> Result:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", list(sys.path))
        patch.delitem(sys.modules, "helper", raising=False)
        return CliRunner().invoke(main, [str(a) for a in arguments])


def test_a_file_is_run_to_its_end_and_run_again(file: Path) -> None:
    first = call("run", file, "--max-steps", "2")
    assert (first.exit_code, first.stdout) == (0, "2 steps taken\n")
    assert call("run", file).stdout == "1 step taken\n"
    assert call("run", file).stdout == "0 steps taken\n"
    newest = max((file.parent / "names").glob("*.parquet"))
    assert pq.read_table(newest).num_rows == 3


def test_a_dry_run_says_what_would_be_read_kept_and_cost_and_makes_nothing(file: Path) -> None:
    told = call("run", file, "--dry-run")
    assert told.exit_code == 0, told.output
    assert not (file.parent / "state").exists()
    assert not (file.parent / "names").exists()
    call("run", file, "--max-steps", "2")
    text = call("run", file, "--dry-run").stdout
    assert "step 2\n" in text
    assert max(map(len, text.replace(str(file.parent), "").splitlines())) <= 80
    assert "users: Files(" in " ".join(text.split())
    assert "1 file to read" in text
    assert "2 rows as stored" in text
    assert "a step of\n  names: reads the change of users, and 1 register\n" in text
    assert "linear" not in text
    more = call("run", file, "--dry-run", "--verbose").stdout
    assert more.startswith(text)
    assert "not linear: recomputed for the keys of the change" in more


def test_a_dry_run_ends_with_1_where_something_is_recomputed_in_full(tmp_path: Path) -> None:
    path = tmp_path / "whole.py"
    path.write_text(
        "import stepping_spark as st\n"
        "def whole(a: st.ZSet[int]) -> st.ZSet[int]:\n"
        "    return st.linear.distinct(st.integrate(a))\n"
        "views = st.Pipeline(whole, store='memory', a=[])\n"
    )
    told = call("run", path, "--dry-run")
    assert told.exit_code == 1, told.output
    assert "is recomputed in full at each step" in told.stdout


def test_errors_and_files_without_a_pipeline_end_with_2(file: Path) -> None:
    (file.parent / "users" / "1").unlink()
    call("run", file)
    add(file.parent / "users", "1", [user(1)])
    told = call("run", file)
    assert (told.exit_code, told.stderr.count("Error: ")) == (2, 1)
    assert "are not those that were read" in told.stderr
    file.write_text("x = 1")
    told = call("run", file)
    assert (told.exit_code, "has no pipeline, and no function" in told.stderr) == (2, True)


def test_logs_and_states_say_versions_and_no_numbers_of_the_library(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "stepping_spark.pipeline"):
        call("run", file, "--max-steps", "1")
    assert "step 1: users start -> 1; rows in 1" in caplog.text
    dry = " ".join(call("run", file, "--dry-run").stdout.split())
    assert "read up to 1; 2 files to read" in dry
    shown = " ".join(call("state", "show", file.parent / "state").stdout.split())
    assert "Sources read: users up to 1 Nobody" in shown


@pytest.mark.parametrize(
    ("text", "said"),
    [("def f(:", "SyntaxError"), ("def f():\n    return 1 / 0\n\nf()", "line 4, in <module>")],
)
def test_an_error_in_the_file_is_shown_from_its_line_on(file: Path, text: str, said: str) -> None:
    file.write_text(text)
    for command in ("run", "report"):
        told = call(command, file)
        assert (told.exit_code, said in told.stderr) == (2, True)
        assert f"{file} cannot be run:" in told.stderr
        assert "runpy" not in told.stderr


def test_a_page_is_not_taken_for_a_program(file: Path) -> None:
    page = file.with_suffix(".html")
    page.write_text("<html></html>")
    told = call("report", page)
    assert told.exit_code == 2
    assert "is a page; give the Python file" in " ".join(told.stderr.split())


def test_a_dry_run_ends_with_2_where_a_run_would(file: Path) -> None:
    add(file.parent / "names", "alien", [user(1)])
    for arguments in (["--dry-run"], []):
        told = call("run", file, *arguments)
        assert (told.exit_code, "is not of this pipeline" in told.stderr) == (2, True)
    assert os.listdir(file.parent / "names") == ["alien"]


@pytest.mark.parametrize("every", ["10 seconds", "0s"])
def test_a_time_that_is_none_is_said_of_the_option(file: Path, every: str) -> None:
    told = call("run", file, "--every", every)
    assert told.exit_code == 2
    assert f"Invalid value for '--every': '{every}' is no" in told.stderr
    assert ".py:" not in told.stderr
    assert not (file.parent / "state").exists()


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, 0), pytest.param(signal.SIGINT, 130, marks=pytest.mark.long)],
)
def test_a_signal_ends_a_run_that_follows_and_the_next_goes_on(
    file: Path, number: int, code: int
) -> None:
    log = file.parent / "log"
    with log.open("w") as stderr:
        running = subprocess.Popen(
            [sys.executable, "-m", "stepping_spark.cli", "run", str(file), "--every", "100ms"],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stderr=stderr,
        )
        try:
            deadline = time.monotonic() + 60
            while log.read_text().count("stepping") + log.read_text().count("step ") < 3:
                assert time.monotonic() < deadline
                assert running.poll() is None, log.read_text()
                time.sleep(0.05)
            asked = time.monotonic()
            running.send_signal(number)
            assert running.wait(30) == code
        finally:
            running.kill()
    assert time.monotonic() - asked < 5  # a second, and what it takes Python to end
    add(file.parent / "users", "3", [user(3)])
    assert call("run", file).stdout == "1 step taken\n"


def test_a_log_of_changes_is_made_and_removed(postgres: PostgresServer) -> None:
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA installed; CREATE TABLE installed.t (id bigint)")
        arguments = (postgres.url, "t", "--schema", "installed")
        assert (
            "has a log of all its changes now: installed.t_changes"
            in call("source", "install", *arguments).stdout
        )
        assert "already" in call("source", "install", *arguments).stdout
        connection.execute("INSERT INTO installed.t VALUES (1)")
        assert connection.execute("SELECT count(*) FROM installed.t_changes").fetchone() == (1,)
        assert call("source", "uninstall", *arguments).exit_code == 0
        assert connection.execute("SELECT to_regclass('installed.t_changes')").fetchone() == (None,)
    told = call("source", "install", postgres.url, "nowhere")
    assert (told.exit_code, "it is not there" in told.stderr) == (2, True)
    assert postgres.password not in told.output


VIEWS = """
import stepping_spark as st
from helper import PLACE

class User(st.Data):
    id: int
    name: str

@st.view(users=st.Files(f"{PLACE}/users"), comment="Each name once")
def names(users: st.ZSet[User]) -> st.ZSet[str]:
    return st.distinct(st.map(users, f=lambda u: u.name))

@st.view(into=st.Files(f"{PLACE}/long"), name="long_names")
def long(names: st.ZSet[str]) -> st.ZSet[str]:
    return st.filter(names, f=lambda n: n != "n1")

@st.view(users=st.Files(f"{PLACE}/users"), into=st.Files(f"{PLACE}/ids"))
def ids(users: st.ZSet[User]) -> st.ZSet[int]:
    return st.map(users, f=lambda u: u.id)
"""


def rows(place: Path) -> list[Any]:
    newest = max(place.glob("*.parquet"))
    found: list[Any] = pq.read_table(newest).column("_value_").to_pylist()
    return sorted(found)


@pytest.mark.parametrize("as_module", [False, True], ids=["file", "module"])
def test_the_views_of_a_file_are_run_together_or_one_alone(
    file: Path, as_module: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(VIEWS)
    here = str(file)
    if as_module:
        monkeypatch.chdir(file.parent)
        monkeypatch.delitem(sys.modules, file.stem, raising=False)
        here = file.stem
    place = file.parent
    one = call("run", f"{here}:long", "--store", f"parquet:{place / 'one'}")
    assert (one.exit_code, one.stdout) == (0, "1 step taken\n"), one.output
    assert rows(place / "long") == ["n0", "n2"]
    assert not (place / "ids").exists()
    rest = call("run", f"{here}:ids", "--store", f"parquet:{place / 'two'}")
    assert rest.stdout == "1 step taken\n", rest.output
    assert rows(place / "ids") == [0, 1, 2]
    shutil.rmtree(place / "long")
    shutil.rmtree(place / "ids")
    dry = call("run", here, "--store", f"parquet:{place / 'all'}", "--dry-run")
    assert "names (Each name once): reads the change of users" in " ".join(dry.stdout.split())
    both = call("run", here, "--store", f"parquet:{place / 'all'}")
    assert both.stdout == "1 step taken\n", both.output
    assert rows(place / "long") == ["n0", "n2"]
    assert rows(place / "ids") == [0, 1, 2]
    if as_module:
        monkeypatch.delitem(sys.modules, file.stem)


@pytest.mark.parametrize(
    ("target", "more", "said"),
    [
        ("", [], "does not say where their state is; give --store parquet:DIRECTORY"),
        (
            ":User",
            ["--store", "memory"],
            "User is <class 'pipeline.User'> (type); name an st.Pipeline",
        ),
        (":nobody", [], "nobody is not there; name an st.Pipeline or a function under @st.view: "),
        (":no body", [], "write the name of a view after the colon"),
        (":ids", ["--store", "parquett:x"], "ids: store=: 'parquett' is not a kind of store"),
        (".bak", [], "there is no file"),
        (".bak:ids", [], "there is no file"),
    ],
)
def test_views_that_cannot_be_run_are_said(
    file: Path, target: str, more: list[str], said: str
) -> None:
    file.write_text(VIEWS)
    told = call("run", f"{file}{target}", *more)
    assert (told.exit_code, said in " ".join(told.stderr.split())) == (2, True), told.stderr
    assert "core.py" not in told.stderr


def test_a_pipeline_has_its_own_store(file: Path) -> None:
    told = call("run", file, "--store", "memory")
    assert (told.exit_code, "leave out --store" in told.stderr) == (2, True)
    assert call("run", f"{file}:pipeline", "--max-steps", "1").stdout == "1 step taken\n"
