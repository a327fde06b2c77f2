"""Maps, filters and sums of the values of one step."""

from __future__ import annotations

from dataclasses import dataclass

from stepping_spark.circuit.graph import Vertex
from stepping_spark.circuit.operators import Add, Filter, Map, Neg
from stepping_spark.expressions.expr import Expr, Field, PythonCall
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.data import pair_of
from stepping_spark.rows.schema import ZSetType


@dataclass
class TypeMismatch(Exception):
    """Streams whose types do not fit an operator."""

    what: str
    expected: str
    found: str


def row_of(a: Vertex) -> RowType:
    """The type of the rows of a vertex."""
    assert isinstance(a.type, ZSetType), a.type
    return a.type.row


def map(a: Vertex, f: Expr) -> Vertex:  # noqa: A001 - the field's name for it
    """Each row becomes `f`. Linear."""
    return Vertex(Map(f), a)


def filter(a: Vertex, where: Expr) -> Vertex:  # noqa: A001 - the field's name for it
    """The rows for which `where` is true. Linear.

    A Python predicate is a Python map to (row, verdict); these are filtered and mapped back.
    """
    if not isinstance(where, PythonCall):
        return Vertex(Filter(where), a)
    row = row_of(a)
    judged = Vertex(Map(beside(where, row)), a)
    true = Vertex(Filter(Field(where.type, ("right",))), judged)
    return Vertex(Map(Field(row, ("left",))), true)


def beside(f: PythonCall, row: RowType) -> PythonCall:
    """The Python function that returns a Pair of the row and `f(row)`."""
    return PythonCall(pair_of(row, f.type), f.function, f.name, beside=True)


def add(a: Vertex, *more: Vertex) -> Vertex:
    """The sum of streams of one type. Linear."""
    for b in more:
        a = Vertex(Add(), a, b)
    return a


def subtract(a: Vertex, b: Vertex) -> Vertex:
    """a − b. Linear."""
    return Vertex(Add(), a, Vertex(Neg(), b))
