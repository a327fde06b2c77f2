"""Batches of rows in key order, and their merges: shared by the log-structured stores.

`driver` has batches on the driver, and builds batches of large changes in other threads. `mapped`
has batches in files, which any process of the machine reads. `spark` has batches in Spark's cache.
`compaction` merges batches by size, and has the common base class of the two stores of batches.
"""
