"""Functions of rows: what a user's lambda computes, as a tree that each engine can evaluate.

`functions` calls the user's function once with a symbolic row (`symbolic`); what it gives
(`results`) is an expression (`expr`). Known operators on known types are plain (`operations`); what
only Spark can evaluate stays a Column, and `columns` makes Columns of the others. `index` is an
ordered key, `derived` and `moments` are expressions that the library makes itself, `arrow` and
`arrow_calls` evaluate what means the same in Arrow, `readings` are Spark's functions that do,
`guards` check what Spark's functions give, `digest` and `source` say which Python code a function
is, `identity` what tells expressions apart, `clock` is the step's time.

Comes in: Python functions. Goes out: typed expressions, as SQL, as Columns and on Arrow tables.
Imports `rows`, `relations`, `spark` and `errors`.
"""
