"""Views that are maintained by hand in Spark SQL: their tables, changes, queries, and steps."""
