"""What trees of nodes read, and how often."""

from __future__ import annotations

from collections.abc import Iterator

from stepping_spark.physical.nodes import AntiJoin, Argument, Physical


def walk(*trees: Physical) -> Iterator[Physical]:
    """The nodes of trees, each after those it is made of."""
    for tree in trees:
        yield from walk(*tree.inputs)
        yield tree


def times_read(tree: Physical, number: int) -> int:
    """How often an argument stands in the text of a tree."""
    if isinstance(tree, Argument):
        return int(tree.number == number)
    found = sum(times_read(i, number) for i in tree.inputs)
    if isinstance(tree, AntiJoin):  # once for keys, once for NULL
        found += times_read(tree.left, number)
    return found
