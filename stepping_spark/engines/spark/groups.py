"""The operators of groups in Spark SQL."""

from __future__ import annotations

from dataclasses import dataclass

from stepping_spark.engines.spark.text import key_names, ordered
from stepping_spark.expressions.derived import known
from stepping_spark.expressions.expr import Field
from stepping_spark.physical import Gather, Pieces, Rank
from stepping_spark.rows.atoms import Atom, RowType
from stepping_spark.rows.schema import COUNT
from stepping_spark.rows.sql_text import all_of, closed
from stepping_spark.rows.types import ListOf, Optional, Struct, quote, unwrap

FIXED_WIDTH = ("bool", "int", "float", "Decimal", "date", "datetime", "LocalDateTime", "timedelta")


@dataclass(frozen=True)
class Extreme:
    """The first row of each key, where that is the least or largest value of one column.

    All other columns are keys, so that there are no ties.
    """

    function: str
    column: str
    keys: tuple[tuple[str, str], ...]  # the columns, each with the name of its key

    def of(self, condition: str) -> str:
        """The value, as an aggregate over some of the rows."""
        return f"{self.function}({quote(self.column)}) FILTER (WHERE {condition})"

    def row(self, value: str) -> str:
        """The columns of the row that has the value."""
        return ", ".join(f"{key or value} AS {quote(n)}" for n, key in self.keys)


def extreme(op: Rank) -> Extreme | None:
    """The aggregate that finds the first row of each key; None where that takes an order."""
    if op.n != 1 or op.ties or not op.order:
        return None
    *before, (last, up) = op.order
    if not isinstance(last, Field) or len(last.path) != 1:
        return None
    columns, (name,) = dict(op.of.schema.columns), last.path
    t = columns.get(name)
    if t is None or not is_fixed_width(t):
        return None  # Spark sorts for aggregates of others
    knows = before == [(known(last), False)]
    if (before and not knows) or (up and isinstance(t, Optional) and not knows):
        return None  # an aggregate leaves out NULL, so it has to come last
    keys = {k.path: f"_k{i}_" for i, k in enumerate(op.keys) if isinstance(k, Field)}
    found = tuple((n, "" if n == name else keys.get((n,))) for n in columns)
    if any(key is None for _, key in found):
        return None
    return Extreme("min" if up else "max", name, tuple((n, key or "") for n, key in found))


def top(op: Rank, query: str) -> str:
    """The first rows of a consolidated query, which has the keys beside its rows."""
    shown = ", ".join(quote(n) for n, _ in op.of.schema.columns)
    by = key_names(op.keys)
    count = f"CAST(least(t.{COUNT}, {op.n}L) AS DECIMAL(20, 0))"
    if op.ties:
        return _with_ties(op, query, count)
    found = extreme(op)
    if found is not None:
        there = closed(f"{COUNT} > 0")
        grouped = f"SELECT {by}, {found.of(there)} AS _v_ FROM ({query}) GROUP BY {by}"
        some = closed(f"count_if({there}) > 0")
        return f"SELECT {found.row('_v_')}, 1L AS {COUNT} FROM ({grouped} HAVING {some})"
    if op.n == 1:
        # Spark sorts and numbers rows in a fraction of the time that it takes to add them up.
        order = ordered(op.order, op.of.schema.columns, "t")
        numbered = f"row_number() OVER (PARTITION BY {by} ORDER BY {order}) AS _at_"
        ranked = f"SELECT t.*, {numbered} FROM ({query}) t WHERE t.{COUNT} > 0"
        return f"SELECT {shown}, 1L AS {COUNT} FROM ({ranked}) WHERE _at_ = 1"
    window = (
        f"OVER (PARTITION BY {by} ORDER BY {ordered(op.order, op.of.schema.columns, 't')} "
        "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    )
    before = f"coalesce(sum({count}) {window}, 0)"
    ranked = f"SELECT t.*, {before} AS _before_ FROM ({query}) t WHERE t.{COUNT} > 0"
    kept = f"CAST(least({COUNT}, {op.n}L - _before_) AS BIGINT) AS {COUNT}"
    return f"SELECT {shown}, {kept} FROM ({ranked}) WHERE _before_ < {op.n}"


def _with_ties(op: Rank, query: str, count: str) -> str:
    """The rows with few rows before them in the order; ties are not before each other."""
    shown = ", ".join(quote(n) for n, _ in op.of.schema.columns)
    by = key_names(op.keys)
    order = ordered(op.order, (), "t")
    peers = ", ".join([by, *(e.sql("t") for e, _ in op.order)])
    so_far = f"sum({count}) OVER (PARTITION BY {by} ORDER BY {order})"
    before = closed(f"{so_far} - sum({count}) OVER (PARTITION BY {peers})")
    ranked = f"SELECT t.*, {before} AS _before_ FROM ({query}) t WHERE t.{COUNT} > 0"
    return f"SELECT {shown}, {COUNT} FROM ({ranked}) WHERE _before_ < {op.n}"


def listed(op: Gather, query: str) -> str:
    """The lists of a consolidated query's rows."""
    order = ordered(op.order, op.of.schema.columns, "t")
    ranked = (
        f"SELECT {op.key.sql('t')} AS k, {op.item.sql('t')} AS v, t.{COUNT} AS n, row_number() "
        f"OVER (PARTITION BY {op.key.sql('t')} ORDER BY {order}) AS at "
        f"FROM ({query}) t WHERE t.{COUNT} > 0"
    )
    # As structs, because collect_list leaves out NULLs.
    rows = "array_sort(collect_list(named_struct('at', at, 'v', named_struct('v', v), 'n', n)))"
    repeated = f"flatten(transform({rows}, r -> array_repeat(r.v, CAST(r.n AS INT))))"
    items = f"CAST(transform({repeated}, r -> r.v) AS {ListOf(op.item.type).ddl})"
    return f"SELECT {items} AS `left`, k AS `right`, 1L AS {COUNT} FROM ({ranked}) GROUP BY k"


@dataclass(frozen=True)
class Largest:
    """The largest value of a column in each group, where a group has at most one.

    Spark sorts the rows to find the largest structs. So the fields of a struct are found apart, as
    far as they have a fixed width, which Spark does by hashing.
    """

    column: str
    type: RowType
    name: str

    @property
    def value(self) -> str:
        """The value, of the columns of `sums`; NULL if the group has none."""
        if not self._fields:
            return quote(self.name)
        fields = ", ".join(f"{self._field(n)} AS {quote(n)}" for n in self._fields)
        return f"if({self._field('')} > 0, struct({fields}), NULL)"

    def sums(self, condition: str = "") -> list[str]:
        """The aggregates that it takes, over all rows or some."""
        where = f" FILTER (WHERE {condition})" if condition else ""
        column = quote(self.column)
        if not self._fields:
            return [f"max({column}){where} AS {quote(self.name)}"]
        found = [f"max({column}.{quote(n)}){where} AS {self._field(n)}" for n in self._fields]
        return [*found, f"count({column}){where} AS {self._field('')}"]

    @property
    def _fields(self) -> list[str]:
        t = unwrap(self.type)
        if not isinstance(t, Struct) or not all(is_fixed_width(f) for _, f in t.fields):
            return []
        return [n for n, _ in t.fields]

    def _field(self, name: str) -> str:
        return quote(f"{self.name}.{name}")


def is_fixed_width(t: RowType) -> bool:
    """Whether Spark has a place of a fixed width for the values of a type."""
    bare = unwrap(t)
    return isinstance(bare, Atom) and bare.name in FIXED_WIDTH


def collated(op: Pieces, query: str) -> str:
    """The rows made of a consolidated query's pieces."""
    ((key, _), *pieces) = op.of.schema.columns
    largest = [Largest(n, t, n) for n, t in pieces]
    sums = ", ".join(s for a in largest for s in a.sums())
    values = ", ".join(f"{a.value} AS {quote(a.name)}" for a in largest)
    kept = all_of(f"{quote(n)} IS NOT NULL" for n, _ in pieces[: op.required])
    grouped = f"SELECT {quote(key)}, {sums} FROM ({query}) WHERE {COUNT} > 0 GROUP BY {quote(key)}"
    rows = f"SELECT {quote(key)}, {values} FROM ({grouped})"
    return f"SELECT *, 1L AS {COUNT} FROM ({rows}) WHERE {kept}"
