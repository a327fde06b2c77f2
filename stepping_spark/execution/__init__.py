"""A step: run the plan's stages on the engine that suits their size, then commit.

The engines say what each node of a plan means: `arrow` on Arrow tables, for small work on the
driver, and `spark` as text of SQL. They agree with each other and with `reference`; the tests hold
them to it. Neither imports the other, nor anything else of this package.

`scheduler` takes a step from inputs to commit. `step` holds the values of a step under way.
`arrow_executor` runs stages on the driver, with functions that Spark or Python evaluates.
`task_executor` has Spark's tasks take a whole step, and `tasks` is what a task computes of it.
`spark_executor` has Spark SQL compute streams that are for neither, and `sql_scope` has the
relations and expressions that its queries name. `materialize` computes once what several terms
read. `registers` reads the state that a step needs. `fixpoint` runs the iterations of a recursion.
`io` checks inputs and makes outputs, also for a step that is repeated.

Input: a plan, a store and changes. Output: changes of the outputs, and a committed step. Imports
`plan` and the packages before it.
"""
