"""What a step computes: which values, in which order, from which state.

`planner` turns a graph into a `Plan` (`plan`): stages, each a few terms over inputs and registers
(`terms`), and the registers that the store keeps (`kept`). `loop` plans recursion by iteration.
`explain` prints it.

Comes in: an optimized graph. Goes out: a frozen plan that can be read without running it.
Imports `graph`, `passes` and what is before; never `query`.
"""
