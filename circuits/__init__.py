"""The operators on changes: each is D ∘ Q ∘ I of an operator on values, with its theorem.

`joins`, `groups`, `sets` and `windows` each publish a family: `lifting` makes an operator of
`st.linear` incremental, and adds a docstring. `graphs` has queries over edges, as fixpoints of the
other operators. The functions that compute the operators are in `stepping_spark.language`.
"""

# Must come first: it loads the facade, which imports the modules below. If they were half loaded
# at that time, its imports would fail.
import stepping_spark.base.errors  # noqa: F401
from circuits.graphs import (
    connected_components,
    reachable,
    shortest_paths,
    transitive_closure,
)
from circuits.groups import aggregate, count, distinct, first_n, group_reduce_flatten, reduce
from circuits.joins import (
    antijoin,
    cross_join,
    delta_join,
    half_join,
    join,
    outer_join,
    range_join,
    semijoin,
)
from circuits.sets import except_, intersect, symmetric_difference, union
from circuits.windows import asof_join, sessions, window

__all__ = [
    "aggregate",
    "antijoin",
    "asof_join",
    "connected_components",
    "count",
    "cross_join",
    "delta_join",
    "distinct",
    "except_",
    "first_n",
    "group_reduce_flatten",
    "half_join",
    "intersect",
    "join",
    "outer_join",
    "range_join",
    "reachable",
    "reduce",
    "semijoin",
    "sessions",
    "shortest_paths",
    "symmetric_difference",
    "transitive_closure",
    "union",
    "window",
]
