"""Incremental joins: inner, semi, anti and outer joins, and joins of many tables.

Inputs and outputs are streams of changes. Each join combines the bilinear rule,
D(I(l) ⋈ I(r)) = I(l) ⋈ r + l ⋈ z⁻¹I(r) (DBSP, theorem 3.4), with circuits that are incremental
already. The modules import only primitives and other circuits.
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
