"""Joins, lifted to changes: inner, semi, anti and outer joins, and joins of many tables.

Each is made of the bilinear rule, D(I(l) ⋈ I(r)) = I(l) ⋈ r + l ⋈ z⁻¹I(r) (DBSP, theorem 3.4), and
of circuits that are lifted already. Streams of changes come in and go out. Only the primitives and
other circuits are imported.
"""

from circuits.joins.delta import delta_join
from circuits.joins.inner import antijoin, half_join, join, semijoin
from circuits.joins.outer import cross_join, outer_join, range_join

__all__ = [
    "antijoin",
    "cross_join",
    "delta_join",
    "half_join",
    "join",
    "outer_join",
    "range_join",
    "semijoin",
]
