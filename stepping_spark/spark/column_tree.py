"""PySpark Columns as trees of functions, SQL texts, constants, CASE and casts; and their texts.

While a query is traced, PySpark's functions return Columns of Spark Connect: plain Python objects,
which need neither Java nor a session. This module reads them. Their texts, which states store, are
the same in every process, with each PySpark and in each kind of session: the texts of classic
Columns in Spark 4.3.

Private in PySpark, which has no public way to inspect a Column, to choose the kind of Columns that
its functions return, or to pass a substitute to them: `pyspark.sql.utils.is_remote`, which each
function calls, and which is replaced by a function that checks for tracing; `_expr`, the expression
of a Column of Connect, an object of `pyspark.sql.connect.expressions` with its parts in private
attributes; `_jc`, the Java object that functions read from a classic Column. PySpark also tests for
an instance of the class of Columns, and `isinstance` relies on an object's `__class__`. Only this
module and `column_made` use these members.
"""

from __future__ import annotations

import datetime as dt
import re
import sys
from abc import abstractmethod
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stepping_spark.base.packages import AFTER_IMPORT, Column, LateClass, is_imported

if TYPE_CHECKING:
    from pyspark.sql.classic.column import Column as ClassicColumn
else:
    ClassicColumn = LateClass("Column", "pyspark.sql.classic.column")

__all__ = ["ClassicColumn", "Tree", "as_trees", "is_tree", "text_of", "tree_of"]

UTILS = "pyspark.sql.utils"
_traced: ContextVar[bool] = ContextVar("traced", default=False)


@contextmanager
def as_trees(wanted: bool = True) -> Iterator[None]:
    """A context in which PySpark's functions return trees, in this thread, if `wanted`."""
    token = _traced.set(wanted)
    try:
        if wanted and is_imported(UTILS):
            ask_what_is_traced()
        yield
    finally:
        _traced.reset(token)


def is_traced() -> bool:
    """Whether PySpark's functions return trees now, in this thread."""
    return _traced.get()


def ask_what_is_traced() -> None:
    """Replace `is_remote` in PySpark, so that functions return trees if traced. Imports PySpark."""
    utils: Any = sys.modules.get(UTILS)
    if utils is None:
        _ = Column.cast  # imports PySpark
        utils = sys.modules[UTILS]
    before = utils.is_remote
    if hasattr(before, "asks_what_is_traced"):
        return

    def is_remote() -> bool:
        return _traced.get() or before()

    is_remote.asks_what_is_traced = True  # type: ignore[attr-defined]
    utils.is_remote = is_remote


def _if_traced() -> None:
    if _traced.get():
        ask_what_is_traced()


AFTER_IMPORT["pyspark"] = _if_traced


@dataclass(frozen=True)
class Tree:
    """A part of a Column: its kind, its name, text or value, and its own parts.

    The parts of a `case` are alternating conditions and values, and last the ELSE value.
    """

    kind: str  # function, text, constant, case, cast, lambda, variable, or other
    value: Any = None
    parts: tuple[Tree, ...] = ()


def is_tree(column: Column) -> bool:
    """Whether a Column is a tree: one of Spark Connect."""
    return not isinstance(column, ClassicColumn)


def tree_of(column: Column) -> Tree:
    """The parts of a Column of Spark Connect; `other` for a classic Column, which hides them."""
    tree: Any = column
    return _tree(tree._expr) if is_tree(column) else Tree("other")


# Constants that Spark Connect sends unchanged. Other values are numbers already, such as the days
# of a date.
_AS_THEY_ARE = ("NullType", "BooleanType", "IntegerType", "LongType", "DoubleType", "StringType")


def _tree(part: Any) -> Tree:
    kind = type(part).__name__
    if kind == "SQLExpression":
        return Tree("text", part._expr)
    if kind == "LiteralExpression":
        return _constant(part)
    if kind == "CastExpression" and part._eval_mode in (None, "try"):
        kind = "cast" if part._eval_mode is None else "try_cast"
        return Tree(kind, name_of_type(part._data_type), (_tree(part._expr),))
    if kind == "UnresolvedFunction" and not part._is_distinct:
        return Tree("function", part._name.lower(), tuple(map(_tree, part._args)))
    if kind == "CallFunction":
        return Tree("function", part._name.lower(), tuple(map(_tree, part._args)))
    if kind == "CaseWhen":
        parts = [_tree(p) for branch in part._branches for p in branch]
        rest = part._else_value
        parts.append(Tree("constant") if rest is None else _tree(rest))
        return Tree("case", None, tuple(parts))
    if kind == "LambdaFunction":
        return Tree("lambda", tuple(map(str, part._arguments)), (_tree(part._function),))
    if kind == "UnresolvedNamedLambdaVariable":
        return Tree("variable", str(part))
    if kind == "ColumnAlias":
        return Tree("alias", ",".join(part._alias), (_tree(part._child),))
    if kind == "UnresolvedExtractValue":
        return Tree("function", "[]", (_tree(part._child), _tree(part._extraction)))
    return Tree("other")


def _constant(part: Any) -> Tree:
    t = part._dataType
    name = type(t).__name__
    # A session of Connect chooses the digits of a Decimal itself
    if name in _AS_THEY_ARE or (name == "DecimalType" and not is_remote_session()):
        return Tree("constant", part._value)
    if name == "DateType":
        return Tree("constant", t.fromInternal(part._value))
    return Tree("other")


def is_remote_session() -> bool:
    """Whether this process uses Spark Connect. Imports nothing."""
    if not is_imported(UTILS):
        return False
    with as_trees(wanted=False):
        return bool(sys.modules[UTILS].is_remote())


_SYNONYMS = {
    "LONG": "BIGINT",
    "INTEGER": "INT",
    "SHORT": "SMALLINT",
    "BYTE": "TINYINT",
    "REAL": "FLOAT",
    "DECIMAL": "DECIMAL(10,0)",
    "DEC": "DECIMAL(10,0)",
    "NUMERIC": "DECIMAL(10,0)",
    "TIMESTAMP_LTZ": "TIMESTAMP",
}


def name_of_type(t: Any) -> str:
    """The name in SQL of a type, which is given as an object or as text."""
    name = (t if isinstance(t, str) else str(t.simpleString())).strip().upper()
    if "<" not in name:
        name = name.replace(" ", "") if "(" in name else name
    return _SYNONYMS.get(name, name)


def key_of(column: Column) -> Hashable:
    """A key that identifies a Column: trees with equal parts have equal keys."""
    tree: Any = column
    return _key(tree._expr, {}) if is_tree(column) else _Only(column)


def _key(part: Any, variables: dict[str, int]) -> Hashable:
    if isinstance(part, list | tuple):
        return tuple(_key(p, variables) for p in part)
    kind = type(part).__name__
    if kind == "UnresolvedNamedLambdaVariable":
        return kind, variables.setdefault(str(part), len(variables))
    if not _is_of_connect(part):
        return kind, str(part) if isinstance(part, Hashable) else _Only(part)
    inner = ((n, _key(v, variables)) for n, v in vars(part).items() if n != "origin")
    return kind, tuple(inner)


class _Only:
    """A key that is only equal to keys of the same object, which it keeps alive."""

    def __init__(self, of: object) -> None:
        self._of = of


def _is_of_connect(part: Any) -> bool:
    return type(part).__module__.startswith("pyspark.sql.connect.")


_Base: Any = ClassicColumn if TYPE_CHECKING else object


class DeferredColumn(_Base):  # type: ignore[misc]
    """A substitute for a Column, wherever PySpark expects one, classic or of Spark Connect."""

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The class of Columns, for PySpark's `isinstance`; PySpark may not be imported."""
        connect, classic = "pyspark.sql.connect.column", "pyspark.sql.classic.column"
        remote = is_imported(UTILS) and sys.modules[UTILS].is_remote()
        for module in (connect if remote else classic, "pyspark.sql.column"):
            if is_imported(module):
                column_class: type = sys.modules[module].Column
                return column_class
        return type(self)

    def __getattr__(self, name: str) -> Any:
        """A method of the Column."""
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.__spark_column__(), name)

    @abstractmethod
    def __spark_column__(self) -> Column:
        """The Column that this object stands for."""

    @property
    def _jc(self) -> Any:
        with as_trees(wanted=False):  # a classic UDF asks
            return self.__spark_column__()._jc

    @property
    def _expr(self) -> Any:
        return self.__spark_column__()._expr


@dataclass(frozen=True)
class SortOrder:
    """The contents of a Column from `desc` and the like: a Column, and its direction."""

    of: Column
    ascending: bool
    nulls_first: bool


def sort_order(column: Column) -> SortOrder | None:
    """The sort order of a Column; None if the Column is a value."""
    tree: Any = column
    if not is_tree(column) or type(tree._expr).__name__ != "SortOrder":
        return None
    order = tree._expr
    return SortOrder(type(tree)(order._child), order._ascending, order._nullsFirst)


def has_order_within(column: Column) -> bool:
    """Whether some part of a Column is an order, which Spark's analyzer would treat as a value.

    The orders of windows do not count.
    """
    tree: Any = column
    if not is_tree(column):  # such as the Column of a UDF
        return str(column).endswith((" NULLS FIRST'>", " NULLS LAST'>"))
    return "SortOrder" in _kinds(tree._expr)


def is_window(column: Column) -> bool:
    """Whether a Column is a window function, or contains one."""
    tree: Any = column
    if not is_tree(column):
        return " OVER (" in str(column)
    return "WindowExpression" in _kinds(tree._expr)


def _kinds(part: Any) -> set[str]:
    """The names of the classes of an expression's parts, down to windows."""
    if isinstance(part, list | tuple):
        return set().union(*map(_kinds, part))
    if not _is_of_connect(part):
        return set()
    kind = type(part).__name__
    if kind in ("SortOrder", "WindowExpression"):
        return {kind}
    return {kind}.union(*map(_kinds, vars(part).values()))


def text_of(column: Column) -> str:
    """The text of a Column, the same in every process.

    It leaves out what varies: Spark numbers the variables of lambdas throughout a process, names
    the place where a Python UDF was created, and shows an address for bytes.
    """
    tree: Any = column
    shown = _part_text(tree._expr) if is_tree(column) else _of_classic(str(column))
    numbers: dict[str, int] = {}
    return _VARIABLE.sub(lambda m: f"{m[1]}_{numbers.setdefault(m[0], len(numbers) + 1)}", shown)


_VARIABLE = re.compile(r"\b([xyz])_(\d+)\b")


def _of_classic(shown: str) -> str:
    shown = _ADDRESS.sub("", shown.removeprefix("Column<'").removesuffix("'>"))
    return _without_places(shown)


def _without_places(shown: str) -> str:
    """The text without the parts `Origin(…)`."""
    before, place, rest = shown.partition("Origin(")
    if not place:
        return shown
    depth = 1
    for i, c in enumerate(rest):
        depth += (c == "(") - (c == ")")
        if not depth:
            return before + _without_places(rest[i + 1 :])
    return before


_ADDRESS = re.compile(r"(?<=\[B)@[0-9a-f]+")
_NAMES = {"not": "!", "==": "=", "startsWith": "startswith", "endsWith": "endswith"}


def _part_text(part: Any) -> str:
    kind = type(part).__name__
    match kind:
        case "LiteralExpression":
            return _text_of_constant(part._value, part._dataType)
        case "ColumnReference":
            return str(part._unparsed_identifier).replace("`", "")
        case "UnresolvedFunction" | "CallFunction":
            return _call(part._name, [_part_text(a) for a in part._args])
        case "CastExpression":
            cast = "TRY_CAST" if part._eval_mode == "try" else "CAST"
            return f"{cast}({_part_text(part._expr)} AS {name_of_type(part._data_type)})"
        case "CaseWhen":
            cases = "".join(
                f" WHEN {_part_text(c)} THEN {_part_text(v)}" for c, v in part._branches
            )
            rest = part._else_value
            return f"CASE{cases}{'' if rest is None else f' ELSE {_part_text(rest)}'} END"
        case "LambdaFunction":
            names = ", ".join(map(str, part._arguments))
            names = f"({names})" if len(part._arguments) > 1 else names
            return f"{names} -> {_part_text(part._function)}"
        case "UnresolvedExtractValue":
            return f"{_part_text(part._child)}[{_part_text(part._extraction)}]"
        case "ColumnAlias":
            return f"{_part_text(part._child)} AS {','.join(part._alias)}"
        case "WithField":
            value = _part_text(part._valueExpr)
            return f"update_field({_part_text(part._structExpr)}, {part._fieldName}, {value})"
        case "DropField":
            return f"drop_field({_part_text(part._structExpr)}, {part._fieldName})"
        case "SortOrder":
            nulls = "FIRST" if part._nullsFirst else "LAST"
            direction = "ASC" if part._ascending else "DESC"
            return f"{_part_text(part._child)} {direction} NULLS {nulls}"
    return str(part)


def _call(name: str, args: list[str]) -> str:
    if name == "window" and len(args) == 2:
        args = [*args, args[1], "'0 second'"]
    return f"{_NAMES.get(name, name)}({', '.join(args)})"


def _text_of_constant(value: Any, t: Any) -> str:
    match type(t).__name__:
        case _ if value is None:
            return "NULL"
        case "BooleanType":
            return str(value).lower()
        case "LongType":
            return f"{value}L"
        case "DoubleType":
            return _double(value)
        case "StringType":
            return "'" + str(value).replace("'", "\\'") + "'"
        case "BinaryType":
            return "[B"
        case "DateType":
            return str(t.fromInternal(value))
        case "TimestampType" | "TimestampNTZType":
            return _time(t.fromInternal(value))
        case "DayTimeIntervalType":
            return _duration(value)
    return str(value)


def _double(value: float) -> str:
    """The text of a double, as in Java."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        shown = repr(value)
        return shown if "e" not in shown else f"{value:f}"
    sign, digits, exponent = _DOUBLE.fullmatch(f"{value:.17e}"), repr(value), 0
    assert sign is not None
    exponent = int(sign[1])
    digits = re.sub(r"e.*|[-.]", "", digits).strip("0") or "0"
    return f"{'-' if value < 0 else ''}{digits[0]}.{digits[1:] or '0'}E{exponent}"


_DOUBLE = re.compile(r"-?[\d.]+e([-+]\d+)")


def _time(value: dt.datetime) -> str:
    """The text of a Timestamp, as in Java."""
    fraction = f"{value.microsecond:06}".rstrip("0") or "0"
    return f"{value:%Y-%m-%d %H:%M:%S}.{fraction}"


def _duration(micros: int) -> str:
    """The text of a Duration, as in Java."""
    sign = "-" if micros < 0 else ""
    seconds, rest = divmod(abs(micros), 1_000_000)
    hours, seconds = divmod(seconds, 3600)
    minutes, seconds = divmod(seconds, 60)
    fraction = f".{rest:06}".rstrip("0") if rest else ""
    parts = [f"{sign}{hours}H" if hours else "", f"{sign}{minutes}M" if minutes else ""]
    parts.append(f"{sign}{seconds}{fraction}S" if seconds or rest else "")
    return "PT" + ("".join(parts) or "0S")
