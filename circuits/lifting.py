"""Publishes operators on the values of one step as operators on changes."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

from stepping_spark.language.compile import incrementalize

Q = TypeVar("Q", bound=Callable[..., Any])


def incremental(q: Q, doc: str = "") -> Q:
    """D ∘ q ∘ I as an operator of its own, with this docstring and the signature of `q`.

    Its vertices are in a scope with its name: the frame of its code is called so.
    """
    lifted = incrementalize(q)

    def operator(*streams: Any, **arguments: Any) -> Any:
        return lifted(*streams, **arguments)

    name = q.__name__
    operator.__code__ = operator.__code__.replace(co_name=name, co_qualname=name)
    operator.__name__ = operator.__qualname__ = name
    operator.__module__ = sys._getframe(1).f_globals["__name__"]
    operator.__doc__ = inspect.cleandoc(doc) or q.__doc__
    published: Any = operator
    published.__signature__ = inspect.signature(q)  # not `__wrapped__`: tools would show its text
    return cast(Q, published)
