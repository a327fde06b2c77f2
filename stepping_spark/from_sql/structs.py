"""Structs of SQL: rows within rows, without a class of their own."""

from __future__ import annotations

from typing import Protocol

from sqlglot import exp

from stepping_spark.expressions.expr import Build, Field
from stepping_spark.from_sql.kinds import kind_of_struct, struct_fields
from stepping_spark.from_sql.names import same
from stepping_spark.from_sql.values import (
    Env,
    Value,
    column_of,
    expr_of,
    exprs_of,
    in_spark,
    ours,
)
from stepping_spark.packages import functions as F
from stepping_spark.rows.row_class import field_name, open_class
from stepping_spark.rows.types import Optional, Struct, unwrap


class Translates(Env, Protocol):
    """Makes values of the parts of a tree."""

    def value(self, node: exp.Expr) -> Value:
        """The value of a part."""


def made_struct(args: list[exp.Expr], node: exp.Expr, t: Translates) -> Value:
    """struct(a, b AS c), or (a, b): its names are those that Spark gives."""
    values = [t.value(a.this if isinstance(a, exp.Alias) else a) for a in args]
    return of_parts([_name_of(a, i) for i, a in enumerate(args, 1)], values, node, t)


def of_parts(names: list[str], values: list[Value], node: exp.Expr, t: Translates) -> Value:
    """A struct of values, which the driver makes if it can compute them."""
    exprs = exprs_of(*values)
    named: list[str] = []
    for n in names:
        named.append(field_name(n, named))
    if exprs is None or named != names or {v.kind for v in values} & {"", "void"}:
        columns = [column_of(v).alias(n) for n, v in zip(names, values, strict=True)]
        return in_spark(F.struct(*columns), values, node, t)
    fields = tuple(zip(names, (e.type for e in exprs), strict=True))
    row = Struct("Row", fields, open_class(tuple(names)))
    kinds = [v.kind for v in values]
    return ours(Build(row, tuple(exprs)), kind_of_struct(list(zip(names, kinds, strict=True))))


def field_of(node: exp.Dot, t: Translates) -> Value:
    """A field of a struct."""
    if isinstance(node.expression, exp.Func):
        t.fail(node, "a function of a catalog or a schema is not known", "use Spark's functions")
    of, name = t.value(node.this), node.expression.name
    e, row = expr_of(of), None
    if e is not None and of.kind.startswith("struct<"):
        row = unwrap(e.type)
    if isinstance(e, Build | Field) and isinstance(row, Struct):
        kinds = (kind for _, kind in struct_fields(of.kind))
        for i, ((n, of_field), kind) in enumerate(zip(row.fields, kinds, strict=True)):
            if same(n, name):
                if isinstance(e, Build):
                    return ours(e.fields[i], kind)
                is_nullable = isinstance(e.type, Optional)
                found = Optional(unwrap(of_field)) if is_nullable else of_field
                return ours(Field(found, (*e.path, n)), kind)
    return in_spark(column_of(of).getField(name), [of], node, t)


def named_struct(args: list[exp.Expr], node: exp.Expr, t: Translates) -> Value:
    """named_struct('a', x, 'b', y)."""
    names = [a.name for a in args[::2] if isinstance(a, exp.Literal) and a.is_string]
    if len(names) * 2 != len(args) or not names:
        t.fail(node, "named_struct takes names and values in turns", "write named_struct('a', x)")
    return of_parts(names, [t.value(a) for a in args[1::2]], node, t)


def _name_of(e: exp.Expr, number: int) -> str:
    """The name that Spark gives to a part of a struct."""
    if isinstance(e, exp.Column) and "column" in e.meta:
        return str(e.meta["column"].name)
    if isinstance(e, exp.Dot):
        return str(e.expression.name)
    return e.alias_or_name if isinstance(e, exp.Alias | exp.Column) else f"col{number}"


def names_of(node: exp.Expr) -> list[str] | None:
    """The names of a struct that the text makes; None of another value."""
    called = node.name.lower() if isinstance(node, exp.Anonymous) else ""
    if isinstance(node, exp.Tuple) or called == "struct":
        return [_name_of(a, i) for i, a in enumerate(node.expressions, 1)]
    return [a.name for a in node.expressions[::2]] if called == "named_struct" else None
