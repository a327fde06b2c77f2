"""Strict inputs, from which only existing rows may be removed."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable

from stepping_spark.base.errors import InputError, short
from stepping_spark.circuit.graph import AnyGraph, Origin, Path, Vertex, adopt
from stepping_spark.circuit.operators import Delay, Distinct, Haitch, Input, Integrate, Neg
from stepping_spark.rows.schema import ZSetType


def checked(graph: AnyGraph, labels: Collection[str]) -> AnyGraph:
    """The circuit, with one more vertex for each of these inputs: the removed rows it did not have.

    The vertex is H(-z⁻¹I(a), -a): a row has weight 1 if the negated sum becomes positive, that is,
    if the sum becomes negative. State, with or without the optimizer: I(a) by the whole row, shared
    with any other reader of it in the query.
    """
    origins = dict(graph.origins)
    found = {}
    for a in graph.inputs:
        if isinstance(a.operator, Input) and a.operator.label in labels:
            label = a.operator.label
            a = graph.lateness[label].in_time if label in graph.lateness else a
            before = Vertex(Delay(), Vertex(Integrate(), a))
            missing = Vertex(Haitch(Distinct()), Vertex(Neg(), before), Vertex(Neg(), a))
            path = Path((graph.name, f"strict_{label}"))
            adopt(missing, Origin(path, graph.origins[a].line), origins)
            found[label] = missing
    roots = dict.fromkeys((*graph.no_output, *found.values()))
    return dataclasses.replace(graph, no_output=tuple(roots), strict=found, origins=origins)


def check_is_strict(graph: AnyGraph, asked: bool | Iterable[str]) -> None:
    """Raise `InputError` if a strict input is requested, but the graph was not made with it."""
    strict = {i.label: i.append_only or i.label in graph.strict for i in _inputs(graph)}
    if isinstance(asked, bool):
        wanted = list(strict) if asked else []
    else:
        wanted = [asked] if isinstance(asked, str) else list(asked)
    unknown = [label for label in wanted if label not in strict]
    if unknown:
        raise InputError(
            f"strict={short(asked)}: {graph.name} has no input {unknown[0]!r} that is a Z-set; "
            f"those are: {', '.join(strict) or 'none'}"
        )
    missing = [label for label in wanted if not strict[label]]
    if missing:
        raise InputError(
            f"strict={asked!r}: the graph does not keep which rows of input {missing[0]!r} are "
            f"there; compile it with st.compile(query, strict={asked!r}), and make a new store "
            "from that graph: the state of a graph that is not strict does not have them"
        )


def _inputs(graph: AnyGraph) -> list[Input]:
    ops = [v.operator for v in graph.inputs if isinstance(v.type, ZSetType)]
    return [op for op in ops if isinstance(op, Input)]
