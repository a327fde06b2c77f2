"""What the commands say of themselves: within 80 columns, with an example, and plain when piped."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import webbrowser
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from stepping_spark.cli import main
from stepping_spark.cli import output as browser
from tests.cases import ROOT

WIDTH = 80


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command, and of every group."""
    yield path
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name)


ALL = list(commands(main))


@pytest.mark.parametrize("words", ALL, ids=lambda words: " ".join(words) or "none")
def test_the_help_of_a_command_has_an_example_and_fits_80_columns(words: tuple[str, ...]) -> None:
    said = CliRunner(env={"COLUMNS": "200"}).invoke(main, [*words, "--help"])
    assert said.exit_code == 0, said.output
    assert max(map(len, said.output.splitlines())) <= WIDTH
    example = re.search(r"^  Examples?:\n((?:    .*\n)+)", said.output, re.M)
    assert example, said.output
    for line in example[1].splitlines():
        assert line.startswith(f"    {' '.join(('stepping-spark', *words))}")
    assert "..." not in said.output.partition("Commands:")[2], "a summary is cut off"


def test_the_options_of_examples_are_there() -> None:
    for words in ALL:
        said = CliRunner().invoke(main, [*words, "--help"]).output
        for line in said.partition("Example")[2].splitlines()[1:]:
            used = line.split()
            own = max((w for w in ALL if used[1 : 1 + len(w)] == [*w]), key=len)
            options = CliRunner().invoke(main, [*own, "--help"]).output
            assert all(word in options for word in used if word.startswith("--")), line


def test_without_words_it_says_what_it_can_do() -> None:
    said = CliRunner().invoke(main, [])
    assert said.exit_code == 0
    for name in ("demo", "report", "run", "source", "state"):
        assert re.search(rf"^  {name} +\w.*\.$", said.output, re.M), said.output


def test_a_pipe_gets_plain_text() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "stepping_spark.cli"],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "xterm-256color"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert "\x1b" not in done.stdout
    assert done.stderr == ""


# -- the report

PROGRAM = """
import stepping_spark as st

def names(users: st.ZSet[str]) -> st.ZSet[str]:
    return st.distinct(users)

changes = [(1, st.ZSetPython({"ann": 2})), (2, st.ZSetPython({"bob": 1}))]
pipeline = st.Pipeline(names, store="parquet:state", users=changes)
"""

STEPPED = """
import stepping_spark as st

def names(users: st.ZSet[str]) -> st.ZSet[str]:
    return st.distinct(users)

graph = st.compile(names)
it = st.Stepper(graph, st.StoreMemory.from_graph(graph))
it.step((st.ZSetPython({"ann": 2}),))
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))


def call(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(main, list(words))
    return done.exit_code, done.output


def test_a_run_writes_the_report_of_its_steps_and_report_that_of_the_state() -> None:
    Path("users.py").write_text(PROGRAM)
    assert call("report", "users.py") == (0, "The report is in report.html\n")
    page = Path("report.html").read_text()
    assert "names has taken no step in this process" in page
    assert not Path("state").exists(), "nothing is made"
    code, said = call("run", "users.py", "--report", "run.html")
    assert (code, "2 steps taken" in said) == (0, True)
    assert "names took 2 steps: 2 rows in, 2 rows out" in Path("run.html").read_text()
    code, _ = call("report", "users.py", "--out", "both.html", "--beside", "run.html")
    assert code == 0
    again = Path("both.html").read_text()
    assert re.search(r"has taken no step in this process; its state is [\d.]+ kB in 1", again)


def test_a_file_that_steps_is_reported_on() -> None:
    Path("script.py").write_text(STEPPED)
    assert call("report", "script.py", "--out", "it.html") == (0, "The report is in it.html\n")
    assert "names took 1 step: 1 row in, 1 row out" in Path("it.html").read_text()


@pytest.mark.parametrize(
    ("program", "words", "said"),
    [
        ("x = 1", (), "none.py has no pipeline or stepper; write one at the top of the file"),
        (STEPPED, ("--out", "it.txt"), "'it.txt' does not end in .html"),
        (STEPPED, ("--beside", "none.py"), "none.py is no report"),
    ],
)
def test_what_cannot_be_reported_on_is_one_error(
    program: str, words: tuple[str, ...], said: str
) -> None:
    Path("none.py").write_text(program)
    code, output = call("report", "none.py", *words)
    assert code == 2
    assert said in " ".join(output.split())


@pytest.mark.parametrize(
    ("environment", "terminal", "opens"),
    [
        ({"DISPLAY": ":0"}, True, True),
        ({"WAYLAND_DISPLAY": "w"}, True, True),
        ({}, True, False),
        ({"DISPLAY": ":0"}, False, False),
        ({"DISPLAY": ":0", "CI": "true"}, True, False),
    ],
    ids=["X", "Wayland", "no display", "piped", "CI"],
)
def test_a_page_is_opened_only_where_somebody_looks(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], terminal: bool, opens: bool
) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "CI"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    opened: list[str] = []

    def open_it(url: str) -> bool:
        opened.append(url)
        return True

    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    monkeypatch.setattr(webbrowser, "open", open_it)
    assert browser.open_page("report.html") is opens
    assert opened == [Path("report.html").resolve().as_uri()] * opens
