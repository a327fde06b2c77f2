"""The public primitives, functions of streams, and loops; see `operators` for their types."""

from __future__ import annotations

import decimal
import typing
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, cast, overload

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import CompileError
from stepping_spark.base.packages import Column
from stepping_spark.circuit.operators import (
    Accumulate,
    Add,
    Arrange,
    Delay,
    Differentiate,
    Distinct,
    Haitch,
    IdentityPrint,
    Integrate,
    MakeSet,
    Map,
    MapMany,
    Neg,
)
from stepping_spark.expressions.expr import PythonCall
from stepping_spark.expressions.functions import row_expr
from stepping_spark.expressions.index import Index, key_of
from stepping_spark.language import algebra
from stepping_spark.language.trace import (
    Stream,
    make,
    on_streams,
    row_of,
    stream_type,
    tracer,
    vertex_of,
)
from stepping_spark.zsets.spark import ZSet

T = TypeVar("T")
V = TypeVar("V")
S = TypeVar("S")  # any stream: of Z-sets, of numbers, of groups

KeyFunction = Index[T, Any] | Callable[[T], Any]


def map(  # noqa: A001 - the field's name for it
    a: ZSet[T], f: Callable[[T], V | Column], *, to: type[V] | None = None, name: str | None = None
) -> ZSet[V]:
    """Each row becomes `f(row)`; weights stay, and the weights of equal results are added.

    `ZSet[T]` to `ZSet[V]`: V is the type of the expression that `f` returns, or of its annotation,
    or `to`. `f` is called once, with a symbolic row, unless it is a `st.python` function. Linear;
    keeps no state; a step costs the rows of the change. Raises `CompileError` if `f` cannot be
    traced.

    >>> def query(a: st.ZSet[int]) -> st.ZSet[int]:
    ...     return st.map(a, f=lambda x: x * x)
    >>> (out,) = st.reference(st.compile(query)).step((st.ZSetPython({2: 1, -2: 1}),))
    >>> dict(out.iter())
    {4: 2}
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

    `ZSet[T]` to `ZSet[V]`; `to` is the type of an item. An item that occurs twice has weight 2, and
    NULL gives no items. Linear; keeps no state; a step costs the items of the change. Raises
    `CompileError` if `f` cannot be traced, or does not return an array.

    >>> def query(lines: st.ZSet[str]) -> st.ZSet[str]:
    ...     return st.map_many(lines, f=st.python(lambda line: line.split(), to=list[str]))
    >>> (out,) = st.reference(st.compile(query)).step((st.ZSetPython({"a b a": 1}),))
    >>> out == st.ZSetPython({"a": 2, "b": 1})
    True
    """
    row = row_of(a, "map_many")
    items: Any = list
    expr = row_expr(f, row, to=None if to is None else items[to], item=to is None)
    return cast("ZSet[V]", make(MapMany(expr), a, name=name))


def filter(  # noqa: A001 - the field's name for it
    a: ZSet[T], f: Callable[[T], object], *, name: str | None = None
) -> ZSet[T]:
    """The rows for which `f(row)` is true; NULL is not true.

    `ZSet[T]` to `ZSet[T]`. Linear; keeps no state; a step costs the rows of the change. Raises
    `CompileError` if `f` cannot be traced, or does not return a bool.

    >>> def query(a: st.ZSet[int]) -> st.ZSet[int]:
    ...     return st.filter(a, f=lambda x: (x > 1) & (x < 4))
    >>> (out,) = st.reference(st.compile(query)).step((st.ZSetPython({1: 1, 2: 5}),))
    >>> dict(out.iter())
    {2: 5}
    """
    where = row_expr(f, row_of(a, "filter"))
    return cast("ZSet[T]", on_streams(algebra.filter)(a, where=where, name=name))


def add(a: S, b: S, *, name: str | None = None) -> S:
    """The sum of two streams of one type: weights of equal rows, or numbers, are added. Also a + b.

    Linear; keeps no state; a step costs the rows of both. Raises `CompileError` if the types
    differ.

    >>> def query(a: st.ZSet[str], b: st.ZSet[str]) -> st.ZSet[str]:
    ...     return st.add(a, b)
    >>> step = st.reference(st.compile(query)).step
    >>> (out,) = step((st.ZSetPython({"x": 2}), st.ZSetPython({"x": 1})))
    >>> dict(out.iter())
    {'x': 3}
    """
    return cast(S, make(Add(), a, b, name=name))


def add3(a: S, b: S, c: S, *, name: str | None = None) -> S:
    """The sum of three streams of one type: `add(add(a, b), c)`. Linear; keeps no state.

    >>> def query(a: int, b: int, c: int) -> int:
    ...     return st.add3(a, b, c)
    >>> st.reference(st.compile(query)).step((1, 2, 3))
    (6,)
    """
    return cast(S, make(Add(), make(Add(), a, b), c, name=name))


def neg(a: S, *, name: str | None = None) -> S:
    """Every weight, or the number, with its sign reversed. Also -a, and b - a.

    Linear; keeps no state; a step costs the rows of the change.

    >>> def query(a: st.ZSet[str]) -> st.ZSet[str]:
    ...     return st.neg(a)
    >>> (out,) = st.reference(st.compile(query)).step((st.ZSetPython({"x": 2}),))
    >>> dict(out.iter())
    {'x': -2}
    """
    return cast(S, make(Neg(), a, name=name))


def delay(a: S, *, name: str | None = None) -> S:
    """z⁻¹: the value of the previous step; in the first step empty, or zero.

    A stream of any type to one of the same type. Linear. State: the last value. A step costs the
    difference of two values; for an integral only the change.

    >>> def query(a: int) -> int:
    ...     return st.delay(a)
    >>> step = st.reference(st.compile(query)).step
    >>> step((5,)), step((6,))
    ((0,), (5,))
    """
    return cast(S, make(Delay(), a, name=name))


def _arranged(a: Any, indexes: Iterable[KeyFunction[Any]], name: str | None) -> Any:
    all_indexes = (indexes,) if isinstance(indexes, Index) or callable(indexes) else tuple(indexes)
    if not all_indexes:
        raise CompileError(f"{user_line()}: indexes= is empty; give an st.Index")
    for i, index in enumerate(all_indexes):
        key = key_of(index, row_of(a, "indexes"), "indexes")
        a = make(Arrange(key), a, name=name if i == len(all_indexes) - 1 else None)
    return a


def delay_indexed(
    a: ZSet[T], indexes: tuple[KeyFunction[T], ...], *, name: str | None = None
) -> ZSet[T]:
    """`delay`, with its state arranged by these keys: each an index, or a function of the row.

    `ZSet[T]` to the same. An operator that looks up keys, such as a join by one of the indexes,
    then reads only these keys. A step costs the same as for `delay`, once for each index that is
    read. Raises `CompileError` if `indexes` is empty, or a key cannot be traced.

    >>> def query(a: st.ZSet[str]) -> st.ZSet[str]:
    ...     return st.delay_indexed(a, indexes=(lambda word: word,))
    >>> step = st.reference(st.compile(query)).step
    >>> _ = step((st.ZSetPython({"x": 1}),))
    >>> (out,) = step((None,))
    >>> dict(out.iter())
    {'x': 1}
    """
    return cast("ZSet[T]", _arranged(delay(a), indexes, name))


def integrate(a: S, *, name: str | None = None) -> S:
    """I: the sum of all values so far, including this step's: I(a)ₙ = a₁ + … + aₙ.

    A stream of any type to one of the same type. Linear. State: one register with the sum; a step
    adds the change. The cost of reading it depends on the reader: a join reads only the keys of the
    other side, an output reads everything.

    >>> def query(a: st.ZSet[str]) -> st.ZSet[str]:
    ...     return st.integrate(a)
    >>> step = st.reference(st.compile(query)).step
    >>> _ = step((st.ZSetPython({"x": 1}),))
    >>> (out,) = step((st.ZSetPython({"x": 1}),))
    >>> dict(out.iter())
    {'x': 2}
    """
    return cast(S, make(Integrate(), a, name=name))


def integrate_indexed(
    a: ZSet[T], indexes: tuple[KeyFunction[T], ...], *, name: str | None = None
) -> ZSet[T]:
    """`integrate`, with its state arranged by these keys: each an index, or a function of the row.

    `ZSet[T]` to the same. State: the sum, once for each key by which it is read; two uses of one
    stream by the same key share it. A step adds the change to each. Raises `CompileError` if
    `indexes` is empty, or a key cannot be traced.

    >>> def query(a: st.ZSet[str]) -> st.ZSet[str]:
    ...     return st.integrate_indexed(a, indexes=(lambda word: word,))
    >>> (out,) = st.reference(st.compile(query)).step((st.ZSetPython({"x": 1}),))
    >>> dict(out.iter())
    {'x': 1}
    """
    return cast("ZSet[T]", _arranged(integrate(a), indexes, name))


def integrate_delay(a: S, *, name: str | None = None) -> S:
    """z⁻¹I: the sum of all values before this step; in the first step empty, or zero.

    A stream of any type to one of the same type. Linear. It shares the register of `integrate`, and
    reads its old value. A step costs the same.

    >>> def query(a: int) -> int:
    ...     return st.integrate_delay(a)
    >>> step = st.reference(st.compile(query)).step
    >>> step((5,)), step((6,)), step((None,))
    ((0,), (5,), (11,))
    """
    return cast(S, make(Delay(), make(Integrate(), a), name=name))


def integrate_delay_indexed(
    a: ZSet[T], indexes: tuple[KeyFunction[T], ...], *, name: str | None = None
) -> ZSet[T]:
    """`integrate_delay`, with its state arranged by these keys, shared with `integrate_indexed`.

    >>> def query(a: st.ZSet[str]) -> st.ZSet[str]:
    ...     return st.integrate_delay_indexed(a, indexes=(lambda word: word,))
    >>> step = st.reference(st.compile(query)).step
    >>> _ = step((st.ZSetPython({"x": 1}),))
    >>> (out,) = step((st.ZSetPython({"x": 1}),))
    >>> dict(out.iter())
    {'x': 1}
    """
    return cast("ZSet[T]", _arranged(integrate_delay(a), indexes, name))


def differentiate(a: S, *, name: str | None = None) -> S:
    """D: the value minus the value of the previous step; the inverse of `integrate`.

    D(I(a)) = I(D(a)) = a. A stream of any type to one of the same type. Linear. State: the last
    value. A step costs both values. The optimizer removes D(I(a)) where it can.

    >>> def query(a: int) -> int:
    ...     return st.differentiate(a)
    >>> step = st.reference(st.compile(query)).step
    >>> step((5,)), step((6,))
    ((5,), (1,))
    """
    return cast(S, make(Differentiate(), a, name=name))


def haitch(state: ZSet[T], change: ZSet[T], *, name: str | None = None) -> ZSet[T]:
    """H (DBSP, proposition 4.7): the change of `distinct` of a sum.

    `state` is the sum before the step, and `change` is added to it; both are `ZSet[T]`. The result
    has weight +1 for a row whose weight becomes positive, and −1 for a row whose weight was
    positive and no longer is. Not linear. Keeps no state: the state is an argument. A step reads
    the state for the rows of the change only.

    >>> def query(a: st.ZSet[str]) -> st.ZSet[str]:
    ...     return st.haitch(st.integrate_delay(a), a)
    >>> step = st.reference(st.compile(query)).step
    >>> outs = [step((st.ZSetPython({"x": n}),))[0] for n in (2, 1, -3)]
    >>> [dict(out.iter()) for out in outs]
    [{'x': 1}, {}, {'x': -1}]
    """
    return cast("ZSet[T]", make(Haitch(Distinct()), state, change, name=name))


def make_scalar(
    a: ZSet[T], pick_value: Callable[[T], V] | None = None, *, name: str | None = None
) -> V:
    """The sum of `pick_value(row) · weight`, as a stream of numbers.

    `ZSet[T]` to a stream of `int`, `float` or `Decimal`. Without `pick_value` the rows must be
    numbers. Linear; keeps no state; a step costs the rows of the change. Raises `CompileError` for
    values that cannot be added.

    >>> def query(a: st.ZSet[int]) -> int:
    ...     return st.make_scalar(a, lambda x: x * 10)
    >>> st.reference(st.compile(query)).step((st.ZSetPython({1: 1, 2: 3}),))
    (70,)
    """
    row = row_of(a, "make_scalar")
    expr = row_expr(pick_value or (lambda value: value), row)
    if isinstance(expr, PythonCall):
        picked = make(Map(expr), a)
        return cast(V, make_scalar(cast("ZSet[Any]", picked), name=name))
    return cast(V, make(Accumulate(None, expr), a, name=name))


def make_set(a: T, *, name: str | None = None) -> ZSet[T]:
    """The Z-set with one row, the number.

    A stream of numbers `T` to `ZSet[T]`. Not linear: the Z-set of 0 also has a row. Keeps no state;
    a step costs one row.

    >>> def query(n: int) -> st.ZSet[int]:
    ...     return st.make_set(n)
    >>> (out,) = st.reference(st.compile(query)).step((7,))
    >>> dict(out.iter())
    {7: 1}
    """
    return cast("ZSet[T]", make(MakeSet(), a, name=name))


def identity_print(a: S, label: str | None = None, *, name: str | None = None) -> S:
    """The same stream; each step prints its value to standard output, for debugging.

    It prints the whole value: for an `integrate` the whole sum, even if the rest of the circuit
    reads little of it. That value is computed for printing, and fetched to the driver.
    `label` is printed first; by default it is the line of the query.

    >>> def query(n: int) -> int:
    ...     return st.identity_print(n, "the number")
    >>> _ = st.reference(st.compile(query)).step((7,))
    the number: 7
    """
    printed = make(IdentityPrint(label or str(user_line())), a, name=name)
    tracer().no_output.append(printed.vertex)
    return a


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
