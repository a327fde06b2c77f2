"""AUTO CDC statements: after each step, what replaying the events in their order gives."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark.base.errors import CompileError
from tests.sql.corpus import Maintained, Rows

TABLE = "k INT, m STRING, v INT, w STRING, op STRING, n BIGINT"
Event = tuple[Any, ...]

HEAD = "CREATE STREAMING TABLE t; CREATE FLOW f AS AUTO CDC INTO t FROM STREAM(events) KEYS (k, m) "
DELETES = "APPLY AS DELETE WHEN op = 'D' "
FLOWS = {
    "type 1": HEAD + DELETES + "SEQUENCE BY n COLUMNS * EXCEPT (op, n)",
    "type 1 by name": HEAD + DELETES + "SEQUENCE BY n COLUMNS (k, m, v, w) STORED AS SCD TYPE 1",
    "type 1, of a table": "CREATE STREAMING TABLE t FLOW AUTO CDC FROM STREAM events "
    "KEYS (k, m) STORED AS SCD TYPE 1 SEQUENCE BY n APPLY AS DELETE WHEN op = 'D' "
    "COLUMNS * EXCEPT (op, n)",
    "type 2": HEAD + DELETES + "SEQUENCE BY n COLUMNS * EXCEPT (op, n) STORED AS SCD TYPE 2",
    "type 2 without deletes": HEAD + "SEQUENCE BY n COLUMNS (k, m, v) STORED AS SCD TYPE 2",
    "type 1, truncated": HEAD + DELETES + "APPLY AS TRUNCATE WHEN op = 'T' SEQUENCE BY n "
    "COLUMNS * EXCEPT (op, n)",
    "type 1, truncated, filled": HEAD + "IGNORE NULL UPDATES " + DELETES
    + "APPLY AS TRUNCATE WHEN op = 'T' SEQUENCE BY n COLUMNS * EXCEPT (op, n)",
    "type 1, filled": HEAD + "IGNORE NULL UPDATES " + DELETES + "SEQUENCE BY n "
    "COLUMNS * EXCEPT (op, n)",
    "type 2, filled v": HEAD + "IGNORE NULL UPDATES ON (v) " + DELETES + "SEQUENCE BY n "
    "COLUMNS * EXCEPT (op, n) STORED AS SCD TYPE 2",
    "type 2, filled v, tracked w": HEAD + "IGNORE NULL UPDATES ON * EXCEPT (w) " + DELETES
    + "SEQUENCE BY n COLUMNS * EXCEPT (op, n) STORED AS SCD TYPE 2 TRACK HISTORY ON (w)",
    "type 2, tracked w": HEAD + DELETES + "SEQUENCE BY n COLUMNS * EXCEPT (op, n) "
    "STORED AS SCD TYPE 2 TRACK HISTORY ON * EXCEPT (v)",
}  # fmt: skip
OF_SPARK = [n for n in FLOWS if "filled" not in n and "truncated" not in n]
"""Flows that Spark parses; the clauses of the others are those of Databricks."""


def replayed(name: str, events: list[Event]) -> Rows:
    """What the events make one after another."""
    now: dict[Any, Any] = {}
    ended: list[Any] = []
    for k, m, v, w, op, n in sorted(events, key=lambda e: e[-1]):
        if op == "T" and "truncated" in name:
            now.clear()
            continue
        gone = op == "D" and "without" not in name
        last = now.get((k, m))
        if last is not None and "filled" in name:
            v = last[0][0] if v is None else v
            if "filled v" not in name:
                w = last[0][1] if w is None else w
        values = (v,) if "without" in name else (v, w)
        if last is not None and not gone:
            tracked = slice(1, None) if "tracked" in name else slice(None)
            if last[0][tracked] == values[tracked]:
                now[k, m] = (values, last[1])
                continue
        if last is not None:
            ended.append((k, m, *last[0], last[1], n))
        now[k, m] = None if gone else (values, n)
    open_ = [(*key, *last[0], last[1], None) for key, last in now.items() if last is not None]
    rows = [*ended, *open_]
    return Counter(rows if "type 2" in name else [row[:-2] for row in open_])


def steps(seed: int) -> list[dict[Event, int]]:
    """Events out of order, each with a sequence of its own; some of them are taken back."""
    r = random.Random(seed)
    sequence = r.sample(range(200), 60)
    events = [
        (r.randrange(3), r.choice((None, "a")), r.choice((None, 1, 2)), r.choice((None, "x", "y")),
         r.choice(("D", "U", "U", None, None, "T" if n % 4 else "U")), n) for n in sequence
    ]  # fmt: skip
    changes: list[dict[Event, int]] = [dict.fromkeys(events[i : i + 12], 1) for i in (0, 12, 24)]
    changes.append(dict.fromkeys(r.sample(events[:36], 9), -1))
    changes.append(dict.fromkeys(events[36:], 1))
    return changes


@pytest.mark.turn(3)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", FLOWS)
def test_a_flow_is_what_its_events_make_in_their_order(name: str, seed: int) -> None:
    view = Maintained(FLOWS[name], {"events": TABLE})
    now: Counter[Event] = Counter()
    for change in steps(seed):
        view.step({"events": change})
        now.update(change)
        assert view.left == replayed(name, [e for e, n in now.items() if n])


def test_columns_of_a_history_are_those_of_the_events_and_its_bounds() -> None:
    query = st.sql(FLOWS["type 2"], events=TABLE)
    outputs: Any = st.compile(query).outputs
    (output,) = outputs
    names = [output.type.row.column_names.get(n, n) for n, _ in output.type.row.fields]
    assert names == ["k", "m", "v", "w", "__START_AT", "__END_AT"]


def test_views_may_read_a_flow_and_a_flow_a_view() -> None:
    text = (
        "CREATE TEMPORARY VIEW e AS SELECT *, op = 'D' AS gone FROM events;"
        "CREATE STREAMING TABLE last; CREATE FLOW f AS AUTO CDC INTO last FROM STREAM(e) KEYS (k) "
        "APPLY AS DELETE WHEN gone SEQUENCE BY struct(n, v);"
        "CREATE MATERIALIZED VIEW total AS SELECT sum(v) AS v FROM last"
    )
    view = Maintained(text, {"events": TABLE})
    view.step({"events": {(1, "a", 5, "x", "U", 1): 1, (1, "a", 7, "x", "U", 2): 1}})
    view.step({"events": {(2, "a", 9, "x", "U", 1): 1, (2, "a", 9, "x", "D", 3): 1}})
    assert view.left == Counter({(7,): 1})


@pytest.mark.spark
@pytest.mark.parametrize("name", OF_SPARK)
def test_spark_parses_the_flows(name: str, spark: SparkSession) -> None:
    parser = spark._jsparkSession.sessionState().sqlParser()
    for statement in FLOWS[name].split(";"):
        assert parser.parsePlan(statement) is not None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (HEAD, "AUTO CDC has no SEQUENCE BY; write CREATE FLOW f AS AUTO CDC INTO t"),
        (
            HEAD.replace("(k, m)", "(nothing)") + "SEQUENCE BY n",
            "the events have no column nothing",
        ),
        (HEAD.replace("(k, m)", "k") + "SEQUENCE BY n", "this is no list of columns"),
        (HEAD + "SEQUENCE BY nothing", "there is no column nothing"),
        (HEAD + "SEQUENCE BY n COLUMNS (z)", "the events have no column z; the columns are k, m"),
        (HEAD + "SEQUENCE BY n STORED AS SCD TYPE 3", "STORED AS SCD TYPE 3 is not supported"),
        (HEAD + "SEQUENCE BY n TRACK HISTORY ON (v)", "TRACK HISTORY ON is of SCD TYPE 2"),
        (
            HEAD + "APPLY AS TRUNCATE WHEN op = 'T' SEQUENCE BY n STORED AS SCD TYPE 2",
            "APPLY AS TRUNCATE WHEN is of SCD TYPE 1",
        ),
        (HEAD + "SEQUENCE BY n SYSTEM SEQUENCE BY v", "order by both: SEQUENCE BY struct(a, b)"),
        (HEAD + "IGNORE NULL UPDATES ON v SEQUENCE BY n", "this is no list of columns"),
        (HEAD + "IGNORE NULL UPDATES ON (z) SEQUENCE BY n", "the events have no column z"),
        (HEAD + "SEQUENCE BY n; " + HEAD[26:] + "SEQUENCE BY n", "t has several flows"),
        ("CREATE FLOW f AS INSERT INTO t SELECT * FROM events", "CREATE FLOW is of AUTO CDC only"),
        ("CREATE STREAMING TABLE t", "TABLE t has no query: there is no AS"),
    ],
)
def test_a_flow_that_is_none_is_refused(text: str, said: str) -> None:
    with pytest.raises(CompileError) as e:
        st.compile(st.sql(text, events=TABLE))
    assert said in str(e.value)
