"""Window functions in Spark SQL: Spark's own, over rows that are repeated by their weight.

Spark adds up floats in their order, so their sum depends on the order and on earlier frames. Here
they are added exactly: a float is a limb, an integer, in a bin, its power of 2³²
(`relations.sums.floats`). Each row is repeated for each bin of its partition, the limbs of each bin
are added up over the frame, and the sums of a row's bins are collected.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any, TypeAlias

from stepping_spark.circuit.physical import Sorting, WindowCall, Windowed
from stepping_spark.execution.spark.text import key_names
from stepping_spark.expressions.lists import at_share_sql
from stepping_spark.relations.sums.floats import rest_sql, split_sql, total_sql
from stepping_spark.relations.sums.overflow import fitting, halves_sql, joined_sql
from stepping_spark.relations.sums.sql import DECIMALS, SMALLER
from stepping_spark.rows.atoms import DATETIME, FLOAT, INT, LOCAL_DATETIME, REST, Atom, RowType
from stepping_spark.rows.schema import COUNT, columns_of
from stepping_spark.rows.sql_text import Sql, closed, literal, text
from stepping_spark.rows.types import Optional, Struct, quote, unwrap

WIDE = "DECIMAL(20, 0)"  # a BIGINT and an offset added


Apart: TypeAlias = Callable[[str], str]
"""Makes a query a relation of its own: Spark resolves only a limited depth of nested names."""


def windowed(n: Windowed, query: str, apart: Apart) -> str:
    """The rows of a consolidated query with columns of keys, and the results of functions."""
    spec = _Spec(n)
    floats = {i: c for i, c in enumerate(n.calls) if _adds_floats(c)}
    text = (
        f"SELECT t.*, explode(sequence(1L, t.{COUNT})) AS _copy_ FROM ({query}) t "
        f"WHERE t.{COUNT} > 0"
    )
    if floats or any(map(_picks_by_value, n.calls)):
        text = f"SELECT t.*, row_number() OVER ({spec.by_row()}) AS _id_ FROM ({text}) t"
    gaps = {c.gap for c in n.calls} - {None}
    if gaps:
        (gap,) = gaps
        text = _with_sessions(spec, gap, text)
    shown = []
    for i, c in enumerate(n.calls):
        if i in floats:
            counted = WindowCall("count", INT, c.args, c.frame)
            shown.append(f"{spec.call(counted)} AS _n{i}_")
        else:
            shown.append(f"{spec.call(c)} AS _w{i}_")
    text = f"SELECT t.*, {', '.join(shown)} FROM ({text}) t"
    if floats:
        text = _with_float_sums(spec, floats, text, apart)
    return _pairs(n, text)


def _with_sessions(spec: _Spec, gap: Any, query: str) -> str:
    """The query with the number of each row's session: a wide gap before a row begins a new one."""
    (s,) = spec.node.sorting
    own = as_number(s.expr.sql("t"), s.expr.type)
    query = f"SELECT t.*, lag({own}) OVER ({spec.by_row()}) AS _before_ FROM ({query}) t"
    wide = closed(f"{own} > t._before_ + {offset_sql(gap, s.expr.type)}")
    number = f"count_if({wide}) OVER ({spec.by_row()} ROWS UNBOUNDED PRECEDING)"
    return f"SELECT t.*, {number} AS _session_ FROM ({query}) t"


def _pairs(n: Windowed, query: str) -> str:
    """The pairs of a row and the tuple of its results."""
    (_, row), (_, results) = n.schema.columns
    names = [f"t.{quote(c)}" for c, _ in columns_of(row)]
    left = names[0]
    if isinstance(row, Struct):
        fields = zip(row.fields, names, strict=True)
        left = f"named_struct({', '.join(f'{text(f)}, {x}' for (f, _), x in fields)})"
    assert isinstance(results, Struct)
    cells = ", ".join(f"'{f}', t._w{i}_" for i, (f, _) in enumerate(results.fields))
    right = f"CAST(named_struct({cells}) AS {results.ddl})"
    return f"SELECT {left} AS `left`, {right} AS `right`, 1L AS {COUNT} FROM ({query}) t"


def _adds_floats(c: WindowCall) -> bool:
    return c.kind == "sum" and unwrap(c.type) in (FLOAT, REST)


def _picks_by_value(c: WindowCall) -> bool:
    """Whether a function picks a row from a frame of peers, whose order Spark leaves open."""
    picks = c.kind in ("first_value", "last_value", "nth_value")
    return picks and c.frame is not None and not c.frame.rows


def _with_float_sums(spec: _Spec, floats: dict[int, WindowCall], query: str, apart: Apart) -> str:
    """The query with the sums of floats, in addition to their counts.

    A row occurs once for each bin of a sum in its partition. A limb has 26 digits, so no sum of
    limbs exceeds 38. Long expressions occur once, for any number of sums.
    """
    calls = list(floats.values())
    values = ", ".join(c.args[0].sql("t") for c in calls)
    query = (
        f"SELECT t.*, transform(array({values}), x -> {split_sql('x')}) AS _parts_ FROM ({query}) t"
    )
    over = f"OVER (PARTITION BY {spec.keys})"
    sets = [f"collect_set(_parts_[{i}].bin) {over} AS _bins{i}_" for i, _ in enumerate(calls)]
    query = f"SELECT *, {', '.join(sets)} FROM ({query})"
    bins = (
        f"transform(_bins{i}_, b -> named_struct('sum', {i}, 'bin', b))"
        for i, _ in enumerate(calls)
    )
    query = f"SELECT *, explode_outer(concat({', '.join(bins)})) AS _at_ FROM ({query})"
    limb = "if(_parts_[_at_.sum].bin = _at_.bin, _parts_[_at_.sum].limb, NULL)"
    query = f"SELECT *, {limb} AS _limb_ FROM ({query})"
    keys = f"{spec.keys}, t._at_"
    sums = " ".join(
        f"WHEN _at_.sum = {i} THEN sum(t._limb_) {spec.over(c, keys, 't._id_')}"
        for i, c in enumerate(calls)
    )
    query = f"SELECT t.*, CASE {sums} END AS _sum_ FROM ({query}) t"
    return _collected(spec, floats, query, apart)


def _collected(spec: _Spec, floats: dict[int, WindowCall], query: str, apart: Apart) -> str:
    """The query with one row each again, whose sums of floats are computed from its bins."""
    columns = [quote(c) for c, _ in spec.node.of.schema.columns]
    columns += [f"_{'n' if i in floats else 'w'}{i}_" for i, _ in enumerate(spec.node.calls)]
    items = "named_struct('bin', _at_.bin, 'limb', _sum_)"
    lists = (
        f"collect_list({items}) FILTER (WHERE _at_.sum = {i} AND _sum_ IS NOT NULL)"
        for i, _ in enumerate(floats)
    )
    shown = ", ".join(f"any_value(t.{c}) AS {c}" for c in columns)
    query = (
        f"SELECT {shown}, array({', '.join(lists)}) AS _items_ FROM ({query}) t "
        f"GROUP BY {spec.keys}, _id_"
    )
    has_rests = any(unwrap(c.type) == REST for c in floats.values())
    totals = f"transform(_items_, l -> {total_sql('l')})"
    query = f"SELECT *, {totals} AS _totals_ FROM ({apart(query) if has_rests else query})"
    if has_rests:
        rests = f"zip_with(_items_, _totals_, (l, s) -> {rest_sql('l', 's')})"
        query = apart(f"SELECT *, {rests} AS _rests_ FROM ({apart(query)})")
    values = (
        f"if(_n{i}_ > 0, {'_rests_' if unwrap(c.type) == REST else '_totals_'}[{j}], "
        f"{'NULL' if isinstance(c.type, Optional) else '0D'}) AS _w{i}_"
        for j, (i, c) in enumerate(floats.items())
    )
    return f"SELECT *, {', '.join(values)} FROM ({query})"


class _Spec:
    """The SQL of a node's windows, over rows called `t`."""

    def __init__(self, node: Windowed) -> None:
        self.node = node
        self.keys = key_names(node.keys)
        self.sorted = [_sorted(s.expr.sql("t"), s) for s in node.sorting]

    def by_row(self, keys: str = "") -> str:
        """Partitions sorted by the order and then by the whole row, so only equal rows tie."""
        row = [f"t.{quote(c)}" for c, _ in self.node.of.schema.columns]
        order = ", ".join([*self.sorted, *row, "t._copy_"])
        return f"PARTITION BY {keys or self.keys} ORDER BY {order}"

    def by_peers(self, keys: str = "") -> str:
        """Partitions sorted by the order alone."""
        order = f" ORDER BY {', '.join(self.sorted)}" if self.sorted else ""
        return f"PARTITION BY {keys or self.keys}{order}"

    def over(self, c: WindowCall, keys: str = "", rows: str = "") -> str:
        """The window of a function with a frame; `rows` is a column with the numbers of rows."""
        frame = c.frame
        assert frame is not None
        if frame.rows:
            within = f"PARTITION BY {keys} ORDER BY {rows}" if rows else self.by_row(keys)
            start, end = _rows_bound(frame.start, 0), _rows_bound(frame.end, 1)
            return f"OVER ({within} ROWS BETWEEN {start} AND {end})"
        within = self.by_peers(keys)
        if not self.sorted:
            return f"OVER ({within})"
        t = self.node.sorting[0].expr.type
        if frame.by_value:
            (s,) = self.node.sorting
            by = _sorted(as_number(s.expr.sql("t"), t), s)
            within = f"PARTITION BY {keys or self.keys} ORDER BY {by}"
        start, end = _range_bound(frame.start, 0, t), _range_bound(frame.end, 1, t)
        return f"OVER ({within} RANGE BETWEEN {start} AND {end})"

    def call(self, c: WindowCall) -> str:
        """The SQL of a function."""
        args = [a.sql("t") for a in c.args]
        nulls = " IGNORE NULLS" if c.ignore_nulls else ""
        match c.kind:
            case "row_number":
                return f"CAST(row_number() OVER ({self.by_row()}) AS BIGINT)"
            case "ntile":
                return f"CAST(ntile({c.n}) OVER ({self.by_row()}) AS BIGINT)"
            case "rank" | "dense_rank":
                return f"CAST({c.kind}() OVER ({self.by_peers()}) AS BIGINT)"
            case "percent_rank" | "cume_dist":
                return f"{c.kind}() OVER ({self.by_peers()})"
            case "lag" | "lead":
                arguments = ", ".join([args[0], str(c.n), *args[1:]])
                return f"{c.kind}({arguments}){nulls} OVER ({self.by_row()})"
            case "session_start" | "session_end":
                edge = "min" if c.kind == "session_start" else "max"
                at = self.node.sorting[0].expr.sql("t")
                return f"{edge}({at}) OVER (PARTITION BY {self.keys}, t._session_)"
            case "first_value" | "last_value" | "nth_value" if _picks_by_value(c):
                return self._picked(c, args[0])
            case "nth_value":
                return f"nth_value({args[0]}, {c.n}){nulls} {self.over(c)}"
            case "count" if not args:
                return f"count(1) {self.over(c)}"
            case "percentile":
                return at_share_sql(f"array_sort(collect_list({args[0]}) {self.over(c)})", c.share)
            case "sum":
                return self._sum(c, args[0])
        return f"{c.kind}({args[0]}){nulls} {self.over(c)}"

    def _picked(self, c: WindowCall, x: Sql) -> str:
        """A value from a frame of peers, which are in the order of `_id_`."""
        over = self.over(c)
        at = f"if({x} IS NULL, NULL, t._id_)" if c.ignore_nulls else "t._id_"
        if c.kind != "nth_value":
            return f"{'min_by' if c.kind == 'first_value' else 'max_by'}({x}, {at}) {over}"
        rows = f"collect_list(if({at} IS NULL, NULL, named_struct('at', t._id_, 'x', {x}))) {over}"
        return f"try_element_at(array_sort({rows}), {c.n}).x"

    def _sum(self, c: WindowCall, x: str) -> str:
        """An exact sum of ints or Decimals, or an error; NULL if all values are NULL."""
        t = unwrap(c.type)
        over = self.over(c)
        remedy = DECIMALS if t == INT else SMALLER
        assert isinstance(t, Atom)
        if t.is_halved:  # the sum of some of a frame's rows may be beyond 38 digits
            low, high = (closed(f"sum({half}) {over}") for half in halves_sql(closed(x), t))
            total: str = joined_sql(low, high, t)
        else:
            wide = WIDE if t == INT else t.ddl
            total = f"TRY_CAST(try_sum(CAST({x} AS {wide})) {over} AS {t.ddl})"
        fits = fitting(total, t, f"a sum over a frame is beyond {t}; {remedy}")
        none = "NULL" if isinstance(c.type, Optional) else f"CAST(0 AS {t.ddl})"
        return f"CASE WHEN count({x}) {over} > 0 THEN {fits} ELSE {none} END"


def _sorted(x: Sql, s: Sorting) -> str:
    direction = "ASC" if s.ascending else "DESC"
    return f"{x} {direction} NULLS {'FIRST' if s.nulls_first else 'LAST'}"


def as_number(x: Sql, t: RowType) -> Sql:
    """A value of an order in a form to which offsets can be added exactly, in any time zone."""
    bare = unwrap(t)
    assert isinstance(bare, Atom)
    match bare.name:
        case "int":
            return closed(f"CAST({x} AS {WIDE})")
        case "date":
            return closed(f"CAST(unix_date({x}) AS {WIDE})")
        case "datetime":
            return closed(f"CAST(unix_micros({x}) AS {WIDE})")
        case "LocalDateTime":
            return closed(f"{x} - TIMESTAMP_NTZ'1970-01-01 00:00:00'")
    return x


def offset_sql(offset: Any, t: RowType) -> Sql:
    """An offset in the form that can be added to `as_number` a value of the type."""
    bare = unwrap(t)
    assert isinstance(bare, Atom)
    if bare.name in ("int", "date"):
        return closed(f"CAST({offset} AS {WIDE})")
    if bare.name == "datetime":
        return closed(f"CAST({offset // dt.timedelta(microseconds=1)} AS {WIDE})")
    if isinstance(offset, dt.timedelta):  # a frame takes no function, such as make_dt_interval
        hours, seconds = divmod(offset.seconds, 3600)
        clock = f"{hours:02}:{seconds // 60:02}:{seconds % 60:02}.{offset.microseconds:06}"
        return closed(f"INTERVAL '{offset.days} {clock}' DAY TO SECOND")
    return closed(literal(bare.encode(offset, "an offset"), bare))


def units_sql(units: int, t: RowType) -> Sql:
    """`offset_sql` of a number of units: microseconds for datetimes, else days or plain numbers."""
    of_times = unwrap(t) in (DATETIME, LOCAL_DATETIME)
    return offset_sql(dt.timedelta(microseconds=units) if of_times else units, t)


def _rows_bound(bound: int | None, side: int) -> str:
    """A bound of a frame of rows; `side` is 0 for the frame's start, and 1 for its end."""
    if bound is None:
        return f"UNBOUNDED {('PRECEDING', 'FOLLOWING')[side]}"
    if bound == 0:
        return "CURRENT ROW"
    bound = max(-(2**31) + 1, min(2**31 - 1, bound))
    return f"{abs(bound)} {'PRECEDING' if bound < 0 else 'FOLLOWING'}"


def _range_bound(bound: Any, side: int, t: RowType) -> str:
    """A bound of a frame of values of a type; `side` as in `_rows_bound`."""
    if bound is None:
        return f"UNBOUNDED {('PRECEDING', 'FOLLOWING')[side]}"
    zero = type(bound)(0)
    if bound == zero:
        return "CURRENT ROW"
    return f"{offset_sql(abs(bound), t)} {'PRECEDING' if bound < zero else 'FOLLOWING'}"
