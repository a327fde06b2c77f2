"""Operators as Spark SQL, for work that is too large for the driver.

`operators` is the table from operators to text, `groups` renders what orders and collects groups.
"""
