"""The relational algebra: functions from vertices and expressions to vertices.

An operator here takes the values of one step, as vertices of a circuit, and expressions over their
rows. It knows no row class, no function of the user and no line of a program. A front end makes the
expressions, from Python (`query`) or from SQL (`from_sql`), applies these functions to its streams
by `query.trace.on_streams`, and says where a `TypeMismatch` is.
"""
