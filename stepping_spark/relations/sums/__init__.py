"""Exact sums, once for each engine: in SQL, in Arrow and in Python.

In the theory, the abelian group of the values that an aggregate adds. Adding floats cannot be
undone exactly (1e16 + 1 − 1e16), so `floats` splits them into parts that add up exactly. `sql` and
`arrow` add the same parts in Spark SQL, and in Arrow tables and plain Python; `arrow` also adds
many rows by key at once. `overflow` splits Decimals of 38 digits, since a change of their sum may
have more digits than the sum; its SQL raises an error if a number does not fit, and never wraps
around.

Input: columns of numbers with weights. Output: sums from which a deletion is subtracted exactly.
Imports `rows`, `relations.arrow` and `base`.
"""
