"""A step: run the plan's stages on the engine that suits their size, then commit.

`scheduler` takes a step from inputs to commit. `driver` runs small stages on Arrow, `queries` large
ones in Spark, `loop` iterations of a recursion with `loop_state`. `step` holds the values of a step
under way, `materialize` computes once what several read, `views` names relations for SQL,
`projection` and `row_functions` ask Spark for functions of rows, `settings` reads what they depend
on in the session, `python_functions` runs `st.python`, `due` looks up what has come due, `prefixes`
knows what windows need not read again, `io` checks inputs and gives outputs, `repeats` answers for
a committed step, `metrics` counts, `blame` and `nulls` say which vertex failed.

Comes in: a plan, a store and changes. Goes out: changes of the outputs, and a committed step.
Imports everything before it.
"""
