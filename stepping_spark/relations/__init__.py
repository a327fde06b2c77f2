"""Tables of rows with weights on the driver: encoding, addition and hashing.

In the theory, a finite Z-set in memory. `arrow` consolidates: it merges equal rows, adds their
weights, and drops zeros. `codec` converts Python rows to Arrow columns and back. `hashes` gives the
hash that places a key in a store. `order` gives the number that places a row among those of its
key. `xxhash` is Spark's own hash, computed on the driver. `slots` compares many numbers.

Comes in: Arrow tables and Python rows. Goes out: Arrow tables of a schema.
Imports `rows` and `errors`.
"""
