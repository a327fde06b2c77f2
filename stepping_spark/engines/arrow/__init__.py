"""The nodes on Arrow tables, for small work on the driver: no Spark job.

A plan's nodes are prepared once, as kernels (`kernels`), which each step runs. `nodes` has one
function for each node, those that fold are in `folds`; `joins` matches the rows of a join, `groups`
orders and collects groups, `evaluation` runs the terms of a plan and says which vertex failed.
"""
