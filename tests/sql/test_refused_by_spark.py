"""What Spark refuses is no view: a text that Spark's analyzer does not take is one clear error."""

from __future__ import annotations

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import stepping_spark as st
from stepping_spark.base.errors import CompileError
from stepping_spark.sql.views import table_of

TABLE = "a INT NOT NULL, b INT, s STRING, d DATE, t TIMESTAMP, x DECIMAL(8,2), l ARRAY<INT>"

LITERALS = [
    ("date '2024-13-40'", "'2024-13-40' is no DATE; write it like DATE '2024-02-29'"),
    ("date 'x'", "'x' is no DATE"),
    ("date ''", "'' is no DATE"),
    ("timestamp '2024-13-01'", "is no TIMESTAMP; write it like TIMESTAMP '2024-02-29 10:30:00'"),
    ("timestamp '2024-01-01 25:00:00'", "is no TIMESTAMP"),
    ("timestamp '2024-01-01 10:00:00 Europe/Nowhere'", "is no TIMESTAMP"),
    ("timestamp_ntz 'x'", "is no TIMESTAMP_NTZ"),
    ("int '3'", "Spark has no literals of type INT; write CAST('3' AS INT)"),
    ("decimal(3,1) '1.5'", "no literals of type DECIMAL(3,1)"),
    ("string 'x'", "no literals of type STRING"),
    ("boolean 'true'", "no literals of type BOOLEAN"),
    ("interval 'x' day", "Can only use numbers in the interval"),
    ("interval '1-13' year to month", "Spark refuses this"),
    ("interval '1' foo", "Spark refuses this"),
    ("300Y", "300 is out of the range of TINYINT"),
    ("-129Y", "-129 is out of the range of TINYINT"),
    ("40000S", "out of the range of SMALLINT"),
    ("99999999999999999999L", "out of the range of BIGINT"),
    ("1e400", "1e400 is greater than all DOUBLEs"),
    ("1e400D", "1e400 is greater than all DOUBLEs"),
    ("3.5e38F", "3.5e38 is out of the range of FLOAT"),
    ("99999999999999999999999999999999999999999", "Spark's decimals have up to 38"),
]
WINDOWS = [
    ("lag(a) over (order by a rows between unbounded preceding and current row)", "has no frame"),
    ("lead(a) over (order by a range between unbounded preceding and current row)", "has no frame"),
    ("row_number() over (order by a rows 1 preceding)", "row_number has the frame ROWS BETWEEN"),
    (
        "rank() over (order by a range between unbounded preceding and current row)",
        "the frame ROWS",
    ),
    ("cume_dist() over (order by a rows between unbounded preceding and current row)", "RANGE"),
    ("ntile(2) over (order by a rows 1 preceding)", "ntile has the frame"),
    ("row_number(a) over (order by a)", "row_number takes 0 arguments, found 1"),
    ("nth_value(a) over (order by a)", "nth_value takes 2 to 3 arguments, found 1"),
    ("nth_value(a, 2) over ()", "nth_value needs an order"),
    (
        "first_value(a, b > 1) over (order by a)",
        "the last argument of first_value is TRUE or FALSE",
    ),
    ("sum(a) over (order by a rows between unbounded following and current row)", "ends before"),
    ("sum(a) over (order by a rows between current row and unbounded preceding)", "ends before"),
    ("sum(a) over (range between unbounded preceding and current row)", "RANGE needs an order"),
    ("median(a) over (order by a)", "median has no ORDER BY in OVER"),
    ("percentile(a, b) over ()", "this argument has to be a constant"),
    ("count() over ()", "count takes at least 1 arguments"),
    ("sum(a) ignore nulls over (order by a)", "sum has no IGNORE NULLS"),
    ("rank() filter (where a > 1) over (order by a)", "rank has no FILTER"),
]
AGGREGATES = [
    ("sum(a, b)", "sum takes 1 arguments, found 2"),
    ("corr(a)", "corr takes 2 arguments, found 1"),
    ("max_by(a)", "max_by takes 2 arguments, found 1"),
    ("collect_list(a, b)", "collect_list takes 1 arguments, found 2"),
    ("percentile_cont(0.5)", "percentile_cont needs WITHIN GROUP"),
    ("mode(a, b)", "the last argument of mode is TRUE or FALSE"),
    ("first(a, 1)", "the last argument of first is TRUE or FALSE"),
    ("sum(a) ignore nulls", "sum has no IGNORE NULLS"),
]
FUNCTIONS = [
    ("datediff(d)", "requires 2 parameters"),
    ("datediff(foo, d, d)", "foo is no unit of time; the units are MICROSECOND"),
    ("greatest(a)", "greatest takes at least 2 arguments, found 1"),
]
QUERIES = [
    ("SELECT a FROM t LIMIT '1'", "LIMIT takes a number"),
    ("SELECT a FROM t QUALIFY a > 1", "QUALIFY needs a window function"),
    ("SELECT a FROM t RIGHT ANTI JOIN t u ON true", "Spark has no RIGHT ANTI JOIN"),
    ("SELECT a FROM t FOR UPDATE", "LOCKS is not supported"),
]
NULL, COMMA = "NULL is no condition to Spark; write FALSE", "nothing stands after the comma"
LENIENT = [
    ("SELECT count(t.*) AS v FROM t", "Spark has no count(table.*); write count(*), or name"),
    ("SELECT count(DISTINCT t.*) AS v FROM t", "Spark has no count(table.*)"),
    ("SELECT a FROM t WHERE NULL", NULL),
    ("SELECT t.a FROM t JOIN t AS u ON NULL", NULL),
    ("SELECT t.a FROM t LEFT SEMI JOIN t AS u ON (NULL)", NULL),
    ("SELECT sum(a) FILTER (WHERE NULL) AS v FROM t", NULL),
    ("SELECT CASE WHEN NULL THEN 1 ELSE 2 END AS v FROM t", NULL),
    ("SELECT a FROM t WHERE EXISTS (SELECT 1 FROM t WHERE NULL)", NULL),
    ("SELECT a FROM t UNION BY NAME SELECT a FROM t", "Spark's SQL has no BY NAME; select the"),
    ("SELECT a FROM t UNION ALL BY NAME SELECT a FROM t", "no BY NAME"),
    ("SELECT a FROM t ORDER BY a LIMIT 1, 2", "LIMIT stands before OFFSET; write LIMIT n OFFSET"),
    ("SELECT a FROM t ORDER BY a OFFSET 1 LIMIT 2", "LIMIT stands before OFFSET"),
    ("SELECT a FROM t ORDER BY a WHERE a > 1", "WHERE stands before ORDER BY; exchange them"),
    ("SELECT a FROM t GROUP BY a WHERE a > 1", "WHERE stands before GROUP BY"),
    ("SELECT a FROM t HAVING a > 1 GROUP BY a", "GROUP BY stands before HAVING"),
    ("SELECT a FROM t LIMIT 2 ORDER BY a", "ORDER BY stands before LIMIT"),
    ("SELECT a FROM t UNION ALL SELECT a FROM t LIMIT 1 ORDER BY a", "ORDER BY stands before"),
    ("(SELECT a FROM t) LIMIT 1 ORDER BY a", "ORDER BY stands before LIMIT"),
    (
        "SELECT rank() OVER w AS v FROM t WINDOW w AS (ORDER BY a) WHERE a > 1",
        "WHERE stands before WINDOW",
    ),
    (
        "SELECT rank() OVER w AS v FROM t LIMIT 3 WINDOW w AS (ORDER BY a)",
        "WINDOW stands before LIMIT",
    ),
    ("SELECT a, FROM t", COMMA),
    ("SELECT a FROM t,", COMMA),
    ("SELECT a FROM t WHERE a IN (1, 2,)", COMMA),
    ("SELECT a FROM t GROUP BY a,", COMMA),
    ("SELECT sum(a) OVER (PARTITION BY) AS v FROM t", "nothing stands after PARTITION BY"),
    ("SELECT a FROM t GROUP BY DISTINCT a", "Spark has no GROUP BY DISTINCT; leave out DISTINCT"),
    ("SELECT t.a FROM t JOIN t AS u USING a", "write USING (column)"),
    ("SELECT t.a FROM t NATURAL JOIN t AS u ON t.a = u.a", "leave out NATURAL"),
    ("SELECT * EXCLUDE (a) FROM t", "Spark has no EXCLUDE; write * EXCEPT (column)"),
    ("SELECT * EXCEPT () FROM t", "EXCEPT names no columns; leave it out"),
    ("SELECT * EXCEPT (a, a) FROM t", "EXCEPT names a twice; name it once"),
    ("SELECT listagg(s ORDER BY a) AS v FROM t", "write listagg(…) WITHIN GROUP (ORDER BY …)"),
    ("SELECT array_agg(a ORDER BY b) AS v FROM t", "array_agg has no ORDER BY among its arguments"),
    ("SELECT EXTRACT('year' FROM d) AS v FROM t", "write EXTRACT(YEAR FROM …)"),
    ("SELECT [1, 2] AS v FROM t", "Spark has no lists in brackets; write array(…)"),
]
"""What sqlglot's parser takes."""
REMEDIES = [
    "SELECT count(*) AS v, count(a, b) AS w FROM t",
    "SELECT a FROM t WHERE FALSE",
    "SELECT t.a FROM t JOIN t AS u ON FALSE",
    "SELECT sum(a) FILTER (WHERE FALSE) AS v FROM t",
    "SELECT CASE WHEN FALSE THEN 1 ELSE 2 END AS v FROM t",
    "SELECT a, b FROM t UNION SELECT a, b FROM t",
    "SELECT a FROM t ORDER BY a LIMIT 2 OFFSET 1",
    "SELECT a FROM t WHERE a > 1 GROUP BY a HAVING a > 1 ORDER BY a LIMIT 2",
    "SELECT rank() OVER w AS v FROM t WHERE a > 1 WINDOW w AS (ORDER BY a) LIMIT 3",
    "SELECT a FROM t GROUP BY a",
    "SELECT t.s FROM t JOIN t AS u USING (a)",
    "SELECT t.s FROM t JOIN t AS u ON t.a = u.a",
    "SELECT * EXCEPT (a, l) FROM t",
    "SELECT listagg(s) WITHIN GROUP (ORDER BY s) AS v, array_agg(a) AS w FROM t",
    "SELECT EXTRACT(YEAR FROM d) AS v, array(1, 2) AS w FROM t",
    "SELECT b, array_agg(a) AS v FROM (SELECT a, b FROM t "
    "QUALIFY row_number() OVER (PARTITION BY b ORDER BY x) <= 2) GROUP BY b",
]
"""What the errors tell to write."""
VALUES = [*LITERALS, *WINDOWS, *AGGREGATES, *FUNCTIONS]
TEXTS = {
    **{f"SELECT {value} AS v FROM t": said for value, said in VALUES},
    **dict([*QUERIES, *LENIENT]),
}


@pytest.mark.turn(2)
@pytest.mark.spark
@pytest.mark.parametrize("text", TEXTS)
def test_what_spark_refuses_is_refused(text: str, spark: SparkSession) -> None:
    spark.createDataFrame([], TABLE).createOrReplaceTempView("t")
    with pytest.raises(PySparkException):
        _ = spark.sql(text).schema
    with pytest.raises(CompileError) as e:
        st.compile(st.sql(text, t=TABLE))
    assert TEXTS[text] in str(e.value)
    assert str(e.value).endswith("^"), "a caret is under the place"


@pytest.mark.spark
@pytest.mark.parametrize("text", REMEDIES)
def test_what_an_error_tells_to_write_is_taken(text: str, spark: SparkSession) -> None:
    spark.createDataFrame([], TABLE).createOrReplaceTempView("t")
    _ = spark.sql(text).schema
    st.compile(st.sql(text, t=TABLE))


@pytest.mark.spark
@pytest.mark.parametrize(
    "text", ["1BD", "1.5BD", "1e3BD", "-1.5e-3BD", "2D", "1.5F", "-128Y", "7S"]
)
def test_a_number_with_its_type_is_what_spark_answers(text: str, spark: SparkSession) -> None:
    query = st.sql(f"SELECT {text} AS v, typeof({text}) AS t FROM t", t="a INT NOT NULL")
    (out,) = st.reference(st.compile(query)).step((st.ZSetPython({query.rows["t"](a=1): 1}),))
    ((row, _),) = out.iter()
    (wanted,) = spark.sql(f"SELECT {text}, typeof({text})").collect()
    assert tuple(vars(row).values()) == tuple(wanted)


COLUMNS = {
    "a": "TINYINT",
    "b": "BIGINT",
    "c": "FLOAT",
    "d": "DECIMAL(8,2)",
    "e": "STRING",
    "f": "DATE",
    "g": "TIMESTAMP",
    "h": "TIMESTAMP_NTZ",
    "i": "BOOLEAN",
    "j": "BINARY",
    "k": "ARRAY<INT>",
    "l": "ARRAY<STRING>",
    "m": "STRUCT<x: INT>",
}
TYPES = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())


@pytest.mark.turn(2)
@pytest.mark.spark
@pytest.mark.parametrize(
    "text",
    [
        "SELECT {x} AS v FROM t UNION ALL SELECT {y} FROM t",
        "SELECT v FROM t UNPIVOT (v FOR name IN ({x}, {y}))",
    ],
    ids=["UNION", "UNPIVOT"],
)
@pytest.mark.parametrize("x", COLUMNS)
def test_columns_that_spark_does_not_unite_are_refused(
    x: str, text: str, spark: SparkSession
) -> None:
    spark.createDataFrame([], TYPES).createOrReplaceTempView("t")
    for y in COLUMNS:
        if x == y:
            continue
        query = st.sql(text.format(x=x, y=y), t=TYPES)
        try:
            _ = spark.sql(text.format(x=x, y=y)).schema
        except PySparkException:
            with pytest.raises(CompileError, match="cast one of them") as e:
                st.compile(query)
            assert str(e.value).endswith("^"), "a caret is under the place"
        else:
            st.compile(query)


@pytest.mark.spark
@pytest.mark.parametrize(
    "kind",
    [
        *COLUMNS.values(),
        "DECIMAL",
        "NUMERIC(8)",
        "CHAR(3)",
        "VARCHAR(9)",
        "INTEGER NOT NULL COMMENT 'x'",
        "INTERVAL DAY TO SECOND",
        "INTERVAL YEAR TO MONTH",
        "MAP<STRING, INT>",
        "ARRAY<MAP<STRING, INT>>",
        "STRUCT<X: DECIMAL(8, 2) COMMENT 'x', y: ARRAY<STRUCT<a: STRING NOT NULL>>>",
        "VARIANT",
    ],
)
def test_a_table_from_ddl_is_the_one_from_its_schema(kind: str, spark: SparkSession) -> None:
    ddl = f"id BIGINT, x {kind}"
    schema = StructType.fromDDL(ddl)
    found, wanted = table_of("t", ddl), table_of("t", schema)
    assert found.columns == wanted.columns
    assert str(found.row) == str(wanted.row)
