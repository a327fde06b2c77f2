"""Refuses syntax that sqlglot's parser accepts and Spark's does not.

The parser accepts the syntax of other databases, clauses in any order, and lists that end in a
comma. A query that Spark does not accept is a mistake, or has clauses that this package ignores.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from sqlglot import TokenType, exp
from sqlglot.tokenizer_core import Token

from stepping_spark.sql.aggregate_calls import is_star
from stepping_spark.sql.places import failure, failure_at, place_of

_MODIFIERS = ("with_", "limit", "offset", "order", "sample", "joins", "laterals", "pivots", "locks")
_CLAUSES = ("cluster", "connect", "distribute", "match", "sort")
_UNDERSTOOD: dict[type[exp.Expr], tuple[str, ...]] = {
    exp.Select: (
        *("distinct", "expressions", "from_", "group", "having", "hint", "qualify", "where"),
        *("windows", *_MODIFIERS, *_CLAUSES),
    ),
    exp.SetOperation: ("this", "expression", "distinct", *_MODIFIERS),
    exp.Subquery: ("this", "alias", *_MODIFIERS),
    exp.Values: ("expressions", "alias", "order", "limit", "offset", "pivots"),
    exp.Table: (
        *("this", "alias", "db", "catalog", "laterals", "joins", "pivots", "sample"),
        *("version", "when"),
    ),
    exp.Join: ("this", "on", "side", "kind", "using", "method", "pivots"),
    exp.Lateral: ("this", "view", "outer", "alias"),
    exp.Group: ("expressions", "grouping_sets", "cube", "rollup", "all"),
    exp.Window: ("this", "partition_by", "order", "spec", "alias", "over"),
    exp.WindowSpec: ("kind", "start", "start_side", "end", "end_side"),
    exp.Order: ("this", "expressions"),
    exp.Ordered: ("this", "desc", "nulls_first"),
    exp.Limit: ("this", "expression"),
    exp.Offset: ("this", "expression"),
    exp.CTE: ("this", "alias"),
    exp.With: ("expressions", "recursive"),
    exp.Star: ("except_",),
    exp.Column: ("this", "table", "db", "catalog"),
    exp.In: ("this", "expressions", "query", "unnest"),
    exp.Between: ("this", "low", "high"),
    exp.Cast: ("this", "to", "safe"),
    exp.Trim: ("this", "expression", "position"),
}
"""The arguments of each kind of node that this package reads."""

_LISTED = frozenset(
    (TokenType.COMMA, TokenType.ON, TokenType.PARTITION_BY, TokenType.GROUP_BY, TokenType.ORDER_BY)
)
"""The tokens after which an item must follow."""
_ENDS = _LISTED | {TokenType.R_PAREN, TokenType.FROM, TokenType.WHERE, TokenType.HAVING, None}
"""The tokens that end a list; None is the end of the text."""


def refuse_tokens(tokens: Sequence[Token], text: str) -> None:
    """Refuse mistakes that only the tokens show."""
    for token, after, third in itertools.zip_longest(tokens, tokens[1:], tokens[2:]):
        refusal = _misread(token, after, third)
        if refusal is not None:
            raise failure_at(text, token.start, *refusal)


def _misread(token: Token, after: Token | None, third: Token | None) -> tuple[str, str] | None:
    """The error of a token and the two after it, and the remedy; None if there is none."""
    kind = token.token_type
    follows = None if after is None else after.token_type
    calls = third is not None and third.token_type is TokenType.L_PAREN
    if kind is TokenType.BLOCK_START or kind is follows is TokenType.L_BRACE:
        return "this is a template", "write the text that it makes; for dbt, --dbt DIR"
    if kind in _LISTED and follows in _ENDS:
        word = "the comma" if kind is TokenType.COMMA else token.text.upper()
        return f"nothing stands after {word}", "leave it out, or write what is missing"
    is_empty = third is not None and third.token_type is TokenType.R_PAREN
    if kind is TokenType.EXCEPT and follows is TokenType.L_PAREN and is_empty:
        return "EXCEPT names no columns", "leave it out"
    if kind is TokenType.IN and follows is TokenType.L_PAREN and is_empty:
        return "IN has no values", "write them, or FALSE instead of the condition"
    if kind is TokenType.USING and follows is not TokenType.L_PAREN:
        return "USING takes names in parentheses", "write USING (column)"
    if kind is TokenType.GROUP_BY and follows is TokenType.DISTINCT:
        return "Spark has no GROUP BY DISTINCT", "leave out DISTINCT"
    if kind is TokenType.STAR and after is not None and after.text.upper() == "EXCLUDE" and calls:
        return "Spark has no EXCLUDE", "write * EXCEPT (column)"
    return None


_ORDER = ("where", "group", "having", "qualify", "order", "limit", "offset")
_NAMES = {"group": "GROUP BY", "order": "ORDER BY", "windows": "WINDOW"}


def refuse_tree(tree: exp.Expr, text: str) -> None:
    """Refuse nodes that Spark's parser and analyzer do not accept."""
    for node in tree.walk():
        for at, reason, remedy in _foreign(node):
            raise failure(text, at, reason, remedy)


def _foreign(node: exp.Expr) -> Iterator[tuple[exp.Expr, str, str]]:
    """The parts of a node that Spark does not accept: place, reason and remedy."""
    kind = exp.SetOperation if isinstance(node, exp.SetOperation) else type(node)
    kind = exp.Cast if kind is exp.TryCast else kind
    if isinstance(node, exp.SetOperation) and node.args.get("by_name"):
        remedy = "select the columns in the same order on both sides"
        yield node.expression, "Spark's SQL has no BY NAME", remedy
    understood = _UNDERSTOOD.get(kind)
    for name, value in node.args.items() if understood is not None else ():
        if value and name not in (understood or ()):
            clause = name.removesuffix("_").replace("_", " ").upper()
            at = value if isinstance(value, exp.Expr) else node
            yield at, f"Spark has no {clause} here", "leave it out"
    if isinstance(node, exp.Query):
        yield from _misplaced(node)
    if isinstance(node, exp.Where | exp.Join | exp.If):
        yield from _no_condition(node)
    if isinstance(node, exp.Anonymous):
        yield from _foreign_arguments(node)
    if (
        isinstance(node, exp.Join)
        and node.method == "NATURAL"
        and (node.args.get("on") or node.args.get("using"))
    ):
        yield node, "a NATURAL JOIN has neither ON nor USING", "leave out NATURAL"
    if isinstance(node, exp.Star):
        names = [c.name for c in node.args.get("except_") or ()]
        for c in node.args.get("except_") or ():
            if names.count(c.name) > 1:
                yield c, f"EXCEPT names {c.name} twice", "name it once"
    if isinstance(node, exp.Array):
        yield node, "Spark has no lists in brackets", "write array(…)"
    if isinstance(node, exp.Extract) and isinstance(node.this, exp.Literal):
        name = node.this.name.upper()
        yield node, "EXTRACT takes a word, and no string", f"write EXTRACT({name} FROM …)"


def _misplaced(query: exp.Expr) -> Iterator[tuple[exp.Expr, str, str]]:
    """Clauses of a query in an order that Spark does not accept."""
    clauses = [(name, query.args[name]) for name in _ORDER if query.args.get(name)]
    pairs = [*itertools.pairwise(clauses)]
    for window in (query.args.get("windows") or ())[:1]:
        pairs += [((name, e), ("windows", window)) for name, e in clauses if name in _ORDER[:3]]
        pairs += [(("windows", window), (name, e)) for name, e in clauses if name in _ORDER[5:]]
    for (name, first), (later, second) in pairs:
        places = place_of(first), place_of(second)
        if None not in places and places[0] > places[1]:  # type: ignore[operator]
            names = [_NAMES.get(n, n.upper()) for n in (name, later)]
            if names == ["LIMIT", "OFFSET"]:
                yield second, "LIMIT stands before OFFSET", "write LIMIT n OFFSET m"
            else:
                yield second, f"{names[0]} stands before {names[1]}", "exchange them"


def _no_condition(node: exp.Expr) -> Iterator[tuple[exp.Expr, str, str]]:
    """The error for a condition that is the word NULL."""
    condition = node.args.get("on") if isinstance(node, exp.Join) else node.this
    while isinstance(condition, exp.Paren):
        condition = condition.this
    compared = isinstance(node.parent, exp.Case) and node.parent.this is not None
    if isinstance(condition, exp.Null) and not compared:
        yield condition, "NULL is no condition to Spark", "write FALSE"


def _foreign_arguments(call: exp.Anonymous) -> Iterator[tuple[exp.Expr, str, str]]:
    """The errors for ORDER BY among the arguments, and for `count(t.*)`."""
    name = call.name.lower()
    for a in call.expressions:
        if isinstance(a, exp.Order):
            is_text = name in ("listagg", "string_agg")
            remedy = f"write {name}(…) WITHIN GROUP (ORDER BY …)" if is_text else "leave it out"
            yield a, f"{name} has no ORDER BY among its arguments", remedy
    args = call.expressions
    if len(args) == 1 and isinstance(args[0], exp.Distinct):
        args = args[0].expressions
    if name == "count" and len(args) == 1 and isinstance(args[0], exp.Column) and is_star(args[0]):
        yield args[0], "Spark has no count(table.*)", "write count(*), or name the columns"
