"""The README, CONTRIBUTING and CHANGELOG say what is so."""

from __future__ import annotations

import hashlib
import os
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import stepping_spark as st
from stepping_spark.engines.arrow.operators import LOCAL
from stepping_spark.engines.spark.operators import LOWER
from stepping_spark.execution.driver import LOCAL_ROWS
from stepping_spark.reference.meaning import MEANING

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")

DRAWN = "2b760cea7556f9c9"
"""A digest of the picture that examples/join.png was made from, as DOT; without what an SVG shows
under the pointer. After a change of it: run join.py in examples/, and look at the new picture."""


def document(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def blocks(language: str, name: str = "README.md") -> list[str]:
    """The fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", document(name), re.DOTALL | re.MULTILINE)


def commands() -> list[str]:
    return [line for block in blocks("sh") for line in block.splitlines()]


# -- the example


def test_the_example_is_the_one_in_examples() -> None:
    docstring, code = document("examples/join.py").split("\n\n", 1)
    assert docstring.startswith('"""')
    assert blocks("python")[0] == code


def test_the_example_prints_what_the_readme_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    example = tmp_path / "example.py"
    example.write_text(blocks("python")[0], encoding="utf-8")
    runpy.run_path(str(example))
    assert capsys.readouterr().out == blocks("text")[0]


def test_the_picture_is_what_the_example_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    graph = runpy.run_path(str(ROOT / "examples" / "join.py"))["graph"]
    st.write_dot(graph, "join.dot")
    dot = re.sub(r' (label)?tooltip="[^"]*"', "", (tmp_path / "join.dot").read_text())
    assert hashlib.sha256(dot.encode()).hexdigest()[:16] == DRAWN
    assert (ROOT / "examples" / "join.png").read_bytes().startswith(b"\x89PNG")
    assert 'src="examples/join.png"' in document("README.md")


@pytest.mark.spark
def test_the_blocks_run_one_after_the_other(tmp_path: Path) -> None:
    program = tmp_path / "readme.py"
    program.write_text("\n".join(blocks("python")), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(program)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr


# -- the commands


def test_there_are_two_commands_and_ci_runs_the_one_for_tests() -> None:
    demo, test = commands()
    assert demo.endswith(".venv/bin/stepping-spark demo")
    assert document(".ci/run").splitlines()[-1] == test
    assert [line for line in document(".ci/run").splitlines() if "pip install" in line] == [test]
    assert blocks("sh", "CONTRIBUTING.md")[0].splitlines()[-1] == test


def test_the_commands_name_what_the_package_has() -> None:
    project = tomllib.loads(document("pyproject.toml"))["project"]
    wanted = {e for name in DOCUMENTS for e in re.findall(r"'\.\[(\w+)\]'", document(name))}
    assert wanted <= set(project["optional-dependencies"])
    assert "stepping-spark" in project["scripts"]


# -- the rest


def test_every_public_name_is_in_the_readme() -> None:
    told = set(re.findall(r"\bst\.(\w+)", document("README.md")))
    assert set(st.__all__) - told == set()


def test_the_limit_of_the_driver_is_the_one_that_the_readme_says() -> None:
    told = re.findall(r"`local_rows` rows \(([\d,]+)\)", " ".join(document("README.md").split()))
    assert told == [f"{LOCAL_ROWS:,}"]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_name_that_is_told_of_exists(name: str) -> None:
    for told in re.findall(r"\bst\.([a-zA-Z_.]*\w)", document(name)):
        found: object = st
        for part in told.split("."):
            found = getattr(found, part)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_file_that_is_told_of_exists(name: str) -> None:
    text = re.sub(r"^```.*?^```$", "", document(name), flags=re.DOTALL | re.MULTILINE)
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    paths = re.findall(r"`((?:stepping_spark|circuits|stores|tests|examples|\.ci)/[\w./]*)`", text)
    assert [p for p in (*links, *paths) if not (ROOT / p).exists()] == []


def test_each_operator_is_in_each_of_the_tables_that_contributing_names() -> None:
    # What is left out becomes inputs of a stage, and reads of registers, when a plan is made.
    planned = {"Delay", "Differentiate", "Feedback", "Fixpoint", "Input", "Integrate"}
    computed = {operator for operator in MEANING if operator.__name__ not in planned}
    assert computed == set(LOWER) == set(LOCAL)
