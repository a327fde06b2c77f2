"""WITH RECURSIVE: after each step with deletions, what Spark answers, or a search finds."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark.base.errors import CompileError
from tests.sql.corpus import FAILED, Maintained, Rows, plain_rows, table_in_spark

TABLES = {"edges": "a INT, b INT NOT NULL", "names": "node INT NOT NULL, name STRING"}

PATHS = (
    "WITH RECURSIVE r AS (SELECT a, b FROM edges UNION{} SELECT r.a, e.b FROM r JOIN edges e ON "
    "r.b = e.a) SELECT * FROM r"
)
QUERIES = {
    "paths": PATHS.format(" ALL"),
    "their lengths": """
        WITH RECURSIVE r(a, b, n) AS (
            SELECT a, b, 1 FROM edges WHERE a > 0
            UNION ALL SELECT r.a, e.b, n + 1 FROM edges e JOIN r ON r.b = e.a WHERE n < 4)
        SELECT b, count(*) AS paths, max(n) AS longest FROM r GROUP BY b""",
    "a text that grows": """
        WITH RECURSIVE r AS (
            SELECT a, CAST(a AS STRING) AS path FROM edges
            UNION ALL SELECT e.b, concat(r.path, '>', e.b) FROM r, edges e WHERE r.a = e.a)
        SELECT path, name FROM r LEFT JOIN names ON node = a""",
    "left join": """
        WITH RECURSIVE r AS (
            SELECT a, b FROM edges
            UNION ALL SELECT r.a, e.b FROM r LEFT JOIN edges e ON r.b = e.a WHERE r.b IS NOT NULL)
        SELECT * FROM r""",
    "two recursive parts": """
        WITH RECURSIVE r(n) AS (
            SELECT node FROM names
            UNION ALL (SELECT n + 1 FROM r WHERE n < 4 UNION ALL SELECT n + 2 FROM r WHERE n < 3))
        SELECT n, count(*) AS times FROM r GROUP BY n""",
    "from a constant": """
        WITH RECURSIVE r(n) AS (
            SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < (SELECT max(b) FROM edges))
        SELECT x.n, y.n AS m FROM r x JOIN r y ON x.n = y.n""",
    "exists": """
        WITH RECURSIVE r(n) AS (
            SELECT node FROM names UNION ALL SELECT n + 1 FROM r
            WHERE EXISTS (SELECT 1 FROM edges WHERE a = n)
                AND NOT EXISTS (SELECT 1 FROM names WHERE node = n AND name = 'stop'))
        SELECT n FROM r""",
    "with a level": """
        WITH RECURSIVE r(a, b) MAX RECURSION LEVEL 7 AS (
            SELECT a, b FROM edges UNION ALL SELECT r.a, e.b FROM r JOIN edges e ON r.b = e.a),
        s(n) AS (SELECT max(b) FROM r)
        SELECT * FROM r, s""",
    "joined with itself": """
        WITH RECURSIVE r AS (
            SELECT a, b FROM edges
            UNION ALL SELECT x.a, y.b FROM r x JOIN r y ON x.b = y.a WHERE x.a < 5)
        SELECT a, b, count(*) AS paths FROM r GROUP BY a, b""",
    "three times, and alone": """
        WITH RECURSIVE r(n, m) AS (
            SELECT node, 1 FROM names WHERE name = 'Ann' AND node > 1
            UNION ALL (
                SELECT x.n + y.n, z.m + 1 FROM r x, r y, r z, edges
                WHERE x.n = y.n AND y.n = z.n AND edges.a = x.n AND z.m < 3
                UNION ALL SELECT n + 1, m + 1 FROM r WHERE m < 3))
        SELECT n, m, count(*) AS times FROM r GROUP BY n, m""",
    "of a list": """
        WITH RECURSIVE r(n) AS (
            SELECT node FROM names
            UNION ALL SELECT n + x FROM r LATERAL VIEW explode(array(1, 2)) t AS x WHERE n < 4)
        SELECT DISTINCT n FROM r""",
}


def changes(seed: int, steps: int, *, rings: bool = False) -> Iterator[tuple[dict[str, Rows], ...]]:
    """The changes of each step, and the tables after it; before the last one edges are emptied."""
    r = random.Random(seed)
    now: dict[str, Rows] = {name: Counter() for name in TABLES}
    for step in range(steps):
        change: dict[str, Rows] = {name: Counter() for name in TABLES}
        for name, rows in now.items():
            emptied = name == "edges" and step == steps - 2
            change[name].update({k: -n for k, n in rows.items() if emptied or r.random() < 0.3})
        for _ in range(4):
            a, b = r.sample(range(7), 2) if rings else sorted(r.sample(range(7), 2))
            a_or_null = None if not rings and r.random() < 0.1 else a
            change["edges"][a_or_null, b] += r.choice((1, 1, 2))
            change["names"][r.randrange(6), r.choice((None, "Ann", "stop"))] += 1
        for name, rows in change.items():
            now[name].update(rows)
            now[name] = Counter({k: n for k, n in now[name].items() if n})
        yield change, dict(now)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("name", "seed"),
    [
        pytest.param(
            name, seed, marks=pytest.mark.long if seed else pytest.mark.turn(3, number=number)
        )
        for number, name in enumerate(QUERIES)
        for seed in range(6)
    ],
)
def test_a_recursive_view_is_what_spark_answers(spark: SparkSession, name: str, seed: int) -> None:
    view = Maintained(QUERIES[name], TABLES)
    for number, (change, tables) in enumerate(changes(seed, 5)):
        view.step(change)
        if number in (1, 2, 4):
            for table, rows in tables.items():
                frame = table_in_spark(spark, rows, TABLES[table]).coalesce(1)
                frame.createOrReplaceTempView(table)
            assert view.left == plain_rows(spark.sql(QUERIES[name]))


@pytest.mark.parametrize("seed", range(12))
def test_union_finds_each_row_once_and_ends_on_rings(seed: int) -> None:
    view = Maintained(PATHS.format(""), TABLES)
    for change, tables in changes(seed, 6, rings=True):
        view.step(change)
        reached = set(tables["edges"])
        while more := {(a, d) for a, b in reached for c, d in tables["edges"] if b == c} - reached:
            reached |= more
        assert view.left == Counter(reached)


def test_rows_that_lead_to_themselves_do_not_end_and_nothing_is_changed() -> None:
    view = Maintained(PATHS.format(" ALL"), TABLES)
    with pytest.raises(st.FixpointError, match="the recursion 'r' has not ended"):
        view.step({"edges": {(1, 2): 1, (2, 1): 1}})
    view.step({"edges": {(1, 2): 1, (2, 3): 1}})
    assert view.left == Counter([(1, 2), (2, 3), (1, 3)])


@pytest.mark.parametrize("words", ["UNION ALL", "UNION"])
@pytest.mark.parametrize(
    ("part", "said"),
    [
        ("SELECT r.a, q.b FROM r LEFT JOIN r q ON r.b = q.a", "on both sides of a join"),
        ("SELECT r.a, r.b FROM r WHERE a IN (SELECT b FROM r)", "on both sides of a join"),
        ("SELECT e.a, e.b FROM edges e LEFT JOIN r ON r.b = e.a", "on one side of an inner join"),
        ("SELECT e.a, e.b FROM edges e WHERE a IN (SELECT b FROM r)", "one side of an inner join"),
        ("SELECT max(a), max(b) FROM r", "it has no aggregate"),
        ("SELECT DISTINCT a, b FROM r", "it has no aggregate"),
        ("SELECT a, row_number() OVER (ORDER BY b) FROM r", "it has no aggregate"),
        ("SELECT a, b FROM r LIMIT 3", "is no UNION of what it begins with"),
        ("SELECT a FROM r", "the recursive part of r has 1 columns, and its first part 2"),
        ("SELECT a, b + 0.5 FROM r", "column b of r is int, and the recursive part makes decimal"),
    ],
)
def test_a_recursive_part_that_cannot_be_kept_up_to_date_is_refused(
    words: str, part: str, said: str
) -> None:
    text = f"WITH RECURSIVE r AS (SELECT a, b FROM edges {words} {part}) SELECT * FROM r"
    with pytest.raises(CompileError, match=said):
        st.compile(st.sql(text, edges=TABLES["edges"]))


def test_union_does_not_join_what_it_found_with_itself() -> None:
    text = PATHS.format("").replace("JOIN edges e", "JOIN r e")
    with pytest.raises(CompileError, match="which has a meaning in inner joins and with UNION ALL"):
        st.compile(st.sql(text, edges=TABLES["edges"]))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("WITH RECURSIVE r AS (SELECT a FROM r) SELECT a FROM r", "is no UNION"),
        ("WITH RECURSIVE r AS (SELECT a FROM r UNION SELECT 1) SELECT a FROM r", "is no UNION"),
        (
            "SELECT (WITH RECURSIVE r(n) AS (SELECT a UNION ALL SELECT n + 1 FROM r WHERE n < 3) "
            "SELECT max(n) FROM r) AS m FROM edges",
            "r reads columns of an outer query",
        ),
        (
            "WITH RECURSIVE r AS (SELECT a FROM edges UNION ALL (SELECT a FROM r UNION ALL SELECT "
            "1)) SELECT a FROM r",
            "comes again and again",
        ),
        (
            "WITH RECURSIVE r MAX RECURSION LEVEL 0 AS (SELECT a FROM edges UNION ALL SELECT a "
            "FROM r) SELECT a FROM r",
            "its level is 0; write a higher one",
        ),
    ],
)
def test_a_recursion_of_another_shape_is_refused(text: str, said: str) -> None:
    with pytest.raises(CompileError, match=said):
        st.compile(st.sql(text, edges=TABLES["edges"]))


@pytest.mark.spark
@pytest.mark.parametrize("level", [1, 2, 3, 4])
@pytest.mark.parametrize("last", [0, 1, 3])
def test_a_level_is_the_most_times_that_the_recursive_part_is_taken(
    spark: SparkSession, level: int, last: int
) -> None:
    text = (
        f"WITH RECURSIVE r(n) MAX RECURSION LEVEL {level} AS (SELECT 1 UNION ALL SELECT n + 1 FROM "
        f"r WHERE n < {last}) SELECT n FROM r"
    )
    view = Maintained(text, {})
    try:
        wanted = plain_rows(spark.sql(text))
    except FAILED:
        with pytest.raises(st.FixpointError):
            view.step({})
    else:
        view.step({})
        assert view.left == wanted
