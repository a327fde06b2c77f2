"""The nodes as Spark SQL, for what is too large for the driver, and not for Spark's tasks.

`nodes` has one function for each node, and makes the queries of a plan's terms. `windows` computes
window functions, and `text` has the pieces that they share. No text is rewritten once it is made.
"""
