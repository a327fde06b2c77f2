"""Mistakes in SQL: each is one clear error, with its place where it has one, in under a second."""

from __future__ import annotations

import time
from typing import Any

import pytest

import stepping_spark as st
from stepping_spark.base.errors import CompileError

TABLES: dict[str, Any] = {
    "orders": "id INT NOT NULL, customer INT, cents INT, country STRING, placed DATE, "
    "at TIMESTAMP, tags ARRAY<STRING>, ok BOOLEAN",
    "customers": "id INT NOT NULL, name STRING, country STRING",
}

MISTAKES: list[tuple[str, str]] = [
    # names
    ("SELECT nothing FROM orders", "column 8: there is no column nothing"),
    ("SELECT id FROM nowhere", "the columns of table nowhere are not known"),
    ("SELECT orders.nothing FROM orders", "there is no column orders.nothing"),
    ("SELECT o.id FROM orders p", "the tables here are p"),
    ("SELECT country FROM orders o JOIN customers c ON o.customer = c.id", "country is ambiguous"),
    ("SELECT customers.* FROM orders", "there is no table customers"),
    ("SELECT * EXCEPT (nothing) FROM orders", "there is no column nothing to leave out"),
    ("SELECT id FROM orders JOIN customers USING (nothing)", "USING: nothing is not exactly one"),
    ("SELECT id FROM orders ORDER BY nothing LIMIT 1", "there is no column nothing"),
    ("SELECT id FROM orders WHERE EXISTS (SELECT nothing FROM customers)", "no column nothing"),
    ("SELECT a.id FROM orders a CROSS JOIN orders a", "id is ambiguous"),
    ("SELECT id AS a, cents AS a FROM orders", "two columns of the result are called a"),
    ("SELECT id FROM orders NATURAL JOIN customers WHERE nothing", "there is no column nothing"),
    ("SELECT id FROM orders PIVOT (sum(cents) FOR nothing IN (1))", "there is no column nothing"),
    ("SELECT coalesce(nothing, 0) AS nothing FROM orders", "there is no column nothing"),
    ("SELECT sum(nothing) AS nothing FROM orders", "there is no column nothing"),
    ("SELECT a AS b, b AS a FROM orders", "there is no column"),
    ("SELECT id FROM orders; SELECT id FROM customers", "several SELECTs without a name; write CR"),
    ("SELECT row_number() OVER (ORDER BY no) AS no FROM orders", "there is no column no;"),
    # groups and windows
    ("SELECT id, count(*) FROM orders", "id is neither in GROUP BY"),
    ("SELECT id, cents FROM orders GROUP BY id", "cents is neither in GROUP BY"),
    ("SELECT id FROM orders HAVING cents > 1", "id is neither in GROUP BY"),
    ("SELECT sum(cents) FROM orders WHERE sum(cents) > 1", "use HAVING, or a sub-query"),
    ("SELECT max(sum(cents)) FROM orders", "sum is an aggregate"),
    ("SELECT grouping(id) FROM orders GROUP BY id", "grouping is of ROLLUP"),
    ("SELECT id FROM orders GROUP BY 7", "GROUP BY 7: the select list has 1"),
    ("SELECT id FROM orders ORDER BY 5 LIMIT 1", "ORDER BY 5: the select list has 1"),
    ("SELECT row_number() FROM orders", "row_number needs OVER"),
    ("SELECT id FROM orders WHERE rank() OVER (ORDER BY id) > 1", "write the condition in QUALIFY"),
    ("SELECT country FROM orders GROUP BY country HAVING rank() OVER (ORDER BY country) > 1",
     "write the condition in QUALIFY"),
    ("SELECT o.id FROM orders o JOIN customers c ON rank() OVER (ORDER BY o.id) = c.id",
     "write the condition in QUALIFY"),
    # types
    ("SELECT id FROM orders WHERE id", "a condition is int"),
    ("SELECT id FROM orders WHERE country", "a condition is string"),
    ("SELECT country FROM orders GROUP BY country HAVING count(*)", "a condition is bigint"),
    ("SELECT explode(id) FROM orders", "explode takes a list"),
    ("SELECT sum(placed) FROM orders", "column 8: sum takes numbers, and this is date"),
    ("SELECT median(at) OVER () FROM orders", "median takes numbers, and this is timestamp"),
    ("SELECT bool_and(id) FROM orders", "bool_and takes booleans, and this is int"),
    ("SELECT bit_or(country) FROM orders", "bit_or takes whole numbers, and this is string"),
    ("SELECT count(*) FROM orders GROUP BY ()", "leave GROUP BY out"),
    ("SELECT id FROM orders WHERE id IN ()", "column 32: IN has no values; write them, or FALSE"),
    ("SELECT row_number() OVER () FROM orders", "column 8: row_number needs an order; write"),
    ("SELECT lag(id) OVER (PARTITION BY country) FROM orders", "lag needs an order; write lag(…)"),
    ("SELECT orders.id FROM orders JOIN orders ON TRUE", "give each table an alias in FROM"),
    ("CREATE VIEW a AS SELECT * FROM b; CREATE VIEW b AS SELECT id FROM orders",
     "column 32: b is read before the text makes this view; write each view after"),
    ("SELECT id FROM ordres", "column 16: the columns of table ordres are not known; say them"),
    ("SELECT id FROM orders WHERE cents ISNULL", "line 1, column 35"),
    ("SELECT id FROM orders WHERE cents NOTNULL", "line 1, column 35"),
    ("SELECT id FROM orders UNION SELECT placed FROM orders", "id is int before, and date here"),
    ("SELECT id FROM orders UNION SELECT id, cents FROM orders", "1 and 2 columns"),
    ("SELECT (SELECT id, cents FROM orders) AS x FROM orders", "has one column, found 2"),
    ("SELECT id FROM orders WHERE id IN (SELECT id, cents FROM orders)", "1 values are compared"),
    ("SELECT CAST(id AS nonsense) FROM orders", "column 19: CAST lacks TYPE at nonsense; write"),
    # syntax
    ("", "the text has no query"),
    (" ;  ; ", "the text has no query"),
    ("-- nothing", "the text has no query"),
    ("SELECT id FROM orders WHERE", "line 1, column 23: an expression is missing at WHERE; write"),
    ("SELECT id = FROM orders", "an expression is missing at FROM; write it"),
    ("SELEC id FROM orders", "column 10: FROM is not expected here; look at what is before it"),
    ("SELECT id FROM orders JOIN", "a table is missing at JOIN; write its name"),
    ("SELECT o.id FROM orders o JOIN customers c ON", "nothing stands after ON; leave it out"),
    ("SELECT CASE WHEN id = 1 THEN 2 FROM orders", "CASE lacks END at 2; write END"),
    ("SELECT id FRM orders", "line 1, column 15"),
    ("SELECT (id FROM orders", ") is missing at FROM; write ), or look at what is before it"),
    ("SELECT", "line 1, column 1: SELECT names no columns"),
    ("SELECT FROM orders", "line 1, column 1: SELECT names no columns"),
    ("SELECT DISTINCT FROM orders", "line 1, column 8: SELECT names no columns"),
    ("SELECT id FROM orders WHERE id IN (SELECT)", "column 36: SELECT names no columns"),
    ("WITH x AS (SELECT) SELECT * FROM x", "column 12: SELECT names no columns"),
    ("SELECT id) FROM orders", "line 1, column 10"),
    ("SELECT 'x FROM orders", "column 8: the text after this ' has no end; look for the missing"),
    ("SELECT id\nAS `x FROM orders", "line 2, column 4: the text after this ` has no end"),
    ("SELECT id /* x FROM orders", "column 11: the comment has no end; write */"),
    ("SELECT id FROM {{ ref('orders') }}", "column 16: this is a template; write the text"),
    ("{{ config(x='y') }} SELECT id FROM orders", "column 1: this is a template"),
    ("SELECT id {% if x %} FROM orders", "column 11: this is a template"),
    ("SELECT id FROM orders WHERE id = :p", "column 29: a parameter has no value in a view"),
    ("SELECT id FROM orders WHERE id = ?", "column 29: a parameter has no value in a view"),
    ("SELECT id FROM orders WHERE id = ${p}", "column 29: a parameter has no value in a view"),
    ("SELECT id FROM `a b`", "column 16: no input can have the name 'a b'; read FROM a_b, and"),
    ("SELECT id FROM class", "column 16: no input can have the name 'class'; read FROM class_,"),
    ("SELECT id -> 'a' FROM orders", "no function around it takes one; write it within a"),
    ("SELECT id, cents FROM orders UNION SELECT id FROM orders", "give both the same columns"),
    ("SELECT id FROM orders LIMIT x", "LIMIT takes a number"),
    ("SELECT id FROM orders LIMIT -1", "LIMIT takes a number"),
    ("SELECT id FROM orders USING (id)", "line 1, column 23"),
    # what other databases have
    ("SELECT id FROM orders WHERE id BETWEEN SYMMETRIC 3 AND 1", "Spark has no SYMMETRIC here"),
    ("SELECT id FROM orders WHERE id IN cents", "Spark has no FIELD here"),
    ("SELECT * REPLACE (1 AS id) FROM orders", "Spark has no REPLACE here"),
    ("SELECT CAST(id AS STRING FORMAT 'x') FROM orders", "Spark has no FORMAT here"),
    ("SELECT sum(id) OVER (ORDER BY id ROWS 1 PRECEDING EXCLUDE TIES) FROM orders", "no EXCLUDE"),
    ("SELECT o.id FROM orders o ASOF JOIN customers c ON o.id >= c.id", "Spark has no ASOF JOIN"),
    ("SELECT id INTO x FROM orders", "Spark has no INTO here"),
    ("SELECT o.id FROM orders o, customers c WHERE o.id = c.id (+)", "column"),
    # statements
    ("SELECT id FROM orders; DROP TABLE orders", "column 35: this is no query"),
    ("INSERT INTO x SELECT id FROM orders", "this is no query"),
    ("UPDATE orders SET id = 1", "this is no query"),
    ("DELETE FROM orders", "this is no query"),
    ("MERGE INTO orders USING customers ON 1=1 WHEN MATCHED THEN DELETE", "this is no query"),
    ("CREATE TABLE x (id INT)", "write CREATE MATERIALIZED VIEW"),
    # what cannot be kept up to date
    ("SELECT rand() FROM orders", "returns another value each time"),
    ("SELECT uuid() FROM orders", "returns another value each time"),
    ("SELECT current_timestamp() FROM orders", "differs from step to step"),
    ("SELECT current_user() FROM orders", "depends on the session"),
    ("SELECT id FROM orders TABLESAMPLE (5 ROWS)", "TABLESAMPLE returns other rows"),
    ("SELECT id FROM orders VERSION AS OF 1", "leave out AS OF"),
    ("SELECT id FROM orders WHERE window(at, '1 hour').start > at", "window makes rows"),
    ("SELECT max_by(id, at, 2) FROM orders", "takes 2 arguments, found 3; for the first n"),
    ("SELECT id FROM orders WHERE 'a' COLLATE UTF8_LCASE = 'A'", "collations are not supported"),
    ("SELECT approx_count_distinct(id) FROM orders", "approx_count_distinct is not supported"),
    ("SELECT o.id FROM orders o JOIN customers c ON o.id + c.id IN (SELECT id FROM orders)",
     "a sub-query in ON reads columns of both sides; write it in WHERE"),
    ("WITH RECURSIVE r AS (SELECT id FROM orders UNION ALL SELECT count(*) FROM r) "
     "SELECT * FROM r", "it has no aggregate"),
    # long texts
    ("SELECT " + "(" * 10_000 + "1" + ")" * 10_000 + " FROM orders", "nested too deeply"),
    ("SELECT " + " + ".join(["id"] * 5_000) + " AS x FROM orders", "nested too deeply"),
    ("SELECT id FROM orders WHERE id IN (" + ",".join(map(str, range(800_000))) + ")",
     "more than 1,000,000; put long lists of values into a table"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), MISTAKES, ids=[text[:60] for text, _ in MISTAKES])
def test_a_mistake_is_one_clear_error_in_under_a_second(text: str, said: str) -> None:
    took = []
    for _ in range(2):  # the first time may load modules, or meet the garbage collector
        begun = time.process_time()
        with pytest.raises(CompileError) as e:
            st.compile(st.sql(text, **TABLES))
        took.append(time.process_time() - begun)
    assert min(took) < 1
    assert said in str(e.value)
    assert len(str(e.value)) < 1_000


def test_a_place_in_a_long_line_is_shown_with_what_stands_around_it() -> None:
    text = "SELECT " + ", ".join(f"id AS column_{i}" for i in range(500)) + ", nothing FROM orders"
    with pytest.raises(CompileError) as e:
        st.sql(text, **TABLES)
    _, shown, caret = str(e.value).splitlines()
    assert len(shown) < 420
    assert shown[caret.index("^") :].startswith("nothing FROM orders")


@pytest.mark.parametrize("op", ["AND", "OR"])
def test_a_long_chain_of_conditions_is_no_deep_one(op: str) -> None:
    text = f" {op} ".join(
        f"(id <> {i} {'OR' if op == 'AND' else 'AND'} cents > {i})" for i in range(400)
    )
    query = st.sql(f"SELECT id FROM orders WHERE {text}", **TABLES)
    step = st.reference(st.compile(query)).step
    row = query.rows["orders"]
    given = {"customer": 1, "country": "", "placed": None, "at": None, "tags": [], "ok": True}
    rows = [row(id=i, cents=c, **given) for i, c in ((7, 0), (7, 500), (1_000, 0), (1_000, 500))]
    (out,) = step((st.ZSetPython(dict.fromkeys(rows, 1)),))
    wanted = [r.id for r in rows if _holds(op, r.id, r.cents)]
    assert sorted(r.id for r, n in out.iter() for _ in range(n)) == sorted(wanted)


def _holds(op: str, number: int, cents: int) -> bool:
    if op == "AND":
        return all(number != i or cents > i for i in range(400))
    return any(number != i and cents > i for i in range(400))
