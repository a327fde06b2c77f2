"""A table of rows with weights on the driver: how it is encoded, added up and hashed.

In the theory, a finite Z-set in memory. `arrow` consolidates (equal rows become one, their
weights are added, zeros go), `codec` turns Python rows into Arrow columns and back, `hashes`
gives the hash that places a key in a store, `order` the number that places a row among those of its
key, `xxhash` is Spark's own hash, computed on the driver.

Comes in: Arrow tables and Python rows. Goes out: Arrow tables of a schema.
Imports `rows` and `errors`.
"""
