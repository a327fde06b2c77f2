"""Relations: rows with weights as tables, held by the driver or by Spark.

In the theory, a finite Z-set. `relation` has relations with their known properties. `arrow`
consolidates on the driver: it merges equal rows, adds their weights, and drops zeros. `codec`
converts Python rows to Arrow columns and back. `hashing` has the hash that places a key in a store,
and finds equal rows by it. `sums` adds numbers exactly. `transfer` sends rows to Spark, and counts
and measures rows of Spark. `blobs` are rows that Spark's tasks send to each other. `placement`
estimates whether a computation is faster on the driver or in Spark. `store` is the protocol of
stores, which keep relations between steps.

Input: Arrow tables, DataFrames and Python rows. Output: relations of a schema. Imports `rows`,
`spark` and `base`.
"""
