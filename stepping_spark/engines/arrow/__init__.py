"""The nodes on Arrow tables, for small work on the driver: no Spark job.

`nodes` has one function for each node, `joins` matches the rows of a join, `groups` orders and
collects groups, `evaluation` runs the terms of a plan and says which vertex failed.
"""
