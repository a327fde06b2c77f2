"""Ready-made circuits, written with the primitives only: from changes to changes."""

# First: it loads the facade, which imports the modules below. They must not be half loaded then.
import stepping_spark.errors  # noqa: F401
from circuits.aggregates import aggregate
from circuits.deltas import delta_join, half_join
from circuits.distincts import distinct
from circuits.first import first_n
from circuits.graphs import (
    connected_components,
    reachable,
    shortest_paths,
    transitive_closure,
)
from circuits.groups import group_reduce_flatten
from circuits.joins import join
from circuits.matches import antijoin, outer_join, semijoin
from circuits.reductions import count, reduce

__all__ = [
    "aggregate",
    "antijoin",
    "connected_components",
    "count",
    "delta_join",
    "distinct",
    "first_n",
    "group_reduce_flatten",
    "half_join",
    "join",
    "outer_join",
    "reachable",
    "reduce",
    "semijoin",
    "shortest_paths",
    "transitive_closure",
]
