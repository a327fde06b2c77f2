"""Better errors for calls in a query: with wrong arguments, or of Spark's functions."""

from __future__ import annotations

import inspect
import linecache
import re
import traceback
from itertools import takewhile
from pathlib import Path
from types import CodeType, FunctionType, ModuleType, TracebackType

from stepping_spark.base.callsite import Line, is_ours
from stepping_spark.base.errors import CompileError
from stepping_spark.base.packages import folder_of


def miscalled(e: Exception) -> CompileError | None:
    """The error for a call in the user's code with wrong arguments; None for other errors.

    Python raises its `TypeError` before the function runs, without the line or the signature.
    """
    called = _MISCALL.match(str(e)) if isinstance(e, TypeError) else None
    place, entered, frames = None, None, e.__traceback__
    while frames is not None:
        if not is_ours(frames.tb_frame.f_code.co_filename):
            place, entered = frames, frames.tb_next
        frames = frames.tb_next
    if called is None or place is None:
        return None
    if entered is not None and entered.tb_frame.f_code.co_name != called[1]:
        return None  # not the function that the user called, so a mistake of ours
    code = place.tb_frame.f_code
    line = Line(code.co_filename, place.tb_lineno, code.co_qualname)
    f = _called_function(called[1], place)
    takes = f"; it takes {called[1]}{_plain_signature(f)}" if f is not None else ""
    twice = _TWICE.search(str(e))
    if twice is not None and called[1] == "aggregate":
        takes += f"; for a field named {twice[1]!r} write fields={{{twice[1]!r}: st.agg.…}}"
    return CompileError(f"{line}: {e}{takes}")


_MISCALL = re.compile(r"(\w+)\(\) (?:missing|takes|got) ")
_TWICE = re.compile(r"multiple values for (?:keyword )?argument '(\w+)'")


def _called_function(name: str, place: TracebackType) -> FunctionType | None:
    """The function that a line calls, as the user wrote it there, such as `st.win.sum`."""
    frame = place.tb_frame
    line = linecache.getline(frame.f_code.co_filename, place.tb_lineno)
    written = re.search(rf"[\w.]*\b{name}(?=\()", line)
    first, *parts = (written[0] if written else name).split(".")
    value = {**frame.f_globals, **frame.f_locals}.get(first)
    for part in parts:  # the attributes of other values may run code
        value = getattr(value, part, None) if isinstance(value, ModuleType | type) else None
    return value if isinstance(value, FunctionType) and value.__name__ == name else None


def _plain_signature(f: FunctionType) -> str:
    signature = inspect.signature(f)
    bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=signature.empty))


def call_of(f: object, module: ModuleType, name: str) -> str | None:
    """How to write a call of `f`, if `f` is a function of this module; None if it is not."""
    if not isinstance(f, FunctionType) or f.__module__ != module.__name__:
        return None
    required = [p for p in inspect.signature(f).parameters.values() if p.default is p.empty]
    arguments = ["lambda row: …" if p.name == "f" else "…" for p in required]
    return f"{name}.{f.__name__}({', '.join(arguments)})"


_SPARK = folder_of("pyspark") or Path("pyspark")
_FUNCTIONS = _SPARK / "sql" / "functions"


def spark_miscalled(e: Exception) -> CompileError | None:
    """The error for an exception of a Spark function, if the query itself called it."""
    codes = [(frame.f_code, line) for frame, line in traceback.walk_tb(e.__traceback__)]
    in_spark = list(takewhile(lambda place: _is_spark_s(place[0]), reversed(codes)))
    callers = codes[: len(codes) - len(in_spark)]
    of_columns = any(Path(c.co_filename).is_relative_to(_FUNCTIONS) for c, _ in in_spark)
    if not of_columns or not callers or is_ours(callers[-1][0].co_filename):
        return None
    code, line = callers[-1]
    where = Line(code.co_filename, line, code.co_qualname)
    names = [c.co_name for c, _ in reversed(in_spark) if not c.co_name.startswith("wrap")]
    cause = f": {str(e).rstrip('.')}" if str(e) else ""
    return CompileError(
        f"{where}: {names[0] if names else 'a function'} of Spark was called in the query itself, "
        f"and raised {type(e).__name__}{cause}. Spark's functions take columns of a row: call them "
        "in a function of the row, as f=lambda row: row.qty > 1, or f=lambda row: "
        "F.upper(row.name); aggregates of rows are those of st.agg: st.agg.sum(lambda row: row.qty)"
    )


def _is_spark_s(code: CodeType) -> bool:
    return Path(code.co_filename).is_relative_to(_SPARK)
