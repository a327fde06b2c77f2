"""The guide is true: its code runs, its commands exist, its links lead somewhere, and it builds."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import click
import pytest
from pyspark.sql import SparkSession

import circuits
import stepping_spark as st
from stepping_spark.cli import main
from tests.cases import ROOT
from tests.documents import (
    GUIDE,
    blocks,
    commands,
    languages,
    name_of,
    pages,
    prose,
    run,
    text_of,
)
from tests.postgres_server import PostgresServer

README = ROOT / "README.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
PAGES = [*pages(), README]

# Pages whose code may use a session, called `spark`, and a server at `url`.
WITH_SPARK = {"functions.md", "how-to/cluster.md", "how-to/streaming.md", "operators/time.md"}
WITH_POSTGRES = {"how-to/store.md", "how-to/tables.md"}
LANGUAGES = {"python", "text", "sh", "sql"}


def with_code(*, spark: bool = False, postgres: bool = False) -> list[object]:
    """The pages that have Python, and ask for these."""
    return [
        pytest.param(page, id=name_of(page))
        for page in PAGES
        if blocks(page, "python")
        and (name_of(page) in WITH_SPARK) == spark
        and (name_of(page) in WITH_POSTGRES) == postgres
    ]


def text_is_what_is_printed(page: Path, printed: str) -> None:
    assert printed == "".join(blocks(page, "text"))


@pytest.mark.driver  # some pages print where a step ran
@pytest.mark.parametrize("page", with_code())
def test_the_code_of_a_page_runs_without_spark_and_prints_its_text(
    page: Path, tmp_path: Path
) -> None:
    text_is_what_is_printed(page, run(page, tmp_path))
    pictures = sorted(tmp_path.glob("*.svg"))
    for picture in pictures:
        shown = page.parent / picture.name
        assert words_of(shown) == words_of(picture), "draw it: python -m tests.documents"
    if page != README:
        assert [p.name for p in pictures] == sorted(re.findall(r"\((\w[\w-]*\.svg)\)", prose(page)))


def words_of(picture: Path) -> list[str]:
    """The texts of an SVG: what it shows, without where, which depends on the fonts."""
    drawn = picture.read_text(encoding="utf-8")
    return sorted(re.findall(r"<text[^>]*>([^<]*)<", drawn))


@pytest.mark.parametrize("page", with_code(spark=True))
def test_the_code_of_a_page_runs_in_a_session(
    page: Path, tmp_path: Path, spark: SparkSession
) -> None:
    text_is_what_is_printed(page, run(page, tmp_path, {"spark": spark}))


@pytest.mark.parametrize("page", with_code(postgres=True))
def test_the_code_of_a_page_runs_with_a_server(
    page: Path, tmp_path: Path, postgres: PostgresServer
) -> None:
    text_is_what_is_printed(page, run(page, tmp_path, {"url": postgres.url}))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_has_code_only_in_languages_that_are_checked(page: Path) -> None:
    assert languages(page) <= LANGUAGES


# -- the commands

PROGRAMS = {"stepping-spark", "pip", "python3", "python", "mkdocs", "export"}


@pytest.mark.parametrize("page", [*PAGES, CONTRIBUTING], ids=name_of)
def test_the_commands_of_a_page_exist_with_their_options(page: Path) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    known = set(extras["optional-dependencies"])
    for line in commands(page):
        for command in line.split("&&"):
            name, *arguments = shlex.split(command, comments=True)
            program = Path(name).name
            assert program in {*PROGRAMS, "pre-commit"}, command
            if program == "stepping-spark":
                check_command(arguments)
            for extra in re.findall(r"(?:stepping-spark|\.)\[([\w,]+)\]", command):
                assert set(extra.split(",")) <= known, command


def check_command(arguments: list[str]) -> None:
    """Follow the names of commands, and find each option among those of the last one."""
    command: click.Command = main
    while isinstance(command, click.Group) and arguments and arguments[0] in command.commands:
        command, *arguments = command.commands[arguments[0]], *arguments[1:]
    assert not isinstance(command, click.Group), arguments
    if command.name == "demo":  # it hands all on to an example
        command = runpy.run_path(str(ROOT / "examples" / "flights.py"))["main"]
    options = {"--help", "-h", *(o for p in command.params for o in p.opts)}
    given = [a.partition("=")[0] for a in arguments if a.startswith("-")]
    assert set(given) <= options
    required = [p for p in command.params if isinstance(p, click.Argument) and p.required]
    assert "--help" in given or len(arguments) >= len(required)


def test_a_command_that_does_not_exist_is_found() -> None:
    check_command(["state", "show", "path", "--schema", "s"])
    for wrong in (["state", "shown", "x"], ["run", "a.py", "--evry", "1s"], ["report"]):
        with pytest.raises(AssertionError):
            check_command(wrong)


# -- what the guide must have


def test_every_public_name_is_in_the_guide_and_in_the_reference() -> None:
    told = {n for page in PAGES for n in re.findall(r"\bst\.(\w+)", text_of(page))}
    assert set(st.__all__) - told == set()
    reference = "".join(text_of(page) for page in sorted((GUIDE / "reference").glob("*.md")))
    listed = re.findall(
        r"^::: stepping_spark\.(?:language\.compile\.)?(\w+)$", reference, re.MULTILINE
    )
    assert Counter(listed) - Counter(st.__all__) == Counter(), "not public, or there twice"
    assert Counter(st.__all__) - Counter(listed) == Counter(), (
        "add to a page of docs/guide/reference"
    )


def test_every_operator_is_in_the_table_of_operators_and_on_a_page() -> None:
    folder = GUIDE / "operators"
    table = text_of(folder / "index.md")
    pages = "".join(text_of(p) for p in sorted(folder.glob("*.md")) if p.name != "index.md")
    for text in (table, pages):
        assert set(circuits.__all__) - set(re.findall(r"\bst\.(\w+)", text)) == set()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_name_that_a_page_mentions_exists(page: Path) -> None:
    for told in re.findall(r"\bst\.([a-zA-Z_.]*\w)", prose(page)):
        found: object = st
        for part in told.split("."):
            found = getattr(found, part)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_file_of_the_project_that_a_page_mentions_exists(page: Path) -> None:
    paths = re.findall(
        r"`((?:stepping_spark|circuits|stores|tests|examples|docs|\.ci)/[\w./-]*)`", prose(page)
    )
    assert [p for p in paths if not (ROOT / p).exists()] == []


# -- the build


@pytest.mark.slow
@pytest.mark.turn(4, number=1)
def test_the_guide_builds_without_a_warning_and_loads_nothing_from_elsewhere(
    tmp_path: Path,
) -> None:
    # Warnings are errors: links, anchors, names of the reference, pages that are in no menu.
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict"]
    done = subprocess.run(
        [*command, "-f", "docs/mkdocs.yml", "-d", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    built = {p.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*.html")} - {"404.html"}
    assert built == {name_of(p).replace(".md", ".html") for p in pages()}
    loaded = [
        f"{page.name}: {found}"
        for page in tmp_path.rglob("*.html")
        for found in re.findall(
            r'<(?:script|link|img|iframe)[^>]*(?:src|href)="?((?:https?:)?//[^" >]+)', text_of(page)
        )
    ]
    assert loaded == []
    # The examples of docstrings are code there, and no quotations.
    operators = text_of(tmp_path / "reference" / "operators.html")
    assert "&gt;&gt;&gt;" in operators
    assert "<blockquote>" not in operators
