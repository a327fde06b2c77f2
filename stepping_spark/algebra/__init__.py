"""The relational algebra: functions from vertices and expressions to vertices.

`rows` maps, filters and adds, `joins` has the joins, `sets` distinct and the set operations of SQL,
`groups` the first rows of keys. A function takes the values of one step, as vertices of a circuit,
and expressions over their rows. It knows no row class, no function of the user, and no line of a
program. A front end makes the expressions, from Python (`language`) or from SQL (`sql`), applies
these functions to its streams by `language.trace.on_streams`, and says where a `TypeMismatch` is.

Input: vertices and expressions. Output: vertices. Imports `circuit` and the packages before it;
never `base.callsite` or `passes`.
"""
