"""The primitive operators: their fields, their result types, and whether they are linear.

What an operator means is said elsewhere, once for each interpretation: in `reference` in plain
Python, in `engines.spark` as Spark SQL, in `engines.arrow` on Arrow tables. Here they stand by
family: `base`, `linear`, `time`, `joins`, `groups`, `windows` and `watermarks`.
"""

from stepping_spark.graph.operators.base import (
    Feedback,
    GivesSets,
    Input,
    KeepsSigns,
    Linearity,
    Operator,
    Placeholder,
    Same,
)
from stepping_spark.graph.operators.collated import Collated
from stepping_spark.graph.operators.groups import (
    Accumulate,
    Collate,
    Distinct,
    Flatten,
    Haitch,
    Listed,
    MakeSet,
    PositivePart,
    Top,
    levels_of,
)
from stepping_spark.graph.operators.joins import Join, LookUp, Present, join_of
from stepping_spark.graph.operators.linear import (
    Add,
    Arrange,
    Explode,
    Filter,
    Fused,
    IdentityPrint,
    Map,
    MapMany,
    Neg,
    only_projects,
    parts_of,
    trees_of,
)
from stepping_spark.graph.operators.time import (
    AsOf,
    Delay,
    Differentiate,
    Hold,
    Integrate,
    Temporal,
)
from stepping_spark.graph.operators.watermarks import Expire, InTime, Settled, Touched
from stepping_spark.graph.operators.windows import Window

__all__ = [
    "Accumulate",
    "Add",
    "Arrange",
    "AsOf",
    "Collate",
    "Collated",
    "Delay",
    "Differentiate",
    "Distinct",
    "Expire",
    "Explode",
    "Feedback",
    "Filter",
    "Flatten",
    "Fused",
    "GivesSets",
    "Haitch",
    "Hold",
    "IdentityPrint",
    "InTime",
    "Input",
    "Integrate",
    "Join",
    "KeepsSigns",
    "Linearity",
    "Listed",
    "LookUp",
    "MakeSet",
    "Map",
    "MapMany",
    "Neg",
    "Operator",
    "Placeholder",
    "PositivePart",
    "Present",
    "Same",
    "Settled",
    "Temporal",
    "Top",
    "Touched",
    "Window",
    "join_of",
    "levels_of",
    "only_projects",
    "parts_of",
    "trees_of",
]
