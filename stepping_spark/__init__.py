"""stepping_spark: views on Spark that are maintained, not recomputed.

A query, written once as a Python function, becomes a circuit; a step feeds it changes, and gives
the changes of its results. See `compile`, `iteration`, `Stepper`.
"""

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
from stepping_spark import agg, linear
from stepping_spark.atoms import LocalDateTime, Precision
from stepping_spark.cache import Cache
from stepping_spark.compile import compile, incrementalize  # noqa: A004
from stepping_spark.errors import (
    CompileError,
    FixpointError,
    InputError,
    StepError,
    SteppingError,
    StoreCorrupt,
    StoreError,
    StoreLocked,
    StoreMismatch,
    StoreUnavailable,
)
from stepping_spark.explain import explain
from stepping_spark.functions import python
from stepping_spark.graph import Graph, Path, Vertex
from stepping_spark.index import Index
from stepping_spark.linear import Grouped
from stepping_spark.primitives import (
    add,
    add3,
    delay,
    delay_indexed,
    differentiate,
    feedback,
    filter,  # noqa: A004
    haitch,
    identity_print,
    integrate,
    integrate_delay,
    integrate_delay_indexed,
    integrate_indexed,
    make_scalar,
    make_set,
    map,  # noqa: A004
    map_many,
    neg,
)
from stepping_spark.recursion import fixpoint
from stepping_spark.reference import reference
from stepping_spark.render import write_dot, write_png, write_svg
from stepping_spark.rows import Data, Pair
from stepping_spark.run import Stepper, actions, iteration
from stepping_spark.zset import ZSet, ZSetPython, ZSetSpark
from stores.memory import StoreMemory

__all__ = [
    "Cache",
    "CompileError",
    "Data",
    "FixpointError",
    "Graph",
    "Grouped",
    "Index",
    "InputError",
    "LocalDateTime",
    "Pair",
    "Path",
    "Precision",
    "StepError",
    "Stepper",
    "SteppingError",
    "StoreCorrupt",
    "StoreError",
    "StoreLocked",
    "StoreMemory",
    "StoreMismatch",
    "StoreUnavailable",
    "Vertex",
    "ZSet",
    "ZSetPython",
    "ZSetSpark",
    "actions",
    "add",
    "add3",
    "agg",
    "compile",
    "connected_components",
    "count",
    "delay",
    "delay_indexed",
    "differentiate",
    "distinct",
    "explain",
    "feedback",
    "filter",
    "fixpoint",
    "group_reduce_flatten",
    "haitch",
    "identity_print",
    "incrementalize",
    "integrate",
    "integrate_delay",
    "integrate_delay_indexed",
    "integrate_indexed",
    "iteration",
    "join",
    "linear",
    "make_scalar",
    "make_set",
    "map",
    "map_many",
    "neg",
    "python",
    "reachable",
    "reduce",
    "reference",
    "shortest_paths",
    "transitive_closure",
    "write_dot",
    "write_png",
    "write_svg",
]
