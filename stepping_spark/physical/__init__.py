"""What operators are made of: a dozen nodes over relations, which each engine knows how to run.

An operator of the circuit says in the algebra what a stream is; here stands how a relation is made
of others, in the terms of a database: project, filter, unnest, union, join, rank, window, fold. An
operator builds a tree of these nodes (`Operator.physical`), the engines run trees and know no
operator. So a
new operator that the nodes can say needs no line in an engine, and a node is one function in each.

Comes in: expressions over rows, and the types of streams. Goes out: trees, to `graph` and `plan`.
"""

from stepping_spark.physical.folds import (
    ChangeOf,
    CollatedChange,
    Fold,
    Gather,
    Pieces,
    Positive,
    Rank,
    Totals,
    change_of,
    over,
)
from stepping_spark.physical.nodes import (
    AntiJoin,
    Argument,
    Before,
    Cell,
    Contributions,
    Due,
    EquiJoin,
    Hole,
    Negate,
    Physical,
    Project,
    Union,
    Unnest,
    Where,
    cells_of,
    of_columns,
    paths_of,
)
from stepping_spark.physical.reach import Nearest, Reach, Runs, cut_by, nearby_of, reach_of
from stepping_spark.physical.trees import (
    times_read,
    walk,
)
from stepping_spark.physical.windows import (
    Frame,
    Sorting,
    WindowCall,
    Windowed,
    unit_of,
)

__all__ = [
    "AntiJoin",
    "Argument",
    "Before",
    "Cell",
    "ChangeOf",
    "CollatedChange",
    "Contributions",
    "Due",
    "EquiJoin",
    "Fold",
    "Frame",
    "Gather",
    "Hole",
    "Nearest",
    "Negate",
    "Physical",
    "Pieces",
    "Positive",
    "Project",
    "Rank",
    "Reach",
    "Runs",
    "Sorting",
    "Totals",
    "Union",
    "Unnest",
    "Where",
    "WindowCall",
    "Windowed",
    "cells_of",
    "change_of",
    "cut_by",
    "nearby_of",
    "of_columns",
    "over",
    "paths_of",
    "reach_of",
    "times_read",
    "unit_of",
    "walk",
]
