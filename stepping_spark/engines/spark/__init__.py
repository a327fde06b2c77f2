"""The nodes as Spark SQL, for work that is too large for the driver.

`nodes` has one function for each node, `groups` orders and collects groups, `text` has the pieces
that they share, `rendering` makes the queries of a plan's terms: for few rows in one task, or for
many in Spark's own way. No text is rewritten once it is made.
"""
