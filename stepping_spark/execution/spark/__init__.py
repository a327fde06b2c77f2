"""The nodes as Spark SQL, for streams that are too large for the driver, and not for tasks.

`nodes` has one function for each node, and makes the queries of a plan's terms. `windows` computes
window functions, `buckets` has the numbers of buckets, which Python workers compute, and `text` has
their common pieces. No text is rewritten once it is made.
"""
