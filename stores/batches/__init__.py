"""Batches of rows in order of key, and how they merge: what the log-structured stores share.

`driver` has batches on the driver, `spark` those in Spark's cache, `last_step` both as the memory
store has committed them, and `tiers` merges them by size.
"""
