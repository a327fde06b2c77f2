"""Z-sets as users hold them: collections of rows with integer weights, added and negated.

In the theory, the group Z[T]. `python` is a small literal value, `spark` a large one; both
satisfy `protocol`. `from_dataframe`, `from_arrow` and `from_change_feed` take values in and check
them. `by_key` iterates in the order of a key, `boxes` prints.

Comes in: rows, DataFrames, Arrow tables, change feeds. Goes out: Z-sets.
Imports the packages before it, no circuits.
"""
