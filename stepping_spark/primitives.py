"""The primitives as users call them, on streams; see `operators` for their types."""

from __future__ import annotations

import decimal
import typing
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast, overload

from pyspark.sql import Column

from stepping_spark.atoms import RowType
from stepping_spark.errors import CompileError
from stepping_spark.expr import Field, PythonCall
from stepping_spark.functions import row_expr
from stepping_spark.index import Index, key_of
from stepping_spark.operators import (
    Accumulate,
    Add,
    Arrange,
    Delay,
    Differentiate,
    Distinct,
    Filter,
    Haitch,
    IdentityPrint,
    Integrate,
    MakeSet,
    Map,
    MapMany,
    Neg,
    pair_of,
)
from stepping_spark.origin import user_line
from stepping_spark.stream_types import stream_type
from stepping_spark.trace import Stream, make, row_of, tracer, vertex_of
from stepping_spark.zset import ZSet

T = TypeVar("T")
V = TypeVar("V")
S = TypeVar("S")  # any stream: of Z-sets, of numbers, of groups

Key = Index[T, Any] | Callable[[T], Any]


def map(  # noqa: A001 - the field's name for it
    a: ZSet[T], f: Callable[[T], V | Column], *, to: type[V] | None = None, name: str | None = None
) -> ZSet[V]:
    """Each row becomes `f(row)`; weights stay, and those of equal results are added.

    Linear; keeps no state; costs the rows of the change. The type of the result is what `f`
    gives, its annotation, or `to`. Raises `CompileError` where `f` cannot be traced.
    """
    row = row_of(a, "map")
    return cast("ZSet[V]", make(Map(row_expr(f, row, to=to)), a, name=name))


def map_many(
    a: ZSet[T],
    f: Callable[[T], Iterable[V] | Column],
    *,
    to: type[V] | None = None,
    name: str | None = None,
) -> ZSet[V]:
    """Each row becomes the items of `f(row)`, an array column or a Python iterable.

    An item that comes twice has weight 2. Linear; keeps no state; costs the items of the change.
    `to` is the type of an item.
    """
    row = row_of(a, "map_many")
    items: Any = list
    expr = row_expr(f, row, to=None if to is None else items[to], item=to is None)
    return cast("ZSet[V]", make(MapMany(expr), a, name=name))


def filter(  # noqa: A001 - the field's name for it
    a: ZSet[T], f: Callable[[T], object], *, name: str | None = None
) -> ZSet[T]:
    """The rows for which `f(row)` is true; NULL is not true.

    Linear; keeps no state; costs the rows of the change.
    """
    row = row_of(a, "filter")
    expr = row_expr(f, row)
    if isinstance(expr, PythonCall):
        return _filter_python(a, expr, row, name)
    return cast("ZSet[T]", make(Filter(expr), a, name=name))


def _filter_python(a: ZSet[T], f: PythonCall, row: RowType, name: str | None) -> ZSet[T]:
    """A Python predicate is a Python map to (row, verdict), filtered and mapped back by Spark."""
    judged = make(Map(beside(f, row)), a)
    kept = make(Filter(Field(f.type, ("right",))), judged)
    return cast("ZSet[T]", make(Map(Field(row, ("left",))), kept, name=name))


def beside(f: PythonCall, row: RowType) -> PythonCall:
    """The Python function that gives a Pair of the row and what `f` gives for it."""
    return PythonCall(pair_of(row, f.type), f.function, f.name, beside=True)


def add(a: S, b: S, *, name: str | None = None) -> S:
    """The sum of two streams of one type. Linear; no state."""
    return cast(S, make(Add(), a, b, name=name))


def add3(a: S, b: S, c: S, *, name: str | None = None) -> S:
    """The sum of three streams of one type. Linear; no state."""
    return cast(S, make(Add(), make(Add(), a, b), c, name=name))


def neg(a: S, *, name: str | None = None) -> S:
    """Every weight, or the number, negated. Linear; no state."""
    return cast(S, make(Neg(), a, name=name))


def delay(a: S, *, name: str | None = None) -> S:
    """z⁻¹: the value of the step before; at the first step nothing, or zero.

    Linear. Keeps the last value; a step costs the difference of two values.
    """
    return cast(S, make(Delay(), a, name=name))


def _arranged(a: Any, indexes: Iterable[Key[Any]], name: str | None) -> Any:
    wanted = (indexes,) if isinstance(indexes, Index) or callable(indexes) else tuple(indexes)
    if not wanted:
        raise CompileError(f"{user_line()}: indexes= is empty; give an st.Index")
    for i, index in enumerate(wanted):
        key = key_of(index, row_of(a, "indexes"), "indexes")
        a = make(Arrange(key), a, name=name if i == len(wanted) - 1 else None)
    return a


def delay_indexed(a: ZSet[T], indexes: tuple[Key[T], ...], *, name: str | None = None) -> ZSet[T]:
    """`delay`, its state kept by these keys."""
    return cast("ZSet[T]", _arranged(delay(a), indexes, name))


def integrate(a: S, *, name: str | None = None) -> S:
    """I: the sum of all values so far, this step's included.

    Linear. Keeps the sum as one register; a step adds the change. What it costs depends on who
    reads it: a join reads the keys of the other side only, an output reads all.
    """
    return cast(S, make(Integrate(), a, name=name))


def integrate_indexed(
    a: ZSet[T], indexes: tuple[Key[T], ...], *, name: str | None = None
) -> ZSet[T]:
    """`integrate`, its state kept by these keys."""
    return cast("ZSet[T]", _arranged(integrate(a), indexes, name))


def integrate_delay(a: S, *, name: str | None = None) -> S:
    """z⁻¹I: the sum of all values before this step. Shares its register with `integrate`."""
    return cast(S, make(Delay(), make(Integrate(), a), name=name))


def integrate_delay_indexed(
    a: ZSet[T], indexes: tuple[Key[T], ...], *, name: str | None = None
) -> ZSet[T]:
    """`integrate_delay`, its state kept by these keys."""
    return cast("ZSet[T]", _arranged(integrate_delay(a), indexes, name))


def differentiate(a: S, *, name: str | None = None) -> S:
    """D: the value less the one of the step before; the inverse of `integrate`.

    Linear. Keeps the last value; where the value is an integral the optimizer removes both.
    """
    return cast(S, make(Differentiate(), a, name=name))


def haitch(state: ZSet[T], change: ZSet[T], *, name: str | None = None) -> ZSet[T]:
    """H (DBSP, proposition 4.7): the change of `distinct` of a sum.

    `state` is the sum before the step, `change` what is added: −1 where a row ceases to be
    positive, +1 where it becomes so. Not linear. Reads the state for the change's rows only.
    """
    return cast("ZSet[T]", make(Haitch(Distinct()), state, change, name=name))


def make_scalar(
    a: ZSet[T], pick_value: Callable[[T], V] | None = None, *, name: str | None = None
) -> V:
    """The sum of `pick_value(row) · weight`, as a stream of numbers.

    Without `pick_value` the rows are numbers themselves. Linear; no state.
    """
    row = row_of(a, "make_scalar")
    expr = row_expr(pick_value or (lambda value: value), row)
    if isinstance(expr, PythonCall):
        picked = make(Map(expr), a)
        return cast(V, make_scalar(cast("ZSet[Any]", picked), name=name))
    return cast(V, make(Accumulate(None, expr), a, name=name))


def make_set(a: T, *, name: str | None = None) -> ZSet[T]:
    """The Z-set of one row, the number. Not linear; no state."""
    return cast("ZSet[T]", make(MakeSet(), a, name=name))


def identity_print(a: S, label: str | None = None, *, name: str | None = None) -> S:
    """The same stream; each step prints its value to standard output, for a look inside.

    Such a value is brought to the driver whole.
    """
    return cast(S, make(IdentityPrint(label or str(user_line())), a, name=name))


class Loop(Generic[S]):
    """A stream to be connected later: see `feedback`."""

    def __init__(self, annotation: Any) -> None:
        self.annotation = annotation

    def __enter__(self) -> S:
        self._stream = tracer().feedback(stream_type(self.annotation, f"{user_line()}: feedback"))
        return cast(S, FeedbackStream(self._stream.vertex, self._stream.tracer))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None and self._stream.vertex in tracer().unconnected:
            raise CompileError(
                f"{user_line()}: the feedback was not connected; end the block with "
                "y.connect(st.delay(…))"
            )


class FeedbackStream(Stream):
    """A stream that is connected after it is used."""

    __slots__ = ()

    def connect(self, source: object) -> None:
        """Feed a stream back: from now on this stream has its values."""
        current = tracer()
        connected = vertex_of(source, "connect")
        if self.vertex not in current.unconnected:
            raise CompileError(f"{user_line()}: this feedback is connected already; connect once")
        if connected.type != self.vertex.type:
            raise CompileError(
                f"{user_line()}: a feedback of {self.vertex.type} cannot be connected to a "
                f"stream of {connected.type}; declare st.feedback({connected.type})"
            )
        del current.unconnected[self.vertex]
        current.loops[self.vertex] = connected


if TYPE_CHECKING:  # what a FeedbackStream stands for, as everything that flows is a Stream

    class FeedbackZSet(ZSet[T], Protocol[T]):
        def connect(self, source: ZSet[T]) -> None: ...

    class FeedbackInt(int):
        def connect(self, source: int) -> None: ...

    class FeedbackFloat(float):
        def connect(self, source: float) -> None: ...

    class FeedbackDecimal(decimal.Decimal):
        def connect(self, source: decimal.Decimal) -> None: ...


# The annotation of Z-sets is a Callable, because a protocol is not a `type[...]` to a type checker.
@overload
def feedback(annotation: Callable[[], ZSet[T]]) -> Loop[FeedbackZSet[T]]: ...
@overload
def feedback(annotation: type[int]) -> Loop[FeedbackInt]: ...
@overload
def feedback(annotation: type[float]) -> Loop[FeedbackFloat]: ...
@overload
def feedback(
    annotation: type[decimal.Decimal] | typing._SpecialForm,  # the form is Annotated[Decimal, …]
) -> Loop[FeedbackDecimal]: ...
def feedback(annotation: Any) -> Loop[Any]:
    """A loop: `with st.feedback(T) as y: … y.connect(st.delay(z))`.

    `T` is the type of the stream: `ZSet[A]`, `int`, `float`, `Decimal`. A loop that passes no
    delay, or is never connected, is a `CompileError`.
    """
    return Loop(annotation)
