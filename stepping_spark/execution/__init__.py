"""A step: run the plan's stages on the engine that suits their size, then commit.

Two engines implement each node of a plan: `arrow` on Arrow tables, for small work on the driver,
and `spark` as SQL text. They agree with each other and with `reference`; tests check this. Neither
imports the other, nor anything else of this package.

`scheduler` takes a step from inputs to commit. `step` holds the values of a step under way.
`arrow_executor` runs stages on the driver, with functions that Spark or Python evaluates.
`task_executor` runs a whole step in Spark's tasks, and `tasks` has the code of such a task.
`spark_executor` computes the other streams with Spark SQL, and `sql_scope` names relations and
expressions for its queries. `materialize` computes a stream once for all its readers. `registers`
reads the state that a step needs, and `partial_reads` some of the rows of its keys. `fixpoint` runs
the iterations of a recursion. `io` checks inputs and makes outputs, also for a repeated step.

Input: a plan, a store and changes. Output: changes of the outputs, and a committed step. Imports
`plan` and the packages before it.
"""
