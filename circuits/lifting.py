"""Publishes operators on the values of one step as operators on changes."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar, cast

from stepping_spark.language.compile import incrementalize

Q = TypeVar("Q", bound=Callable[..., Any])


def incremental(q: Q, doc: str = "") -> Q:
    """D ∘ q ∘ I as an operator of its own, with this docstring and the signature of `q`.

    Its vertices are in a scope with its name, because its code object has this name.
    """
    lifted = incrementalize(q)

    def operator(*streams: Any, **arguments: Any) -> Any:
        return lifted(*streams, **arguments)

    name = q.__name__
    code = operator.__code__.replace(co_name=name, co_qualname=name)
    # In the module of q, so that its annotations resolve there.
    published: Any = FunctionType(code, q.__globals__, name, None, operator.__closure__)
    published.__module__ = sys._getframe(1).f_globals["__name__"]
    published.__doc__ = inspect.cleandoc(doc) or q.__doc__
    published.__annotations__ = q.__annotations__
    published.__signature__ = inspect.signature(q)  # not `__wrapped__`: tools would show its text
    return cast(Q, published)
