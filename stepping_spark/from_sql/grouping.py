"""GROUP BY: keys, and the sets of keys of ROLLUP, CUBE and GROUPING SETS."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlglot import exp

from stepping_spark.from_sql.aggregate_calls import is_aggregate
from stepping_spark.from_sql.columns import Column, Expr
from stepping_spark.from_sql.names import same
from stepping_spark.from_sql.plan import Item

if TYPE_CHECKING:
    from stepping_spark.from_sql.binder import Binder


@dataclass
class Grouping:
    """The keys of groups, and the grouping sets as numbers of keys; None: all keys."""

    keys: list[Item]
    sets: tuple[tuple[int, ...], ...] | None

    def number(self, e: Expr) -> int:
        """The number of a key, which is added if it is not there."""
        for i, (_, known) in enumerate(self.keys):
            if known == e:
                return i
        name = e.meta["column"].name if "column" in e.meta else "key"
        self.keys.append((Column(name), e))
        return len(self.keys) - 1


def grouping_of(group: exp.Group, items: Sequence[tuple[str, Expr]], binder: Binder) -> Grouping:
    """The keys of a GROUP BY, bound over the rows of FROM."""
    found = Grouping([], None)
    if group.args.get("all"):
        for _, e in items:
            if not any(is_aggregate(p) for p in e.walk()):
                found.number(binder.bind_row(e))
        return found
    parts = [_sets(e, found, items, binder) for e in _elements(group)]
    if all(len(sets) == 1 for sets in parts) and not _has_sets(group):
        return found
    product = itertools.product(*parts)
    found.sets = tuple(tuple(dict.fromkeys(itertools.chain(*one))) for one in product)
    return found


def _elements(group: exp.Group) -> Iterator[Expr]:
    yield from group.expressions
    for kind in ("grouping_sets", "cube", "rollup"):
        yield from group.args.get(kind) or ()


def _has_sets(group: exp.Group) -> bool:
    return any(isinstance(e, exp.Rollup | exp.Cube | exp.GroupingSets) for e in _elements(group))


Sets = list[tuple[int, ...]]


def _sets(node: Expr, found: Grouping, items: Sequence[tuple[str, Expr]], binder: Binder) -> Sets:
    """The sets of one element of GROUP BY."""
    if isinstance(node, exp.GroupingSets):
        return [s for e in node.expressions for s in _sets(e, found, items, binder)]
    if isinstance(node, exp.Rollup | exp.Cube):
        parts = [_numbers(e, found, items, binder) for e in node.expressions]
        n = len(parts)
        if isinstance(node, exp.Rollup):
            chosen = [tuple(range(k)) for k in range(n, -1, -1)]
        else:
            chosen = [c for k in range(n, -1, -1) for c in itertools.combinations(range(n), k)]
        return [tuple(i for part in c for i in parts[part]) for c in chosen]
    return [_numbers(node, found, items, binder)]


def _numbers(
    node: Expr, found: Grouping, items: Sequence[tuple[str, Expr]], binder: Binder
) -> tuple[int, ...]:
    """The keys that one element names: one, or those of a list in parentheses."""
    if isinstance(node, exp.Tuple):
        return tuple(i for e in node.expressions for i in _numbers(e, found, items, binder))
    while isinstance(node, exp.Paren):
        node = node.this
    return (found.number(binder.bind_row(_meant(node, items, binder))),)


def _meant(node: Expr, items: Sequence[tuple[str, Expr]], binder: Binder) -> Expr:
    """The expression that a position or an alias of the select list stands for."""
    if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit():
        at = int(node.name)
        if not 1 <= at <= len(items):
            binder.fail(node, f"GROUP BY {at}: the select list has {len(items)} columns")
        return items[at - 1][1]
    if isinstance(node, exp.Column) and len(node.parts) == 1:
        known = binder.scope.found(node.name, "")
        named = [e for name, e in items if same(name, node.name)]
        if not known and named:
            return named[0]
    return node
