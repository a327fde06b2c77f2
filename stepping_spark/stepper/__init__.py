"""Steppers: a circuit and its store, stepped by calls, by inputs, or by Spark's micro-batches.

`stepper` has the class `Stepper`. `actions` takes single steps without an explicit stepper, also
for one input at a time. `streaming` makes each micro-batch of Structured Streaming a step, exactly
once. `evolve` turns the state of one query into the state of another.

Input: a graph, a store, changes. Output: changes of the outputs, and committed steps. Imports
`execution`, `report` and the packages before them.
"""
