"""What all tests share: one Spark session per process, and how hard hypothesis tries.

Of tests with the mark `turn` each run takes a part, and the commit decides which. `--rotation`
repeats the choice of another run. `-m long` and `-m compat` take all parts.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import gc
import itertools
import os
import re
import shutil
import subprocess
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pyspark
import pytest
from hypothesis import HealthCheck, settings
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark.execution.scheduler import Scheduler
from stepping_spark.spark.session import get_session
from tests import cases, java_classes
from tests.beside import Beside
from tests.cases import ROOT
from tests.every_store import InFiles, InMemory, InPostgres, MakeStore
from tests.postgres_server import PostgresServer

os.environ.setdefault("SPARK_SUBMIT_OPTS", java_classes.options())

settings.register_profile(
    "dev", deadline=None, max_examples=25, suppress_health_check=[HealthCheck.too_slow]
)
# The same examples in every run: a failure in CI is to be one that the change has caused.
settings.register_profile("ci", parent=settings.get_profile("dev"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "dev")

ROTATIONS = 12  # so that there may be 2, 3, 4 or 6 parts
BESIDE = pytest.StashKey[Beside]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--in-spark",
        action="store_true",
        help="take the steps of all tests with local_rows=0, save those that are marked `driver`",
    )
    parser.addoption(
        "--rotation",
        type=int,
        choices=range(ROTATIONS),
        help="which part of the tests with the mark `turn` to take; by default the commit decides",
    )


def pytest_report_header(config: pytest.Config) -> str:
    return f"rotation: {config.option.rotation} (repeat it with --rotation)"


def pytest_configure(config: pytest.Config) -> None:
    if config.option.rotation is None:  # processes of xdist have it from this one
        config.option.rotation = rotation_of_commit()
    of_all = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    some = config.option.keyword or config.option.collectonly or config.option.markexpr == "long"
    if of_all and not some and not hasattr(config, "workerinput"):
        config.stash[BESIDE] = Beside()
    if pyspark.__version__.startswith(("4.0.", "4.1.")):  # they leave sockets open
        config.addinivalue_line("filterwarnings", "ignore:unclosed <socket:ResourceWarning")
    if not config.getoption("--in-spark"):
        return
    made = Scheduler.__init__

    def idle(scheduler: Scheduler, *args: Any, limits: st.Limits, **options: Any) -> None:
        made(scheduler, *args, limits=dataclasses.replace(limits, local_rows=0), **options)

    pytest.MonkeyPatch().setattr(Scheduler, "__init__", idle)


def pytest_unconfigure(config: pytest.Config) -> None:
    if BESIDE in config.stash:
        config.stash[BESIDE].end()


def rotation_of_commit() -> int:
    """A number that the commit decides, or where there is no commit, the day."""
    git = shutil.which("git")
    if git is not None:
        said = subprocess.run([git, "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
        if said.returncode == 0:
            return int(said.stdout, 16) % ROTATIONS
    return dt.date.today().toordinal() % ROTATIONS


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session that the library starts, with as little shuffling as will do for tests."""
    session = get_session()
    session.conf.set("spark.sql.shuffle.partitions", "2")
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def without_spark_unless_marked(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fail a test that needs Java and is not marked so, also where there is Java."""
    if request.config.getoption("--in-spark"):
        request.getfixturevalue("spark")
    elif request.node.get_closest_marker("spark") is None:
        monkeypatch.setattr(SparkSession, "active", _refuse)


@pytest.fixture
def by_queries() -> Iterator[None]:
    """Queries of Spark take large steps, stream by stream, as where its tasks cannot."""
    with cases.by_queries():
        yield


def _refuse() -> NoReturn:
    pytest.fail("this test needs Spark: ask for the fixture `spark`, or mark it pytest.mark.spark")


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A Postgres server that stays up; a test that stops one starts its own.

    What it would do by itself, at times of its own, holds back what a store does: rows that are
    gone stay in a table as long as another process looks at it.
    """
    with PostgresServer(autovacuum="off") as server:
        yield server


@pytest.fixture(
    params=[
        "memory",
        pytest.param("parquet", marks=pytest.mark.turn(2, number=0, alone=True)),
        pytest.param("postgres", marks=pytest.mark.turn(2, number=1, alone=True)),
    ]
)
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeStore]:
    """Makes new, empty stores for graphs, and opens them again.

    Each run takes one of the two kinds that outlive the process, or of a test that comes in turn
    itself, all. What both keep and give is the store's contract, which each run holds them to.
    """
    made: MakeStore = InMemory()
    if request.param == "parquet":
        made = InFiles(tmp_path)
    elif request.param == "postgres":
        made = InPostgres(request.getfixturevalue("postgres").url)
    yield made
    made.close()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what asks for a session, so that `-m "not spark"` is what runs without Java.

    What takes minutes is left out, unless it is asked for, and so are the parts of other rotations.
    """
    leave_to_others(config, items)
    items.sort(key=place)
    unwanted = [] if asks_for("long", config.option.markexpr) else ["long"]
    unwanted += ["driver"] if config.getoption("--in-spark") else []
    left_out = {item for item in items if any(map(item.get_closest_marker, unwanted))}
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=list(left_out))
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.spark)


def leave_to_others(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark as long what this run leaves to other rotations.

    The tests of a module that are some parts are dealt one by one, unless they have a number; which
    rotation begins depends on the module, so that all have about as much to do. Tests that are
    asked for by their names all run. A mark with `alone` counts where a test has no other.
    Marks of a test that exclude each other, so that no rotation takes it, are an error.
    """
    by_name = any("::" in argument for argument in config.args)
    if by_name or asks_for("compat", config.option.markexpr):
        return
    is_long = asks_for("long", config.option.markexpr)
    counts: Counter[tuple[Path, int]] = Counter()
    for item in items:
        marks = [*item.iter_markers("turn")]
        if len(marks) > 1:
            marks = [turn for turn in marks if "alone" not in turn.kwargs]
        turns: list[tuple[int, int]] = []
        for turn in marks:
            (parts,) = turn.args
            dealt = (counts[item.path, parts] + zlib.crc32(item.path.name.encode())) % parts
            turns.append((parts, turn.kwargs.get("number", dealt)))
            counts[item.path, parts] += 1
        if len(turns) > 1 and not any(takes(n, turns) for n in range(ROTATIONS)):
            raise pytest.UsageError(f"no rotation takes {item.nodeid}, with the turns {turns}")
        if turns and (is_long or not takes(config.option.rotation, turns)):
            item.add_marker(pytest.mark.long)


def takes(rotation: int, turns: Iterable[tuple[int, int]]) -> bool:
    """Whether a rotation takes a test that is one of so many parts each, with that number."""
    return all((number - rotation) % parts == 0 for parts, number in turns)


def asks_for(mark: str, expression: str) -> bool:
    """Whether an expression of `-m` can be true of a test with this mark, and names the mark."""
    names = set(re.findall(r"\w+", expression)) - {"not", "and", "or", "True", "False"}
    others = sorted(names - {mark})
    return mark in names and any(
        eval(expression, {}, {mark: True, **dict(zip(others, values, strict=True))})
        for values in itertools.product((False, True), repeat=len(others))
    )


def place(item: pytest.Item) -> int:
    """Slow tests come first, so that no process works alone in the end; see also `last`."""
    if item.get_closest_marker("last"):
        return 2
    return 0 if item.get_closest_marker("slow") else 1


def pytest_collection_finish() -> None:
    """Refuse modules that start Spark, which may lack Java; and freeze all objects, which stay.

    The garbage collector is spared all modules and tests.
    """
    context = getattr(pyspark, "SparkContext", None)  # pyspark-client has none
    if context is not None and context._active_spark_context is not None:
        raise pytest.UsageError(
            "a test module starts Spark when it is imported; do it in a test with `spark`"
        )
    gc.collect()
    gc.freeze()
