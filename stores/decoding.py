"""Decodes the JSON that stores write into typed structs; a damaged text is a ValueError."""

from __future__ import annotations

from typing import Annotated, TypeVar

import msgspec

T = TypeVar("T")

Natural = Annotated[int, msgspec.Meta(ge=0)]
PositiveNumber = Annotated[int, msgspec.Meta(ge=1)]


def decoded(text: bytes | str, of: type[T]) -> T:
    """The value in a text. Raises a ValueError that says where the text is not as expected."""
    try:
        return msgspec.json.decode(text, type=of)
    except (msgspec.MsgspecError, RecursionError) as e:
        raise ValueError(str(e)) from None
