"""Removes vertices that no output, cache or loop needs."""

from __future__ import annotations

import dataclasses

from stepping_spark.graph.rewrite import Circuit


def drop_dead(graph: Circuit) -> Circuit:
    """Forget vertices and loops that nothing needs."""
    needed = set(graph.walk())
    return dataclasses.replace(
        graph,
        loops={leaf: source for leaf, source in graph.loops.items() if leaf in needed},
        origins={v: o for v, o in graph.origins.items() if v in needed},
    )
