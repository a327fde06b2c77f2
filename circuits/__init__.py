"""Ready-made circuits, written with the primitives only: from changes to changes."""

# First: it loads the facade, which imports the modules below. They must not be half loaded then.
import stepping_spark.errors  # noqa: F401
from circuits.distincts import distinct
from circuits.graphs import (
    connected_components,
    reachable,
    shortest_paths,
    transitive_closure,
)
from circuits.groups import group_reduce_flatten
from circuits.joins import join
from circuits.reductions import count, reduce

__all__ = [
    "connected_components",
    "count",
    "distinct",
    "group_reduce_flatten",
    "join",
    "reachable",
    "reduce",
    "shortest_paths",
    "transitive_closure",
]
