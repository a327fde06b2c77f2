"""Annotations of query functions as types of streams."""

from __future__ import annotations

import decimal
import inspect
import typing
from collections.abc import Callable
from typing import Any

from stepping_spark.base.callsite import Line, user_frame
from stepping_spark.base.errors import CompileError
from stepping_spark.rows.schema import Accumulated, ScalarType, StreamType, ZSetType
from stepping_spark.rows.types import row_type
from stepping_spark.zsets.spark import ZSet, ZSetPython, ZSetSpark

_NUMBERS = (int, float, decimal.Decimal)


def stream_type(annotation: Any, where: str) -> StreamType:
    """The type of a stream of `ZSet[T]` or of a number."""
    if typing.get_origin(annotation) in (ZSet, ZSetPython, ZSetSpark):
        (row,) = typing.get_args(annotation)
        try:
            return ZSetType(row_type(row))
        except TypeError as e:
            raise CompileError(f"{where}: {e}") from None
    if typing.get_origin(annotation) is typing.Annotated or annotation in _NUMBERS:
        total = Accumulated(row_type(annotation))
        total.check(where)
        return ScalarType(total)
    raise CompileError(
        f"{where}: expected ZSet[T], int, float or Decimal, found {_shown(annotation)}; "
        + _remedy(annotation)
    )


def _shown(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else repr(annotation)


def _remedy(annotation: Any) -> str:
    if annotation in (ZSet, ZSetPython, ZSetSpark):
        return "say which rows: st.ZSet[T]"
    if isinstance(annotation, str):
        return "write the type itself, without quotes"
    try:
        row_type(annotation)
    except TypeError:
        return "streams are of Z-sets or of numbers"
    return f"for a stream of such rows write st.ZSet[{_shown(annotation)}]"


def local_names(query: Callable[..., Any]) -> dict[str, Any]:
    """The local names where the query was written: annotations may use local classes.

    A caller in another module may use the same names for other things.
    """
    seen = getattr(inspect.unwrap(query), "__globals__", None)
    names: dict[str, Any] = {}
    frame = user_frame()
    while frame is not None:
        if frame.f_globals is seen and frame.f_locals is not seen:
            names = {**frame.f_locals, **names}
        frame = frame.f_back
    return names


def hints(f: Callable[..., Any], names: dict[str, Any], line: Line) -> dict[str, Any]:
    """The annotations of a function of streams, evaluated."""
    try:
        return typing.get_type_hints(inspect.unwrap(f), localns=names, include_extras=True)
    except NameError as e:
        raise CompileError(
            f"{line}: an annotation of the query names what is not defined there: {e}; define or "
            "import it"
        ) from None
    except TypeError:  # a partial function, or another object that has no annotations
        return {}
