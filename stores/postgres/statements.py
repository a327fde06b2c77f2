"""Tables of relations in Postgres, and the statements that create, merge and read them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from psycopg import sql

from stepping_spark.base.fields import PickledByFields
from stepping_spark.relations.arrow import Array, Ids, distinct_numbers
from stepping_spark.relations.hashing import bucket_numbers, hashes_of_bucket, key_hashes
from stepping_spark.relations.store import Ordering
from stepping_spark.rows.schema import Schema
from stores.postgres.connection import LONGEST_NAME
from stores.postgres.types import ValueColumn, escape, full_name, leaves_of, literal_of, texts

KEY_HASH, PLACE, REST_HASH, ATTEMPT = "_key_hash_", "_place_", "_rest_hash_", "_attempt_"

STAGED = re.compile("_staging_[0-9a-f]{32}")
"""The names of staging tables, for large changes."""

# Staging and output tables: temporary names that registers must not use.
_OWN = re.compile(rf"{STAGED.pattern}|_output_[0-9]+_")

Statement = sql.Composed


def identifier(name: str, taken: set[str]) -> str:
    """A valid, unused Postgres name; deterministic, and cut with a digest if it is too long."""
    plain = name.replace("\0", "␀")
    candidate = _cut(plain, LONGEST_NAME)
    number = 0
    while candidate != plain or not candidate or candidate in taken or _OWN.fullmatch(candidate):
        digest = hashlib.sha256(f"{name}\0{number or ''}".encode()).hexdigest()[:8]
        candidate = f"{_cut(plain, LONGEST_NAME - 9)}~{digest}"
        if candidate not in taken:
            break
        number += 1
    taken.add(candidate)
    return candidate


def _cut(name: str, most: int) -> str:
    return name.encode()[:most].decode(errors="ignore")


@dataclass(frozen=True)
class TableColumn:
    """A column of a table: its name, and the part of a row that it stores."""

    name: str
    leaf: ValueColumn

    @property
    def ident(self) -> sql.Identifier:
        """The name, quoted."""
        return sql.Identifier(self.name)

    @property
    def definition(self) -> sql.Composed:
        """The column definition: name and type."""
        # Text compares byte by byte, whatever the locale of the database is.
        collation = ' COLLATE "C"' if self.leaf.pg == "text" else ""
        return sql.SQL("{} {}").format(self.ident, _raw(self.leaf.pg + collation))

    @property
    def shown(self) -> sql.Composable:
        """The value in the form that `types.table_of` reads."""
        if self.leaf.pg == "interval":
            return sql.SQL("(extract(epoch from {}) * 1000000)::bigint").format(self.ident)
        return self.ident


def _raw(text: str) -> sql.SQL:
    return sql.SQL(text)  # types and numbers, of our own making


@dataclass(frozen=True)
class Layout(PickledByFields):
    """A table that stores a relation. With hashes, rows are looked up by key, and are distinct.

    With an order, a row's position in it is a column between the hashes, and in the index too.
    """

    namespace: str
    table: str
    schema: Schema
    key: tuple[str, ...] = ()
    hashed: bool = True
    order: Ordering | None = None

    @property
    def place(self) -> sql.Identifier:
        """The qualified name of the table."""
        return sql.Identifier(self.namespace, self.table)

    @cached_property
    def columns(self) -> tuple[TableColumn, ...]:
        """The columns of rows."""
        return self._all[: len(leaves_of(self.schema.columns))]

    @cached_property
    def diffs(self) -> tuple[TableColumn, ...]:
        """The columns of weights and sums, which are added."""
        return self._all[len(self.columns) :]

    @property
    def all_columns(self) -> tuple[TableColumn, ...]:
        """The columns of rows, and of weights and sums."""
        return self._all

    @cached_property
    def _all(self) -> tuple[TableColumn, ...]:
        taken = {*self.hashes, KEY_HASH, REST_HASH, ATTEMPT}
        return tuple(TableColumn(identifier(x.name, taken), x) for x in leaves_of(self.schema.all))

    @property
    def shown(self) -> list[tuple[sql.Composable, ValueColumn]]:
        """The SQL that reads each column, with the part of a row that the column stores."""
        return [(c.shown, c.leaf) for c in self._all]

    @property
    def described(self) -> list[list[str]]:
        """The columns as stored in `_registers_`: part of a row, name, type."""
        return [[escape(c.leaf.name), c.name, c.leaf.pg] for c in self._all]

    @property
    def types(self) -> list[tuple[str, str]]:
        """All columns of the table, with the server's names for their types."""
        hashes = [(name, "bigint") for name in self.hashes]
        return [*hashes, *((c.name, full_name(c.leaf.pg)) for c in self._all)]

    @property
    def _types(self) -> list[str]:
        return ["bigint"] * len(self.hashes) + [c.leaf.pg for c in self._all]

    @property
    def hashes(self) -> tuple[str, ...]:
        """The names of the hash columns, and of the position in the order."""
        if not self.hashed:
            return ()
        return (KEY_HASH, REST_HASH) if self.order is None else (KEY_HASH, PLACE, REST_HASH)

    # -- values

    def hash_columns(self, table: pa.Table) -> list[Array]:
        """The hashes of the rows' keys, their positions in the order, and their other hashes."""
        return [pa.array(h).cast(pa.string()) for h in self._hashes_of(table)]

    def _hashes_of(self, table: pa.Table) -> list[Ids]:
        names = [n for n, _ in self.schema.columns]
        key = self.key or tuple(names)
        rest = [n for n in names if n not in key]
        numbers = [key_hashes(table, key), key_hashes(table, rest)]
        if self.order is not None:
            numbers.insert(1, self.order.numbers(table).view(np.uint64))
        return [h.view(np.int64) for h in numbers]

    def text_columns(self, table: pa.Table) -> list[Array]:
        """The rows as columns of text, for statements: hashes, columns, diffs.

        Rows are in the order of their keys' hashes, which is that of the index. The server then
        finds each row on a page that it has just read, and new rows of one key are neighbours.
        """
        if not self.hashed:
            return texts(table, self.schema.all)
        hashes = self._hashes_of(table)
        order = np.argsort(hashes[0], kind="stable")
        hashed = [pa.array(h[order]).cast(pa.string()) for h in hashes]
        return [*hashed, *texts(table.take(order), self.schema.all)]

    def array_columns(self, table: pa.Table) -> list[str]:
        """`text_columns` as arrays of Postgres, for the parameters of a statement."""
        columns = self.text_columns(table)
        return [literal_of(c, t) for c, t in zip(columns, self._types, strict=True)]

    # -- statements

    @cached_property
    def create(self) -> Statement:
        """Creates the table."""
        return self._created(sql.SQL("TABLE {}").format(self.place))

    @cached_property
    def index(self) -> Statement:
        """Creates the index for lookups of keys and rows."""
        return sql.SQL("CREATE INDEX {} ON {} ({})").format(
            sql.Identifier(self.index_name),
            self.place,
            _with_commas(map(sql.Identifier, self.hashes)),
        )

    @cached_property
    def drop_index(self) -> Statement:
        """Drops the index."""
        return sql.SQL("DROP INDEX {}").format(sql.Identifier(self.namespace, self.index_name))

    @property
    def index_place(self) -> str:
        """The qualified name of the index, quoted."""
        return sql.Identifier(self.namespace, self.index_name).as_string()

    @property
    def index_name(self) -> str:
        """The name of the index."""
        return f"{_cut(self.table, LONGEST_NAME - 13)}~{_digest(self.table)} key"

    def create_staging(self, staging: sql.Identifier) -> Statement:
        """Creates a staging table (unlogged: it may be empty after a crash of the server)."""
        return self._created(sql.SQL("UNLOGGED TABLE {}").format(staging), ATTEMPT)

    def _created(self, what: sql.Composable, *more: str) -> Statement:
        hashes = [
            sql.SQL("{} bigint NOT NULL DEFAULT 0").format(sql.Identifier(n))
            for n in (*self.hashes, *more)
        ]
        fields = [*hashes, *(c.definition for c in self._all)]
        return sql.SQL("CREATE {} ({})").format(what, _with_commas(fields))

    def copy_in(self, to: sql.Identifier, *more: str) -> Statement:
        """Copies lines with the hashes, the `more` columns, the columns and the diffs into `to`."""
        names = [sql.Identifier(n) for n in (*self.hashes, *more)] + [c.ident for c in self._all]
        return sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(to, _with_commas(names))

    def copy_out(self, where: sql.Composable | None = None) -> Statement:
        """Copies the rows out, as lines that `types.table_of` reads."""
        return self._copied([c.shown for c in self._all], where)

    @property
    def copy_with_hashes(self) -> Statement:
        """Copies all rows out, with their hashes first."""
        return self._copied([*map(sql.Identifier, self.hashes), *(c.shown for c in self._all)])

    def _copied(
        self, shown: Sequence[sql.Composable], where: sql.Composable | None = None
    ) -> Statement:
        return sql.SQL("COPY (SELECT {} FROM {}{}) TO STDOUT (FORMAT csv)").format(
            _with_commas(shown), self.place, where or sql.SQL("")
        )

    def of_keys(self, table: pa.Table) -> sql.Composed:
        """The condition that a row's key has the hash of one of these keys."""
        hashes = key_hashes(table, self.key)
        listed = ",".join(map(str, distinct_numbers(hashes.view(np.int64)).tolist()))
        return sql.SQL(" WHERE {} = ANY({}::bigint[])").format(
            sql.Identifier(KEY_HASH), sql.Literal(f"{{{listed}}}")
        )

    def since(self, table: pa.Table, since: Sequence[int]) -> sql.Composed:
        """The condition that a row's key has the hash of one of these, from its position on."""
        hashes = key_hashes(table, self.key)
        each = sql.SQL("({} = {} AND {} >= {})")
        key, place = sql.Identifier(KEY_HASH), sql.Identifier(PLACE)
        conditions = [
            each.format(key, sql.Literal(h), place, sql.Literal(n))
            for h, n in zip(hashes.view(np.int64).tolist(), since, strict=True)
        ]
        return sql.SQL(" WHERE {}").format(sql.SQL(" OR ").join(conditions))

    def beside(self, table: pa.Table, buckets: int) -> sql.Composed:
        """A join with the hashes of the buckets of some rows."""
        names = [n for n, _ in self.schema.columns if n not in self.key]
        of_keys = key_hashes(table, self.key).view(np.int64).tolist()
        numbers = bucket_numbers(table, names, buckets).tolist()
        wanted = sorted(set(zip(of_keys, numbers, strict=True)))
        bounds = [hashes_of_bucket(number, buckets) for _, number in wanted]
        arrays = [[h for h, _ in wanted], *([b[i] for b in bounds] for i in (0, 1))]
        listed = [sql.Literal("{" + ",".join(map(str, hashes)) + "}") for hashes in arrays]
        return sql.SQL(
            " JOIN unnest({}::bigint[], {}::bigint[], {}::bigint[]) AS b (_of_, _from_, _to_) "
            "ON {} = b._of_ AND {} BETWEEN b._from_ AND b._to_"
        ).format(*listed, sql.Identifier(KEY_HASH), sql.Identifier(REST_HASH))

    @cached_property
    def parameters(self) -> sql.Composed:
        """The rows in a statement's parameters: an array for each column."""
        arrays = [_raw(f"${i}::{t}[]") for i, t in enumerate(self._types, 1)]
        names = [*map(sql.Identifier, self.hashes), *(c.ident for c in self._all)]
        return sql.SQL("unnest({}) AS s ({})").format(_with_commas(arrays), _with_commas(names))

    @cached_property
    def merge_parameters(self) -> bytes:
        """Adds the rows in a statement's parameters to the table."""
        return self.merge(self.parameters).as_bytes()

    @cached_property
    def insert_parameters(self) -> bytes:
        """Inserts the rows in a statement's parameters."""
        return self.insert(self.parameters).as_bytes()

    @cached_property
    def empty(self) -> bytes:
        """Deletes all rows."""
        return sql.SQL("DELETE FROM {}").format(self.place).as_bytes()

    def merge(self, source: sql.Composable) -> Statement:
        """Adds the rows `s` of a source to those of the table. Rows of the source are distinct.

        The statement finds rows by their hashes, and compares their columns: rows that only share
        their hashes stay separate.
        """
        same = [sql.SQL("{0} = {1}").format(_of("r", n), _of("s", n)) for n in self.hashes] + [
            sql.SQL("{0} IS NOT DISTINCT FROM {1}").format(_of("r", c.name), _of("s", c.name))
            for c in self.columns
        ]
        sums = [
            (c, sql.SQL("{} + {}").format(_of("r", c.name), _of("s", c.name))) for c in self.diffs
        ]
        names = [*self.hashes, *(c.name for c in self._all)]
        return sql.SQL(
            "MERGE INTO {place} AS r USING {source} ON {same} "
            "WHEN MATCHED AND {gone} THEN DELETE "
            "WHEN MATCHED THEN UPDATE SET {sums} "
            "WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({values})"
        ).format(
            place=self.place,
            source=source,
            same=sql.SQL(" AND ").join(same),
            gone=sql.SQL(" AND ").join(sql.SQL("{} = 0").format(total) for _, total in sums),
            sums=_with_commas(sql.SQL("{} = {}").format(c.ident, total) for c, total in sums),
            names=_with_commas(map(sql.Identifier, names)),
            values=_with_commas(_of("s", n) for n in names),
        )

    def insert(self, source: sql.Composable, order: bool = False) -> Statement:
        """Inserts the rows `s` of a source; with `order`, in the order of their hashes."""
        names = [*self.hashes, *(c.name for c in self._all)]
        by = sql.SQL(" ORDER BY {}").format(_with_commas(map(sql.Identifier, self.hashes)))
        return sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {}{}").format(
            self.place,
            _with_commas(map(sql.Identifier, names)),
            _with_commas(_of("s", n) for n in names),
            source,
            by if order else sql.SQL(""),
        )

    def view(self, name: str, hidden: Sequence[str]) -> Statement:
        """Creates a view of the columns and diffs, without some hidden parts of rows."""
        shown = [c.ident for c in self._all if c.leaf.path[0] not in hidden]
        return sql.SQL("CREATE VIEW {} AS SELECT {} FROM {}").format(
            sql.Identifier(self.namespace, name), _with_commas(shown), self.place
        )

    def comments(self, what: str) -> list[Statement]:
        """Comments with the contents of the table, and the full names of columns with cut names."""
        statements = [
            sql.SQL("COMMENT ON TABLE {} IS {}").format(self.place, sql.Literal(escape(what)))
        ]
        for c in self._all:
            if c.name != c.leaf.name:
                statements.append(
                    sql.SQL("COMMENT ON COLUMN {} IS {}").format(
                        sql.Identifier(self.namespace, self.table, c.name),
                        sql.Literal(escape(c.leaf.name)),
                    )
                )
        return statements


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _of(table: str, name: str) -> sql.Identifier:
    return sql.Identifier(table, name)


def _with_commas(parts: Iterable[sql.Composable]) -> sql.Composed:
    return sql.SQL(", ").join(parts)
