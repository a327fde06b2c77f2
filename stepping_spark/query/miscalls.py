"""Functions called in a query with arguments that they do not take."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from types import FrameType, FunctionType, ModuleType

from stepping_spark.callsite import Line, is_ours
from stepping_spark.errors import CompileError


def miscalled(e: Exception) -> CompileError | None:
    """What is wrong with a call in the user's own code, of a function that takes other arguments.

    Python says so before the function runs, and names neither the line nor what it takes.
    """
    called = _MISCALL.match(str(e)) if isinstance(e, TypeError) else None
    place = e.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    if called is None or place is None or is_ours(place.tb_frame.f_code.co_filename):
        return None
    code = place.tb_frame.f_code
    line = Line(code.co_filename, place.tb_lineno, code.co_qualname)
    f = _named(called[1], place.tb_frame)
    takes = f"; it takes {called[1]}{_plain_signature(f)}" if f is not None else ""
    twice = _TWICE.search(str(e))
    if twice is not None and called[1] == "aggregate":
        takes += f"; for a field named {twice[1]!r} write fields={{{twice[1]!r}: st.agg.…}}"
    return CompileError(f"{line}: {e}{takes}")


_MISCALL = re.compile(r"(\w+)\(\) (?:missing|takes|got) ")
_TWICE = re.compile(r"multiple values for (?:keyword )?argument '(\w+)'")


def _named(name: str, frame: FrameType) -> Callable[..., object] | None:
    """The function that a frame calls by this name: its own, or that of a module it knows."""
    for value in {**frame.f_globals, **frame.f_locals}.values():
        found = getattr(value, name, None) if isinstance(value, ModuleType) else value
        if isinstance(found, FunctionType) and found.__name__ == name:
            return found
    return None


def _plain_signature(f: Callable[..., object]) -> str:
    signature = inspect.signature(f)
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=signature.empty))
