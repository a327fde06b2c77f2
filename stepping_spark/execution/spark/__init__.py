"""The nodes as Spark SQL, for work that is too large for the driver.

`nodes` has one function for each node, and makes the queries of a plan's terms: for few rows in one
task, or for many in Spark's own way. `groups` orders and collects groups, `windows` computes window
functions, and `text` has the pieces that they share. No text is rewritten once it is made.
"""
