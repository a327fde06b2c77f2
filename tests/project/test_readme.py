"""The README, CONTRIBUTING and CHANGELOG say what is so."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator

import pytest

import stepping_spark as st
from stepping_spark.circuit import physical
from stepping_spark.circuit.operators import Operator
from stepping_spark.circuit.physical import Physical
from stepping_spark.execution.arrow.nodes import NODES as ON_ARROW
from stepping_spark.execution.spark.nodes import NODES as IN_SPARK
from stepping_spark.reference.semantics import MEANING
from tests.benchmarks.measured import PAGES, TABLES, refreshed, targets, written
from tests.cases import ROOT
from tests.documents import GUIDE, blocks, commands, prose, text_of

DOCUMENTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")
MOST_LINES = 200
NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def document(name: str) -> str:
    return text_of(ROOT / name)


def flat(name: str) -> str:
    """The text of a document, in one line."""
    return " ".join(document(name).split())


def test_the_readme_is_short_and_its_example_begins_on_the_first_screens() -> None:
    lines = document("README.md").splitlines()
    assert len(lines) <= MOST_LINES
    assert lines.index("## Run it") <= 25
    assert lines.index("## Tables in, view out") <= 50


def test_the_example_is_the_view_of_the_pipeline_in_examples() -> None:
    def view(code: str) -> str:
        return code[code.index("class Customer") : code.index("    )\n\n\n") + 6]

    (example,) = blocks(ROOT / "README.md", "python")
    assert view(example) == view(document("examples/revenue.py"))


def test_the_tables_have_the_numbers_that_were_measured() -> None:
    pages = [text_of(page) for page in PAGES]
    assert [written(page) for page in pages] == pages
    for begins in TABLES:
        assert sum(page.count(f"\n| {begins} |") for page in pages) == 1, begins


def test_the_pages_say_how_many_targets_are_missed() -> None:
    missed = sum(ratio is None or ratio > target for ratio, target in targets().values())
    number, total = NUMBERS[missed], len(targets())
    assert f"if the step meets its target; {number} of {total} do not" in flat("README.md")
    assert f"{number.title()} targets of {total} are missed" in flat("docs/guide/measurements.md")


@pytest.mark.parametrize("mode", ["driver", "spark"])
def test_all_queries_of_tpch_were_measured(mode: str) -> None:
    assert list(refreshed(mode)) == [f"Q{n}" for n in range(1, 23)]


# -- the commands


def test_there_are_two_commands_and_ci_runs_the_one_for_tests() -> None:
    demo, test, _ = commands(ROOT / "README.md")
    assert demo.endswith(".venv/bin/stepping-spark demo")
    assert document(".ci/run").splitlines()[-1] == test
    assert [line for line in document(".ci/run").splitlines() if "pip install" in line] == [test]
    assert commands(ROOT / "CONTRIBUTING.md")[0] == test


def test_the_commands_name_what_the_package_has() -> None:
    project = tomllib.loads(document("pyproject.toml"))["project"]
    wanted = {e for name in DOCUMENTS for e in re.findall(r"'\.\[(\w+)\]'", document(name))}
    assert wanted <= set(project["optional-dependencies"])
    assert "stepping-spark" in project["scripts"]


# -- the rest


def test_the_limit_of_the_driver_is_the_one_that_the_guide_says() -> None:
    rows = f"| {st.Limits.local_rows:,} | `st.Limits(local_rows=…)` |"
    assert rows in text_of(GUIDE / "how-to" / "memory.md")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_name_that_is_told_of_exists(name: str) -> None:
    for told in re.findall(r"\bst\.([a-zA-Z_.]*\w)", document(name)):
        found: object = st
        for part in told.split("."):
            found = getattr(found, part)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_file_that_is_told_of_exists(name: str) -> None:
    text = prose(ROOT / name)
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
    links += re.findall(r'src="([^"]+)"', text)
    folders = "stepping_spark|circuits|stores|tests|examples|docs|\\.ci"
    paths = re.findall(rf"`((?:{folders})/[\w./-]*)`", text)
    assert [p for p in (*links, *paths) if not (ROOT / p).exists()] == []


def test_each_operator_has_a_meaning_and_is_made_of_nodes() -> None:
    # Of the others the plan makes inputs of a stage, and reads of registers.
    planned = {"Delay", "Differentiate", "Feedback", "Fixpoint", "Input", "Integrate"}
    # What several operators share is no operator itself; the parts of one that is fused are.
    above = {"Operator", "Same", "KeepsSigns", "GivesSets", "ByWatermark", "Temporal", "Fused"}
    above |= {"RowByRow", "Carrier"}
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
