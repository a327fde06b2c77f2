"""The passes of the optimizer, in the order they run.

Equal vertices are one object from the moment they are made (`circuit.graph.Vertex`), so common
parts merge without a pass; vertices that a pass makes equal merge too. A pass changes the cost of a
step, never its result: `compile(query, optimize=False)` runs none of them.

`incremental` turns queries on whole tables into queries on changes, `top_n` keeps the first rows of
groups, `unread_columns` leaves columns out of the state of joins, `cleanup` merges, shares and
removes vertices. `watermarks` derives lower bounds for values of future rows, and `expire_state`
removes the rows that no later change can touch.
"""

from __future__ import annotations

from collections.abc import Callable

from stepping_spark.circuit.graph import AnyCircuit
from stepping_spark.passes.cleanup import drop_dead, merge_maps, share_registers
from stepping_spark.passes.expire_state import drop_settled
from stepping_spark.passes.incremental import (
    cancel,
    collate_at_once,
    push_integrals,
    recognise_differences,
    recognise_integrals,
)
from stepping_spark.passes.top_n import first_of_ranked, keep_only_first, put_in_buckets
from stepping_spark.passes.unread_columns import drop_unread

Pass = Callable[[AnyCircuit], AnyCircuit]

PASSES: tuple[Pass, ...] = (
    recognise_integrals,
    recognise_differences,
    cancel,
    drop_unread,
    push_integrals,
    cancel,
    first_of_ranked,
    keep_only_first,
    put_in_buckets,
    share_registers,
    drop_settled,
    collate_at_once,
    merge_maps,
    drop_dead,
)


def optimize(graph: AnyCircuit, passes: tuple[Pass, ...] = PASSES) -> AnyCircuit:
    """The circuit after all passes."""
    for p in passes:
        graph = p(graph)
    return graph
