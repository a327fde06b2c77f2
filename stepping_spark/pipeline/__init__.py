"""Pipelines: tables in, tables out, exactly once.

A circuit maps changes to changes; users have tables. `pipeline` is the loop: read the new rows of
each source, take a step, write its outputs into each sink. `protocols` defines sources, sinks and
their positions. `rounds` is one round, with its retries and its end. `inputs` connects one source
to its input, `rejects` handles rows that do not fit, and `outputs` connects one view to its sink,
with checks, and delivers the steps that a sink lacks after a restart.

`views` makes one circuit of several queries, and reads queries that declare their tables. `dry_run`
predicts a run, and `changed_query` adapts state and tables when the query changes. `reporting` has
logs, progress and metrics. `row_class` makes the row class of a table.

`delta`, `files`, `iceberg` and `postgres` each handle one kind of table; `spark_sources` has tables
that Spark reads (of a catalog, or the micro-batches of a stream), `iterators` has sources and sinks
of plain Python, and `dbt` the views of a dbt project. `changes` has the forms in which tables store
a view, `columns` compares a table's columns and their types with the view's. A version that is too
large for the driver is read by Spark's tasks (`by_tasks`), or `chunks` cuts it for several steps.

Exactly-once delivery rests on three things. The store commits a step together with the positions of
its sources. A sink commits the rows of a step together with the step's number. And the store keeps
the last step's outputs until all sinks have them: no other step begins before that.

Imports every package below the facade, the stores too.
"""

from stepping_spark.pipeline.dry_run import Prospect
from stepping_spark.pipeline.pipeline import Pipeline
from stepping_spark.pipeline.protocols import Batch, Portion, Position, Sink, Source
from stepping_spark.pipeline.views import view

__all__ = ["Batch", "Pipeline", "Portion", "Position", "Prospect", "Sink", "Source", "view"]
