"""Functions of rows: a user's lambda as an expression tree that each engine can evaluate.

`functions` calls the user's function once with a symbolic row (`symbolic`). The result (`results`)
is an expression (`expr`). Known operators on known types become plain expressions (`operations`).
An expression that only Spark can evaluate stays a Column, and `columns` converts the others to
Columns. `index` is an ordered key. `derived` and `moments` are expressions that the library itself
creates. `arrow` and `arrow_calls` evaluate the expressions that mean the same in Arrow, and
`readings` the functions of Spark that do. `guards` check the results of Spark's functions. `digest`
and `source` identify the Python code of a function, and `identity` tells expressions apart. `clock`
is the step's time.

Comes in: Python functions. Goes out: typed expressions, as SQL, as Columns and on Arrow tables.
Imports `rows`, `relations`, `spark` and `errors`.
"""
