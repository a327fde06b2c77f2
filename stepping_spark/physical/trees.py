"""Traversal of trees of nodes, and how often they read an argument."""

from __future__ import annotations

from collections.abc import Iterator

from stepping_spark.physical.nodes import AntiJoin, Argument, Physical


def walk(*trees: Physical) -> Iterator[Physical]:
    """The nodes of trees, inputs first."""
    for tree in trees:
        yield from walk(*tree.inputs)
        yield tree


def times_read(tree: Physical, number: int) -> int:
    """How often the text of a tree has an argument."""
    if isinstance(tree, Argument):
        return int(tree.number == number)
    found = sum(times_read(i, number) for i in tree.inputs)
    if isinstance(tree, AntiJoin):  # once for keys, once for NULL
        found += times_read(tree.left, number)
    return found
