"""The language of queries: streams, primitives, and operators made of them.

`compile` traces a query, adds checks of removed rows for `strict`, and optimizes the circuit.
`trace` reads a query's types, and calls it once with symbolic streams. `algebra` is the relational
algebra on vertices and expressions, independent of user code. `primitives` has the operators of
DBSP and loops, `linear` the operators on the values of one step, with the set operations of SQL,
`outer_joins` the semijoins, antijoins and outer joins, `delta_joins`, `range_joins` and
`asof_joins` the other joins. `aggregate` plans aggregations, with `agg` (the aggregate functions),
`grouping` (their keys), `reductions` (their kinds) and `reduce_planner`. `window` has the window
operator and sessions, `win` the window functions, `sort_orders` their orders. `per_group` runs a
circuit for each key. `temporal_filters` has rows that appear and disappear with time, `lateness`
late rows. `recursion` has the least fixpoint, and `cache` names state for readers. `call_errors`
explains calls with wrong arguments.

Input: a Python function of Z-sets. Output: vertices of a graph. Imports `circuit` and the packages
before it. Only `compile` knows the passes.
"""
