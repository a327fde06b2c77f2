"""What a step computes: which values, in which order, from which state.

`planner` turns a graph into a `Plan` (`plan`): stages, each a few terms over inputs and registers
(`step_ir`), and the registers that the store keeps. `loop` plans recursion by iteration, `eager`
finds joins whose rows can be added up before, `segments` cuts it for Spark's tasks, and `spread`
says by which values the rows of a stream are spread over them. `explain` prints it, with the
contents of registers in `register_words`, and `metrics` are what a step of it did. `difference`
compares the registers of a state with those of a circuit.

Input: an optimized graph. Output: a frozen plan that can be read without running it. Imports
`circuit`, `passes` and the packages before them; never `language`.
"""
