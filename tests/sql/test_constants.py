"""Queries of constants: their rows are there from the first step on, in every store and mode."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import deltalake
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark.cli import main
from tests.every_store import InMemory, MakeStore
from tests.sql.corpus import Rows, plain, plain_rows, row_of, table_in_spark

TABLE = "a INT NOT NULL, b STRING"
CHANGES: list[dict[tuple[Any, ...], int]] = [
    {(1, "x"): 1, (2, "y"): 2},
    {(2, "y"): -1, (3, None): 1},
    {(1, "x"): -1, (2, "y"): -1, (3, None): -1},
]
ALONE = {
    "a row": "SELECT 1 AS a, 'x' AS b, NULL AS c",
    "values": "VALUES (1, 'a'), (2, NULL)",
    "values with names": "SELECT s, i FROM VALUES (1, 'a'), (2, 'b') AS v(i, s) WHERE i > 1",
    "range": "SELECT id * 2 AS x FROM range(5) WHERE id > 2",
    "an empty range": "SELECT id FROM range(0)",
    "sum of a range": "SELECT sum(id) AS s, count(*) AS n FROM range(2, 9, 3)",
    "sequence": "SELECT * FROM explode(sequence(1, 3))",
    "sequence in the select list": "SELECT explode(sequence(1, 9, 3)) AS x",
    "union": "SELECT 1 AS a UNION ALL SELECT 2 UNION ALL SELECT 1",
    "join": "SELECT v.i, w.s FROM VALUES (1), (2) v(i) JOIN VALUES (2, 'x') w(i, s) ON v.i = w.i",
    "window": "SELECT i, row_number() OVER (ORDER BY i DESC) AS n FROM VALUES (1), (2) v(i)",
    "recursion": "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 4) "
    "SELECT n FROM r",
    "a sub-query": "SELECT 1 + (SELECT max(i) FROM VALUES (3), (4) v(i)) AS m",
}
WITH_TABLES = {
    "union with a table": "SELECT a FROM t UNION ALL SELECT 7",
    "join with a table": "SELECT t.a, v.s FROM VALUES (1, 'i'), (3, 'j') v(a, s) JOIN t USING (a)",
    "calendar": "SELECT d.col AS d, count(t.a) AS n FROM explode(sequence(1, 3)) d LEFT JOIN t ON "
    "t.a = d.col GROUP BY d.col",
    "not in a table": "SELECT i FROM VALUES (1), (2) v(i) WHERE i NOT IN (SELECT a FROM t)",
}
QUERIES = {**ALONE, **WITH_TABLES}


def run(text: str, make_store: MakeStore, local_rows: int | None = None) -> Rows:
    """The sum of the changes of a view, whose store is opened anew before each step."""
    tables: dict[str, Any] = {"t": TABLE} if " t" in text else {}
    query = st.sql(text, **tables)
    graph = st.compile(query)
    store = make_store(graph)
    found: Rows = Counter()
    for change in CHANGES:
        given = [
            st.ZSetPython({row_of(cls, row): n for row, n in change.items()})
            for cls in query.rows.values()
        ]
        stepper: Any = st.Stepper(graph, store, local_rows=local_rows)
        (out,) = stepper.step(tuple(given))
        for row, n in out.iter():
            found[plain(tuple(vars(row).values()))] += n
        store = make_store.reopen(store, graph)
    return Counter({row: n for row, n in found.items() if n})


def wanted(text: str, spark: SparkSession) -> Rows:
    last: Rows = Counter()
    for change in CHANGES:
        last.update(change)
    table_in_spark(spark, last, TABLE).createOrReplaceTempView("t")
    return plain_rows(spark.sql(text))


@pytest.mark.turn(2)
@pytest.mark.parametrize("name", QUERIES)
def test_constants_are_there_from_the_first_step_on(
    name: str, make_store: MakeStore, spark: SparkSession
) -> None:
    assert run(QUERIES[name], make_store) == wanted(QUERIES[name], spark)


@pytest.mark.turn(2)
@pytest.mark.parametrize("name", QUERIES)
def test_constants_are_computed_in_spark(name: str, spark: SparkSession) -> None:
    assert run(QUERIES[name], InMemory(), local_rows=0) == wanted(QUERIES[name], spark)


@pytest.mark.parametrize("optimize", [True, False])
def test_constants_are_explained_and_mean_what_they_say(optimize: bool) -> None:
    graph = st.compile(st.sql("SELECT 1 AS a"), optimize=optimize)
    assert "runs within" in str(st.explain(graph)) or not optimize
    reference: Any = st.reference(graph)
    assert [[vars(r) for r, _ in reference.step(())[0].iter()] for _ in range(2)] == [
        [{"a": 1}],
        [],
    ]


KEPT = "SELECT a, count(1) FROM t GROUP BY a"  # a column without a name that a field may have


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        ("", " UNION ALL SELECT 7, 1", {(7, 1): 1}),
        (" UNION ALL SELECT 7, 1", "", {(7, 1): -1}),
        (" UNION ALL SELECT 7, 1", " UNION ALL SELECT 8, 1", {(7, 1): -1, (8, 1): 1}),
        (" UNION ALL SELECT 7, 1", " UNION ALL SELECT 7, 1 WHERE true", {}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("local_rows", [None, pytest.param(0, marks=pytest.mark.spark)])
def test_constants_evolve(
    before: str,
    after: str,
    change: dict[Any, int],
    local_rows: int | None,
    make_store: MakeStore,
) -> None:
    query = st.sql(KEPT + before, t=TABLE)
    graph: Any = st.compile(query)
    store: Any = make_store(graph)
    row = query.rows["t"](a=1, b=None)
    st.iteration(store, graph, (st.ZSetPython({row: 1}),))
    changed: Any = st.compile(st.sql(KEPT + after, t=query.rows["t"]))
    store = make_store.reopen(store, changed, evolve=True)
    stepper: Any = st.Stepper(changed, store, evolve=True, local_rows=local_rows)
    (out,) = stepper.evolve()
    assert {tuple(vars(r).values()): n for r, n in out.iter()} == change
    (out,) = stepper.step((st.ZSetPython({row: -1}),))
    assert {tuple(vars(r).values()): n for r, n in out.iter()} == {(1, 1): -1}


def test_a_pipeline_of_constants_writes_them_once(tmp_path: Path) -> None:
    (tmp_path / "views.sql").write_text("CREATE VIEW days AS SELECT id AS day FROM range(3)")
    said = [str(tmp_path / "views.sql"), "--store", f"parquet:{tmp_path / 'state'}"]
    said += ["--sink", f"days=delta:{tmp_path / 'days'}:day"]
    for steps in ("1 step taken", "0 steps taken"):
        result = CliRunner().invoke(main, ["run", *said])
        assert (result.exit_code, steps in result.output) == (0, True), result.output
    table = deltalake.DeltaTable(tmp_path / "days").to_pyarrow_table()
    assert set(table["day"].to_pylist()) == {0, 1, 2}
