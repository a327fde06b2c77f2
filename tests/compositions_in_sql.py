"""The operators of `tests.compositions` that SQL has too: each as a query over its streams."""

from __future__ import annotations

from tests.compositions import INPUTS, Composition

ONE_IN_SQL = {
    "filter": "SELECT k, v, t FROM {a} WHERE v > 0 OR k = 1",
    "with text": "SELECT k, v, t FROM {a} WHERE t IS NOT NULL",
    "map": "SELECT v AS k, k AS v, t FROM {a}",
    "map to fewer": "SELECT k % 2 AS k, v, CAST(NULL AS STRING) AS t FROM {a}",
    "map many": """
        SELECT k, v, t FROM {a}
        UNION ALL SELECT k, k, 'm' FROM {a}
        UNION ALL SELECT k, v, t FROM {a}
    """,
    "distinct": "SELECT DISTINCT k, v, t FROM {a}",
    "count": "SELECT 0L AS k, count(*) AS v, 'n' AS t FROM {a}",
    "sum by key": """
        SELECT k, coalesce(sum(v), 0L) AS v, CAST(NULL AS STRING) AS t FROM {a} GROUP BY k
    """,
    "sums": """
        SELECT count(*) - count(v) AS k, sum(v) AS v, CAST(NULL AS STRING) AS t FROM {a} GROUP BY k
    """,
    "mixed": """
        SELECT count(DISTINCT t) AS k, max(v) AS v, CAST(NULL AS STRING) AS t FROM {a} GROUP BY k
    """,
    "aggregate of all": "SELECT min(k) AS k, sum(v) AS v, 'all' AS t FROM {a}",
    "first of all": "SELECT k, v, t FROM {a} ORDER BY v DESC, k, t LIMIT 2",
}
TWO_IN_SQL = {
    "add": "SELECT k, v, t FROM {a} UNION ALL SELECT k, v, t FROM {b}",
    "join on k": "SELECT a.v AS k, b.k AS v, a.t FROM {a} a JOIN {b} b ON a.k = b.v",
    "join on two": """
        SELECT a.k, b.v, a.t FROM {a} a JOIN {b} b ON a.k = b.k AND a.t = b.t
    """,
    "semijoin": "SELECT a.k, a.v, a.t FROM {a} a LEFT SEMI JOIN {b} b ON a.k = b.k",
    "antijoin": "SELECT a.k, a.v, a.t FROM {a} a LEFT ANTI JOIN {b} b ON a.v = b.k",
    "delta join": "SELECT a.k, b.v, b.t FROM {a} a LEFT JOIN {b} b ON a.v = b.k",
    "outer left": "SELECT a.v AS k, b.v, b.t FROM {a} a LEFT JOIN {b} b ON a.k = b.k",
    "outer right": "SELECT a.v AS k, b.v, b.t FROM {a} a RIGHT JOIN {b} b ON a.k = b.k",
    "outer full": "SELECT a.v AS k, b.v, b.t FROM {a} a FULL JOIN {b} b ON a.k = b.k",
}
IN_SQL = frozenset({*ONE_IN_SQL, *TWO_IN_SQL})


def in_sql(composition: Composition) -> str:
    """The same query over tables s0 and s1, with a table expression for each operator."""
    made = []
    for i, (name, taken) in enumerate(composition.steps, INPUTS):
        text = ONE_IN_SQL[name] if len(taken) == 1 else TWO_IN_SQL[name]
        sources = dict(zip("ab", (f"s{n}" for n in taken), strict=False))
        made.append(f"s{i} AS ({text.format(**sources).strip()})")
    last = INPUTS + len(composition.steps) - 1
    return f"WITH {', '.join(made)} SELECT k, v, t FROM s{last}"
