"""Rewrites the tokens of what sqlglot does not parse, before it parses them.

A token that is made stands at the place of the one that it replaces, so errors show it.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import TokenType
from sqlglot.tokenizer_core import Token

_SETS = frozenset((TokenType.UNION, TokenType.INTERSECT, TokenType.EXCEPT))
_NAMES = frozenset((TokenType.VAR, TokenType.IDENTIFIER))
_RELATIONS = frozenset((TokenType.FROM, TokenType.JOIN, TokenType.COMMA))
_ALL_OF = ((TokenType.SELECT, "SELECT"), (TokenType.STAR, "*"), (TokenType.FROM, "FROM"))


def rewritten(tokens: list[Token], tokenize: Callable[[str], list[Token]]) -> list[Token]:
    """The tokens without STREAM, `identifier('t')` and `TABLE t`, and with VALUES in a SELECT."""
    return _with_selects(_with_names(_without_streams(tokens), tokenize))


def _at(token: Token, kind: TokenType, text: str) -> Token:
    """A token at the place of another."""
    return Token(kind, text, token.line, token.col, token.start, token.end)


def _with_names(tokens: list[Token], tokenize: Callable[[str], list[Token]]) -> list[Token]:
    """The tokens with `a.b` in the place of `identifier('a.b')`."""
    kept: list[Token] = []
    at = 0
    while at < len(tokens):
        kinds = [t.token_type for t in tokens[at + 1 : at + 4]]
        called = tokens[at].text.lower() == "identifier" and tokens[at].token_type in _NAMES
        if called and kinds == [TokenType.L_PAREN, TokenType.STRING, TokenType.R_PAREN]:
            named = tokenize(tokens[at + 2].text)
            kept += [_at(tokens[at], t.token_type, t.text) for t in named]
            at += 4
        else:
            kept.append(tokens[at])
            at += 1
    return kept


def _with_selects(tokens: list[Token]) -> list[Token]:
    """The tokens with SELECT * FROM before the name of TABLE t, and before VALUES with a limit."""
    kept: list[Token] = []
    for at, token in enumerate(tokens):
        before = [t.token_type for t in kept[-2:]]
        if token.token_type is TokenType.TABLE and _begins(before) and _is_named(tokens[at + 1 :]):
            kept += [_at(token, kind, text) for kind, text in _ALL_OF]
            continue
        in_from = before[-1:] == [TokenType.L_PAREN] and before[0] in _RELATIONS
        if token.token_type is TokenType.VALUES and in_from and _is_limited(tokens[at:]):
            kept += [_at(token, kind, text) for kind, text in _ALL_OF]
        kept.append(token)
    return kept


def _begins(before: list[TokenType]) -> bool:
    """Whether a query begins after these tokens."""
    last = before[-1:]
    of_set = last in ([TokenType.ALL], [TokenType.DISTINCT]) and before[0] in _SETS
    return not last or last[0] in (TokenType.L_PAREN, TokenType.R_PAREN, *_SETS) or of_set


def _is_named(after: list[Token]) -> bool:
    return bool(after) and after[0].token_type in _NAMES


def _is_limited(tokens: list[Token]) -> bool:
    """Whether VALUES has an order or a limit, before its parenthesis ends."""
    depth = 0
    for token in tokens:
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if depth < 0:
            return False
        if not depth and token.token_type in (TokenType.ORDER_BY, TokenType.LIMIT):
            return True
    return False


def _without_streams(tokens: list[Token]) -> list[Token]:
    """The tokens with `t` in the place of STREAM(t) and STREAM t: a view reads each table so."""
    kept: list[Token] = []
    at = 0
    while at < len(tokens):
        after_from = kept and kept[-1].text.upper() in ("FROM", "JOIN")
        if after_from and tokens[at].text.upper() == "STREAM" and len(tokens) > at + 1:
            following = tokens[at + 1]
            closed = [i for i in range(at, len(tokens)) if tokens[i].text == ")"]
            if following.token_type is TokenType.L_PAREN and closed:
                kept += tokens[at + 2 : closed[0]]
                at = closed[0] + 1
                continue
            if following.token_type in (TokenType.VAR, TokenType.IDENTIFIER):
                at += 1
                continue
        kept.append(tokens[at])
        at += 1
    return kept


def without_levels(tokens: list[Token]) -> tuple[list[Token], dict[int, int]]:
    """The tokens without MAX RECURSION LEVEL n, unknown to sqlglot; each n by its place."""
    levels: dict[int, int] = {}
    kept: list[Token] = []
    at = 0
    while at < len(tokens):
        words = [t.text.upper() for t in tokens[at : at + 3]]
        number = tokens[at + 3].text if len(tokens) > at + 3 else ""
        if words == ["MAX", "RECURSION", "LEVEL"] and number.isdigit():
            levels[tokens[at].start] = int(number)
            at += 4
        else:
            kept.append(tokens[at])
            at += 1
    return kept, levels
