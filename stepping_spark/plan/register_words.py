"""Descriptions of the contents of registers, in words of the user's query."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from stepping_spark.circuit.graph import AnyGraph, Path, V, Vertex
from stepping_spark.circuit.operators import (
    Accumulate,
    Add,
    BucketedTop,
    Distinct,
    Expire,
    Filter,
    Haitch,
    Hold,
    Input,
    Map,
    Neg,
    Operator,
    Top,
    only_prunes,
    parts_of,
)
from stepping_spark.circuit.operators.groups import ReducePlan
from stepping_spark.circuit.operators.linear import only_projects
from stepping_spark.expressions.expr import Build, Expr, Field
from stepping_spark.plan.plan import Plan
from stepping_spark.plan.step_ir import RegisterPlan
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.schema import VALUE, Columns, ZSetType
from stepping_spark.rows.types import Struct, unwrap

SUMS = "accumulable"
"""The first word of the kind of a reduction whose state is sums."""


def words_of(plan: Plan, *, lines: bool = True) -> dict[str, str]:
    """The contents of each register, by its name; with or without the lines of the query.

    Registers with the same contents in words have their names behind them.
    """
    words = {s.register.name: _words(s, plan.graph, lines=lines) for s in plan.states}
    often = Counter(words.values())
    return {name: text if often[text] == 1 else f"{text} [{name}]" for name, text in words.items()}


def words_of_states(plan: Plan) -> dict[str, list[str]]:
    """For pictures: the contents of the registers of a stream, by the path of its vertex.

    Registers of which there is no more to say than their paths have none.
    """
    states: dict[str, list[str]] = {}
    for state in plan.states:
        path, text = plan.names[state.change][0], _words(state, plan.graph, lines=False)
        waiting = held_back(state.change)
        if waiting is not None and waiting in plan.graph.origins:
            path = plan.graph.paths[waiting]
        is_path = re.match(rf"{re.escape(_called(path, plan.graph))}( by |$)", text)
        if not is_path or (len(path.parts) == 2 and _name(path, state.change.operator)):
            states.setdefault(str(path), []).append(text)
    return states


def _words(state: RegisterPlan, graph: AnyGraph, *, lines: bool) -> str:
    v, columns = state.change, columns_left(state.change)
    while only_prunes(v.operator):
        (v,) = v.inputs
    key = [n for n in state.register.key if not n.startswith("_key_")]
    label = _label(v, graph)
    if label is not None:
        return f"{label}{_in_parentheses(columns)}{_by(', '.join(key))}"
    waiting = held_back(v)
    of = v if waiting is None or waiting not in graph.origins else waiting
    if of not in graph.origins:
        return state.register.name
    line = f" ({graph.line(of)})" if lines else ""
    if of is waiting:
        return f"{_words_of_waiting(waiting, state.register.key, key, graph)}{line}"
    aggregation = _aggregation(v, graph)
    if aggregation is not None and (_is_state(v) or not _is_result(v, graph)):
        use = _kept_for(v, aggregation)
        if use is not None:
            return use
    return _words_of_rows(v, columns, key, graph, line)


def _words_of_waiting(v: Vertex, key: Sequence[str], names: Sequence[str], graph: AnyGraph) -> str:
    """The words for rows that a vertex holds back; `names` are the columns of the key."""
    by = ""
    if isinstance(v.operator, Expire) and key != ("_key_",):
        by = _by(", ".join(names) or "time")
    return f"{_rows_of(v, graph)}{by} {_WAITING[type(v.operator)]}"


def columns_left(v: Vertex) -> list[str]:
    """The columns that are left of rows of which others have been left out; none for whole rows."""
    if not only_prunes(parts_of(v.operator)[-1]):
        return []
    return columns_within(v.type.schema.columns)


def columns_within(columns: Columns) -> list[str]:
    """The names of columns; of a row, the names of its columns behind its own."""
    return [".".join(path) for n, t in columns for path in _leaves(t, (n,))]


def _leaves(t: RowType, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The paths of the columns within a row."""
    row = unwrap(t)
    if isinstance(row, Struct):
        for name, part in row.fields:
            yield from _leaves(part, (*path, name))
    else:
        yield path


def _in_parentheses(columns: Iterable[str]) -> str:
    listed = ", ".join(columns)
    return f" ({listed})" if listed else ""


def _words_of_rows(
    v: Vertex, left: Sequence[str], key: Sequence[str], graph: AnyGraph, line: str
) -> str:
    """The words for rows that are picked from a stream or found in it; otherwise the path."""
    path, origin = graph.paths[v], graph.origins[v]
    if left and origin.parts:
        path = origin.parts[-2].path  # the last one leaves out columns
    unnamed = _aggregation(v, graph) is not None or _UNNAMED.fullmatch(path.parts[-1])
    found = _found(v) if unnamed else ""
    source = _source(v, graph, found) if unnamed else None
    columns = {} if source is None else source.columns
    names = [columns.get(n, n) for n in key]
    by = _by(", ".join(n for n in names if n != VALUE))
    if source is None:
        return f"{_called(path, graph)}{_in_parentheses(left)}{by}{line}"
    of = f"{found} of {source.words}" if found else source.words
    if source.key is not None:
        return f"{of}{_by(source.key)}{by and ','}{by}"
    return f"{of}{_in_parentheses(columns.values() or left)}{by}{line}"


def _called(path: Path, graph: AnyGraph) -> str:
    """A path without the query, but with the view, if there are several; a view by its name."""
    first, *inner = path.parts
    return ".".join(inner if first == graph.name or inner == [first] else path.parts)


def _label(v: Vertex, graph: AnyGraph) -> str | None:
    """The words for an input, its rows in time, or its greatest time; None for other vertices."""
    if isinstance(v.operator, Input):
        return v.operator.label or None
    for label, late in graph.lateness.items():
        if late.in_time is v:
            return f"{label} in time"
        if graph.loops.get(late.greatest) is v:
            return f"greatest {late.at} of {label}"
    return None


_WAITING = {Hold: "whose time is to come", Expire: "that no watermark has passed yet"}
"""The words for the rows that an operator holds back."""


def held_back(v: V) -> V | None:
    """The vertex that holds rows back, if `v` is its input minus its output."""
    if isinstance(v.operator, Add) and isinstance(v.inputs[-1].operator, Neg):
        (source,) = v.inputs[-1].inputs
        return source if type(source.operator) in _WAITING else None
    return None


def _rows_of(v: Vertex, graph: AnyGraph) -> str:
    """The rows that a vertex holds back: of an input, "some orders", or of an aggregation."""
    v = v.inputs[0]
    aggregation = _aggregation(v, graph)
    use = None if aggregation is None else _kept_for(v, aggregation)
    if use is not None:
        return use
    while (label := _label(v, graph)) is None and len(v.inputs) == 1:
        (v,) = v.inputs
    return "rows" if label is None else f"some {label}"


_UNNAMED = re.compile(r"(map|filter|distinct|top|top_of_\d+)(_\d+)?")
"""The names of vertices that the query does not name."""


def _found(v: Vertex) -> str:
    """The rows that a vertex finds in its input; "" if it is linear, or finds none of it."""
    match v.operator:
        case Haitch(of=Distinct()):
            return "distinct rows"
        case Haitch(of=Top() as top):
            return _first(top)
        case BucketedTop(top=top):
            return f"{_first(top)} of groups or buckets"
    return ""


def _first(top: Top) -> str:
    return "first row" if top.n == 1 else f"first {top.n:,} rows"


class _Source(NamedTuple):
    """The stream from which a vertex picks rows and columns, and their original names.

    The words are those of an input, or else of the last vertex that the query names, or else of the
    results of an aggregation by a `key`; "some " comes before them if rows are picked.
    """

    words: str
    columns: Mapping[str, str]
    key: str | None = None


def _source(v: Vertex, graph: AnyGraph, found: str) -> _Source | None:
    """The stream that a vertex only picks from, or finds rows in; None if it does more."""
    columns: Mapping[str, str] = {}
    some, named = "", None
    itself = None if found else v
    v = v.inputs[-1] if found else v
    while (label := _label(v, graph)) is None and v.inputs:
        is_result, before = _is_result(v, graph), (some, columns)
        for part, (name, op) in enumerate(reversed(_named_parts(v, graph))):
            if name and named is None and (v is not itself or part):
                named = _Source(some + name, columns)
            if isinstance(op, Filter):
                some = "some "
            elif isinstance(op, Map) and only_projects(op):
                names = _named(op.f)
                columns = {n: names.get(c, c) for n, c in columns.items()} or names
            elif not isinstance(op, BucketedTop):
                break
        else:
            if not is_result:
                v = v.inputs[-1]
                continue
        return named or (_results(v, graph, *before) if is_result else None)
    return named if label is None else _Source(some + label, columns)


def _results(v: Vertex, graph: AnyGraph, some: str, columns: Mapping[str, str]) -> _Source:
    aggregation = _aggregation(v, graph)
    assert aggregation is not None
    results = ", ".join(a for part in aggregation.parts for a in part.aggregates)
    return _Source(f"{some}results of {results}", columns, aggregation.by)


def _named_parts(v: Vertex, graph: AnyGraph) -> list[tuple[str, Operator]]:
    """The operators of a vertex, with the names that the query gives them, or ""."""
    origin = graph.origins.get(v)
    origins = (origin.parts or (origin,)) if origin is not None else ()
    operators = parts_of(v.operator)
    if len(origins) != len(operators):
        return [("", op) for op in operators]
    return [(_name(o.path, op), op) for o, op in zip(origins, operators, strict=True)]


def _name(path: Path, op: Operator) -> str:
    bare = re.sub(r"_\d+$", "", path.parts[-1])
    inside = len(path.parts) > 2 or bare in (op.name, op.user_name) or " " in bare
    return "" if inside or _UNNAMED.fullmatch(path.parts[-1]) else path.parts[-1]


def _named(f: Expr) -> dict[str, str]:
    """The columns that a function of rows picks; members of a tuple with the fields' names."""
    if isinstance(f, Field):
        return {VALUE: str(f)}
    if isinstance(f, Build) and isinstance(f.type, Struct) and f.type.python is tuple:
        return {n: str(e) for (n, _), e in zip(f.type.fields, f.fields, strict=True)}
    return {name: name for name, _ in ZSetType(f.type).schema.columns}


def _aggregation(v: Vertex, graph: AnyGraph) -> ReducePlan | None:
    """The aggregation that a vertex was made for; None if there is none."""
    scope = graph.origins[v].path.scope if v in graph.origins else ()
    return next((r for r in graph.reductions if r.scope == scope), None)


def _is_state(v: Vertex) -> bool:
    """Whether a vertex of an aggregation sums values, or finds first rows."""
    return _is_summed(v) or v.operator.change_by_key


def _is_summed(v: Vertex) -> bool:
    return any(isinstance(op, Accumulate) for op in parts_of(v.operator))


def _is_result(v: Vertex, graph: AnyGraph) -> bool:
    """Whether a vertex of an aggregation is, or is computed from, the aggregation's state."""
    aggregation = _aggregation(v, graph)
    pending = [v] if aggregation is not None else []
    while pending:
        of = pending.pop()
        if _aggregation(of, graph) is aggregation:
            if _is_state(of):
                return True
            pending += of.inputs
    return False


def _kept_for(v: Vertex, plan: ReducePlan) -> str | None:
    """The aggregates that need a vertex's state, and their key; None if there are none."""
    sums = _is_summed(v)
    parts = [p for p in plan.parts if p.kind.startswith(SUMS) == sums]
    aggregates = ", ".join(a for part in parts for a in part.aggregates)
    rows = "" if sums else "first rows for " if v.operator.change_by_key else "rows for "
    return f"{rows}{aggregates}{_by(plan.by)}" if parts else None


def _by(key: str) -> str:
    return f" by {key}" if key else ""
