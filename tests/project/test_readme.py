"""The README, CONTRIBUTING and CHANGELOG say what is so."""

from __future__ import annotations

import hashlib
import os
import re
import runpy
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import stepping_spark as st
from stepping_spark import physical
from stepping_spark.engines.arrow.nodes import NODES as ON_ARROW
from stepping_spark.engines.spark.nodes import NODES as IN_SPARK
from stepping_spark.graph.operators import Operator
from stepping_spark.physical import Physical
from stepping_spark.reference.meaning import MEANING
from tests.cases import ROOT

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
    assert told == [f"{st.Limits.local_rows:,}"]


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


def test_each_operator_has_a_meaning_and_is_made_of_nodes() -> None:
    # Of the others the plan makes inputs of a stage, and reads of registers.
    planned = {"Delay", "Differentiate", "Feedback", "Fixpoint", "Input", "Integrate"}
    # What several operators share is no operator itself; the parts of one that is fused are.
    above = {"Operator", "Same", "KeepsSigns", "GivesSets", "Temporal", "Fused"}
    only_traced = {"Placeholder", "Outside", "Recursive"}
    ours = {o for o in _operators(Operator) if o.__module__.startswith("stepping_spark.")}
    named = {o for o in ours if o.__name__ not in above | only_traced}
    assert named == {o for o in MEANING if o.__name__ not in above}
    made = {o for o in named if o.physical is not Operator.physical}
    assert {o.__name__ for o in named - made} == planned


def _operators(of: type[Operator]) -> Iterator[type[Operator]]:
    for o in of.__subclasses__():
        yield o
        yield from _operators(o)


def test_each_node_is_one_function_in_each_engine() -> None:
    ours = {n for n in vars(physical).values() if isinstance(n, type) and issubclass(n, Physical)}
    above = {"Physical", "Fold"}
    made = {n for n in ours if n.__name__ not in above and not n.__name__.startswith("_")}
    assert made == set(ON_ARROW) == set(IN_SPARK)
    for table in (ON_ARROW, IN_SPARK):
        assert len(set(table.values())) == len(table)
