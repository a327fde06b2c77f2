"""The language of queries: streams, primitives, and operators made of them.

`trace` calls a query once with symbolic streams. `primitives` and `feedback` have the operators of
DBSP, `linear` the operators on the values of one step, and `sets` the set operations of SQL.
`aggregate` plans aggregations, with `agg` (the aggregate functions), `grouping` (their keys),
`reductions` (their kinds), `accumulable` (sums), `reduce_planner` and `reduced`. `per_group` and
`lift` run a circuit for each key, `temporal` has rows that appear and disappear with time,
`lookups` has n-way joins, `outer_joins` the semijoins, antijoins and outer joins, `window` the
window operator, with `win` (the window functions) and `frames`. `recursion` has the least fixpoint,
`cache` names state for readers, and `strict` checks that removed rows existed. `annotations` reads
a query's types, `miscalls` explains calls with wrong arguments, and `spark_calls` explains calls of
Spark functions outside of a function of rows.

Input: a Python function of Z-sets. Output: vertices of a graph.
Imports `graph` and the packages before it; knows no passes, plan or engine.
"""
