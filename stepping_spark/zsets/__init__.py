"""Z-sets as users hold them: collections of rows with integer weights, added and negated.

In the theory, a Z-set is an element of the group Z[T]. `python` holds a small literal value,
`spark` a large one; both satisfy `protocol`. `from_dataframe`, `from_arrow` and `from_change_feed`
convert and check the values that users pass in. `by_key` iterates in the order of a key, and
`boxes` prints.

Comes in: rows, DataFrames, Arrow tables, change feeds. Goes out: Z-sets.
Imports the packages before it, no circuits.
"""
