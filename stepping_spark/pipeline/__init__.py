"""Pipelines: tables in, tables out, exactly once.

A circuit takes changes and gives changes; what users have is tables. `pipeline` has the loop: read
what is new of each source, take a step, write its outputs into each sink. `protocols` says what a
source and a sink are. `rounds` is one round, `feeds` one source and its input, `rejects` rows that
do not fit an input, `outlets` one view and its sink, `positions` how far each is as the store keeps
it, `catching_up` what a sink lacks after a restart, `retries` errors that may pass, `views` several
queries as one circuit, `declared` queries that say where they read and write, `checks` views whose
rows are errors, `row_class` the row class of a table, `iterators` sources and sinks of plain
Python, `micro_batches` streams of Spark as sources, `catalog_tables` tables of Spark's catalogs
that offer changes, `frames` the DataFrames of both, `stopping` signals and waiting, `prospect` what
a run would do, `reporting` logs, bars and metrics, `telemetry` the same metrics for OpenTelemetry,
`given` checks what a pipeline is made of, `remedies` what messages tell a user to do. `delta`,
`files`, `iceberg` and `postgres` are tables of one kind each; `changes` is what they write,
`writable` what they cannot, `paths` where they are, `plain` the types that they read, `evolving` is
for columns that change, and `pieces` cuts what is too large for a step.

Exactly-once delivery rests on three things. The store commits a step together with the positions of
its sources. A sink commits the rows of a step together with the step's number. And the store keeps
the last step's outputs until all sinks have them: no other step begins before that.

It imports from all that is below the facade, the stores too.
"""

from stepping_spark.pipeline.dry_run import Prospect
from stepping_spark.pipeline.pipeline import Pipeline
from stepping_spark.pipeline.protocols import Batch, Portion, Position, Sink, Source
from stepping_spark.pipeline.view_decorator import view

__all__ = ["Batch", "Pipeline", "Portion", "Position", "Prospect", "Sink", "Source", "view"]
