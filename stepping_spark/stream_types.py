"""Annotations of query functions as types of streams."""

from __future__ import annotations

import decimal
import inspect
import typing
from collections.abc import Callable
from typing import Any

from stepping_spark.errors import CompileError
from stepping_spark.origin import Line, user_frame
from stepping_spark.schema import Accumulated, ScalarType, StreamType, ZSetType
from stepping_spark.types import row_type
from stepping_spark.zset import ZSet, ZSetPython, ZSetSpark

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
        f"{where}: expected ZSet[T], int, float or Decimal, found {annotation!r}; streams are "
        "of Z-sets or of numbers"
    )


def local_names() -> dict[str, Any]:
    """What the caller's functions can see: a query may be annotated with local classes."""
    names: dict[str, Any] = {}
    frame = user_frame()
    while frame is not None:
        names = {**frame.f_locals, **names}
        frame = frame.f_back
        if frame is not None and frame.f_code.co_name == "<module>":
            break
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
