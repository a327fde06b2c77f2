"""The meaning of each operator, in plain Python: the executable specification.

`semantics` is the table of operators with their functions, and steps a circuit by it, over
dictionaries of rows and weights. `windows` has the functions of groups and windows. `values` holds
and checks values. It is slow and simple, and needs no JVM. The tests compare both engines with it,
so it shares nothing with them.

Input: a graph and Python Z-sets. Output: Python Z-sets. Imports `circuit` and the packages before
it, of `relations` the sums of floats alone; never `plan` or `execution`.
"""
