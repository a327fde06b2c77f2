"""Extracts the cause of an error from the exceptions that Spark raises."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from stepping_spark.packages import Raised, raised

if TYPE_CHECKING:
    from py4j import protocol as raised_by_java
else:
    raised_by_java = Raised("py4j.protocol")

__all__ = ["first_line", "raised_by_java", "raised_in_worker"]

_RAISED = re.compile(r"\[USER_RAISED_EXCEPTION\] (.*) SQLSTATE: \w+")


def raised_in_worker(e: raised.PySparkException) -> tuple[str, str] | None:
    """The name and text of an error of this library that one of Spark's Python workers raised."""
    found = re.findall(r"^stepping_spark\.errors\.(\w+): (.*)$", str(e), re.MULTILINE)
    return found[-1] if found else None


def first_line(e: BaseException) -> str:
    """The line of an error's text that says what went wrong: Spark adds plans and stack traces.

    It is the first line. For a failure in a Python worker, the line after Python's own traceback is
    added to it. For an error that only the JVM knows, it is the second line. An error without a
    text gives the name of its class. What our own SQL raised is shown without Spark's codes.
    """
    first, _, rest = str(e).strip().partition("\n")
    raised = _RAISED.fullmatch(first)
    if raised:
        return raised[1]
    if isinstance(e, raised_by_java.Py4JJavaError):
        return rest.split("\n", 1)[0].removeprefix(": ")
    _, trace, told = rest.rpartition("Traceback (most recent call last):\n")
    lines = [x for x in told.splitlines() if x and not x.startswith(" ")] if trace else []
    return f"{first} {lines[0]}" if lines else first or type(e).__name__
