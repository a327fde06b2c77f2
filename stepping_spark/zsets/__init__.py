"""Z-sets for users: collections of rows with integer weights, which can be added and negated.

In the theory, a Z-set is an element of the group Z[T]. `python` holds a small literal value, and
has the protocol that all Z-sets satisfy; `spark` holds a large one, and compares two in tests
(`assert_equal`). `from_dataframe`, `from_arrow` and `from_change_feed` convert and check the values
that users pass in.

Input: rows, DataFrames, Arrow tables, change feeds. Output: Z-sets. Imports `relations` and the
packages before it.
"""
