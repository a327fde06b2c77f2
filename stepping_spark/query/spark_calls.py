"""Better errors for Spark functions called in a query outside of a function of rows."""

from __future__ import annotations

import traceback
from itertools import takewhile
from pathlib import Path
from types import CodeType

from stepping_spark.callsite import Line, is_ours
from stepping_spark.errors import CompileError
from stepping_spark.packages import folder_of

_SPARK = folder_of("pyspark") or Path("pyspark")
_FUNCTIONS = _SPARK / "sql" / "functions"


def spark_miscalled(e: Exception) -> CompileError | None:
    """The error for an exception of a Spark function, if the query itself called it."""
    codes = [(frame.f_code, line) for frame, line in traceback.walk_tb(e.__traceback__)]
    in_spark = list(takewhile(lambda found: _is_spark_s(found[0]), reversed(codes)))
    rest = codes[: len(codes) - len(in_spark)]
    of_columns = any(Path(c.co_filename).is_relative_to(_FUNCTIONS) for c, _ in in_spark)
    if not of_columns or not rest or is_ours(rest[-1][0].co_filename):
        return None
    code, line = rest[-1]
    where = Line(code.co_filename, line, code.co_qualname)
    names = [c.co_name for c, _ in reversed(in_spark) if not c.co_name.startswith("wrap")]
    said = f": {str(e).rstrip('.')}" if str(e) else ""
    return CompileError(
        f"{where}: {names[0] if names else 'a function'} of Spark was called in the query itself, "
        f"and raised {type(e).__name__}{said}. Spark's functions take columns of a row: call them "
        "in a function of the row, as f=lambda row: row.qty > 1, or f=lambda row: "
        "F.upper(row.name); aggregates of rows are those of st.agg: st.agg.sum(lambda row: row.qty)"
    )


def _is_spark_s(code: CodeType) -> bool:
    return Path(code.co_filename).is_relative_to(_SPARK)
