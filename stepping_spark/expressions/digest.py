"""The computation of a Python function, as text that is the same in every process.

A state is the sum of a function's past results. If the function changes, a deletion would remove
results that were never added. So this text goes into the digests by which a store tells circuits
apart.

The text is the source, as Python's own parser writes it. Comments, layout, the names of variables
and the version of Python do not count. The values that the function refers to do count: those of
its closure and defaults, the constants of its module, and the functions of its module, recursively.
An imported object counts by its name.
"""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import functools
import hashlib
import uuid
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any

from stepping_spark.expressions.source import source_of

_PLAIN = (
    *(bool, int, float, complex, str, bytes, decimal.Decimal, uuid.UUID, enum.Enum, type(None)),
    *(dt.date, dt.time, dt.timedelta),
)


def digest_of(f: Callable[..., Any]) -> str:
    """A short digest of the computation of a function."""
    return hashlib.sha256("\n".join(_told(f, set())).encode()).hexdigest()[:8]


def _told(value: Any, seen: set[int]) -> Iterator[str]:
    match value:
        case FunctionType():
            yield from _function(value, seen)
        case MethodType():
            yield from _told(value.__func__, seen)
            yield from _told(value.__self__, seen)
        case functools.partial():
            yield from _told(value.func, seen)
            yield from _told((value.args, value.keywords), seen)
        case type():
            yield value.__qualname__
        case _ if isinstance(value, _PLAIN):
            yield repr(value)
        case list() | tuple():
            yield f"{len(value)} of"
            for item in value:
                yield from _told(item, seen)
        case set() | frozenset():
            yield from sorted(" ".join(_told(item, seen)) for item in value)
        case dict():
            for key, item in value.items():
                yield from _told(key, seen)
                yield from _told(item, seen)
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
        yield from _told(getattr(value, "__dict__", {}), seen)


def _function(f: FunctionType, seen: set[int]) -> Iterator[str]:
    if id(f) in seen:
        yield f.__qualname__.rsplit(".", 1)[-1]
        return
    seen.add(id(f))
    code = f.__code__
    yield source_of(code) or _compiled(code)
    yield from _told((f.__defaults__, f.__kwdefaults__), seen)
    for cell in f.__closure__ or ():
        try:
            yield from _told(cell.cell_contents, seen)
        except ValueError:  # the closure's variable has no value yet
            continue
    for name in _names(code):
        value = f.__globals__.get(name)
        ours = isinstance(value, FunctionType) and value.__module__ == f.__module__
        if ours or (name in f.__globals__ and isinstance(value, _PLAIN)):
            yield name
            yield from _told(value, seen)


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
