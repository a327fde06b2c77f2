"""One view and its sink: each step once, also after a restart; and `st.Check`."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import (
    SHOWN_ROWS,
    InputError,
    SinkError,
    StepError,
    StoreError,
    StoreMismatch,
    short,
)
from stepping_spark.circuit.graph import AnyGraph
from stepping_spark.execution.io import check_made_by
from stepping_spark.pipeline.changes import named_fields
from stepping_spark.pipeline.inputs import columns_given, short_name
from stepping_spark.pipeline.iterators import FunctionSink
from stepping_spark.pipeline.protocols import REMOVED, Sink, names_given, sink_key
from stepping_spark.pipeline.rejects import digests_of_rejected
from stepping_spark.pipeline.reporting import log, rows_of
from stepping_spark.relations.store import Store
from stepping_spark.rows.schema import StreamType, ZSetType
from stepping_spark.stepper.stepper import Stepper
from stepping_spark.zsets.spark import ZSetSpark


class Check:
    """A sink for a view whose rows are errors: `into={"unpaid": st.Check()}`.

    The view is a query for the rows that should not be there, of any type. A step that adds rows to
    it raises `StepError`, which names the view and shows some of the rows. It does so before the
    step is committed: the state and all sinks are unchanged, and the same run continues after the
    source is corrected. With `warn=True` the rows are a warning in the log, and the step is taken.

    With `max_rows` and `max_bytes`, a step with a part of a large change is checked by itself. The
    check costs as much as its view, which `st.explain` shows.

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
    stepping_spark.StepError: step 2: the check negative fails: its view gets the rows -3; \
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


class Checking(FunctionSink):
    """Checks the rows of a step, and stores nothing."""

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
        first_rows = list(islice(added, SHOWN_ROWS))
        if not first_rows:
            return
        rows = ", ".join(map(repr, first_rows)) + (", …" if next(added, None) is not None else "")
        message = f"step {step}: the check {self._view} fails: its view gets the rows {rows}"
        if self._warn:
            log.warning("%s", message)
            return
        raise StepError(
            f"{message}; the step is not committed: correct the source and run again, or let the "
            "check warn: st.Check(warn=True)"
        )


METHODS = ("open", "last_step", "write", "close")

FILLED = (
    "run with --evolve (in Python, evolve=True), which fills it with all rows of the view; or "
    "start with a new store"
)

AGAIN = f"a sink gets a view from its first step on: remove the table, and {FILLED}"


EMPTY = ".empty"
"""Suffix of a sink's key in the offsets: the last step, if it has no rows for the sink."""

WHOLE = ".whole"
"""Suffix of a sink's key in the offsets: the last step, if its rows replace the table's rows."""

FORM = ".form"
"""Suffix of a sink's key in the offsets: a digest of `key` and `changes` of the table."""


class Outlet:
    """A sink of one view.

    The store commits a step before the sinks write it, and commits no step before all sinks have
    written the previous one. With each step the store keeps the last step of each sink: after a
    restart the sink has that step, or the committed step itself.
    """

    def __init__(
        self,
        view: str,
        place: int,
        number: int,
        t: StreamType,
        argument: object,
        *,
        rejects_of: str | None = None,
    ) -> None:
        named = f"into[{view!r}]" if rejects_of is None else f"on_invalid of input {rejects_of!r}"
        self.view = view
        self._key = sink_key(view, place)
        self.number = number
        self._type = t
        self.shown = short_name(argument)
        self._sink = sink_of(named, argument)
        self._last = 0
        self._refresh = False
        # A sink of misfits may be added to a state with steps: it has missed no rows.
        self._may_come_later = rejects_of is not None
        self._arrow = columns_given(argument, t) if isinstance(t, ZSetType) else pa.schema([])
        self._form = form_of(argument, self._arrow)
        if isinstance(self._sink, FunctionSink):
            check_callable(named, argument)
        if not isinstance(t, ZSetType) and not isinstance(self._sink, FunctionSink):
            raise InputError(
                f"{user_line()}: view {view!r} is {t}, and a table has rows; give a function of "
                "(step, value), or make a row of the number in the query: st.make_set"
            )

    @property
    def can_refresh(self) -> bool:
        """Whether the sink can replace its rows by all rows of the view."""
        return getattr(self._sink, "anew", None) is False

    def refresh(self) -> None:
        """Request that the next evolution writes all rows of the view into the sink."""
        self._refresh = True

    @property
    def why_filled(self) -> str:
        """The reason why the sink gets all rows of the view, for a log line."""
        return "refreshed" if self._refresh else "new"

    def _owner(self, state: int) -> str:
        """The owner of the sink's table: the state with this number, and the view."""
        return f"{state:012x} {self.view}"

    def _set_anew(self, step: int, offsets: Mapping[str, int]) -> None:
        """Set `anew` of the sink before it is opened, if it gets all rows of the view next."""
        if self._refresh or (step and offsets.get(f"{self._key}{WHOLE}") == step):
            self._sink.anew = True  # type: ignore[attr-defined]

    def open(self, state: int, step: int, offsets: Mapping[str, int]) -> None:
        """Open the sink to write for the state with this number.

        `offsets` are the offsets of its last committed step.
        """
        self._set_anew(step, offsets)
        owner = self._owner(state)
        self._sink.open(self._arrow, owner)
        if self._gets_all_rows and not self._refresh and self._sink.last_step() == step:
            # It has all rows already. Opened as it is, it refuses rows that others changed since.
            self._sink.close()
            self._sink.anew = False  # type: ignore[attr-defined]
            self._sink.open(self._arrow, owner)

    def look(self, state: int, step: int, offsets: Mapping[str, int]) -> bool:
        """Whether the sink lacks the last committed step; changes nothing.

        False for a sink without `look`. Raises the errors of `open` and `lacks`.
        """
        look = getattr(self._sink, "look", None)
        if not callable(look):
            return False
        self._set_anew(step, offsets)
        try:
            owner = self._owner(state)
            last = look(self._arrow, owner)
            if self._gets_all_rows and not self._refresh and last == step:
                self._sink.anew = False  # type: ignore[attr-defined]
                last = look(self._arrow, owner)
            return self._lacks(last, step, offsets)
        finally:
            self._sink.close()

    def has_no_step(self) -> bool:
        """Whether the open sink remembers steps, and its table has none."""
        if self._sink_forgets or getattr(self._sink, "is_removed", False):
            return False
        return self._sink.last_step() == 0

    def is_new(self, offsets: Mapping[str, int]) -> bool:
        """Whether no committed step knows the sink."""
        return self._key not in offsets and not self._sink_forgets

    def close(self) -> None:
        """Release the resources of the sink."""
        self._sink.close()

    def lacks(self, step: int, offsets: Mapping[str, int]) -> bool:
        """Whether the sink may lack the last committed step; `SinkError` if it lacks more.

        `offsets` are the offsets committed with the step.
        """
        if isinstance(self._sink, Checking):
            return False  # it checked the step before the commit
        last = self._sink.last_step()
        if last is None:
            return step > self._last  # not again a step that this process has written
        self._last = last
        return self._lacks(last, step, offsets)

    def _lacks(self, last: int, step: int, offsets: Mapping[str, int]) -> bool:
        """Whether a sink with the steps up to `last` lacks the last committed step."""
        had = offsets.get(self._key, 0 if self._may_come_later else None)
        if step == 0 and last == 0:
            return False
        if not self._refresh and self._has_other_form(offsets):
            raise SinkError(
                f"view {self.view!r}: the table of the sink {self.shown} was written by another "
                f"key, or with another `changes`; say what it was written with, or {REMOVED}"
            )
        if offsets.get(f"{self._key}{WHOLE}") == step:
            return last != step
        if self._may_come_later and self._key not in offsets and last == 0:
            return False
        if had is None:
            raise SinkError(
                f"view {self.view!r}: the state has {step} steps, and none of them went to this "
                f"sink, {self.shown}, "
                + (f"which has {last}; {AGAIN}" if last else f"which is new; {FILLED}")
            )
        if last == step:
            return False
        if last == had and offsets.get(f"{self._key}{EMPTY}") == step:
            return False
        if last == 0 and had:
            raise SinkError(
                f"view {self.view!r}: the sink {self.shown} has no step of this pipeline, and the "
                f"state is at step {step}: the sink is new, or its content was deleted. Restore "
                f"its content; or {AGAIN}"
            )
        if last != had:
            raise SinkError(
                f"view {self.view!r}: the sink {self.shown} has the steps up to {last}, and the "
                f"state, at step {step}, says up to {had}: one of the two is an older copy. "
                "Restore a store and a sink that belong together; or remove its table and start "
                "with a new store"
            )
        return True

    def needs_filling(self, step: int, offsets: Mapping[str, int], *, changed: bool) -> bool:
        """Whether the sink needs all rows of the view: it is new, was removed, or is refreshed.

        `offsets` are the offsets of the last committed step. `changed` says that the query has
        changed.
        """
        if getattr(self._sink, "is_removed", False) or (self._refresh and step):
            return True
        if not self._may_need_filling(step, offsets, changed=changed):
            return False
        return self._sink.last_step() == 0

    def would_need_filling(
        self, state: int, step: int, offsets: Mapping[str, int], *, changed: bool
    ) -> bool:
        """`needs_filling` for a sink that is not open; changes nothing."""
        look = getattr(self._sink, "look", None)
        if not callable(look):
            return False
        self._set_anew(step, offsets)
        try:
            last = look(self._arrow, self._owner(state))
            if self._refresh and step:
                return True
            return bool(last == 0) and self._may_need_filling(step, offsets, changed=changed)
        except SinkError:
            if getattr(self._sink, "is_removed", False):
                return True
            raise
        finally:
            self._sink.close()

    def _has_other_form(self, offsets: Mapping[str, int]) -> bool:
        """Whether the table's steps were written with another `key` or `changes`."""
        return offsets.get(f"{self._key}{FORM}", self._form) != self._form

    def _may_need_filling(self, step: int, offsets: Mapping[str, int], *, changed: bool) -> bool:
        if self._sink_forgets or self._may_come_later or not step:
            return False
        if offsets.get(self._key) != 0 or self._has_other_form(offsets):
            return True
        # Only the last step had rows for the sink, of the old query: all rows of its view.
        return changed and offsets.get(f"{self._key}{EMPTY}") != step

    def without_rows(self, step: int) -> dict[str, int]:
        """The offsets of the sink with a step that has no rows for it."""
        return {} if self._sink_forgets else {f"{self._key}{EMPTY}": step}

    @property
    def next_offsets(self) -> dict[str, int]:
        """The offsets of the sink with the next step."""
        if self._sink_forgets:
            return {}
        return {self._key: self._last, f"{self._key}{FORM}": self._form}

    def prepare(self, step: int, change: Any) -> dict[str, int]:
        """Let the sink check the view's change before the step is committed.

        Returns further offsets for the store: marks for a step without rows, or with all rows.
        """
        anew, removed = self._gets_all_rows, getattr(self._sink, "is_removed", False)
        known = isinstance(change, ZSetSpark) and not change.in_spark
        empty = not anew and known and change.empty()
        if empty and not removed:
            return self.without_rows(step)
        prepare = getattr(self._sink, "prepare", None)
        if callable(prepare):
            prepare(step, change)
        if empty:  # the table is there again, without a step
            return {**self.without_rows(step), self._key: 0}
        return {f"{self._key}{WHOLE}": step} if anew else {}

    def write(self, step: int, change: Any) -> int | None:
        """Write the view's change of a step, unless empty; returns its number of rows, or None."""
        rows: int | None = None
        if isinstance(change, ZSetSpark):
            if not self._gets_all_rows and change.empty():
                if self._sink_forgets:
                    self._last = step
                return 0
            rows = rows_of(change)
        self._sink.write(step, change)
        self._last = step
        if self._gets_all_rows:
            self._sink.anew = self._refresh = False  # type: ignore[attr-defined]
        return rows

    @property
    def _gets_all_rows(self) -> bool:
        return getattr(self._sink, "anew", None) is True

    @property
    def _sink_forgets(self) -> bool:
        return isinstance(self._sink, FunctionSink)


def form_of(argument: object, columns: pa.Schema) -> int:
    """A digest of the form of a table's rows: `key` and `changes` of the argument."""
    key = getattr(argument, "key", None) or ()
    fields = named_fields((key,) if isinstance(key, str) else map(str, key), columns)
    form = repr((fields, bool(getattr(argument, "changes", False))))
    return int.from_bytes(hashlib.sha256(form.encode()).digest()[:6], "big")


def sink_of(named: str, argument: object) -> Sink:
    """The sink of an argument: its `sink()`, the argument itself, or a function."""
    method = getattr(argument, "sink", None)
    candidate: Any = method() if callable(method) and not isinstance(argument, type) else argument
    if all(callable(getattr(candidate, m, None)) for m in METHODS) and not isinstance(
        candidate, type
    ):
        sink: Sink = candidate
        return sink
    if callable(candidate) and not isinstance(candidate, type):
        return FunctionSink(candidate)
    raise InputError(
        f"{user_line()}: {named} is {short(argument)}; give a table, as st.DeltaTable(path, "
        "key=…), a function of (step, change), or an object with the methods of st.Sink"
    )


def check_callable(named: str, argument: Any) -> None:
    """Refuse a function that cannot be called with a step and a change."""
    try:
        signature = inspect.signature(argument)
    except (TypeError, ValueError):  # a function of C without a signature
        return
    try:
        signature.bind(1, None)
    except TypeError as e:
        raise InputError(
            f"{user_line()}: {named} is {short_name(argument)}{signature}, which cannot be called "
            f"with (step, change): {e}; write a function of these two: def f(step, change): …"
        ) from None


def deliver(
    step: int,
    outputs: Sequence[Any],
    outlets: Sequence[Outlet],
    state: str | None,
    *,
    is_written: bool = False,
) -> list[int | None]:
    """Write a committed step into sinks; returns the number of rows of each.

    `state` is the path of a state that can be rewound by a step, and `is_written` says that another
    sink has this step. The error of a sink that refuses the step names the remedies.
    """
    rows: list[int | None] = []
    for outlet in outlets:
        try:
            rows.append(outlet.write(step, outputs[outlet.number]))
        except SinkError as e:
            raise SinkError(f"{e}. {_remedy_of(step, state, is_written=is_written)}") from e
        except Exception as e:  # from the user's own function or sink
            e.add_note(
                f"in the sink {outlet.shown} of view {outlet.view!r}: step {step} is committed, "
                "and the next run gives it to the sink again"
            )
            raise
        is_written = is_written or bool(outlet.next_offsets)
    return rows


def _remedy_of(step: int, state: str | None, *, is_written: bool) -> str:
    text = f"Step {step} is committed, and waits for this sink: the next run writes it"
    if is_written:
        return f"{text}. It cannot be taken back, because another sink has it"
    if state is None:
        return text
    return (
        f"{text}. If the sink can never take it, take the step back, and correct the rows in the "
        f"source: stepping-spark state rewind {state} --to {step - 1}"
    )


def refresh_tables(views: Iterable[str], outlets: Sequence[Outlet]) -> None:
    """Request that tables of views are refilled; refuse views without such a table."""
    views = names_given("refresh", views)
    able = [outlet for outlet in outlets if outlet.can_refresh]
    refreshable = list(dict.fromkeys(outlet.view for outlet in able))
    for view in views:
        if view not in refreshable:
            hint = (
                f"those that can are of {', '.join(map(repr, refreshable))}"
                if refreshable
                else "none can"
            )
            raise InputError(
                f"{user_line()}: refresh= names {view!r}, which has no table whose rows can all be "
                f"replaced; {hint}. A table with changes=True has the "
                "history of the view: give it another table, which gets all rows"
            )
    for outlet in able:
        if outlet.view in views:
            outlet.refresh()


def catch_up(stepper: Stepper[Any, Any], outlets: Sequence[Outlet], state: str | None) -> None:
    """Write the last step again into the sinks that may lack it."""
    step = stepper.store.last_step()
    offsets = stepper.store.last_offsets()
    lacking = [outlet for outlet in outlets if outlet.lacks(step, offsets)]
    check_query(stepper.store, stepper.graph, outlets)
    if not lacking:
        return
    try:
        outputs = stepper.step((None,) * len(stepper.graph.inputs), step=step)
    except StoreError as e:
        if any(outlet.next_offsets for outlet in lacking):
            raise SinkError(
                f"view {lacking[0].view!r}: the sink does not have step {step}, and it cannot be "
                f"delivered again: {e}"
            ) from e
        log.warning("step %d cannot be delivered again to functions: %s", step, str(e))
        return
    others = any(outlet.next_offsets and outlet not in lacking for outlet in outlets)
    deliver(step, outputs, lacking, state, is_written=others)


def check_query(store: Store, graph: AnyGraph, outlets: Sequence[Outlet]) -> None:
    """Refuse to continue with tables that have rows of another query."""
    step = store.last_step()
    if not step or not any(outlet.next_offsets for outlet in outlets):
        return
    try:
        check_made_by(store.last_made_by(), graph, step, beside=digests_of_rejected(graph))
    except StoreError as e:
        raise StoreMismatch(
            f"the tables that views go into have rows of another query than {graph.name} is now; "
            "run the query that it was, or evolve to this one; or start with a new store and empty "
            "tables. "
            f"In full: {e}"
        ) from e
