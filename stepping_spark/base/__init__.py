"""Common definitions of all packages: errors, places in the user's program, limits, late imports.

`errors` is the tree of exceptions. `callsite` finds the user's line for messages and pictures.
`fields` has the base of objects that are pickled without what they have cached.
`limits` has the numbers that a user can set. `packages` imports PySpark, sqlglot and networkx at
their first use, and names the extra that installs them. `scratch` makes temporary folders that are
removed even after a kill. `signature` identifies a stream, the same in every process.

Imports nothing of the project.
"""
