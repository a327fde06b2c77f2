"""AUTO CDC of Declarative Pipelines: the query of a table from its change events.

SCD type 1 has the last event of each key, unless it is a delete. SCD type 2 has a row for each run
of events without a delete and with equal tracked columns. The row has the values of the run's last
event, the sequence of its first event as the start, and the sequence of the event after the run as
the end. Events are ordered by their sequence, which is unique for a key. Events up to the last
truncate are ignored. Where NULLs are ignored, a column has its last value since the last delete.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from stepping_spark.rows.sql_text import any_of, closed
from stepping_spark.sql.names import same
from stepping_spark.sql.parse import query_of
from stepping_spark.sql.places import failure

_KEYS, _SEQUENCE, _DELETES = "KEYS", "SEQUENCE BY", "APPLY AS DELETE WHEN"
_TRUNCATES, _COLUMNS, _STORED = "APPLY AS TRUNCATE WHEN", "COLUMNS", "STORED AS"
_FILLED, _TRACKED = "IGNORE NULL UPDATES", "TRACK HISTORY ON"
_REFUSED = {
    "SYSTEM SEQUENCE BY": "order by both: SEQUENCE BY struct(a, b)",
    "COLUMNS TO UPDATE": "set the columns that an event does not change to NULL in a view, and "
    "write IGNORE NULL UPDATES",
}
_CLAUSES = (
    *(_KEYS, _FILLED, _DELETES, _TRUNCATES, _SEQUENCE, *_REFUSED),
    *(_COLUMNS, _STORED, _TRACKED),
)
_SHAPE = "write CREATE FLOW f AS AUTO CDC INTO t FROM STREAM(events) KEYS (id) SEQUENCE BY n"
_ENDED = {"SCD TYPE 1": False, "SCD TYPE 2": True}


@dataclass(frozen=True)
class ColumnChoice:
    """The columns with these names, or all other columns."""

    named: tuple[exp.Identifier, ...]
    is_except: bool = False

    def of(self, columns: Sequence[str]) -> list[str]:
        """The chosen ones of these columns."""
        return [c for c in columns if _has(self.named, c) != self.is_except]


ALL = ColumnChoice((), is_except=True)


@dataclass(frozen=True)
class ChangeFlow:
    """An AUTO CDC statement.

    `shown` are the columns of the table, `filled` the columns in which NULLs are ignored, and
    `tracked` the columns whose changes begin a new row of the history.
    """

    text: str
    source: exp.Table
    sequence: exp.Expr
    deletes: exp.Expr
    truncates: exp.Expr | None
    keys: tuple[exp.Identifier, ...]
    shown: ColumnChoice
    filled: ColumnChoice
    tracked: ColumnChoice
    is_history: bool

    @property
    def tree(self) -> exp.Expr:
        """A query that reads the events."""
        read = [e.copy() for e in (self.sequence, self.deletes, self.truncates) if e is not None]
        return exp.select(*read).from_(self.source.copy())

    def query(self, source: Sequence[str]) -> exp.Expr:
        """The query of the table from events with these columns."""
        choices = (self.shown, self.filled, self.tracked)
        for node in (*self.keys, *(n for choice in choices for n in choice.named)):
            if not _has([node], *source):
                columns_text = f"the columns are {', '.join(source)}"
                raise failure(
                    self.text, node, f"the events have no column {node.name}", columns_text
                )
        keys = [c for c in source if _has(self.keys, c)]
        selected = self.shown.of(source)
        columns = [*keys, *(c for c in selected if c not in keys)]
        value_columns = columns[len(keys) :]
        events = exp.select(
            *(exp.column(c, quoted=True) for c in columns),
            exp.alias_(self.sequence.copy(), "#at", quoted=True),
            *(
                exp.alias_(_is_true(e), name, quoted=True)
                for e, name in ((self.deletes, "#gone"), (self.truncates, "#cleared"))
                if e is not None
            ),
        ).from_(self.source.copy())
        text = "(SELECT * FROM e WHERE `#at` IS NOT NULL) AS f"
        if self.truncates is not None:
            text = _since_truncate(text)
        if filled := self.filled.of(value_columns):
            text = _filled(text, columns, keys, filled)
        if self.is_history:
            text = _history(text, selected, keys, self.tracked.of(value_columns))
        else:
            text = _last(text, selected, keys)
        tree = query_of(text, text)
        for part in tree.walk():
            part.meta.pop("start", None)  # it has no place in the user's text
        for table in list(tree.find_all(exp.Table)):
            alias = exp.TableAlias(this=exp.to_identifier("e"))
            table.replace(exp.Subquery(this=events, alias=alias))
        return tree


def _is_true(condition: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this="coalesce", expressions=[condition.copy(), exp.false()])


def _since_truncate(events: str) -> str:
    """The events after the last truncate."""
    last = "(SELECT max(`#at`) FROM e WHERE `#cleared`)"
    return f"(SELECT * FROM {events} WHERE {last} IS NULL OR `#at` > {last}) AS g"


def _filled(events: str, kept: Sequence[str], keys: Sequence[str], filled: Sequence[str]) -> str:
    """The events with NULLs replaced by the last values since the last delete of the key."""
    by = _quoted_list(keys)
    deletes = "sum(CASE WHEN `#gone` THEN 1 ELSE 0 END)"
    before = "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
    over = f"OVER (PARTITION BY {by}, `#life` ORDER BY `#at`)"
    columns = ", ".join(
        f"last_value({_quoted(c)}, true) {over} AS {_quoted(c)}" if c in filled else _quoted(c)
        for c in kept
    )
    return (
        f"(SELECT {columns}, `#at`, `#gone` FROM (SELECT *, coalesce({deletes} OVER (PARTITION BY "
        f"{by} ORDER BY `#at` {before}), 0) AS `#life` FROM {events}) AS h) AS h"
    )


def _last(events: str, selected: Sequence[str], keys: Sequence[str]) -> str:
    return (
        f"SELECT {_quoted_list(selected)} FROM (SELECT *, row_number() OVER (PARTITION BY "
        f"{_quoted_list(keys)} ORDER BY `#at` DESC) AS `#n` FROM {events}) AS t "
        "WHERE `#n` = 1 AND NOT `#gone`"
    )


def _history(
    events: str, selected: Sequence[str], keys: Sequence[str], tracked: Sequence[str]
) -> str:
    by = f"PARTITION BY {_quoted_list(keys)}"
    over = f"OVER ({by} ORDER BY `#at`)"
    lag_names = [(_quoted(c), f"`#{i}`") for i, c in enumerate(tracked)]
    lags = "".join(f", lag({c}) {over} AS {before}" for c, before in lag_names)
    differs = [closed(f"NOT ({c} <=> {before})") for c, before in lag_names]
    begins = any_of(["`#gone`", "`#before` IS NULL", "`#ended`", *differs])
    runs = (
        f"(SELECT *, lag(`#at`) {over} AS `#before`, lag(`#gone`) {over} AS `#ended`{lags} "
        f"FROM {events}) AS r"
    )
    if set(tracked) == set(selected) - set(keys):
        runs = f"(SELECT *, `#at` AS `#start` FROM {runs} WHERE {begins}) AS s"
    else:  # a run has the values of its last event
        number = f"sum(CASE WHEN {begins} THEN 1 ELSE 0 END) {over} AS `#run`"
        of_run = f"{by}, `#run`"
        runs = (
            f"(SELECT * FROM (SELECT *, min(`#at`) OVER ({of_run}) AS `#start`, row_number() OVER "
            f"({of_run} ORDER BY `#at` DESC) AS `#n` FROM (SELECT *, {number} FROM {runs}) AS s) "
            "AS s WHERE `#n` = 1) AS s"
        )
    return (
        f"SELECT {_quoted_list(selected)}, `#start` AS __START_AT, __END_AT FROM (SELECT *, "
        f"lead(`#start`) OVER ({by} ORDER BY `#start`) AS __END_AT FROM {runs}) AS t "
        "WHERE NOT `#gone`"
    )


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def _quoted_list(names: Sequence[str]) -> str:
    return ", ".join(map(_quoted, names))


def _has(nodes: Sequence[exp.Identifier], *names: str) -> bool:
    return any(same(node.name, name) for node in nodes for name in names)


def flow_of(tokens: Sequence[Token], text: str, start: int) -> ChangeFlow:
    """The flow of `FROM source KEYS …`, in a statement that begins at `start`."""
    return _Clauses(tokens, text, start).flow()


class _Clauses:
    """The clauses of an AUTO CDC statement, each as its tokens."""

    def __init__(self, tokens: Sequence[Token], text: str, start: int) -> None:
        self.text, self.start = text, start
        self.clauses: dict[str, list[Token]] = {"FROM": []}
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
                self.clauses[clause] = []
                at += len(begun.split())
                continue
            depth += (words[at] == "(") - (words[at] == ")")
            self.clauses[clause].append(tokens[at])
            at += 1

    def flow(self) -> ChangeFlow:
        """The flow. Raises `SqlError` for a missing or an invalid clause."""
        for clause in (_KEYS, _SEQUENCE):
            if not self.clauses.get(clause):
                self._fail(None, f"AUTO CDC has no {clause}", _SHAPE)
        stored = " ".join(t.text.upper() for t in self.clauses.get(_STORED, [])) or "SCD TYPE 1"
        if stored not in _ENDED:
            reason = f"STORED AS {stored} is not supported"
            self._fail(self.clauses[_STORED][0], reason, "write SCD TYPE 1 or SCD TYPE 2")
        is_history = _ENDED[stored]
        for clause, of_history in ((_TRUNCATES, False), (_TRACKED, True)):
            if self.clauses.get(clause) and of_history != is_history:
                of = f"{clause} is of SCD TYPE {1 + of_history}"
                self._fail(
                    self.clauses[clause][0], of, "leave it out, or write STORED AS that type"
                )
        filled = self.clauses.get(_FILLED)
        if filled and filled[0].text.upper() == "ON":
            del filled[0]
        return ChangeFlow(
            self.text,
            self._events(),
            self._select("", self.clauses[_SEQUENCE]).expressions[0],
            self._condition(_DELETES) or exp.false(),
            self._condition(_TRUNCATES),
            self._names(self.clauses[_KEYS]),
            self._choice(_COLUMNS),
            ColumnChoice(()) if filled is None else self._choice(_FILLED),
            self._choice(_TRACKED),
            is_history,
        )

    def _condition(self, clause: str) -> exp.Expr | None:
        tokens = self.clauses.get(clause)
        return self._select("", tokens).expressions[0] if tokens else None

    def _choice(self, clause: str) -> ColumnChoice:
        """The columns of `(a, b)` or `* EXCEPT (a, b)`; all columns without the clause."""
        tokens = self.clauses.get(clause)
        if not tokens:
            return ALL
        is_except = [t.text.upper() for t in tokens[:2]] == ["*", "EXCEPT"]
        return ColumnChoice(self._names(tokens[2:] if is_except else tokens), is_except)

    def _events(self) -> exp.Table:
        tree = self._select("* FROM", self.clauses["FROM"])
        source = tree.find(exp.Table)
        if source is None:
            self._fail(None, "AUTO CDC reads a table or a view", _SHAPE)
        return source

    def _select(self, words: str, tokens: Sequence[Token]) -> exp.Expr:
        """The query `SELECT` tokens, with SELECT at the begin of the statement."""
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
        identifier = exp.Identifier(this=token.text, quoted=True)
        identifier.meta.update(start=token.start, text=self.text)
        return identifier

    def _fail(self, token: Token | None, reason: str, remedy: str) -> NoReturn:
        raise failure(self.text, None if token is None else self._identifier(token), reason, remedy)
