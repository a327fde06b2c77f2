"""Exact sums, once for each engine: in SQL, in Arrow and in Python.

In the theory, the abelian group of the values that an aggregate adds. Adding floats cannot be
undone exactly (1e16 + 1 − 1e16), so `floats` splits them into parts that add up exactly; `halves`
splits Decimals of 38 digits, since a change of their sum may have more digits than the sum. `sql`,
`arrow` and `python` add the same parts in Spark SQL, in Arrow tables and in plain Python.
`overflow` is Spark SQL that raises an error if a number does not fit, and never wraps around.

Comes in: columns of numbers with weights. Goes out: sums from which a deletion can be subtracted
exactly.
Imports `rows`, `relations` and `errors`.
"""
