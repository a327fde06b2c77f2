"""The circuit: vertices, the operators at them, and the edges between them.

In the theory, a DBSP circuit. `operators` are the primitives with their type rule and linearity,
`physical` has the nodes of their implementation. `graph` has the interned vertices and their names,
recursion as an operator whose body is a circuit, rewrites by rules, and tests for streams that only
grow or are states. `delta_join` has the terms of the n-way join.

Input: operators and edges. Output: immutable graphs, equal if they compute the same. Imports
`expressions` and the packages before it; no engine and no store.
"""
