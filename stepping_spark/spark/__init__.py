"""All code that depends on PySpark below its DataFrame API.

`session` finds or starts the session, reads and checks its settings, and reads Spark's errors.
`java` starts the JVM. `types` reads Spark's types. `column_tree` makes PySpark's functions return
trees while a query is traced, and reads their parts and their texts. `column_made` turns trees into
Columns of the running session.

Private members of PySpark are used in this package only; each module lists them, with the reason.

Input: sessions, Columns and DataFrames. Output: their types and parts. Imports `rows` and `base`.
"""
