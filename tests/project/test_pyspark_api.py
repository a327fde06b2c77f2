"""Outside `stepping_spark.spark` the project uses the public interface of PySpark only."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pyspark
import pytest

from tests.cases import ROOT

BELOW = ROOT / "stepping_spark" / "spark"
FILES = sorted(
    path
    for package in ("stepping_spark", "circuits", "stores", "examples")
    for path in (ROOT / package).rglob("*.py")
    if not path.is_relative_to(BELOW)
)

# The modules of PySpark's reference that the project may import.
# Gives what is public, under the names of PySpark.
LATE = "stepping_spark.base.packages"
PUBLIC = {"pyspark", "pyspark.errors", "pyspark.sql", "pyspark.sql.functions", "pyspark.sql.types"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and not name[1:].isdigit()


@cache
def private_members() -> frozenset[str]:
    """The private methods, fields and functions of PySpark's own modules."""
    root = Path(pyspark.__file__).parent
    files = [f for folder in ("sql", "core") for f in (root / folder).rglob("*.py")]
    files = [f for f in files if not {"tests", "pandas"} & set(f.parts)]
    text = "\n".join(f.read_text(encoding="utf-8") for f in files)
    return frozenset(
        re.findall(r"(?:\bdef |\bself\.|\bcls\.|^    )(_[A-Za-z]\w*)", text, re.MULTILINE)
    )


def uses(source: str) -> Iterator[tuple[int, str]]:
    """The lines of a module that use what is private in PySpark, and what they use."""
    tree = ast.parse(source)
    theirs: set[str] = set()  # what the module calls the classes that it imports from PySpark
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names = [alias.name for alias in node.names]
            modules = [node.module or ""] if not node.level else []
            if any(m.split(".")[0] == "pyspark" or m == LATE for m in modules):
                theirs |= {alias.asname or alias.name for alias in node.names}
                yield from (
                    (node.lineno, f"{m}.{n}") for m in modules for n in names if n[0] == "_"
                )
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        else:
            continue
        for module in modules:
            if module.split(".")[0] in ("pyspark", "py4j") and module not in PUBLIC:
                yield node.lineno, f"module {module}"
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in private_members():
            if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                continue  # of a class of the project, since none derives from one of PySpark
            yield node.lineno, f".{node.attr}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("getattr"):
            named = [a.value for a in node.args if isinstance(a, ast.Constant)]
            yield from ((node.lineno, f"getattr {n}") for n in named if n in private_members())
        elif isinstance(node, ast.ClassDef):
            bases = {ast.unparse(b) for b in node.bases}
            yield from ((node.lineno, f"a class derived from {b}") for b in bases & theirs)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("frame._jdf.queryExecution()", "._jdf"),
        ("spark._jsparkSession", "._jsparkSession"),
        ("spark.sparkContext._jsc.sc()", "._jsc"),
        ("SparkContext._gateway", "._gateway"),
        ("getattr(column, '_jc')", "getattr _jc"),
        ("from pyspark.sql.classic.column import Column", "module pyspark.sql.classic.column"),
        ("from py4j.protocol import Py4JError", "module py4j.protocol"),
        (
            "from pyspark.sql import Column\nclass Own(Column): ...",
            "a class derived from Column",
        ),
        ("from pyspark.sql.functions import _to_seq", "pyspark.sql.functions._to_seq"),
    ],
)
def test_a_private_member_of_pyspark_is_found(source: str, found: str) -> None:
    assert [what for _, what in uses(source)] == [found]


@pytest.mark.parametrize(
    "source",
    [
        "from pyspark.sql import functions as F\nF.col('x')._1",
        "class Own:\n def __init__(self):\n  self._jc = 1\n def f(self): return self._jc",
    ],
)
def test_what_is_public_or_ones_own_is_not_found(source: str) -> None:
    assert not list(uses(source))


def test_only_one_package_knows_what_is_private_in_pyspark() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {what}: do it in stepping_spark/spark/"
        for path in FILES
        for line, what in uses(path.read_text(encoding="utf-8"))
    ]
    assert not wrong, "\n".join(wrong)
