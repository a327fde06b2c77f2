"""All code that depends on Spark below its DataFrame API, and code that fetches rows to the driver.

`session` finds or starts the session and reads its settings. `java` starts the JVM. `advice` checks
a user's settings. `relation` is a value of a step, held by the driver or by Spark, with what is
known about it. `checkpoint` computes a relation once and cuts its lineage, `measure` counts its
rows, and `fetch` fetches few rows to the driver and refuses many. `placement` estimates where a
computation takes less time. `types` reads Spark's types, and `errors` reads Spark's errors.
`columns` are Columns that are created when Spark asks for them. `trees` gives the parts of a
Column.

Private members of PySpark are used in this package only; each module lists them, with the reason.

Comes in: sessions and DataFrames. Goes out: DataFrames computed once, with rows counted.
Imports `rows`, `relations`, `sums` and `errors`.
"""
