"""AUTO CDC of Declarative Pipelines: a table from the events of its changes, as a query.

SCD type 1 has for each key the last event, unless it deletes. SCD type 2 has a row for each run of
events without a delete whose columns are equal, from the first event's sequence to that of the
event after the run. Events are in order by their sequence, which is unique for a key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from stepping_spark.rows.sql_text import any_of, closed
from stepping_spark.sql.names import same
from stepping_spark.sql.parse import failure, query_of

_KEYS, _SEQUENCE, _DELETES = "KEYS", "SEQUENCE BY", "APPLY AS DELETE WHEN"
_COLUMNS, _STORED = "COLUMNS", "STORED AS"
_REFUSED = {
    "APPLY AS TRUNCATE WHEN": "leave out the events before the last one of these with WHERE",
    "IGNORE NULL UPDATES": "fill in values before: last_value(x, true) OVER (PARTITION BY …)",
    "SYSTEM SEQUENCE BY": "order by both: SEQUENCE BY struct(a, b)",
    "TRACK HISTORY ON": "leave columns out with COLUMNS * EXCEPT (…)",
}
_CLAUSES = (_KEYS, _DELETES, _SEQUENCE, _COLUMNS, _STORED, *_REFUSED)
_SHAPE = "write CREATE FLOW f AS AUTO CDC INTO t FROM STREAM(events) KEYS (id) SEQUENCE BY n"
_ENDED = {"SCD TYPE 1": False, "SCD TYPE 2": True}


@dataclass(frozen=True)
class ChangeFlow:
    """An AUTO CDC statement. `columns` are those that are shown, or all but those `left_out`."""

    text: str
    source: exp.Table
    sequence: exp.Expr
    deletes: exp.Expr
    keys: tuple[exp.Identifier, ...]
    columns: tuple[exp.Identifier, ...]
    left_out: tuple[exp.Identifier, ...]
    is_history: bool

    @property
    def tree(self) -> exp.Expr:
        """A query that reads the events."""
        return exp.select(self.sequence.copy(), self.deletes.copy()).from_(self.source.copy())

    def query(self, source: Sequence[str]) -> exp.Expr:
        """The query of the table, whose events have these columns."""
        for node in (*self.keys, *self.columns, *self.left_out):
            if not _has([node], *source):
                there = f"the columns are {', '.join(source)}"
                raise failure(self.text, node, f"the events have no column {node.name}", there)
        keys = [c for c in source if _has(self.keys, c)]
        shown = [
            c
            for c in source
            if not _has(self.left_out, c) and (not self.columns or _has(self.columns, c))
        ]
        kept = [exp.column(c, quoted=True) for c in dict.fromkeys((*shown, *keys))]
        gone = exp.Anonymous(this="coalesce", expressions=[self.deletes.copy(), exp.false()])
        events = exp.select(
            *kept,
            exp.alias_(self.sequence.copy(), "#at", quoted=True),
            exp.alias_(gone, "#gone", quoted=True),
        ).from_(self.source.copy())
        made = _history(shown, keys) if self.is_history else _last(shown, keys)
        tree = query_of(made, made)
        for part in tree.walk():
            part.meta.pop("start", None)  # it stands in no text of the user
        for table in list(tree.find_all(exp.Table)):
            alias = exp.TableAlias(this=exp.to_identifier("e"))
            table.replace(exp.Subquery(this=events, alias=alias))
        return tree


def _last(shown: Sequence[str], keys: Sequence[str]) -> str:
    return (
        f"SELECT {_listed(shown)} FROM (SELECT *, row_number() OVER (PARTITION BY {_listed(keys)} "
        "ORDER BY `#at` DESC) AS `#n` FROM e WHERE `#at` IS NOT NULL) AS t "
        "WHERE `#n` = 1 AND NOT `#gone`"
    )


def _history(shown: Sequence[str], keys: Sequence[str]) -> str:
    over = f"OVER (PARTITION BY {_listed(keys)} ORDER BY `#at`)"
    own = [(_quoted(c), f"`#{i}`") for i, c in enumerate(shown) if c not in keys]
    lags = "".join(f", lag({c}) {over} AS {before}" for c, before in own)
    differs = [closed(f"NOT ({c} <=> {before})") for c, before in own]
    begins = any_of(["`#gone`", "`#before` IS NULL", "`#ended`", *differs])
    return (
        f"SELECT {_listed(shown)}, `#at` AS __START_AT, __END_AT FROM (SELECT *, lead(`#at`) "
        f"{over} AS __END_AT FROM (SELECT *, lag(`#at`) {over} AS `#before`, lag(`#gone`) {over} "
        f"AS `#ended`{lags} FROM e WHERE `#at` IS NOT NULL) AS f WHERE {begins}) AS t "
        "WHERE NOT `#gone`"
    )


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(_quoted, names))


def _has(nodes: Sequence[exp.Identifier], *names: str) -> bool:
    return any(same(node.name, name) for node in nodes for name in names)


def flow_of(tokens: Sequence[Token], text: str, start: int) -> ChangeFlow:
    """The flow of `FROM source KEYS …`, in a statement that begins at a place of the text."""
    return _Clauses(tokens, text, start).flow()


class _Clauses:
    """The clauses of an AUTO CDC statement, each as its tokens."""

    def __init__(self, tokens: Sequence[Token], text: str, start: int) -> None:
        self.text, self.start = text, start
        self.found: dict[str, list[Token]] = {"FROM": []}
        at, depth, clause = 1, 0, "FROM"
        words = [t.text.upper() for t in tokens]
        if not words or words[0] != "FROM":
            self._fail(tokens[0] if tokens else None, "AUTO CDC reads no events", _SHAPE)
        while at < len(tokens):
            begun = next((c for c in _CLAUSES if words[at : at + len(c.split())] == c.split()), "")
            if begun and not depth:
                if begun in _REFUSED:
                    self._fail(tokens[at], f"{begun} is not supported", _REFUSED[begun])
                clause = begun
                self.found[clause] = []
                at += len(begun.split())
                continue
            depth += (words[at] == "(") - (words[at] == ")")
            self.found[clause].append(tokens[at])
            at += 1

    def flow(self) -> ChangeFlow:
        """The flow. Raises `SqlError` for a clause that is missing, or is none."""
        for clause in (_KEYS, _SEQUENCE):
            if not self.found.get(clause):
                self._fail(None, f"AUTO CDC has no {clause}", _SHAPE)
        columns = self.found.get(_COLUMNS, [])
        words = [t.text.upper() for t in columns]
        is_except = words[:2] == ["*", "EXCEPT"]
        named = self._names(columns[2:] if is_except else columns) if columns else ()
        stored = " ".join(t.text.upper() for t in self.found.get(_STORED, [])) or "SCD TYPE 1"
        if stored not in _ENDED:
            reason = f"STORED AS {stored} is not supported"
            self._fail(self.found[_STORED][0], reason, "write SCD TYPE 1 or SCD TYPE 2")
        deletes = self.found.get(_DELETES)
        return ChangeFlow(
            self.text,
            self._events(),
            self._select("", self.found[_SEQUENCE]).expressions[0],
            self._select("", deletes).expressions[0] if deletes else exp.false(),
            self._names(self.found[_KEYS]),
            () if is_except else named,
            named if is_except else (),
            _ENDED[stored],
        )

    def _events(self) -> exp.Table:
        tree = self._select("* FROM", self.found["FROM"])
        source = tree.find(exp.Table)
        if source is None:
            self._fail(None, "AUTO CDC reads a table or a view", _SHAPE)
        return source

    def _select(self, words: str, tokens: Sequence[Token]) -> exp.Expr:
        """The query SELECT of tokens; SELECT stands where the statement begins."""
        begin, end = (tokens[0].start, tokens[-1].end + 1) if tokens else (self.start, self.start)
        before = "".join(c if c == "\n" else " " for c in self.text[:begin])
        head = f"SELECT {words}"
        padded = before[: self.start] + head + before[self.start + len(head) :]
        return query_of(padded + self.text[begin:end], self.text)

    def _names(self, tokens: Sequence[Token]) -> tuple[exp.Identifier, ...]:
        """The names of `(a, b)`."""
        inner = tokens[1:-1]
        is_list = len(tokens) > 2 and (tokens[0].text, tokens[-1].text) == ("(", ")")
        if not is_list or any(t.text != "," for t in inner[1::2]) or not len(inner) % 2:
            self._fail(tokens[0] if tokens else None, "this is no list of columns", "write (a, b)")
        return tuple(self._identifier(t) for t in inner[::2])

    def _identifier(self, token: Token) -> exp.Identifier:
        made = exp.Identifier(this=token.text, quoted=True)
        made.meta.update(start=token.start, text=self.text)
        return made

    def _fail(self, token: Token | None, reason: str, remedy: str) -> NoReturn:
        raise failure(self.text, None if token is None else self._identifier(token), reason, remedy)
