"""Functions of rows: a user's lambda as an expression tree that each engine can evaluate.

`functions` calls the user's function once with a symbolic row, and converts the result to an
expression (`symbolic`, `expr`). Operators on known types become plain expressions (`operations`).
An expression that only Spark can evaluate stays a Column, and `columns` converts the others to
Columns. `coercion` converts values to the types of fields. `index` is an ordered key. `portable`
(buckets, choices, windows of time, wider and narrower numbers), `statistics` (deviations,
correlations, regressions) and `lists` (aggregates of the values of a group) are expressions that
the library itself creates. `arrow_evaluator` evaluates expressions in Arrow, with the kernels of
operators in `arrow_kernels`; `spark_functions` is the table of Spark's functions that the driver
computes, with kernels in `text_kernels` and `number_kernels`, and `spark_to_arrow` reads Columns
with them. `fdlibm` has powers and logarithms that equal Java's bit for bit, `hashes` has Spark's
hashes, and `zones` the clocks of time zones. `fingerprint` identifies expressions and Python
functions, the same in every process.

Input: Python functions. Output: typed expressions, as SQL, as Columns and on Arrow tables. Imports
`relations` and the packages before it.
"""
