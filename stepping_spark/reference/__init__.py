"""The meaning of each operator, in plain Python: the executable specification.

`evaluator` steps a circuit over dictionaries of rows and weights. `meaning` is the table of what
each operator does, `groups` its part for groups; `vertices` says what an operator knows of its
vertex, `values` holds and checks values. Slow, simple, no JVM. The tests compare both engines with
it, so it shares nothing with them.

Comes in: a graph and Python Z-sets. Goes out: Python Z-sets.
Imports `graph` and what is before it; never `relations`, `plan`, `engines` or `execution`.
"""
