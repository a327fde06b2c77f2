"""The examples in the docstrings of public names run, and print what they say."""

from __future__ import annotations

import datetime
import doctest
import inspect
import typing
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import circuits
import stepping_spark as st
from stepping_spark.language import linear

FINDER = doctest.DocTestFinder(recurse=False)


def public() -> Iterator[tuple[str, object]]:
    """Every public name, and what is below it: methods, and functions of public modules."""
    for name in st.__all__:
        found = getattr(st, name)
        yield name, found
        if not inspect.isclass(found) and not inspect.ismodule(found):
            continue
        inner = getattr(found, "__all__", None) or [n for n in vars(found) if n[0] != "_"]
        for n in inner:
            if inspect.isfunction(getattr(found, n)):
                yield f"{name}.{n}", getattr(found, n)


NAMES = dict(public())


def examples(name: str) -> doctest.DocTest:
    """The example of a name."""
    known = {"Annotated": Annotated, "Decimal": Decimal, "datetime": datetime, "st": st}
    known |= {"Any": Any, "Path": Path, "pa": pa, "pq": pq}
    (found,) = FINDER.find(NAMES[name], name, globs=known)
    return found


def with_example(*, spark: bool) -> list[str]:
    """The names that have one, with or without a session that is called `spark`."""
    documented = [n for n in NAMES if ">>> " in (inspect.getdoc(NAMES[n]) or "")]
    uses = {n: any("spark." in e.source for e in examples(n).examples) for n in documented}
    return [n for n in documented if uses[n] == spark]


def run(test: doctest.DocTest) -> None:
    said: list[str] = []
    doctest.DocTestRunner(verbose=False).run(test, out=said.append)
    assert said == []


@pytest.mark.driver  # some print where a step ran
@pytest.mark.parametrize("name", with_example(spark=False))
def test_an_example_prints_what_it_says(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(examples(name))


@pytest.mark.parametrize("name", with_example(spark=True))
def test_an_example_with_spark_prints_what_it_says(
    name: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    test = examples(name)
    test.globs["spark"] = spark
    run(test)


def test_every_public_name_has_a_docstring_and_all_but_errors_an_example() -> None:
    thin = []
    for name, found in NAMES.items():
        doc = inspect.getdoc(found) or ""
        needs_one = "." not in name and not inspect.ismodule(found)
        if inspect.isclass(found) and issubclass(found, Exception):
            needs_one = False
        if not doc or (needs_one and ">>> " not in doc):
            thin.append(name)
    assert thin == []


# A server, or a stream that goes on: these have tests of their own.
NOT_RUN = {
    "stepping_spark/pipeline/postgres/table.py",
    "stepping_spark/stepper/streaming.py",
    "stepping_spark/zsets/from_change_feed.py",
    "stores/postgres/store.py",
}


@pytest.mark.parametrize("name", circuits.__all__)
def test_an_operator_has_its_types_at_run_time(name: str) -> None:
    operator = getattr(st, name)
    types = typing.get_type_hints(operator)
    assert types.pop("return") is not Any
    assert types.keys() == inspect.signature(operator).parameters.keys()


def test_the_linear_twin_of_each_operator_is_public() -> None:
    twins = {name for name in circuits.__all__ if hasattr(linear, name)}
    assert twins - set(linear.__all__) == set()


def test_no_example_is_left_out() -> None:
    root = Path(__file__).resolve().parents[2]
    skipped = [
        path.relative_to(root).as_posix()
        for package in ("stepping_spark", "circuits", "stores")
        for path in (root / package).rglob("*.py")
        if "doctest: +SKIP" in path.read_text(encoding="utf-8")
    ]
    assert set(skipped) == NOT_RUN
