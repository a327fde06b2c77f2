"""`stepping-spark state evolve`: what another query makes of a state."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import stepping_spark as st
from stepping_spark.cli import main

QUERIES = """
import stepping_spark as st

class Order(st.Data):
    country: str
    cents: int

class Total(st.Data):
    country: str
    cents: int

def totals(orders: st.ZSet[Order]) -> st.ZSet[Total]:
    return st.aggregate(
        orders, by=lambda o: o.country, into=Total, cents=st.agg.sum(lambda o: o.cents)
    )

def large(orders: st.ZSet[Order]) -> st.ZSet[Total]:
    return st.filter(totals(orders), f=lambda t: t.cents > 100)

def greatest(orders: st.ZSet[Order]) -> st.ZSet[Total]:
    return st.aggregate(
        orders, by=lambda o: o.country, into=Total, cents=st.agg.max(lambda o: o.cents)
    )

def broken(orders):
    return orders
"""

SOLD = {"de": 90, "fr": 190}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with queries, and the state of one of them after a step."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "queries.py").write_text(QUERIES)
    names = runpy.run_path("queries.py")
    graph = st.compile(names["totals"])
    rows = [names["Order"](country=name, cents=cents) for name, cents in SOLD.items()]
    with st.StoreParquet.from_graph(graph, "state", create=True) as store:
        st.iteration(store, graph, (st.ZSetPython(dict.fromkeys(rows, 1)),))
    return tmp_path


def evolve(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["state", "evolve", *arguments])


def step(folder: Path) -> int:
    shown = CliRunner().invoke(main, ["state", "show", str(folder / "state")]).output
    found = re.search(r"Step (\d+)", shown)
    assert found is not None, shown
    return int(found[1])


def test_the_plan_is_shown_and_nothing_changes(folder: Path) -> None:
    done = evolve("state", "queries.py:large")
    assert done.exit_code == 0, done.output
    assert "kept: cents = sum(cents) by country, 2 rows" in done.output
    assert "view large: changes" in done.output
    assert "--apply" in done.output
    assert step(folder) == 1


def test_a_state_evolves_and_a_second_call_changes_nothing(folder: Path) -> None:
    done = evolve("state", "queries.py:large", "--apply")
    assert done.exit_code == 0, done.output
    assert step(folder) == 2
    done = evolve("state", "queries.py:large", "--apply")
    assert "view large: as before" in done.output
    assert step(folder) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["state", "queries.py:greatest", "--apply"], "evolve(orders=…)"),
        (["state", "queries.py"], "after a colon: queries.py:revenue"),
        (["state", "queries.py:totls"], "totls is not there; name a query function or a circuit"),
        (["state", "queries.py:broken"], "queries.py"),
        (["nowhere", "queries.py:large"], "there is no state here"),
    ],
)
def test_what_cannot_be_done_is_said_and_the_state_stays(
    folder: Path, arguments: list[str], message: str
) -> None:
    done = evolve(*arguments)
    assert done.exit_code == 2
    assert message in done.output
    assert step(folder) == 1


def test_a_renamed_input_need_not_be_read_again(folder: Path) -> None:
    (folder / "queries.py").write_text(QUERIES.replace("orders", "sales"))
    done = evolve("state", "queries.py:large", "--renamed", "orders=sales", "--apply")
    assert done.exit_code == 0, done.output
    assert "renamed: input orders is sales now" in done.output
    assert step(folder) == 2
    done = evolve("state", "queries.py:large", "--renamed", "orders=sold")
    assert "queries.py:large: renamed= says that the input 'orders' is 'sold' now" in done.output


@pytest.mark.parametrize("name", ["orders", "sales"])
def test_inputs_that_are_read_again_are_given_as_the_command_says(folder: Path, name: str) -> None:
    (folder / "queries.py").write_text(QUERIES.replace("orders", name))
    renamed = [] if name == "orders" else ["--renamed", f"orders={name}"]
    done = evolve("state", "queries.py:greatest", *renamed, "--apply")
    (remedy,) = re.findall(r"st\.Stepper\(.*\)", " ".join(done.output.split()))
    names = runpy.run_path("queries.py")
    sold = [names["Order"](country=country, cents=cents) for country, cents in SOLD.items()]
    rows = st.ZSetPython(dict.fromkeys(sold, 1))
    graph = st.compile(names["greatest"])
    with st.StoreParquet.from_graph(graph, "state", evolve=True) as store:
        given = {"graph": graph, "store": store, "st": st, "rows": rows}
        (change,) = eval(remedy.replace("…", "rows"), given)
    assert (change.to_python(), step(folder)) == (st.ZSetPython(), 2)


@pytest.mark.parametrize(
    "options",
    [
        ["--renamed", "a=b"],
        ["--evolve", "--renamed", "ab"],
        ["--evolve", "--renamed", "a=b", "--renamed", "a=c"],
    ],
)
def test_a_rename_that_says_too_little_is_refused(folder: Path, options: list[str]) -> None:
    (folder / "pipeline.py").write_text(
        QUERIES + 'pipeline = st.Pipeline(totals, store="memory", orders=[], into=print)\n'
    )
    done = CliRunner().invoke(main, ["run", "pipeline.py", *options])
    assert done.exit_code == 2
    assert "--renamed" in done.output


def test_the_state_of_a_pipeline_evolves_with_its_tables(folder: Path) -> None:
    (folder / "pipeline.py").write_text(
        QUERIES
        + """
sold = st.ZSetPython({Order(country="de", cents=90): 1})
pipeline = st.Pipeline(
    totals, store="parquet:of_a_pipeline", orders=st.Items([(1, sold)]), into=lambda *_: None
)
"""
    )
    done = CliRunner().invoke(main, ["run", "pipeline.py"])
    assert done.exit_code == 0, done.output
    done = evolve("of_a_pipeline", "queries.py:large", "--apply")
    assert done.exit_code == 2
    assert "run the pipeline with --evolve" in done.output
    done = evolve("of_a_pipeline", "pipeline.py:pipeline")
    assert "stepping-spark run pipeline.py:pipeline --evolve" in done.output
