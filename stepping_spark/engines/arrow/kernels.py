"""What a kernel is, and what it runs on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import pyarrow as pa

from stepping_spark.expressions.arrow import Ask
from stepping_spark.limits import DEFAULT, Limits
from stepping_spark.rows.schema import Schema
from stepping_spark.store import Now


@dataclass
class Context:
    """What kernels run on."""

    ask: Ask  # has Spark evaluate expressions that are not plain
    now: Now = None
    is_once: Callable[[pa.Table, Schema], bool] = lambda *_: False  # of what a leaf is
    limits: Limits = DEFAULT
    args: Sequence[pa.Table] = ()
    filled: pa.Table | None = None  # what a fold is over, within the change of one
    carried: Mapping[Any, Any] = field(default_factory=dict)  # of rows that were left out of that


Kernel: TypeAlias = Callable[[Context], pa.Table]
