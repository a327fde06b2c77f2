"""`st.Check`: a view whose rows are errors, as its own sink."""

from __future__ import annotations

from itertools import islice
from typing import Any

from stepping_spark.errors import SHOWN_ROWS, StepError
from stepping_spark.pipeline.iterators import Given
from stepping_spark.pipeline.reporting import log
from stepping_spark.zsets.spark import ZSetSpark


class Check:
    """A sink for a view whose rows are errors: `into={"unpaid": st.Check()}`.

    The view is a query for the rows that should not be there, of any type. A step that adds rows to
    it raises `StepError`, which names the view and shows some of the rows. This is before the step
    is committed: the state and all sinks are as they were, and when the source is corrected the
    same run goes on. With `warn=True` the rows are a warning in the log, and the step is taken.

    A step that takes a part of a large change, as `max_rows` and `max_bytes` say, is checked as it
    is. The check costs what the view costs: `st.explain` shows it.

    >>> def negative(cents: st.ZSet[int]) -> st.ZSet[int]:
    ...     return st.filter(cents, f=lambda n: n < 0)
    >>> changes = [(1, st.ZSetPython({5: 1})), (2, st.ZSetPython({-3: 1}))]
    >>> pipeline = st.Pipeline(
    ...     negative, store="memory", cents=changes, into={"negative": st.Check()}
    ... )
    >>> pipeline.run(max_steps=1)
    1
    >>> pipeline.run()
    Traceback (most recent call last):
    stepping_spark.errors.StepError: step 2: the check negative fails: its view gets the rows -3; \
the step is not committed: correct the source and run again, or let the check warn: \
st.Check(warn=True)
    """

    def __init__(self, *, warn: bool = False) -> None:
        self.warn = warn

    def __repr__(self) -> str:
        return "Check(warn=True)" if self.warn else "Check()"

    def sink(self) -> Checking:
        """The sink of the view."""
        return Checking(warn=self.warn)


class Checking(Given):
    """Looks at the rows of a step, and keeps none: it cannot say what it has seen."""

    def __init__(self, *, warn: bool) -> None:
        super().__init__(lambda step, change: None)
        self._warn = warn
        self._view = ""

    def open(self, columns: Any, owner: str) -> None:
        """Remember the name of the view."""
        self._view = owner.partition(" ")[2]

    def prepare(self, step: int, change: ZSetSpark[Any]) -> None:
        """Refuse a step that adds rows, before it is committed."""
        added = (row for row, n in change.iter() if n > 0)
        shown = list(islice(added, SHOWN_ROWS))
        if not shown:
            return
        rows = ", ".join(map(repr, shown)) + (", …" if next(added, None) is not None else "")
        said = f"step {step}: the check {self._view} fails: its view gets the rows {rows}"
        if self._warn:
            log.warning("%s", said)
            return
        raise StepError(
            f"{said}; the step is not committed: correct the source and run again, or let the "
            "check warn: st.Check(warn=True)"
        )
