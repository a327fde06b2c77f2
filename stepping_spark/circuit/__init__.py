"""The circuit: vertices, the operators at them, and the edges between them.

In the theory, a DBSP circuit. `operators` are the primitives with their type rule and linearity,
`physical` the nodes that operators are made of. `graph` has the interned vertices and their names,
recursion as an operator whose body is a circuit, rules that replace vertices, and which streams
only grow or are states. `delta_join` has the terms of the n-way join.

Input: operators and edges. Output: immutable graphs that compare by what they compute. Imports
`expressions` and the packages before it; no engine and no store.
"""
