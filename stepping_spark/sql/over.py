"""Window functions as an operator: `st.window`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlglot import exp

import circuits
from stepping_spark.expressions.expr import Literal
from stepping_spark.language import win
from stepping_spark.language.window import OF_ORDER
from stepping_spark.sql.aggregates import KEPT, taken
from stepping_spark.sql.kinds import kind_of
from stepping_spark.sql.places import failure
from stepping_spark.sql.plan import Over, PlanColumn, Scalar, Windows
from stepping_spark.sql.relation import PlacedStream, key_of, order_of

_RANKS: dict[str, Callable[[], Any]] = {
    "row_number": win.row_number,
    "rank": win.rank,
    "dense_rank": win.dense_rank,
    "percent_rank": win.percent_rank,
    "cume_dist": win.cume_dist,
}
_OF_FRAMES: dict[str, Any] = {
    "sum": win.sum,
    "avg": win.avg,
    "min": win.min,
    "max": win.max,
    "any_value": win.any_value,
    "bool_and": win.bool_and,
    "bool_or": win.bool_or,
    "stddev": win.stddev,
    "variance": win.variance,
    "median": win.median,
    "stddev_pop": lambda f, **k: win.stddev(f, population=True, **k),
    "var_pop": lambda f, **k: win.variance(f, population=True, **k),
}
_PLACED = {"first_value": win.first_value, "first": win.first_value, "last_value": win.last_value,
           "last": win.last_value}  # fmt: skip
_INTS = ("row_number", "rank", "dense_rank", "ntile")


def over_windows(source: PlacedStream, plan: Windows) -> PlacedStream:
    """The rows of a relation with the values of window functions."""
    used_names = {path[0] for path in source.places.values()}
    fields: dict[str, Any] = {}
    named: dict[PlanColumn, str] = {}
    for c, over in plan.calls:
        name = next(
            n for i in range(1, 10_000) if (n := f"w{i}") not in used_names and n not in fields
        )
        named[c] = name
        fields[name] = _Function(source, over).function()
    stream: Any = circuits.window(source.stream, by=None, order=None, fields=fields)
    places = {**source.places, **{c: (n,) for c, n in named.items()}}
    relation = PlacedStream(stream, places, dict(source.kinds), source.text)
    types = dict(relation.row.fields)  # type: ignore[attr-defined]
    for c, over in plan.calls:
        name = over.call.name
        kind = kind_of(types[named[c]])
        if name in KEPT or name in _PLACED or name in ("lag", "lead", "nth_value"):
            kind = source.kind(over.call.args[0])
        relation.kinds[c] = "int" if name in _INTS else kind
    return relation


@dataclass(frozen=True)
class _Function:
    source: PlacedStream
    over: Over

    def fail(self, reason: str, remedy: str = "") -> Exception:
        return failure(self.source.text, self.over.call.at, reason, remedy)

    def function(self) -> Any:
        """The window function of the library."""
        order = order_of(self.source, self.over.order) or None
        name = self.over.call.name
        if order is None and name in OF_ORDER:
            raise self.fail(f"{name} needs an order", f"write {name}(…) OVER (ORDER BY …)")
        by = key_of(self.source, self.over.by) if self.over.by else None
        return self._function().over(by=by, order=order)

    def _function(self) -> Any:
        call = self.over.call
        self._check_frame()
        if call.distinct:
            raise self.fail(f"{call.name}(DISTINCT …) OVER is not supported by Spark")
        if call.name in _RANKS:
            return _RANKS[call.name]()
        if call.name == "ntile":
            return win.ntile(self._number(call.args[0]) if call.args else 1)
        if call.name in ("lag", "lead"):
            return self._shifted()
        if call.name in ("median", "percentile", "percentile_cont") and self.over.order:
            raise self.fail(f"{call.name} has no ORDER BY in OVER", "leave it out")
        frame = self._frame()
        ignore = call.ignore_nulls or (len(call.args) > 1 and call.args[1] == exp.true())
        if call.name in _PLACED:
            return _PLACED[call.name](self._value(), ignore_nulls=ignore, **frame)
        if call.name == "nth_value":
            n = self._number(call.args[1])
            ignore |= call.args[-1] == exp.true()
            return win.nth_value(self._value(), n, ignore_nulls=ignore, **frame)
        if call.name == "count":
            star = isinstance(call.args[0], exp.Star)
            if star and call.condition is None:
                return win.count(**frame)
            return win.count(self._value(exp.Literal.number(1) if star else None), **frame)
        if call.name == "count_if":
            true = exp.If(this=call.args[0].copy(), true=exp.Literal.number(1))
            return win.count(self._value(exp.Case(ifs=[true])), **frame)
        if call.name == "corr":
            return win.corr(self._value(), self.source.function(call.args[1]), **frame)
        if call.name in ("percentile", "percentile_cont"):
            return win.percentile(self._value(), float(self._constant(call.args[1])), **frame)
        if call.name not in _OF_FRAMES:
            raise self.fail(f"{call.name} OVER is not supported")
        return _OF_FRAMES[call.name](self._value(), **frame)

    def _value(self, e: Scalar | None = None) -> Any:
        e = self.over.call.args[0] if e is None else e
        e = taken(self.source, self.over.call, e)
        condition = self.over.call.condition
        if condition is not None:
            e = exp.Case(ifs=[exp.If(this=condition.copy(), true=e.copy())])
        return self.source.function(e)

    def _number(self, e: Scalar) -> int:
        literal = self.source.expr(e)
        if not isinstance(literal, Literal) or type(literal.constant) is not int:
            raise self.fail("this argument has to be a whole number, and a constant")
        return literal.constant

    def _shifted(self) -> Any:
        call = self.over.call
        n = self._number(call.args[1]) if len(call.args) > 1 else 1
        name = call.name
        if n < 0:
            name, n = ("lead" if name == "lag" else "lag"), -n
        if not n and not call.ignore_nulls:
            return win.first_value(self._value(), rows=(0, 0))
        function = win.lag if name == "lag" else win.lead
        default = None
        if len(call.args) > 2 and not isinstance(call.args[2], exp.Null):
            default = self._constant(call.args[2], self.source.kind(call.args[0]))
        return function(self._value(), n, default=default, ignore_nulls=call.ignore_nulls)

    def _constant(self, e: Scalar, kind: str | None = None) -> Any:
        """A constant as a value of Python."""
        literal = self.source.expr(e, kind)
        if not isinstance(literal, Literal):
            raise self.fail("this argument has to be a constant")
        return literal.constant

    # -- frames

    def _check_frame(self) -> None:
        """Refuse the frames that Spark refuses, such as those of functions with a fixed frame."""
        spec, name = self.over.frame, self.over.call.name
        if name == "nth_value" and not self.over.order:
            raise self.fail("nth_value needs an order", "write OVER (… ORDER BY …)")
        if spec is None:
            return
        if name in ("lag", "lead"):
            raise self.fail(f"{name} has no frame", "leave it out")
        bounds = [str(spec.args.get(k)).upper() for k in ("start", "start_side", "end", "end_side")]
        kind = str(spec.args.get("kind")).upper()
        if name in _RANKS or name == "ntile":
            frame_kind = "RANGE" if name == "cume_dist" else "ROWS"
            whole = ["UNBOUNDED", "PRECEDING", "CURRENT ROW"]
            if kind != frame_kind or bounds[:3] not in (whole, [*whole[:2], "NONE"]):
                remedy = "leave it out"
                raise self.fail(
                    f"{name} has the frame {frame_kind} BETWEEN UNBOUNDED PRECEDING AND "
                    "CURRENT ROW",
                    remedy,
                )
        if bounds[:2] == ["UNBOUNDED", "FOLLOWING"] or bounds[2:] == ["UNBOUNDED", "PRECEDING"]:
            raise self.fail("the frame ends before it begins", "write the earlier bound first")
        if kind == "RANGE" and not self.over.order:
            raise self.fail("a frame of RANGE needs an order", "write OVER (ORDER BY … RANGE …)")

    def _frame(self) -> dict[str, Any]:
        spec = self.over.frame
        if spec is None:
            return {}
        kind = str(spec.args.get("kind") or "").lower()
        if kind not in ("rows", "range") or spec.args.get("exclude"):
            raise self.fail("a frame is of ROWS or RANGE", "leave out GROUPS and EXCLUDE")
        start = self._bound(spec.args.get("start"), spec.args.get("start_side"), kind)
        end_given = spec.args.get("end")
        end = 0 if end_given is None else self._bound(end_given, spec.args.get("end_side"), kind)
        return {"range" if kind == "range" else "rows": (start, end)}

    def _bound(self, bound: Any, side: Any, kind: str) -> Any:
        if isinstance(bound, str):
            return 0 if bound.upper().startswith("CURRENT") else None
        if bound is None:
            return None
        value = self._constant(bound) if kind == "range" else self._number(bound)
        return -value if str(side).upper() == "PRECEDING" else value
