"""Parses Spark SQL with sqlglot.

Only this module handles the traps of sqlglot's parser. Its Spark dialect replaces functions by its
own nodes, and loses their names. The dialect here keeps each function call as written
(`Anonymous`), except functions with a syntax of their own. `CAST` stays a `Cast`, and only
`TRY_CAST` is a `TryCast`. Tokens of syntax that sqlglot does not parse are rewritten first. A new
token has the place of the token that it replaces, so errors show that place.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from sqlglot import ErrorLevel, TokenType, exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ParseError, TokenError
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token

from stepping_spark.base.callsite import SqlText
from stepping_spark.sql.others_syntax import refuse_tokens, refuse_tree
from stepping_spark.sql.places import SqlError, failure, failure_at

SUFFIXES = ("L", "S", "Y", "D", "F", "BD")
"""The suffixes of literals of BIGINT, SMALLINT, TINYINT, DOUBLE, FLOAT and DECIMAL."""
_OWN_SYNTAX = ("CAST", "EXTRACT", "OVERLAY", "POSITION", "SUBSTR", "SUBSTRING", "TRIM", "TRY_CAST")


_CLOCKS = (exp.CurrentDate, exp.CurrentTime, exp.CurrentTimestamp, exp.CurrentUser, exp.SessionUser)


class SteppingSparkSql(Spark):
    """Spark SQL with function calls as written."""

    def tokenize(self, sql: str, dialect: Any = None) -> list[Token]:
        """The tokens of a text. `window(…)` is a call, and no clause WINDOW; `X '1F'` are bytes."""
        tokens: list[Token] = super().tokenize(sql)
        result: list[Token] = []
        for token, after in itertools.zip_longest(tokens, tokens[1:]):
            if token.token_type is TokenType.WINDOW and _is(after, TokenType.L_PAREN):
                token.token_type = TokenType.VAR
            if (
                token.text.upper() == "X"
                and _is(token, TokenType.VAR)
                and _is(after, TokenType.STRING)
            ):
                after.token_type = TokenType.HEX_STRING
            else:
                result.append(token)
        return result

    class Tokenizer(Spark.Tokenizer):
        # Spark 4 reads 'it''s' as one string; sqlglot as two.
        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'", '"']
        # `x ISNULL` is a condition of Postgres. In Spark `isnull` is a function, or an alias.
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            word: token
            for word, token in Spark.Tokenizer.KEYWORDS.items()
            if word not in ("ISNULL", "NOTNULL")
        }

    class Parser(SparkParser):
        # Spark's operators, the tightest first: * / % DIV; + - ||; << >> >>>; &; ^; |; comparisons.
        # IN, LIKE, BETWEEN and IS bind less tightly: `a = b IN (TRUE)` is `(a = b) IN (TRUE)`.
        TERM: ClassVar[dict[Any, Any]] = {**SparkParser.TERM, TokenType.DPIPE: exp.DPipe}
        COMPARISON: ClassVar[dict[Any, Any]] = {**SparkParser.EQUALITY, **SparkParser.COMPARISON}

        def expression(self, *args: Any, **kwargs: Any) -> Any:
            node = super().expression(*args, **kwargs)
            if isinstance(node, _CLOCKS):  # sqlglot gives them no place
                node.update_positions(self._prev)
            return node

        def _parse_equality(self, *_: Any, **__: Any) -> exp.Expr | None:
            return self._parse_range(self._parse_comparison())

        def _parse_comparison(self, *_: Any, **__: Any) -> exp.Expr | None:
            return self._parse_chain(self._parse_bitwise, self.COMPARISON)

        def _is_predicate_ahead(self) -> bool:
            return False

        def _parse_bitwise(self) -> exp.Expr | None:
            return self._parse_chain(self._parse_exclusive_or, {TokenType.PIPE: exp.BitwiseOr})

        def _parse_exclusive_or(self) -> exp.Expr | None:
            return self._parse_chain(self._parse_bitwise_and, {TokenType.CARET: exp.BitwiseXor})

        def _parse_bitwise_and(self) -> exp.Expr | None:
            return self._parse_chain(self._parse_shift, {TokenType.AMP: exp.BitwiseAnd})

        def _parse_chain(
            self, operand: Callable[[], exp.Expr | None], operators: Mapping[Any, Any]
        ) -> exp.Expr | None:
            """Operands between operators of one level, from the left."""
            this = operand()
            while self._match_set(operators):
                kind = operators[self._prev.token_type]
                this = self.expression(kind(this=this, expression=operand()))
            return this

        def _parse_shift(self) -> exp.Expr | None:
            this = self._parse_term()
            while True:
                if self._match_pair(TokenType.LT, TokenType.LT):
                    name = "shiftleft"
                elif self._match_pair(TokenType.GT, TokenType.GT):
                    name = "shiftrightunsigned" if self._match(TokenType.GT) else "shiftright"
                else:
                    return this
                this = exp.Anonymous(this=name, expressions=[this, self._parse_term()])

        STRICT_CAST: ClassVar[bool] = True
        FUNCTIONS: ClassVar[dict[str, Any]] = {}
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: SparkParser.FUNCTION_PARSERS[name] for name in _OWN_SYNTAX
        }
        NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            "CASE": SparkParser.NO_PAREN_FUNCTION_PARSERS["CASE"]
        }
        FUNC_TOKENS: ClassVar[set[Any]] = {*SparkParser.FUNC_TOKENS, TokenType.INSERT}

        def build_cast(self, strict: bool, **kwargs: Any) -> Any:
            # 3L is a literal to Spark, and CAST(3 AS BIGINT) is not
            is_literal = self._prev.text.upper() in SUFFIXES
            cast = super().build_cast(strict, **kwargs)
            if is_literal:
                cast.meta["literal"] = True
            return cast

        def _parse_projections(self) -> tuple[list[exp.Expr], list[exp.Expr] | None]:
            # sqlglot accepts a SELECT without columns, Spark does not
            columns, left_out = super()._parse_projections()
            if not columns:
                self.raise_error("SELECT names no columns; write SELECT column, …", self._prev)
            return columns, left_out

        # To Spark DATE 'x' is an error of the text, and CAST('x' AS DATE) an error at run time
        TYPE_LITERAL_PARSERS: ClassVar[dict[Any, Any]] = {
            t: lambda self, this, to: _typed_literal(this, to) for t in exp.DType
        }

        # sqlglot reads array(1, 2)[0] as the list [0].
        ARRAY_CONSTRUCTORS: ClassVar[dict[str, Any]] = {}


def _is(token: Token | None, kind: TokenType) -> bool:
    return token is not None and token.token_type is kind


def _typed_literal(this: exp.Expr, to: exp.DataType) -> exp.Cast:
    """A literal with its type before it: `DATE '2024-02-29'`."""
    literal = exp.Cast(this=this, to=to)
    literal.meta["typed"] = True
    return literal


class WithQuotedNames(SteppingSparkSql):
    """Spark SQL in which `"x"` is a name, as in other databases."""

    class Tokenizer(SteppingSparkSql.Tokenizer):
        QUOTES: ClassVar[list[tuple[str, str] | str]] = ["'"]
        IDENTIFIERS: ClassVar[list[tuple[str, str] | str]] = ["`", '"']
        STRING_ESCAPES: ClassVar[list[str]] = ["\\", "'"]

    class Parser(SteppingSparkSql.Parser):
        pass


CHAIN = 8
"""The most conditions in a chain of AND or OR that is not flattened."""


def query_of(query: str, text: str) -> exp.Expr:
    """The tree of one query; `query` has it at its place in the whole text.

    Each node with a place has its text in `meta`, as a plan may have nodes of several texts. Raises
    `SqlError` for text that is no query.
    """
    dialect = _dialect_of(text)
    tokens, levels = without_levels(rewritten(tokens_of(query, text), dialect.tokenize))
    try:
        trees = dialect.parser(error_level=ErrorLevel.IMMEDIATE).parse(tokens, query)
    except ParseError as e:
        refuse_tokens(tokens, text)
        error = e.errors[0] if e.errors else {}
        raise failure_at(text, _offset(text, error), *_reason(error, str(e))) from None
    (tree,) = [tree for tree in trees if tree is not None]
    for node in tree.walk():
        if node._meta and "start" in node._meta:
            node.meta["text"] = text
    _set_levels(tree, levels)
    if not isinstance(tree, exp.Query | exp.Values):
        raise failure(text, tree, "this is no query", "write SELECT …")
    refuse_tokens(tokens, text)
    refuse_tree(tree, text)
    _flatten(tree)
    _set_units(tree)
    _set_order_of_arguments(tree, text)
    _set_ignored_nulls(tree)
    _set_memberships(tree)
    return tree


def _set_levels(tree: exp.Expr, levels: dict[int, int]) -> None:
    """Set each recursion level on the query of WITH whose name precedes it."""
    names = {cte.args["alias"].this.meta["start"]: cte for cte in tree.find_all(exp.CTE)}
    for place, level in levels.items():
        before = [start for start in names if start < place]
        if before:
            names[max(before)].meta["level"] = level


def connected(kind: type[exp.Connector], parts: Sequence[exp.Expr]) -> exp.Expr:
    """The parts, connected by AND or OR in a balanced tree."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return kind(this=connected(kind, parts[:half]), expression=connected(kind, parts[half:]))


def _flatten(tree: exp.Expr) -> None:
    """Balance long chains of AND and OR: as parsed, each part is one level deeper."""
    for node in list(tree.find_all(exp.And, exp.Or)):
        kind = type(node)
        if type(node.parent) is kind or node.parent is None:
            continue
        parts: list[exp.Expr] = []
        left: list[exp.Expr] = [node]
        while left:
            part = left.pop()
            if type(part) is kind:
                left += [part.expression, part.this]
            else:
                parts.append(part)
        if len(parts) > CHAIN:
            node.replace(connected(kind, parts))


_IGNORING = ("any_value", "first", "last")
"""The functions that also accept IGNORE NULLS within their parentheses."""
_COMPARED = (exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE)


def quantified(node: exp.Expr) -> exp.Expr | None:
    """The ANY or ALL of `… > ALL (sub-query)`; None if a node is no such comparison."""
    if not isinstance(node, _COMPARED):
        return None
    side = node.expression
    while isinstance(side, exp.Paren):
        side = side.this
    is_one = isinstance(side, exp.Any | exp.All) and isinstance(side.this, exp.Query)
    return side if is_one else None


def _set_memberships(tree: exp.Expr) -> None:
    """Replace `= ANY (sub-query)` by IN, and `<> ALL (sub-query)` by NOT IN."""
    for node in list(tree.find_all(exp.EQ, exp.NEQ)):
        side = quantified(node)
        if side is None or isinstance(side, exp.Any) != isinstance(node, exp.EQ):
            continue
        query = side.this if isinstance(side.this, exp.Subquery) else exp.Subquery(this=side.this)
        membership = exp.In(this=node.this, query=query)
        node.replace(membership if isinstance(node, exp.EQ) else exp.Not(this=membership))


def _set_ignored_nulls(tree: exp.Expr) -> None:
    """Replace `first(a IGNORE NULLS)` by `first(a) IGNORE NULLS`."""
    for inner in list(tree.find_all(exp.IgnoreNulls)):
        call = inner.parent
        if not isinstance(call, exp.Anonymous) or isinstance(call.parent, exp.Window):
            continue
        if call.name.lower() in _IGNORING and call.expressions[0] is inner:
            inner.replace(inner.this)
            call.replace(exp.IgnoreNulls(this=call.copy()))


def tokens_of(query: str, text: str) -> list[Token]:
    """The tokens of a query, each with its place; `query` has it at its place in the whole text."""
    try:
        return _dialect_of(text).tokenize(query)
    except TokenError as e:
        raise _unended(text, e) from None


def _reason(error: Mapping[str, Any], otherwise: str) -> tuple[str, str]:
    """The reason and the remedy of an error of the parser."""
    reason, word = str(error.get("description") or otherwise), error.get("highlight")
    if reason.startswith("Invalid expression"):
        return f"{word} is not expected here", "look at what is before it, or leave it out"
    if reason.startswith("Required keyword"):
        return f"an expression is missing at {word}", "write it, or leave out what needs it"
    if reason.startswith("Expected table name"):
        return f"a table is missing at {word}", "write its name, or leave out what needs it"
    if expected := re.fullmatch(r"(?:Expecting|Expected) (.+?)(?: after (\w+))?", reason):
        what, after = expected.groups()
        place = f"{after} lacks {what}" if after else f"{what} is missing"
        return f"{place} at {word}", f"write {what}, or look at what is before it"
    return reason, ""


def _unended(text: str, e: TokenError) -> SqlError:
    """The error at a quote or a comment without an end; the parser says where a quote is."""
    quote = re.fullmatch(r"Missing (.+) from \d+:(\d+)", str(e.__cause__))
    if quote is None:
        return failure_at(text, text.rfind("/*"), "the comment has no end", "write */ after it")
    reason = f"the text after this {quote[1]} has no end"
    return failure_at(text, int(quote[2]), reason, "look for the missing quote, here or before")


_WITH_UNITS = {"date_add", "date_diff", "dateadd", "datediff", "timestampadd", "timestampdiff"}


def _set_units(tree: exp.Expr) -> None:
    """Replace the column that the parser makes of the unit in `datediff(day, a, b)` by a word."""
    for call in tree.find_all(exp.Anonymous):
        args = call.expressions
        if len(args) != 3 or call.name.lower() not in _WITH_UNITS:
            continue
        unit = args[0]
        if isinstance(unit, exp.Column) and not unit.table:
            unit.replace(exp.Var(this=unit.name))


_OUTER = ("", "_outer")
_NAMED: dict[str, dict[str, exp.Expr | None]] = {
    **{f"{name}explode{outer}": {"collection": None} for name in ("", "pos") for outer in _OUTER},
    **{f"inline{outer}": {"input": None} for outer in _OUTER},
    "mask": {
        "str": None,
        "upperChar": exp.Literal.string("X"),
        "lowerChar": exp.Literal.string("x"),
        "digitChar": exp.Literal.string("n"),
        "otherChar": exp.Null(),
    },
}
"""The functions with named arguments: the names in order, each with its default."""


def _set_order_of_arguments(tree: exp.Expr, text: str) -> None:
    """Bring named arguments, `mask(s, digitChar => '#')`, into their order."""
    for call in list(tree.find_all(exp.Anonymous)):
        named = [a for a in call.expressions if isinstance(a, exp.Kwarg)]
        if not named:
            continue
        parameters = _NAMED.get(call.name.lower())
        if parameters is None:
            reason = f"the arguments of {call.name} have no names here"
            raise failure(text, named[0], reason, "write them in order, without names")
        plain = call.expressions[: len(call.expressions) - len(named)]
        remaining = {name.lower(): default for name, default in [*parameters.items()][len(plain) :]}
        for a in named:
            if a not in call.expressions[len(plain) :] or a.this.name.lower() not in remaining:
                left = ", ".join([*parameters][len(plain) :]) or "none"
                reason = f"{a.this.name} is no argument of {call.name} here"
                raise failure(text, a, reason, f"those that are left are: {left}")
            remaining[a.this.name.lower()] = a.expression
        missing = [name for name, value in remaining.items() if value is None]
        if missing:
            raise failure(text, call, f"{call.name} has no argument {missing[0]}", "give it")
        call.set("expressions", [*plain, *(v.copy() for v in remaining.values() if v is not None)])


def _dialect_of(text: str) -> SteppingSparkSql:
    return _dialect(quoted_names=isinstance(text, SqlText) and text.quoted_names)


@functools.cache
def _dialect(*, quoted_names: bool) -> SteppingSparkSql:
    return WithQuotedNames() if quoted_names else SteppingSparkSql()


def _offset(text: str, error: dict[str, Any]) -> int | None:
    """The begin of the token of a parser's error, which has the token's end."""
    line, column = error.get("line"), error.get("col")
    if not isinstance(line, int) or not isinstance(column, int):
        return None
    before = text.splitlines(keepends=True)[: line - 1]
    width = len(str(error.get("highlight") or " "))
    return sum(map(len, before)) + max(0, column - width)


_SETS = frozenset((TokenType.UNION, TokenType.INTERSECT, TokenType.EXCEPT))
_NAMES = frozenset((TokenType.VAR, TokenType.IDENTIFIER))
_RELATIONS = frozenset((TokenType.FROM, TokenType.JOIN, TokenType.COMMA))
_ALL_OF = ((TokenType.SELECT, "SELECT"), (TokenType.STAR, "*"), (TokenType.FROM, "FROM"))


def rewritten(tokens: list[Token], tokenize: Callable[[str], list[Token]]) -> list[Token]:
    """The tokens without STREAM, `identifier('t')` and `TABLE t`, and with VALUES in a SELECT."""
    return _with_selects(_with_names(_without_streams(tokens), tokenize))


def _token_at(token: Token, kind: TokenType, text: str) -> Token:
    """A token at the place of another."""
    return Token(kind, text, token.line, token.col, token.start, token.end)


def _with_names(tokens: list[Token], tokenize: Callable[[str], list[Token]]) -> list[Token]:
    """The tokens with `identifier('a.b')` replaced by `a.b`."""
    result: list[Token] = []
    at = 0
    while at < len(tokens):
        kinds = [t.token_type for t in tokens[at + 1 : at + 4]]
        called = tokens[at].text.lower() == "identifier" and tokens[at].token_type in _NAMES
        if called and kinds == [TokenType.L_PAREN, TokenType.STRING, TokenType.R_PAREN]:
            named = tokenize(tokens[at + 2].text)
            result += [_token_at(tokens[at], t.token_type, t.text) for t in named]
            at += 4
        else:
            result.append(tokens[at])
            at += 1
    return result


def _with_selects(tokens: list[Token]) -> list[Token]:
    """The tokens with SELECT * FROM instead of TABLE, and before VALUES with a limit."""
    result: list[Token] = []
    for at, token in enumerate(tokens):
        before = [t.token_type for t in result[-2:]]
        if token.token_type is TokenType.TABLE and _begins(before) and _is_named(tokens[at + 1 :]):
            result += [_token_at(token, kind, text) for kind, text in _ALL_OF]
            continue
        in_from = before[-1:] == [TokenType.L_PAREN] and before[0] in _RELATIONS
        if token.token_type is TokenType.VALUES and in_from and _is_limited(tokens[at:]):
            result += [_token_at(token, kind, text) for kind, text in _ALL_OF]
        result.append(token)
    return result


def _begins(before: list[TokenType]) -> bool:
    """Whether a query begins after these tokens."""
    last = before[-1:]
    of_set = last in ([TokenType.ALL], [TokenType.DISTINCT]) and before[0] in _SETS
    return not last or last[0] in (TokenType.L_PAREN, TokenType.R_PAREN, *_SETS) or of_set


def _is_named(after: list[Token]) -> bool:
    return bool(after) and after[0].token_type in _NAMES


def _is_limited(tokens: list[Token]) -> bool:
    """Whether VALUES has an order or a limit within its parentheses."""
    depth = 0
    for token in tokens:
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if depth < 0:
            return False
        if not depth and token.token_type in (TokenType.ORDER_BY, TokenType.LIMIT):
            return True
    return False


def _without_streams(tokens: list[Token]) -> list[Token]:
    """The tokens with STREAM(t) and STREAM t replaced by `t`: views read all tables so."""
    result: list[Token] = []
    at = 0
    while at < len(tokens):
        after_from = result and result[-1].text.upper() in ("FROM", "JOIN")
        if after_from and tokens[at].text.upper() == "STREAM" and len(tokens) > at + 1:
            following = tokens[at + 1]
            closed = [i for i in range(at, len(tokens)) if tokens[i].text == ")"]
            if following.token_type is TokenType.L_PAREN and closed:
                result += tokens[at + 2 : closed[0]]
                at = closed[0] + 1
                continue
            if following.token_type in (TokenType.VAR, TokenType.IDENTIFIER):
                at += 1
                continue
        result.append(tokens[at])
        at += 1
    return result


def without_levels(tokens: list[Token]) -> tuple[list[Token], dict[int, int]]:
    """The tokens without MAX RECURSION LEVEL n, which sqlglot lacks, and each n by its place."""
    levels: dict[int, int] = {}
    result: list[Token] = []
    at = 0
    while at < len(tokens):
        words = [t.text.upper() for t in tokens[at : at + 3]]
        number = tokens[at + 3].text if len(tokens) > at + 3 else ""
        if words == ["MAX", "RECURSION", "LEVEL"] and number.isdigit():
            levels[tokens[at].start] = int(number)
            at += 4
        else:
            result.append(tokens[at])
            at += 1
    return result, levels
