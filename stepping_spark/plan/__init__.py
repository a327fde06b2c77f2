"""The plan of a step: the values to compute, their order, and the state that they need.

`planner` turns a graph into a `Plan` (`plan`): stages, each a few terms over inputs and registers
(`step_ir`), and the registers that the store keeps. `loop` plans recursion by iteration, `eager`
finds joins whose rows can be added up before them, `segments` cuts a plan for Spark's tasks, and
`spread` finds the values by which the rows of a stream are spread over tasks. `explain` prints a
plan, `register_words` describes the contents of registers, and `metrics` reports on a step.
`difference` compares the registers of a state with those of a circuit.

Input: an optimized graph. Output: a frozen plan that can be read without running it. Imports
`circuit`, `passes` and the packages before them; never `language`.
"""
