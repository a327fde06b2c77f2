"""Rows: their fields, their types, and their names in Python, Arrow, Spark and JSON.

In the theory, rows are the elements of a Z-set. A user writes `st.Data` classes (`data`), or
derives them from a schema (`row_class`). Each has a row type made of atoms, lists, structs and
optional parts (`atoms`, `types`). A `Schema` (`schema`) has the columns that hold rows of a type
and their weights, also as JSON for the stores, and with the key of a group. `names` finds the
columns of tables for fields. `sql_text` writes values as SQL, and embeds SQL in other SQL without a
change of meaning. `boxes` draws tables of rows in a terminal and in a notebook.

Input: Python annotations. Output: row types and schemas, which every other package uses. Imports
`base`.
"""
