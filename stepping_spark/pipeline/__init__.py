"""Pipelines: tables in, tables out, exactly once.

A circuit takes changes and its outputs are changes; what users have is tables. `pipeline` has the
loop: read what is new of each source, take a step, write its outputs into each sink. `protocols`
says what a source and a sink are, and how far each is read and written. `rounds` is one round, with
its retries and its end. `inputs` has one source and its input, `rejects` the rows that do not fit,
`outputs` one view and its sink, with checks, and with what a sink lacks after a restart.

`views` makes several queries one circuit, and reads queries that say where they read and write.
`dry_run` says what a run would do, `changed_query` what becomes of state and tables when the query
changes. `reporting` has logs, progress and metrics. `row_class` makes the row class of a table.

`delta`, `files`, `iceberg` and `postgres` are tables of one kind each, `spark_sources` those that
Spark reads (a catalog's, and a stream's micro-batches), `iterators` sources and sinks of plain
Python, and `dbt` the views of a dbt project. `changes` is what tables are written, `columns` what
they can take. A version that is too large for the driver is read by Spark's tasks (`by_tasks`), or
`chunks` cuts it for several steps.

Exactly-once delivery rests on three things. The store commits a step together with the positions of
its sources. A sink commits the rows of a step together with the step's number. And the store keeps
the last step's outputs until all sinks have them: no other step begins before that.

Imports all that is below the facade, the stores too.
"""

from stepping_spark.pipeline.dry_run import Prospect
from stepping_spark.pipeline.pipeline import Pipeline
from stepping_spark.pipeline.protocols import Batch, Portion, Position, Sink, Source
from stepping_spark.pipeline.views import view

__all__ = ["Batch", "Pipeline", "Portion", "Position", "Prospect", "Sink", "Source", "view"]
