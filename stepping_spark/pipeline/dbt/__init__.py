"""dbt: the models of a project become the views of one pipeline, `st.dbt_project`.

`manifest` reads the manifest of `dbt compile`: models, tests, seeds and sources, with the compiled
SQL and the names of their tables. It chooses the models to maintain, and has the reasons against
others. `project` puts the names of views and inputs into the SQL trees, and makes one query
function of them with the SQL front end. `seeds` reads CSV files and their edits.

Input: a manifest, and sources for its source tables. Output: a query function like one of `st.sql`,
with its seeds as sources and a check for each test. The facade and the command line import it.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any

from stepping_spark.base.packages import Late, sqlglot

__all__ = ["dbt_project"]

_project = Late("stepping_spark.pipeline.dbt.project")


def dbt_project(
    manifest: str | os.PathLike[str],
    /,
    *,
    select: Collection[str] = (),
    exclude: Collection[str] = (),
    checks: bool = True,
    **tables: Any,
) -> Any:
    """The models of a dbt project as one query function, for `st.Pipeline` or `st.compile`.

    `manifest` is the path of `target/manifest.json`, or of the project, as `dbt compile
    --full-refresh` wrote it. Models with `materialized` `table`, `incremental` or
    `materialized_view` are the views of the function, each under its name; `view` and `ephemeral`
    models are composed into their readers. `is_incremental()` is false in a full refresh, so its
    branches are left out: the circuit derives the increments. With `select` the named models are
    the views, whatever their `materialized`.

    Each table of `source()` is an input with the name of the table; or `<source>_<table>` if
    another node of the project has this name. `tables` has their columns or sources, as for
    `st.sql`; pass the other ones to `st.Pipeline`. Seeds are inputs too. They read their CSV files,
    with the types of `column_types` or types inferred from the values. An edited file is a change:
    `target/stepping_spark` keeps copies of the files that were read.

    Data tests, such as `unique` and `not_null`, are views with `st.Check` as their sink: a step
    after which a test fails is not committed. With `severity: warn` the rows are a warning in the
    log. `checks=False` leaves them out.

    The SQL is read as Spark's. If the project is compiled for another database, `"x"` is a name in
    it; functions and types still are those of Spark.

    Returns the function. Its `written` maps each view to its key: the `unique_key`, else a column
    with the tests `unique` and `not_null`. Its `left_out` maps models and tests that are not
    maintained to the reasons.

    Raises `InputError` if the manifest, its compiled SQL or a named model is missing. Raises
    `CompileError`, when the query is compiled, with a list of all models that cannot be maintained,
    each with the place and the reason: Python models, SQL that `st.sql` refuses, and readers of
    such models. `exclude` leaves out models or tests, with their readers. Needs the extra `[sql]`.

    >>> import json
    >>> _ = Path("seeds").mkdir(), Path("target").mkdir()
    >>> _ = Path("seeds/raw_orders.csv").write_text("id,country,cents\\n1,AT,5\\n2,AT,7\\n")
    >>> code = "select country, sum(cents) as cents from `lake`.`raw_orders` group by country"
    >>> seed = {"resource_type": "seed", "name": "raw_orders", "package_name": "shop"}
    >>> seed |= {"relation_name": "`lake`.`raw_orders`"}
    >>> seed |= {"original_file_path": "seeds/raw_orders.csv"}
    >>> model = {"resource_type": "model", "name": "revenue", "package_name": "shop"}
    >>> model |= {"relation_name": "`lake`.`revenue`", "config": {"materialized": "table"}}
    >>> model |= {"compiled_code": code, "depends_on": {"nodes": ["seed.shop.raw_orders"]}}
    >>> nodes = {"seed.shop.raw_orders": seed, "model.shop.revenue": model}
    >>> metadata = {"project_name": "shop", "adapter_type": "spark"}
    >>> written = json.dumps({"metadata": metadata, "nodes": nodes, "sources": {}})
    >>> _ = Path("target/manifest.json").write_text(written)
    >>> seen = {}
    >>> project = st.dbt_project("target/manifest.json")
    >>> st.Pipeline(project, store="memory", into={"revenue": seen.setdefault}).run()
    1
    >>> dict(seen[1].iter())
    {revenue(country='AT', cents=12): 1}
    """
    sqlglot.parse  # noqa: B018 - the error where it is missing names the extra
    return _project.dbt_project(
        manifest,
        select=select,
        exclude=exclude,
        checks=checks,
        tables=tables,
    )
