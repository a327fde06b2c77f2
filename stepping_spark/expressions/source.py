"""The source of a Python function, as text that is independent of the names of its variables."""

from __future__ import annotations

import ast
import copy
import dis
import functools
import linecache
from collections.abc import Iterator
from types import CodeType

Function = ast.Lambda | ast.FunctionDef


@functools.lru_cache(maxsize=64)
def _parsed(source: str) -> tuple[Function, ...]:
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return ()
    return tuple(n for n in ast.walk(tree) if isinstance(n, Function))


def _functions(file: str) -> tuple[Function, ...]:
    linecache.checkcache(file)
    return _parsed("".join(linecache.getlines(file)))


def _is_of(node: Function, code: CodeType) -> bool:
    if isinstance(node, ast.Lambda):
        return code.co_name == "<lambda>" and node.lineno == code.co_firstlineno
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    return node.name == code.co_name and first == code.co_firstlineno


def _holds(node: Function, code: CodeType) -> bool:
    """Whether the code is that of this node: there may be several functions in one line."""
    assert isinstance(node, ast.Lambda)
    body = node.body
    begin, end = (body.lineno, body.col_offset), (body.end_lineno, body.end_col_offset)
    places = [p for p in code.co_positions() if p[3]]
    return bool(places) and all(
        begin <= (line, column) and (last, until) <= end for line, last, column, until in places
    )


def source_of(code: CodeType) -> str | None:
    """The source of a function, reduced to what counts; None if it is unknown."""
    found = [n for n in _functions(code.co_filename) if _is_of(n, code)]
    if len(found) > 1:
        found = [n for n in found if _holds(n, code)]
    if len(found) != 1:
        return None
    node = _without_names(found[0], code)
    if isinstance(node, ast.Lambda):
        return ast.unparse(node)
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    arguments = [a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)]
    return f"{arguments} {' '.join(map(ast.unparse, body))}"


# These see the names of variables at run time.
_LOOKS_AT_NAMES = {"locals", "vars", "eval", "exec", "dir", "inspect", "sys"}


def _without_names(node: Function, code: CodeType) -> Function:
    """The function with its variables renamed, by their order of appearance.

    A name gets the same replacement everywhere, so no two are confused. Only assigned variables and
    the first parameter of each function are renamed. Other parameters may be passed by name, and a
    swap of two of them must change the text.
    """
    known = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    if known & _LOOKS_AT_NAMES or any(isinstance(n, ast.ClassDef) for n in ast.walk(node)):
        return node
    own = set(_variables(node)) - set(_fixed(node)) - set(_global(code)) - set(code.co_freevars)
    return _Renamed(own).visit(copy.deepcopy(node))  # type: ignore[no-any-return]


def _variables(node: Function) -> Iterator[str]:
    """The assigned variables and first parameters of a function and of functions within it."""
    for n in ast.walk(node):
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store):
            yield n.id
        elif isinstance(n, Function) and n.args.kwarg is None:
            yield from (a.arg for a in (*n.args.posonlyargs, *n.args.args)[:1])


def _fixed(node: Function) -> Iterator[str]:
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
