"""stepping_spark: views on Spark that are maintained, not recomputed.

A query, written once as a Python function, becomes a circuit; a step feeds it changes, and gives
the changes of its results. See `compile`, `iteration`, `Stepper`.
"""

from difflib import get_close_matches
from typing import TYPE_CHECKING, NoReturn

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
from stepping_spark import functions
from stepping_spark.base.errors import (
    CompileError,
    FixpointError,
    InputError,
    SinkError,
    SourceError,
    StepError,
    SteppingError,
    StoreCorrupt,
    StoreError,
    StoreLocked,
    StoreMismatch,
    StoreUnavailable,
)
from stepping_spark.base.limits import Limits
from stepping_spark.circuit.graph import Graph, Path, Vertex
from stepping_spark.circuit.operators.groups import ReducePlan
from stepping_spark.expressions.functions import python
from stepping_spark.expressions.index import Index
from stepping_spark.language import agg, linear, win
from stepping_spark.language.cache import Cache
from stepping_spark.language.compile import compile, incrementalize  # noqa: A004
from stepping_spark.language.delta_joins import Lookup
from stepping_spark.language.grouping import cube, grouping_sets, rollup
from stepping_spark.language.lateness import late
from stepping_spark.language.linear import Grouped, flatten, group, per_group
from stepping_spark.language.primitives import (
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
from stepping_spark.language.recursion import fixpoint
from stepping_spark.language.temporal_filters import explode, join_function, temporal_filter
from stepping_spark.pipeline import Batch, Pipeline, Portion, Prospect, Sink, Source, view
from stepping_spark.pipeline.dbt import dbt_project
from stepping_spark.pipeline.delta import DeltaTable
from stepping_spark.pipeline.files import Files
from stepping_spark.pipeline.iceberg import IcebergTable
from stepping_spark.pipeline.iterators import Items
from stepping_spark.pipeline.outputs import Check
from stepping_spark.pipeline.postgres import Postgres
from stepping_spark.pipeline.rejects import Rejected
from stepping_spark.pipeline.row_class import row_class
from stepping_spark.pipeline.spark_sources import CatalogTable, MicroBatches
from stepping_spark.plan.explain import explain
from stepping_spark.plan.metrics import StepMetrics
from stepping_spark.reference.semantics import reference
from stepping_spark.relations.store import Store
from stepping_spark.report import Report
from stepping_spark.report.render import to_svg, write_dot, write_png, write_svg
from stepping_spark.rows.atoms import Column, LocalDateTime, Precision
from stepping_spark.rows.data import Data, Pair, Session, Update
from stepping_spark.rows.row_class import row
from stepping_spark.spark.session import get_session
from stepping_spark.sql import sql
from stepping_spark.stepper.actions import Action, actions, iteration
from stepping_spark.stepper.evolve.evolution import Evolution
from stepping_spark.stepper.evolve.evolution import evolution_of as evolution
from stepping_spark.stepper.stepper import Stepper
from stepping_spark.stepper.streaming import foreach_batch
from stepping_spark.zsets.from_change_feed import from_change_feed
from stepping_spark.zsets.spark import ZSet, ZSetPython, ZSetSpark, assert_equal
from stores.memory import StoreMemory
from stores.parquet.store import StoreParquet
from stores.postgres import StorePostgres

__all__ = [
    "Action",
    "Batch",
    "Cache",
    "CatalogTable",
    "Check",
    "Column",
    "CompileError",
    "Data",
    "DeltaTable",
    "Evolution",
    "Files",
    "FixpointError",
    "Graph",
    "Grouped",
    "IcebergTable",
    "Index",
    "InputError",
    "Items",
    "Limits",
    "LocalDateTime",
    "Lookup",
    "MicroBatches",
    "Pair",
    "Path",
    "Pipeline",
    "Portion",
    "Postgres",
    "Precision",
    "Prospect",
    "ReducePlan",
    "Rejected",
    "Report",
    "Session",
    "Sink",
    "SinkError",
    "Source",
    "SourceError",
    "StepError",
    "StepMetrics",
    "Stepper",
    "SteppingError",
    "Store",
    "StoreCorrupt",
    "StoreError",
    "StoreLocked",
    "StoreMemory",
    "StoreMismatch",
    "StoreParquet",
    "StorePostgres",
    "StoreUnavailable",
    "Update",
    "Vertex",
    "ZSet",
    "ZSetPython",
    "ZSetSpark",
    "actions",
    "add",
    "add3",
    "agg",
    "aggregate",
    "antijoin",
    "asof_join",
    "assert_equal",
    "compile",
    "connected_components",
    "count",
    "cross_join",
    "cube",
    "dbt_project",
    "delay",
    "delay_indexed",
    "delta_join",
    "differentiate",
    "distinct",
    "evolution",
    "except_",
    "explain",
    "explode",
    "feedback",
    "filter",
    "first_n",
    "fixpoint",
    "flatten",
    "foreach_batch",
    "from_change_feed",
    "functions",
    "get_session",
    "group",
    "group_reduce_flatten",
    "grouping_sets",
    "haitch",
    "half_join",
    "identity_print",
    "incrementalize",
    "integrate",
    "integrate_delay",
    "integrate_delay_indexed",
    "integrate_indexed",
    "intersect",
    "iteration",
    "join",
    "join_function",
    "late",
    "linear",
    "make_scalar",
    "make_set",
    "map",
    "map_many",
    "neg",
    "outer_join",
    "per_group",
    "python",
    "range_join",
    "reachable",
    "reduce",
    "reference",
    "rollup",
    "row",
    "row_class",
    "semijoin",
    "sessions",
    "shortest_paths",
    "sql",
    "symmetric_difference",
    "temporal_filter",
    "transitive_closure",
    "union",
    "view",
    "win",
    "window",
    "write_dot",
    "write_png",
    "write_svg",
]

# A notebook shows a graph as its picture. Drawing knows graphs, and graphs do not know drawing.
Graph._repr_svg_ = to_svg


def __dir__() -> list[str]:
    """The public names, without the modules that they come from."""
    return sorted(__all__)


if not TYPE_CHECKING:  # a checker would take any name for one that there is

    def __getattr__(name: str) -> NoReturn:
        """Say which name may have been meant."""
        near = [f"st.agg.{name}"] if name in agg.__all__ else []
        near += [f"st.win.{name}"] if name in win.__all__ else []
        near += [f"st.{n}" for n in get_close_matches(name, __all__, 3)]
        meant = f"; did you mean {' or '.join(near)}?" if near else ""
        raise AttributeError(
            f"stepping_spark has no {name!r}{meant or ';'} dir(stepping_spark) lists what it has"
        )
