"""The meaning of each operator, in plain Python: the executable specification.

`evaluator` steps a circuit over dictionaries of rows and weights. `meaning` is the table of
operators with their functions; those for groups are in `groups`. `vertices` has the context of a
vertex, and `values` holds and checks values. It is slow and simple, and needs no JVM. The tests
compare both engines with it, so it shares nothing with them.

Input: a graph and Python Z-sets. Output: Python Z-sets.
Imports `graph` and the packages before it; never `relations`, `plan`, `engines` or `execution`.
"""
