"""The nodes on Arrow tables, for small work on the driver: no Spark job.

A plan's nodes are prepared once, as kernels (`kernels`), which each step runs. `nodes` has one
function for each node, and evaluates the terms of a plan. `folds` has the joins and the folds,
`eager` adds up many rows before they are joined. `groups` orders and collects groups, `buckets`
finds the first rows of large ones, `windows` computes window functions, and `window_delta` finds
the rows of a partition that a change can affect.
"""
