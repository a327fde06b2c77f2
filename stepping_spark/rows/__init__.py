"""Rows: their fields, their types, and their names in Python, Arrow, Spark and JSON.

In the theory, rows are the elements of a Z-set. A user writes `st.Data` classes (`data`). Each has
a row type made of atoms, lists, structs and optional parts (`atoms`, `types`). A `Schema`
(`schema`) is the columns that hold rows of a type and their weights. `type_json` writes it as JSON
for the stores. `literals` writes values as SQL, and `sql_text` puts SQL into other SQL so that it
keeps its meaning. `grouped` adds the key of a group to rows.

Comes in: Python annotations. Goes out: row types and schemas, which every other package uses.
Imports only `errors`.
"""
