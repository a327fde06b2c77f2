"""What a row is: its fields, its type, and its names in Python, Arrow, Spark and JSON.

In the theory, the elements of a Z-set. A user writes `st.Data` classes (`data`); each has a row
type made of atoms, lists, structs and optional parts (`atoms`, `types`). A `Schema` (`schema`) is
the columns that hold rows of a type and their weights; `type_json` writes it down for the stores,
`literals` writes values as SQL, `sql_text` puts SQL into other SQL so that it keeps its meaning,
`grouped` adds the key of a group to rows.

Comes in: Python annotations. Goes out: row types and schemas, which every other package uses.
Imports only `errors`.
"""
