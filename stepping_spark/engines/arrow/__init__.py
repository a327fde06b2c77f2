"""Operators on Arrow tables, for small work on the driver: no Spark job.

`operators` is the table from operators to functions, `joins` matches the rows of a join, `groups`
orders and collects groups.
"""
