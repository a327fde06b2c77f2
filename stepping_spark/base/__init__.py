"""What every package uses: errors, places in the user's program, limits, absent packages.

`errors` is the tree of exceptions. `callsite` finds the user's line for messages and pictures.
`limits` has the numbers that a user can set. `packages` imports PySpark, sqlglot and networkx where
something of them is used first, and says which extra installs them. `signature` identifies a
stream, the same in every process.

Imports nothing of the project.
"""
