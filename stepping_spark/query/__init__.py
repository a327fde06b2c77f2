"""The language of queries: streams, primitives, and operators made of them.

`trace` calls a query once with symbolic streams. `primitives` and `feedback` are the operators of
DBSP, `linear` those that work on the values of one step, `sets` the set operations of SQL.
`aggregate` plans aggregates, with `agg` (what may be asked for), `grouping` (by what), `reductions`
(of what kinds), `accumulable` (sums), `reduce_planner` and `reduced`. `per_group` and `lift` run a
circuit for each key, `temporal` has rows that come and go with time, `lookups` and `outer_joins`
the n-way joins, `window` the rows around a row with `win` (what may be asked for) and `frames`,
`recursion` the least fixpoint, `cache` names state for readers, `strict` checks
that what is taken away was there, `annotations` reads a query's types, `miscalls` explains calls
with arguments that a function does not take, and `spark_calls` calls of Spark's functions outside a
function of rows.

Comes in: a Python function over Z-sets. Goes out: vertices of a graph.
Imports `graph` and what is before it; knows no passes, plan or engine.
"""
