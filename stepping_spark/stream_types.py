"""Annotations of query functions as types of streams."""

from __future__ import annotations

import decimal
import typing
from typing import Any

from stepping_spark.errors import CompileError
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
        f"{where}: expected ZSet[T], int, float or Decimal, found {_shown(annotation)}; "
        + _remedy(annotation)
    )


def _shown(annotation: Any) -> str:
    return annotation.__name__ if isinstance(annotation, type) else repr(annotation)


def _remedy(annotation: Any) -> str:
    if annotation in (ZSet, ZSetPython, ZSetSpark):
        return "say of which rows: st.ZSet[T]"
    if isinstance(annotation, str):
        return "write the type itself, without quotes"
    try:
        row_type(annotation)
    except TypeError:
        return "streams are of Z-sets or of numbers"
    return f"for a stream of such rows write st.ZSet[{_shown(annotation)}]"
