"""Views: `@st.view`, checks of a pipeline's arguments, and several views as one circuit.

Common parts of views are computed once, and views may read views.
"""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar, overload

from stepping_spark.base.callsite import Line, user_line
from stepping_spark.base.errors import CompileError, InputError, short
from stepping_spark.base.limits import Limits
from stepping_spark.circuit.graph import AnyGraph, Graph
from stepping_spark.circuit.operators import Input
from stepping_spark.language.compile import Options
from stepping_spark.language.compile import compile as compiled
from stepping_spark.language.trace import hints, local_names
from stepping_spark.pipeline.inputs import Feed, short_name
from stepping_spark.pipeline.iterators import Items
from stepping_spark.pipeline.outputs import Outlet
from stepping_spark.pipeline.protocols import ReadTable, Sink, Source, WrittenTable
from stepping_spark.pipeline.rejects import TYPE, view_of
from stepping_spark.relations.store import Store
from stepping_spark.rows.data import Data
from stepping_spark.sql import with_sources
from stores.location import MEMORY, PARQUET, Place, place_of

QueryFunction: TypeAlias = Callable[..., Any]


def graph_of(
    query: QueryFunction | Mapping[str, QueryFunction] | AnyGraph,
    append_only: Iterable[str],
    strict: bool | Iterable[str],
    lateness: Mapping[str, tuple[Callable[[Any], Any], object]] | None,
    *,
    whole_rows: bool,
) -> tuple[AnyGraph, tuple[str, ...]]:
    """The circuit of a query, or of several by name, and the names of its views."""
    if isinstance(query, Graph):
        if tuple(append_only) or strict or lateness or whole_rows:
            raise InputError(
                f"{user_line()}: the query is compiled already; give append_only=, strict=, "
                "lateness= and whole_rows= to st.compile"
            )
        return replace(query, called=view_names(query)), view_names(query)
    options: Options = {
        "append_only": append_only,
        "strict": strict,
        "lateness": lateness,
        "whole_rows": whole_rows,
    }
    if not isinstance(query, Mapping):
        graph = compiled(query, **options)
        return replace(graph, called=view_names(graph)), view_names(graph)
    if not query:
        raise InputError(f"{user_line()}: no query is given; write st.Pipeline(query, …)")
    together = _together(query)
    graph = compiled(together, **options)
    return replace(graph, called=tuple(query)), tuple(query)


def input_names(graph: AnyGraph) -> list[str]:
    """The names of the inputs, in order."""
    return [v.operator.label for v in graph.inputs if isinstance(v.operator, Input)]


def view_names(graph: AnyGraph) -> tuple[str, ...]:
    """The names of a query's views: its own name, or the names of the returned variables."""
    if graph.single:
        return (graph.name,)
    called = [name or f"{graph.name}_{i}" for i, name in enumerate(graph.called, 1)]
    return tuple(
        name if called.count(name) == 1 else f"{name}_{i}" for i, name in enumerate(called, 1)
    )


def _together(queries: Mapping[str, QueryFunction]) -> QueryFunction:
    """One query that returns the views of all queries.

    A parameter with the name of a view is that view; others are inputs, shared by name.
    """
    line = user_line()
    order = _in_order(queries, line)
    annotations: dict[str, Any] = {}
    first: dict[str, str] = {}  # the first query that reads an input
    for name in order:
        q = queries[name]
        hint_of = hints(q, local_names(q), line)
        for p in _parameters(q):
            if p in queries:
                continue
            if p not in hint_of:
                raise CompileError(
                    f"{line}: parameter {p!r} of query {name!r} has no annotation, and is the name "
                    f"of no view; annotate what flows in, {p}: st.ZSet[A], or name a view: "
                    f"{', '.join(queries)}"
                )
            annotation = hint_of[p]
            first.setdefault(p, name)
            if annotations.setdefault(p, annotation) != annotation:
                raise CompileError(
                    f"{line}: input {p!r} is {annotations[p]} in {first[p]!r}, and {annotation} in "
                    f"{name!r}; queries of one pipeline share an input by its name: annotate both "
                    "alike, or rename one"
                )

    def pipeline(*inputs: Any) -> Any:
        streams = dict(zip(annotations, inputs, strict=True))
        for name in order:
            q = queries[name]
            stream = q(*(streams[p] for p in _parameters(q)))
            if isinstance(stream, tuple):
                raise CompileError(
                    f"{line}: query {name!r} returns {len(stream)} streams; of several queries "
                    "each "
                    "returns one: make a query for each stream"
                )
            streams[name] = stream
        return tuple(streams[name] for name in queries)

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(p, kind) for p in annotations]
    pipeline.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    pipeline.__annotations__ = annotations
    return pipeline


def _parameters(query: QueryFunction) -> list[str]:
    try:
        return list(inspect.signature(query).parameters)
    except TypeError:
        raise InputError(
            f"{user_line()}: a query is a function, found {type(query).__name__}"
        ) from None


def _in_order(queries: Mapping[str, QueryFunction], line: Line) -> list[str]:
    """The names of the queries, each after those whose views it reads."""
    order: list[str] = []
    left = list(queries)
    while left:
        ready = [n for n in left if not set(_parameters(queries[n])) & set(left)]
        if not ready:
            raise CompileError(
                f"{line}: these views read each other in a circle: {', '.join(left)}; use "
                "st.feedback or st.fixpoint within one query"
            )
        order += ready
        left = [n for n in left if n not in ready]
    return order


SourceArgument: TypeAlias = "Source | ReadTable | Items | Iterable[tuple[int, object]]"
To: TypeAlias = "Sink | WrittenTable | Callable[[int, Any], object]"
Into: TypeAlias = "To | Sequence[To]"


def feeds_of(
    graph: AnyGraph, views: Sequence[str], sources: Mapping[str, SourceArgument], limits: Limits
) -> list[Feed]:
    """A feed for each input; raises `InputError` if the sources do not match the inputs."""
    names = input_names(graph)
    if set(names) != set(sources):
        if set(names) < set(sources):
            unread = [name for name in sources if name not in names]
            remedy = f"leave out {', '.join(unread)}, or have a view read it"
        else:
            several = f"; or, where a view is meant, name one of {', '.join(views)}"
            remedy = f"give each input its source by name, as {names[0]}=st.DeltaTable(path)" + (
                several if len(views) > 1 else ""
            )
        inputs = f"the inputs {', '.join(names)}" if names else "no inputs"
        raise InputError(
            f"{user_line()}: {graph.name} has {inputs}, and sources are given "
            f"for {', '.join(sources) or 'none'}; {remedy}"
        )
    types = [v.type for v in graph.inputs]
    return [Feed(name, t, sources[name], limits) for name, t in zip(names, types, strict=True)]


def outlets_of(
    graph: AnyGraph, views: Sequence[str], into: Mapping[str, Into], rejects: Mapping[str, Any]
) -> list[Outlet]:
    """The outlets of views, then the outlets of rows that do not fit an input."""
    outlets = []
    for view, argument in into.items():
        if view not in views:
            raise InputError(
                f"{user_line()}: a sink is for the view {view!r}, and the views are "
                f"{', '.join(views)}; name one of them"
            )
        number = views.index(view)
        t = graph.outputs[number].type
        sinks = argument if isinstance(argument, list | tuple) else [argument]
        outlets += [Outlet(view, i, number, t, sink) for i, sink in enumerate(sinks)]
    for number, (name, argument) in enumerate(rejects.items(), len(views)):
        sinks = argument if isinstance(argument, list | tuple) else [argument]
        outlets += [
            Outlet(view_of(name), i, number, TYPE, sink, rejects_of=name)
            for i, sink in enumerate(sinks)
        ]
    return outlets


def into_by_view(
    views: Sequence[str], into: Mapping[str, Into] | Into | None
) -> Mapping[str, Into]:
    """The sinks of views by name; a single view may be left unnamed."""
    if into is None:
        return {}
    if isinstance(into, Mapping):
        return into
    if len(views) == 1:
        return {views[0]: into}
    raise InputError(
        f"{user_line()}: into= has sinks without the names of their views, found {short(into)}; "
        f"the views are {', '.join(views)}: write into={{{views[0]!r}: …}}"
    )


def check_apart(sources: Mapping[str, SourceArgument], into: Mapping[str, Into]) -> None:
    """Refuse a sink whose table is also the table of an input or of another view."""
    tables: list[tuple[str, object]] = [
        (f"the source of input {name!r}", source) for name, source in sources.items()
    ]
    for view, sinks in into.items():
        for sink in sinks if isinstance(sinks, list | tuple) else [sinks]:
            identity = getattr(sink, "identity", None)
            for text, other in tables:
                if identity is not None and getattr(other, "identity", None) == identity:
                    raise InputError(
                        f"{user_line()}: into[{view!r}] is {short_name(sink)}, which is {text} "
                        "too; only one view may write a table, and nothing else: give it another "
                        "one"
                    )
            tables.append((f"a sink of view {view!r}", sink))


def place_given(store: str | Store | Place) -> Store | Place:
    """A store, or the place of a text."""
    if not isinstance(store, str):
        return store
    try:
        return place_of(store)
    except ValueError as e:
        raise InputError(f"{user_line()}: store=: {e}") from None


def copied_place(argument: str | Place, place: Store | Place) -> Place:
    """The place of the state that is copied into a pipeline's new state."""
    try:
        origin = place_of(argument) if isinstance(argument, str) else argument
    except ValueError as e:
        raise InputError(f"{user_line()}: copy_of=: {e}") from None
    wrong = ""
    if not isinstance(origin, Place):
        wrong = f"expected the place of a state, found a value of type {type(origin).__name__}"
    elif origin.kind == MEMORY:
        wrong = "a state in memory cannot be copied"
    elif not isinstance(place, Place) or place.kind == MEMORY:
        wrong = "the copy is made where store= says, which is in memory, or an open store"
    elif place == origin:
        wrong = "store= is that state itself"
    if wrong:
        raise InputError(
            f"{user_line()}: copy_of=: {wrong}; name two places, store='parquet:…' and "
            "copy_of='parquet:…', or two schemas of a database in Postgres"
        )
    return origin


def path_of(place: Store | Place) -> str | None:
    """The path of a state in files, which can be rewound by a step; None for other states."""
    return str(place) if isinstance(place, Place) and place.kind == PARQUET else None


def at_least_1(name: str, value: int | None) -> int | None:
    """A number from 1 on, or None for no bound."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return value
    raise InputError(f"{user_line()}: {name}={value!r}: expected a whole number from 1 on, or None")


F = TypeVar("F", bound=Callable[..., Any])

QueriesArgument: TypeAlias = (
    "QueryFunction | Mapping[str, QueryFunction] | Sequence[QueryFunction] | AnyGraph"
)

_DECLARED = "__stepping_spark_view__"


@dataclass(frozen=True)
class Declared:
    """The declaration of a query: its view's name, comment, sources and sinks."""

    name: str
    comment: str | None
    sources: Mapping[str, SourceArgument]
    into: Into | None
    checks: Mapping[str, Into] = field(default_factory=dict)


@overload
def view(query: F, /) -> F: ...
@overload
def view(
    *,
    name: str | None = None,
    comment: str | None = None,
    into: Into | None = None,
    sources: Mapping[str, SourceArgument] | None = None,
    **inputs: SourceArgument,
) -> Callable[[F], F]: ...
def view(
    query: F | None = None,
    /,
    *,
    name: str | None = None,
    comment: str | None = None,
    into: Into | None = None,
    sources: Mapping[str, SourceArgument] | None = None,
    **inputs: SourceArgument,
) -> F | Callable[[F], F]:
    """Declare the sources of a query function's inputs, and the sinks of its view.

    Each input may have a source, as an argument of its name or in `sources={…}`; `into` is a sink,
    or a list of sinks. They are as for `st.Pipeline`. `name` is the name of the view, by default
    the name of the function, and `comment` a line that describes it, which a dry run shows. The
    function itself does not change: it may be called in another query, and compiled.

    `st.Pipeline(revenue, store=…)` runs the view, and `st.Pipeline([revenue, largest], store=…)`
    several. Arguments of `st.Pipeline` take precedence: a source replaces the view's own, and
    `into` replaces all sinks. `stepping-spark run views.py --store parquet:state` runs all views of
    a file, and `stepping-spark run views.py:revenue --store parquet:state` one.

    >>> seen = {}
    >>> people = [(1, st.ZSetPython({"ann": 1, "bob": 2}))]
    >>> @st.view(people=people, into=seen.setdefault, comment="Each name once")
    ... def names(people: st.ZSet[str]) -> st.ZSet[str]:
    ...     return st.distinct(people)
    >>> st.Pipeline(names, store="memory").run()
    1
    >>> seen[1] == st.ZSetPython({"ann": 1, "bob": 1})
    True
    """
    own_sources = {**(sources or {}), **inputs}

    def declared(query: F) -> F:
        _check(query, name, own_sources)
        declaration = Declared(name or query.__name__, comment, own_sources, into)
        declare(query, declaration)
        return query

    return declared if query is None else declared(query)


def declare(query: Any, declaration: Declared) -> None:
    """Attach a declaration to a query."""
    setattr(query, _DECLARED, declaration)


def declared_of(query: object) -> Declared | None:
    """The declaration of a query, or None."""
    declaration = getattr(query, _DECLARED, None)
    return declaration if isinstance(declaration, Declared) else None


def by_name(
    queries: QueriesArgument, sources: Mapping[str, SourceArgument], whole: Collection[str] | None
) -> QueryFunction | Mapping[str, QueryFunction] | AnyGraph:
    """A single query itself, or several queries by the names of their views.

    Queries in SQL get the columns of their tables from `sources`, or from sources of their own:
    those that a query reads, and for tables in `whole` all columns; None: for all tables.
    """
    if isinstance(queries, Graph):
        return queries
    if isinstance(queries, Mapping):
        bound = _bound([*queries.values()], sources, whole)
        return dict(zip(queries, bound, strict=True))
    if callable(queries):
        (single,) = _bound([queries], sources, whole)
        declaration = declared_of(single)
        if declaration is None or declaration.name == single.__name__:
            return single
        return {declaration.name: single}
    if isinstance(queries, str) or not isinstance(queries, Sequence):
        raise InputError(f"{user_line()}: expected a query function, found {short(queries)}")
    views: dict[str, QueryFunction] = {}
    for query in queries:
        declaration = declared_of(query)
        name = getattr(query, "__name__", None) if declaration is None else declaration.name
        if name is None:
            raise InputError(f"{user_line()}: a query is a function, found {short(query)}")
        if name in views:
            raise InputError(
                f"{user_line()}: two views are called {name!r}; give one of them another name: "
                "@st.view(name=…)"
            )
        views[name] = query
    return dict(zip(views, _bound([*views.values()], sources, whole), strict=True))


def _bound(
    queries: Sequence[QueryFunction],
    sources: Mapping[str, SourceArgument],
    whole: Collection[str] | None,
) -> list[QueryFunction]:
    """The queries; those in SQL have the columns of their tables from sources.

    A table that a query in Python reads, too, has the row class of its annotation.
    """
    unbound = [query for query in queries if hasattr(query, "with_tables")]
    if not unbound:
        return list(queries)
    classes = {n: c for q in queries if q not in unbound for n, c in _row_classes(q).items()}
    declarations = [declared_of(query) for query in unbound]
    given = [{**(d.sources if d else {}), **sources, **classes} for d in declarations]
    bound = with_sources(unbound, given, None if whole is None else {*whole, *classes})
    for query, declaration in zip(bound, declarations, strict=True):
        if declaration is not None:
            declare(query, declaration)
    next_bound = iter(bound)
    return [next(next_bound) if hasattr(q, "with_tables") else q for q in queries]


def _row_classes(query: QueryFunction) -> dict[str, type[Data]]:
    """The row classes of a query's inputs, by name."""
    annotations = hints(query, local_names(query), user_line())
    rows = {n: typing.get_args(a) for n, a in annotations.items() if n != "return"}
    return {
        n: args[0]
        for n, args in rows.items()
        if args and isinstance(args[0], type) and issubclass(args[0], Data)
    }


def sources_of(queries: QueriesArgument, inputs: Iterable[str]) -> dict[str, SourceArgument]:
    """The declared sources of these inputs; raises `InputError` if two of them differ."""
    sources: dict[str, SourceArgument] = {}
    for declaration in _declarations(queries):
        for name, source in declaration.sources.items():
            if name in inputs and not _is_same(sources.setdefault(name, source), source):
                raise InputError(
                    f"{user_line()}: input {name!r} is {short_name(sources[name])} for one view, "
                    f"and {short_name(source)} for {declaration.name!r}; views of one pipeline "
                    f"share an input by its name: rename one, or give {name}=… to st.Pipeline"
                )
    return sources


def sinks_of(
    queries: QueriesArgument, views: Sequence[str], into: Mapping[str, Into] | Into | None
) -> dict[str, Into]:
    """The sinks of views: `into`, or else the declared sinks; and always the checks."""
    declarations = _declarations(queries)
    checks = {
        view: check for declaration in declarations for view, check in declaration.checks.items()
    }
    if into is None:
        into = {
            declaration.name: declaration.into
            for declaration in declarations
            if declaration.into is not None
        }
    sinks = dict(into_by_view([view for view in views if view not in checks], into))
    for view, check in checks.items():
        sinks[view] = [*_as_list(sinks.get(view, ())), *_as_list(check)]
    return sinks


def _as_list(into: Into) -> list[Any]:
    return list(into) if isinstance(into, list | tuple) else [into]


def comments_of(queries: QueriesArgument) -> dict[str, str]:
    """The comments of queries, by their views."""
    return {
        declaration.name: declaration.comment
        for declaration in _declarations(queries)
        if declaration.comment
    }


def _declarations(queries: QueriesArgument) -> list[Declared]:
    """The declarations of queries; in a mapping, the keys are the names of views."""
    if isinstance(queries, Graph):
        return []
    if isinstance(queries, Mapping):
        named = [(name, declared_of(query)) for name, query in queries.items()]
        return [
            Declared(
                name, declaration.comment, declaration.sources, declaration.into, declaration.checks
            )
            for name, declaration in named
            if declaration is not None
        ]
    listed = [queries] if callable(queries) else queries
    return [declaration for declaration in map(declared_of, listed) if declaration is not None]


def _is_same(a: object, b: object) -> bool:
    identity = getattr(a, "identity", None)
    return a is b or (identity is not None and identity == getattr(b, "identity", None))


def _check(query: object, name: str | None, sources: Mapping[str, SourceArgument]) -> None:
    """Refuse a query that is no function, an invalid name, and sources of unknown inputs."""
    if not (callable(query) and inspect.isfunction(inspect.unwrap(query))):
        raise InputError(
            f"{user_line()}: @st.view stands above a query function, found {short(query)}; name "
            "what you give: @st.view(into=…)"
        )
    if name is not None and (not isinstance(name, str) or not name):
        raise InputError(f"{user_line()}: name={name!r}: expected the name of the view, a text")
    parameters = list(inspect.signature(query).parameters)
    odd = [n for n in sources if n not in parameters]
    if odd:
        raise InputError(
            f"{user_line()}: @st.view has a source for {', '.join(odd)}, and the parameters of "
            f"{getattr(query, '__name__', query)} are {', '.join(parameters)}; give each source "
            "the name of a parameter"
        )
