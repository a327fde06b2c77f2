"""SQL: the text of a query becomes a query function, `st.sql`.

`api` goes from a text to a query function, by these steps:

- Text: `parse` parses it, `others_syntax` refuses syntax that Spark does not have, and `places`
  shows places of it in errors. `views` reads statements and the tables that they name; `changes`
  makes queries of AUTO CDC.
- Names: `query` (sets, FROM, PIVOT), `ctes`, `joins` and `select` make a relational `plan`, with
  `time_windows`. `binder` binds expressions in the scope of `names`: columns, keys of GROUP BY,
  sub-queries, and calls of aggregates and window functions, which `aggregate_calls` recognizes.
- Plan: `unnest` turns sub-queries into joins. `rules` pushes conditions down and prunes columns,
  with `inner_joins`, `groups` (rows that are joined with their own groups) and `facts` (NULLs and
  types of columns).
- Streams: `emit` makes operators of the plan, with `aggregates` (`st.aggregate`), `over` (window
  functions), and conditions on the time (`clock`). `relation` has the places of columns in the rows
  of a stream.
- Scalars: `scalars` turns an expression into a column of a traced row function, with `values`,
  `operators`, `functions` and `kinds`.

Input: text, and the columns of tables. Output: a query function, like one written by hand. Of the
rest of the project, pipelines of a dbt project import this package. The first call of `st.sql`
imports it, since it needs sqlglot.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from stepping_spark.base.packages import Late, sqlglot
from stepping_spark.rows.data import Data

__all__ = ["sql"]

_api = Late("stepping_spark.sql.api")


def sql(text: Any, /, *, to: type[Data] | None = None, **tables: Any) -> Any:
    """A query function from the text of a query in Spark's SQL.

    `tables` has the tables of the text by name: a row class, a schema of Spark or Arrow, a DDL
    string, a DataFrame or a source of a pipeline (for their columns), or the streams of a query
    that is being compiled; then the result is a stream, too. `st.Pipeline` takes the columns of
    other tables from their sources, and reads those that its queries read. `text` is one query, or
    statements `CREATE VIEW name AS …`, of which later ones may read earlier ones; then the query
    function has several results. It may also be an object with a method `sql(dialect=…)`, such as a
    query of sqlframe, or an expression of ibis.

    The rows of the result have the columns of the text, with Spark's names and types; or `to` is
    their class, which has a field for each column, by name. A field has the name of its column if
    Python allows it.

    The state has the columns of tables that the text reads, or all columns of each table whose rows
    it stores: see `whole_rows` of `st.compile`.

    The text becomes operators of `st`: the changes of tables maintain the view, and nothing is
    recomputed in full. `st.explain` shows the state and the cost of a step of these operators. A
    query that cannot be maintained is refused: `CompileError`, with the place in the text and the
    reason. Needs the extra `[sql]`.

    >>> class Order(st.Data):
    ...     country: str
    ...     cents: int
    >>> revenue = st.sql("SELECT country, sum(cents) AS cents FROM orders GROUP BY 1", orders=Order)
    >>> step = st.reference(st.compile(revenue)).step
    >>> (out,) = step((st.ZSetPython({Order(country="AT", cents=5): 2}),))
    >>> dict(out.iter())
    {Row(country='AT', cents=10): 1}
    """
    sqlglot.parse  # noqa: B018 - the error where it is missing names the extra
    return _api.sql(text, to=to, **tables)


def with_sources(
    queries: Sequence[Any], sources: Sequence[Mapping[str, Any]], whole: Collection[str] | None = ()
) -> list[Any]:
    """Queries of one pipeline, with the columns of their missing tables from sources.

    `sources` has the sources for each query, by the names of tables. A table has the same row class
    for all queries. It has the columns that any of them reads, so a pipeline reads no others; for
    tables in `whole`, all columns; None: for all tables.
    """
    return list(_api.with_sources(queries, sources, whole))
