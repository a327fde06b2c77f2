"""Loops: a stream that is used first and connected later."""

from __future__ import annotations

import decimal
import typing
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast, overload

from stepping_spark.callsite import user_line
from stepping_spark.errors import CompileError
from stepping_spark.query.annotations import stream_type
from stepping_spark.query.trace import Stream, tracer, vertex_of
from stepping_spark.zsets.spark import ZSet

T = TypeVar("T")
S = TypeVar("S")  # any stream: of Z-sets, of numbers


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
        """Feed a stream back: this stream then has its values."""
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


if TYPE_CHECKING:  # at run time every stream is a Stream; this is the type for checkers

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

    `T` is the type of the stream, written like the annotation of a query's parameter: `st.ZSet[A]`
    for rows of `A` (`A` alone is refused), `int`, `float`, `Decimal`, or `Annotated[Decimal, …]`.
    State: that of its delay. The loop of a sum is recognized as `integrate`. Raises `CompileError`
    for a loop that has no delay, is never connected, or is not used.

    >>> def query(a: st.ZSet[str]) -> st.ZSet[str]:
    ...     with st.feedback(st.ZSet[str]) as y:
    ...         z = st.add(a, y)
    ...         y.connect(st.delay(z))
    ...     return z
    >>> def written(a: st.ZSet[str]) -> st.ZSet[str]:
    ...     return st.integrate(a)
    >>> st.compile(query) == st.compile(written)
    True
    """
    return Loop(annotation)
