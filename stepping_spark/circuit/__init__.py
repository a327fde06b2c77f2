"""The circuit: vertices, the operators at them, and the edges between them.

In the theory, a DBSP circuit. `operators` are the primitives with their type rule and linearity,
`graph` the interned vertices and their names, `fixpoint` recursion as an operator whose body is a
circuit, `delta_join` the n-way join's terms. `monotone` says which streams only grow, `states`
which are states, `watermarks` which values of the rows to come are known to be late enough,
`reduce_plan` how aggregates are computed. `rewrite` replaces vertices.

Comes in: operators and edges. Goes out: immutable graphs that compare by what they compute.
Imports `rows` to `zsets`; knows neither engines nor stores.
"""
