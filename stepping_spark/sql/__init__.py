"""SQL: the text of a query becomes a query function, `st.sql`.

`api` goes from a text to a query function, by these steps:

- Text: `parse` reads it, `others_syntax` refuses what Spark does not take, and `places` shows a
  place of it in errors. `views` reads statements and the tables that they name; `changes` makes
  queries of AUTO CDC.
- Names: `query` (sets, FROM, PIVOT), `ctes`, `joins` and `select` make a relational `plan`, with
  `time_windows`. `binder` binds expressions in the scope of `names`: columns, keys of GROUP BY,
  sub-queries, and calls of aggregates and window functions, which `aggregate_calls` tells apart.
- Plan: `unnest` turns sub-queries into joins. `rules` moves conditions and columns to where they
  cost least, with `inner_joins`, `groups` (rows that are joined with their own groups) and what is
  known of columns (`facts`).
- Streams: `emit` makes operators of the plan, with `aggregates` (`st.aggregate`), `over` (window
  functions), and conditions on the time (`clock`). `relation` knows where the columns of a stream
  are.
- Scalars: `scalars` turns an expression into a column of a traced row function, with `values`,
  `operators`, `functions` and `kinds`.

Input: text, and the columns of tables. Output: a query function, as one written by hand. The rest
of the project does not import this package. It is imported when `st.sql` is called first, since it
needs sqlglot.
"""

from __future__ import annotations

from typing import Any

from stepping_spark.base.packages import Late, sqlglot
from stepping_spark.rows.data import Data

__all__ = ["sql"]

_api = Late("stepping_spark.sql.api")


def sql(
    text: Any, /, *, to: type[Data] | None = None, whole_rows: bool = False, **tables: Any
) -> Any:
    """A query function from the text of a query in SQL, as Spark understands it.

    `tables` has what the text calls tables, by name: a row class, a schema of Spark or Arrow, a DDL
    string, a DataFrame or a source of a pipeline (for their columns), or the streams of a query
    that is being compiled; then the result is a stream too. A table that is not given is found by
    `st.Pipeline`, from its source. `text` is one query, or statements `CREATE VIEW name AS …`, of
    which later ones may read earlier ones; then the query function has several results. It may also
    be an object with a method `sql(dialect=…)`, such as a query of sqlframe, or an expression of
    ibis.

    The rows of the result have the columns of the text, with the names and the types that Spark
    gives them; or `to` is their class, which has a field for each column, by name. A field is
    called like its column where Python allows it.

    The state has those columns of the tables that the text reads. With `whole_rows` it has all
    columns of each table that it keeps rows of. It is larger, and a text that comes later and reads
    more columns is filled from it, where else the tables are read again.

    The text becomes the operators of `st`: the view is kept up to date by the changes of its
    tables, and nothing is recomputed in full. State and cost of a step are those of the operators;
    `st.explain` shows them. What cannot be kept up to date is refused: `CompileError`, with the
    place in the text and the reason. Needs the extra `[sql]`.

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
    return _api.sql(text, to=to, whole_rows=whole_rows, **tables)
