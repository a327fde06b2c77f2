"""Everything that knows Spark below its DataFrame API, and bringing rows to the driver.

`session` finds or starts the session and reads its settings, `java` starts the JVM, `advice`
looks at a user's settings. `relation` is a value of a step, which the driver holds or Spark, and
what is known of it. `checkpoint` computes one once and cuts its lineage, `measure` counts its rows,
`fetch` brings few rows to the driver and refuses many. `types` reads Spark's types, `errors` reads
Spark's errors, `columns` are Columns that are made when Spark asks for them, `trees` says
what a Column is made of.

All that is private in PySpark is used here only; each module says what, and why.

Comes in: sessions and DataFrames. Goes out: DataFrames that are computed once, with their rows
counted.
Imports `rows`, `relations`, `sums` and `errors`.
"""
