"""The identity of operators and row functions, the same in every process and under any names.

A state is the sum of the outputs of operators, so it must not be used with different operators.
`identity_of` converts an operator's arguments to the text that decides. For expressions it contains
the whole computation, with the names and types of the fields that they read. For types it contains
the types of their columns. It leaves out the names of the user's row classes, and everything that
no expression reads.

Two kinds of expression do not show which fields they read. An expression that only Spark evaluates
reads at most the columns, or parts of columns, whose names appear in its text. A Python function
may read the whole row, and the name of its class too (`repr(row)`).

A state is the sum of a function's past results. If the function changes, a deletion would remove
results that were never added. So this text goes into the digests by which a store distinguishes
circuits.

The text is the source, as Python's own parser writes it. Comments, layout, the names of variables
and the version of Python do not count. The values that the function refers to do count: values of
its closure and defaults, the constants of its module, and the functions of its module, recursively.
An imported object counts by its name.
"""

from __future__ import annotations

import ast
import copy
import dataclasses
import datetime as dt
import decimal
import dis
import enum
import functools
import hashlib
import linecache
import re
import uuid
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any

from stepping_spark.expressions.expr import Literal, Opaque, PythonCall
from stepping_spark.rows.atoms import Atom, RowType
from stepping_spark.rows.schema import Columns, StreamType, ZSetType, kind_of
from stepping_spark.rows.types import Struct, unwrap

FunctionNode = ast.Lambda | ast.FunctionDef


@functools.lru_cache(maxsize=64)
def _parsed(source: str) -> tuple[FunctionNode, ...]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return ()
    return tuple(n for n in ast.walk(tree) if isinstance(n, FunctionNode))


def _functions(file: str) -> tuple[FunctionNode, ...]:
    linecache.checkcache(file)
    return _parsed("".join(linecache.getlines(file)))


def _is_of(node: FunctionNode, code: CodeType) -> bool:
    if isinstance(node, ast.Lambda):
        return code.co_name == "<lambda>" and node.lineno == code.co_firstlineno
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    return node.name == code.co_name and first == code.co_firstlineno


def _holds(node: FunctionNode, code: CodeType) -> bool:
    """Whether the code belongs to this node: a line may contain several functions."""
    assert isinstance(node, ast.Lambda)
    body = node.body
    begin, end = (body.lineno, body.col_offset), (body.end_lineno, body.end_col_offset)
    places = [p for p in code.co_positions() if p[3]]
    return bool(places) and all(
        begin <= (line, column) and (last, until) <= end for line, last, column, until in places
    )


def source_of(code: CodeType) -> str | None:
    """The source of a function, without irrelevant parts; None if it is unknown."""
    nodes = [n for n in _functions(code.co_filename) if _is_of(n, code)]
    if len(nodes) > 1:
        nodes = [n for n in nodes if _holds(n, code)]
    if len(nodes) != 1:
        return None
    node = _without_names(nodes[0], code)
    if isinstance(node, ast.Lambda):
        return ast.unparse(node)
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    arguments = [a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)]
    return f"{arguments} {' '.join(map(ast.unparse, body))}"


# These see the names of variables at run time.
_LOOKS_AT_NAMES = {"locals", "vars", "eval", "exec", "dir", "inspect", "sys"}


def _without_names(node: FunctionNode, code: CodeType) -> FunctionNode:
    """The function with its variables renamed, by their order of appearance.

    A name gets the same replacement everywhere, so no two are confused. Only assigned variables and
    the first parameter of each function are renamed. Other parameters may be passed by name, and a
    swap of two of them must change the text.
    """
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    if names & _LOOKS_AT_NAMES or any(isinstance(n, ast.ClassDef) for n in ast.walk(node)):
        return node
    own = set(_variables(node)) - set(_fixed(node)) - set(_global(code)) - set(code.co_freevars)
    return _Renamed(own).visit(copy.deepcopy(node))  # type: ignore[no-any-return]


def _variables(node: FunctionNode) -> Iterator[str]:
    """The assigned variables and first parameters of a function and of functions within it."""
    for n in ast.walk(node):
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store):
            yield n.id
        elif isinstance(n, FunctionNode) and n.args.kwarg is None:
            yield from (a.arg for a in (*n.args.posonlyargs, *n.args.args)[:1])


def _fixed(node: FunctionNode) -> Iterator[str]:
    """Names that may have a meaning outside of the function, or are not plain variables."""
    for n in ast.walk(node):
        match n:
            case ast.Lambda(args=args) | ast.FunctionDef(args=args):
                first = (*args.posonlyargs, *args.args)[: args.kwarg is None]
                yield from (a.arg for a in _arguments(args) if a not in first)
            case ast.keyword(arg=str() as name) | ast.alias(asname=str() as name):
                yield name
            case ast.alias(name=name):
                yield name.partition(".")[0]
            case ast.Global(names=names) | ast.Nonlocal(names=names):
                yield from names
            case ast.ExceptHandler(name=str() as name) | ast.MatchAs(name=str() as name):
                yield name
            case ast.MatchStar(name=str() as name) | ast.MatchMapping(rest=str() as name):
                yield name
        if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef):
            yield n.name


def _arguments(args: ast.arguments) -> list[ast.arg]:
    return [a for a in ast.walk(args) if isinstance(a, ast.arg)]


def _global(code: CodeType) -> Iterator[str]:
    """The global names that a function, or one within it, looks up."""
    for i in dis.get_instructions(code):
        if i.opname.endswith(("_GLOBAL", "_NAME")):
            yield str(i.argval)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _global(inner)


class _Renamed(ast.NodeTransformer):
    """Replaces names by numbers."""

    def __init__(self, names: set[str]) -> None:
        self._names = names
        self._numbers: dict[str, str] = {}

    def _number(self, name: str) -> str:
        if name not in self._names:
            return name
        return self._numbers.setdefault(name, f"<{len(self._numbers) + 1}>")

    def visit_arg(self, node: ast.arg) -> ast.arg:
        node.arg = self._number(node.arg)
        return node

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self._number(node.id)
        return node


_PLAIN = (
    *(bool, int, float, complex, str, bytes, decimal.Decimal, uuid.UUID, enum.Enum, type(None)),
    *(dt.date, dt.time, dt.timedelta),
)


def digest_of(f: Callable[..., Any]) -> str:
    """A short digest of the computation of a function."""
    return hashlib.sha256("\n".join(_parts_of(f, set())).encode()).hexdigest()[:8]


def _parts_of(value: Any, seen: set[int]) -> Iterator[str]:
    match value:
        case FunctionType():
            yield from _function(value, seen)
        case MethodType():
            yield from _parts_of(value.__func__, seen)
            yield from _parts_of(value.__self__, seen)
        case functools.partial():
            yield from _parts_of(value.func, seen)
            yield from _parts_of((value.args, value.keywords), seen)
        case type():
            yield value.__qualname__
        case _ if isinstance(value, _PLAIN):
            yield repr(value)
        case list() | tuple():
            yield f"{len(value)} of"
            for item in value:
                yield from _parts_of(item, seen)
        case set() | frozenset():
            yield from sorted(" ".join(_parts_of(item, seen)) for item in value)
        case dict():
            for key, item in value.items():
                yield from _parts_of(key, seen)
                yield from _parts_of(item, seen)
        case _:
            yield from _object(value, seen)


def _object(value: Any, seen: set[int]) -> Iterator[str]:
    yield type(value).__qualname__
    if id(value) in seen:
        return
    seen.add(id(value))
    called = vars(type(value)).get("__call__")
    if isinstance(called, FunctionType):
        yield from _function(called, seen)
        yield from _parts_of(getattr(value, "__dict__", {}), seen)


def _function(f: FunctionType, seen: set[int]) -> Iterator[str]:
    if id(f) in seen:
        yield f.__qualname__.rsplit(".", 1)[-1]
        return
    seen.add(id(f))
    code = f.__code__
    yield source_of(code) or _compiled(code)
    yield from _parts_of((f.__defaults__, f.__kwdefaults__), seen)
    for cell in f.__closure__ or ():
        try:
            yield from _parts_of(cell.cell_contents, seen)
        except ValueError:  # the closure's variable has no value yet
            continue
    for name in _names(code):
        value = f.__globals__.get(name)
        ours = isinstance(value, FunctionType) and value.__module__ == f.__module__
        if ours or (name in f.__globals__ and isinstance(value, _PLAIN)):
            yield name
            yield from _parts_of(value, seen)


def _names(code: CodeType) -> Iterator[str]:
    """The globals and attributes that code names, including code that is defined inside it."""
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def _compiled(code: CodeType) -> str:
    """The code of a function without source. It depends on the version of Python."""
    inner = (_compiled(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts)
    return f"{code.co_code.hex()} {code.co_names} {' '.join(inner)}"


def identity_of(value: Any) -> str:
    """The text for an argument of an operator: an expression, a type, a key, a constant."""
    match value:
        case enum.Enum():
            return f"enum({value.value!r})"
        case None | bool() | int() | float() | str():
            return repr(value)
        case bytes() | decimal.Decimal() | uuid.UUID() | dt.date() | dt.timedelta():
            return repr(value)
        case tuple() | list():
            return f"({' '.join(map(identity_of, value))})"
        case Atom():
            return str(kind_of(value))
        case Struct():
            return f"row{identity_of(value.fields)}"
        case Literal():
            encoded = value.type.encode(value.constant, "a constant")
            return f"literal({identity_of(value.type)} {encoded!r})"
        case Opaque():
            return f"spark({identity_of(value.type)} {value.text!r})"
        case PythonCall():
            identity = f"{digest_of(value.function)} {value.beside}"
            return f"python({identity_of(value.type)} {identity})"
    if dataclasses.is_dataclass(value):
        parts = " ".join(identity_of(part) for part in _fields(value))
        return f"{type(value).__name__}({parts})"
    raise AssertionError(f"{value!r} does not say what it is")


def _fields(value: Any) -> Iterator[Any]:
    return (getattr(value, f.name) for f in dataclasses.fields(value) if f.compare)


def read_unseen(argument: Any, inputs: tuple[StreamType, ...]) -> str:
    """The text for the fields of the inputs that expressions in an argument may read unseen."""
    texts = []
    for e in _hidden(argument):
        for t in inputs:
            if isinstance(e, PythonCall):
                texts.append(_with_classes(t.row) if isinstance(t, ZSetType) else str(t))
            else:
                texts.append(identity_of(_may_read(e.text, t.schema.all)))
    return " ".join(texts)


_QUOTED = re.compile(r"`[^`'\"]*`(?:\.`[^`'\"]*`)*")
"""A column, or a part of one, as the fields of rows write it: `left`.`cents`."""

_PRODUCT = re.compile(r"(?<=[\w)`'\"]) *\* *(?=[\w(`'\"+-])")
"""An asterisk between two operands; any other may stand for all columns."""


def read_in_text(text: str, columns: Columns) -> list[tuple[tuple[str, ...], RowType]]:
    """The columns that an expression of Spark may read, by its text, or the parts of a column.

    A column is read whole if the text has its name without quotes, in any case. All columns are if
    the text may have an asterisk for them, or a backtick that is not of a name.
    """
    quoted = (names[1:-1].split("`.`") for names in _QUOTED.findall(text))
    paths = {tuple(names) for names in quoted}
    rest = _QUOTED.sub(" ", text).lower()
    is_all = "*" in _PRODUCT.sub(" ", text) or "unresolvedstar" in rest or "`" in rest
    read: list[tuple[tuple[str, ...], RowType]] = []
    for name, t in columns:
        own = sorted(path for path in paths if path[0].lower() == name.lower())
        parts = [(path, _type_at(t, path[1:])) for path in own if path[0] == name]
        known = [(path, of) for path, of in parts if of is not None]
        if is_all or name.lower() in rest or not name.isidentifier() or len(known) < len(own):
            read.append(((name,), t))
        else:
            read += known
    return read


def _may_read(text: str, columns: Columns) -> list[tuple[str, RowType]]:
    """The columns, and parts of columns, whose types an expression of Spark may depend on.

    Also columns whose names are parts of other words: states of earlier versions have them.
    """
    read = read_in_text(text, columns)
    types: list[tuple[str, RowType]] = []
    for name, t in columns:
        own = [(".".join(path), of) for path, of in read if path[0] == name]
        types += own or ([(name, t)] if name in text else [])
    return types


def _type_at(t: RowType, path: tuple[str, ...]) -> RowType | None:
    """The type of a part of a row; None if the row has no such part."""
    for name in path:
        row = unwrap(t)
        fields = dict(row.fields) if isinstance(row, Struct) else {}
        if name not in fields:
            return None
        t = fields[name]
    return t


def _hidden(value: Any) -> Iterator[Opaque | PythonCall]:
    """The expressions in an argument of an operator that do not show which fields they read."""
    if isinstance(value, Opaque | PythonCall):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _hidden(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, RowType | StreamType):
        for part in _fields(value):
            yield from _hidden(part)


def _with_classes(t: RowType) -> str:
    """A row type with the names of its class and of the classes within it."""
    if isinstance(t, Struct):
        return f"{t.name}({' '.join(f'{n} {_with_classes(part)}' for n, part in t.fields)})"
    if dataclasses.is_dataclass(t) and not isinstance(t, Atom):
        inner = (p for p in _fields(t) if isinstance(p, RowType))
        return f"{type(t).__name__}({' '.join(map(_with_classes, inner))})"
    return f"{t} {t.python.__name__}" if isinstance(t, Atom) else str(t)
