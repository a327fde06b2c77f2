"""Functions of rows: traced into expressions by one call, or marked as Python."""

from __future__ import annotations

import dis
import functools
import inspect
import sys
import typing
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Generic, TypeVar

from stepping_spark.base.callsite import Line, is_ours, user_line
from stepping_spark.base.errors import CompileError, SteppingError
from stepping_spark.base.packages import Column, is_imported, too_old
from stepping_spark.expressions.coercion import coerce
from stepping_spark.expressions.columns import TAKERS, By, refuse_orders
from stepping_spark.expressions.expr import Expr, PythonCall
from stepping_spark.expressions.symbolic import trace_row
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.data import NoSuchRow
from stepping_spark.rows.types import ListOf, Optional, Struct, row_type
from stepping_spark.spark.column_tree import ClassicColumn
from stepping_spark.spark.session import get_session

T = TypeVar("T")
V = TypeVar("V")

_REMEDY = (
    "use the function of pyspark.sql.functions that does it, or wrap the function in st.python"
)


@dataclass(frozen=True)
class Python(Generic[T, V]):
    """A row function that runs as Python; see `python`."""

    function: Callable[[T], V]
    to: Any = None

    def __call__(self, row: T) -> V:
        return self.function(row)


def python(f: Callable[[T], V], *, to: type[V] | None = None) -> Callable[[T], V]:
    """Mark a function of rows as Python: it gets real rows, once per row and step.

    The type of its result is `to`, else its return annotation. The function runs on the driver if
    the driver holds the change. Otherwise it runs in Spark's Python workers, which costs a
    conversion by Arrow. Raises `CompileError` if the type is unknown. An exception in the function
    becomes a `StepError` that shows the row.

    A store is refused if it was made with a function that computes something else. The source of
    the function counts, with the values and functions of its module that it uses. Its name does not
    count, nor do the names of its variables and of its first parameter.

    The function must be deterministic: the same result for equal rows, at every step and in every
    process. A deletion is undone by evaluating the function on the row again. So a function that
    uses the clock, random numbers or changing data leaves rows behind that nothing removes. This
    cannot be detected in a Python function: there is no error. The same is true of a Spark UDF
    (`F.udf`) in a traced function.

    >>> def query(lines: st.ZSet[str]) -> st.ZSet[int]:
    ...     return st.map(lines, f=st.python(lambda line: len(line.split()), to=int))
    >>> (out,) = st.reference(st.compile(query)).step((st.ZSetPython({"a b": 1}),))
    >>> dict(out.iter())
    {2: 1}
    """
    return Python(f, to)


def name_of(f: Callable[..., Any]) -> str:
    """A function's name, for messages."""
    inner = _inner(f)
    while isinstance(inner, functools.partial):
        inner = inner.func
    name: str = getattr(inner, "__qualname__", type(inner).__qualname__)
    return name.rsplit(".", 1)[-1]


def _inner(f: Callable[..., Any]) -> Callable[..., Any]:
    return f.function if isinstance(f, Python) else f


def line_of_function(f: Callable[..., Any]) -> Line:
    """The line where a function is defined."""
    code = getattr(f, "__code__", None)
    if code is None or _is_spark_s(f) or is_ours(code.co_filename):
        return user_line()
    return Line(code.co_filename, code.co_firstlineno, code.co_qualname)


def row_expr(
    f: Callable[[Any], Any],
    row: RowType,
    *,
    to: Any = None,
    item: bool = False,
    named: Callable[[Expr], Expr] = lambda e: e,
    in_order: bool = False,
) -> Expr:
    """The expression of a row function, over rows of the type.

    `item`: the function returns a list, and `to` or its annotation is the type of the items (for
    `map_many`). `named` may give names to the structs that Spark made. `in_order`: the result, or
    each part of its tuple, may be `Directed`.
    """
    if isinstance(f, By):
        raise CompileError(
            f"{user_line()}: expected a function of the row, found the order {f}; write the "
            f"function alone, without st.win ({TAKERS})"
        )
    if not callable(f):
        remedy = f"write lambda row: row.{f if isinstance(f, str) else 'field'}"
        if isinstance(f, Column):
            remedy = "write lambda row: …, with row.x in the place of F.col('x')"
        raise CompileError(f"{user_line()}: expected a function of the row, found {f!r}; {remedy}")
    where = f"{line_of_function(_inner(f))}: function {name_of(f)!r}"
    _check_takes_a_row(_inner(f), where)
    if isinstance(f, Python):
        return _python_expr(f, to, where)
    _refuse_is(f, where)
    expr = named(_call(f, row, where))
    refuse_orders(expr, where, in_order=in_order)
    declared = to if to is not None else (None if item else _declared(f))
    if declared is not None:
        expr = coerce(expr, _type_of(declared, where), where)
    if _unnamed(expr.type):
        raise CompileError(
            f"{where}: Spark gives {expr.type}, and no Python type is named for the struct; write "
            "a tuple, or a st.Data with these fields, in the place of F.struct; or name such a "
            "class T, by a return annotation or by to=T"
        )
    return expr


def _unnamed(t: RowType) -> bool:
    if isinstance(t, Optional | ListOf):
        return _unnamed(t.inner)
    return isinstance(t, Struct) and (t.python is dict or any(_unnamed(i) for _, i in t.fields))


def _check_takes_a_row(f: Callable[..., Any], where: str) -> None:
    try:
        signature = inspect.signature(f)
    except (TypeError, ValueError):  # Python does not know the parameters of some builtins
        return
    try:
        signature.bind(None)
    except TypeError:
        raise CompileError(
            f"{where} takes {signature}; a function of rows is called with one argument, the row: "
            "write lambda row: …, and lambda row: f(*row) where the row is a tuple"
        ) from None


def _python_expr(f: Python[Any, Any], to: Any, where: str) -> Expr:
    declared = to if to is not None else f.to if f.to is not None else _declared(f.function)
    if declared is None:
        raise CompileError(
            f"{where}: its result type is unknown; declare it with a return annotation or with "
            "st.python(f, to=T)"
        )
    return PythonCall(_type_of(declared, where), f.function, name_of(f))


def _type_of(declared: Any, where: str) -> RowType:
    try:
        return row_type(declared)
    except TypeError as e:
        raise CompileError(f"{where}: {e}") from None


def _declared(f: Callable[..., Any]) -> Any:
    if isinstance(f, type):
        return None
    try:
        hints = typing.get_type_hints(f, include_extras=True)
    except (NameError, TypeError):
        return None
    declared = hints.get("return")
    # Annotations that only serve the type checker (a TypeVar, Column) do not describe rows.
    if isinstance(declared, TypeVar) or declared in (Any, object, Column):
        return None
    if isinstance(declared, type) and issubclass(declared, Column):
        return None
    return declared


def _call(f: Callable[[Any], Any], row: RowType, where: str) -> Expr:
    try:
        used = [*_used(f)]
        trees = not any(map(_asks_for_a_session, used))
        if not trees:
            get_session()
        return trace_row(f, row, where, trees=trees)
    except SteppingError as e:
        if type(e) is SteppingError:  # Spark is missing: not only an error of the query
            raise CompileError(f"{where}: {e}") from e
        raise
    except Exception as e:
        raise _untraced(where, e) from e


def _untraced(where: str, e: Exception) -> CompileError:
    message = f"{type(e).__name__}: {e}"
    if isinstance(e, NoSuchRow):
        return CompileError(f"{where}: {e}")
    if isinstance(e, ImportError) and is_imported("pyspark"):
        return CompileError(
            f"{where}: functions of pyspark.sql.functions are traced as Columns of Spark Connect, "
            f"and importing these gives: {e}; install what they need with "
            "pip install 'stepping-spark[spark]', or where a platform brings PySpark, with "
            "pip install 'pandas<3' grpcio grpcio-status googleapis-common-protos zstandard"
        )
    known = too_old() or next((remedy for sign, remedy in _KNOWN.items() if sign in message), None)
    return CompileError(
        f"{where}: called with a symbolic row, it raised {message}; "
        + (known or f"a traced function may use operators, fields and F only: {_REMEDY}")
    )


_KNOWN = {
    "CANNOT_CONVERT_COLUMN_INTO_BOOL": "put each comparison in parentheses: (a.x > 1) & (a.y < 2)",
    "should be Column or str, got": "Spark's function takes a column there: write F.lit(…) "
    "around a constant",
    "[UNSUPPORTED_DATA_TYPE]": "Spark's functions take columns and constants: write F.struct(…) "
    "for a row within one, or wrap the function in st.python",
    "be WindowSpec, got WindowSpec": "this is a window function: it looks at several rows, and a "
    "function of a row at one. Use st.window with the function of this name in st.win; for the "
    "first rows of each group, st.first_n is cheaper",
    "'_get_object_id'": "Spark's functions take columns and constants: write F.struct(…) for a "
    "row within one, or wrap the function in st.python",
}


def _refuse_is(f: Callable[..., Any], where: str) -> None:
    """Refuse `x is None`, found in the code: it is false for every symbolic x, without an error."""
    seen: set[CodeType] = set()
    pending = [f]
    while pending:
        function = inspect.unwrap(pending.pop())
        code = getattr(function, "__code__", None)
        if code is None or code in seen or is_ours(code.co_filename) or _is_spark_s(function):
            continue
        seen.add(code)
        line = _is_line(code)
        if line is not None:
            raise CompileError(
                f"{where}, line {line}: `is` compares objects, and a symbolic column is never "
                "the object None, True or False; use .isNull(), .isNotNull() or ==, or wrap the "
                "function in st.python"
            )
        if isinstance(function, FunctionType):
            pending += _called(function)


def _is_spark_s(f: Callable[..., Any]) -> bool:
    """Whether a function is one of pyspark.sql.functions, as in `f=F.upper`."""
    return str(getattr(f, "__module__", "")).startswith("pyspark.")


def _called(f: FunctionType) -> list[FunctionType]:
    """The user's own functions that a function names: a helper may hide an `is`."""
    named = _named(f)
    return [g for g in named if isinstance(g, FunctionType) and g.__module__ == f.__module__]


def _named(f: FunctionType) -> list[Any]:
    """The values that a function refers to by name: globals, closure variables and defaults.

    For modules, the attributes that the function names are included.
    """
    names = _names(f.__code__)
    values = [f.__globals__.get(name) for name in names]
    for cell in f.__closure__ or ():
        with suppress(ValueError):  # the variable has no value yet
            values.append(cell.cell_contents)
    values += [*(f.__defaults__ or ()), *(f.__kwdefaults__ or {}).values()]
    modules = [m for m in values if isinstance(m, ModuleType)]
    return values + [_attribute(m, name) for m in modules for name in names]


def _attribute(module: ModuleType, name: str) -> Any:
    with suppress(AttributeError, SteppingError):  # without PySpark, its functions are not there
        return getattr(module, name)
    return None


def _names(code: CodeType) -> list[str]:
    """The names in a function's code, and in the code of functions within it."""
    inner = [c for c in code.co_consts if isinstance(c, CodeType)]
    return [*code.co_names, *(name for c in inner for name in _names(c))]


def _is_part_of_spark(g: Any) -> bool:
    """Whether an object is a function or a module of pyspark."""
    return _is_spark_s(g) or (isinstance(g, ModuleType) and g.__name__.startswith("pyspark."))


def _asks_for_a_session(g: Any) -> bool:
    """Whether an object is a Column of a classic session, a UDF, or a function that makes UDFs."""
    if isinstance(g, ClassicColumn) or "evalType" in getattr(g, "__dict__", {}):
        return True
    return _is_spark_s(g) and getattr(g, "__name__", "") in ("udf", "pandas_udf", "arrow_udf")


def _used(f: Callable[..., Any]) -> Iterator[Any]:
    """The values that a function names, directly or in a function that it names."""
    seen: set[CodeType] = set()
    pending: list[Any] = [f]
    while pending:
        g = pending.pop()
        if isinstance(g, functools.partial):
            pending += [g.func, *g.args, *g.keywords.values()]
        yield g
        function = None if _is_part_of_spark(g) else _function_of(g)
        if function is not None and function.__code__ not in seen:
            seen.add(function.__code__)
            pending += _named(function)


def _function_of(g: Any) -> FunctionType | None:
    """The user's function that runs when an object is called; None if there is none."""
    if not isinstance(g, FunctionType | MethodType):
        g = getattr(type(g), "__call__", None)  # noqa: B004
    g = inspect.unwrap(g.__func__ if isinstance(g, MethodType) else g)
    if not isinstance(g, FunctionType) or is_ours(g.__code__.co_filename):
        return None
    module = g.__module__ or ""  # None for code from `exec`
    return None if module.partition(".")[0] in sys.stdlib_module_names else g


def _is_line(code: CodeType) -> int | None:
    line = code.co_firstlineno
    for i in dis.get_instructions(code):
        line = (i.positions.lineno if i.positions else None) or line
        if i.opname == "IS_OP" or i.opname.endswith(("_IF_NONE", "_IF_NOT_NONE")):
            return line
    for const in code.co_consts:
        inner = _is_line(const) if isinstance(const, CodeType) else None
        if inner is not None:
            return inner
    return None
