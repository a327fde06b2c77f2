"""From the compiled SQL of models and tests to one query function."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import pyarrow as pa
from sqlglot import exp
from sqlglot.dialects.dialect import Dialects
from sqlglot.errors import ParseError

from stepping_spark.base.callsite import SqlText, user_line
from stepping_spark.base.errors import CompileError, InputError
from stepping_spark.language.trace import Stream
from stepping_spark.pipeline.dbt.manifest import (
    COMPILE,
    DbtManifest,
    DbtNode,
    ModelChoice,
    chosen,
    manifest_at,
)
from stepping_spark.pipeline.dbt.seeds import Seed
from stepping_spark.pipeline.outputs import Check
from stepping_spark.pipeline.views import Declared, declare
from stepping_spark.sql.api import (
    ColumnsRead,
    QueryText,
    columns_of_views,
    function_of,
    made_of,
    unbound,
)
from stepping_spark.sql.clock import clock_of
from stepping_spark.sql.kinds import row_type_of
from stepping_spark.sql.places import failure
from stepping_spark.sql.views import (
    ColumnNames,
    SqlStatement,
    SqlTable,
    View,
    Views,
    column_names,
    statements_of,
    table_of,
    tables_of,
)

log = logging.getLogger("stepping_spark.pipeline.dbt")

_SCHEMA = "dbt"
"""The schema of all tables in the trees: a name with a schema never refers to a WITH query."""

_NARROW: dict[str, pa.DataType] = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "float": pa.float32(),
}


def dbt_project(
    manifest: str | os.PathLike[str],
    *,
    select: Collection[str],
    exclude: Collection[str],
    checks: bool,
    tables: Mapping[str, Any],
) -> Any:
    """See `stepping_spark.pipeline.dbt.dbt_project`."""
    dbt_manifest = manifest_at(manifest)
    if dbt_manifest.quoted_names:
        log.warning(
            "dbt project %s is compiled for %s; its SQL is read as Spark's",
            dbt_manifest.project,
            dbt_manifest.adapter,
        )
    models = chosen(dbt_manifest, select, exclude, checks=checks)
    project = _Project(dbt_manifest, models)
    project.read()
    odd = [name for name in tables if name not in {*project.inputs, *project.unread}]
    if odd:
        raise InputError(
            f"{user_line()}: dbt project {dbt_manifest.project}: {odd[0]}=… is given, and the "
            f"inputs are {', '.join(project.inputs)}; give each its name"
        )
    return project.query({n: table for n, table in tables.items() if n in project.inputs})


_Planned: TypeAlias = "tuple[dict[str, View], list[str], dict[str, str]]"


@dataclass
class _Project:
    """Models and tests as statements. `reads` maps their ids to the ids of models they read."""

    manifest: DbtManifest
    choice: ModelChoice
    statements: dict[str, SqlStatement] = field(default_factory=dict)
    reads: dict[str, list[str]] = field(default_factory=dict)
    inputs: dict[str, DbtNode] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    planned: dict[ColumnNames, _Planned] = field(default_factory=dict)

    @property
    def nodes(self) -> tuple[DbtNode, ...]:
        """The planned models and tests, in order."""
        return (*self.choice.models, *self.choice.checks)

    @property
    def outputs(self) -> tuple[DbtNode, ...]:
        """The models and tests that become outputs."""
        return (*self.choice.views, *self.choice.checks)

    @property
    def unread(self) -> list[str]:
        """The seeds and sources of the project that no maintained model reads."""
        tables = [n for n in self.manifest.nodes.values() if n.kind in ("seed", "source")]
        return [name for n in tables if (name := self.manifest.called[n.id]) not in self.inputs]

    # -- the text

    def read(self) -> None:
        """Parse the planned models and tests, and find their tables."""
        self.refused = dict(self.choice.refused)
        for node in self.nodes:
            if node.id not in self.refused:
                try:
                    self.statements[node.id] = self._statement(node)
                except CompileError as e:
                    self.refused[node.id] = str(e)

    def _statement(self, node: DbtNode) -> SqlStatement:
        called = f"{node.kind} {node.name} ({node.file})"
        quoted = self.manifest.quoted_names
        text = SqlText(
            node.code or "", called, file=str(self.manifest.folder / node.file), quoted_names=quoted
        )
        statements = statements_of(text)
        if len(statements) != 1:
            raise failure(text, None, f"it has {len(statements)} statements", "write one SELECT")
        (statement,) = statements
        self.reads[node.id] = []
        for table in list(tables_of(statement.tree)):
            self._rename(node, table, text)
        return SqlStatement(statement.tree, text, self.manifest.called[node.id])

    def _rename(self, node: DbtNode, table: exp.Table, text: SqlText) -> None:
        """Rename a table in a tree to its view or input; its alias stays."""
        parts = table.parts
        read = self.manifest.by_table.get(tuple(p.name.lower() for p in parts))
        written = ".".join(p.name for p in parts)
        if read is None:
            raise failure(text, table, f"the project has no table {written}", "use ref or source")
        if read.id == node.id:
            reason = "it reads itself, so is_incremental() was true when it was compiled"
            raise failure(text, table, reason, f"run `{COMPILE}`")
        if read.kind == "snapshot":
            remedy = "read the table of the snapshot with source"
            raise failure(text, table, f"{read.name} is a snapshot", remedy)
        if read.kind == "model":
            if read.id not in self.statements and read.id not in self.refused:
                raise failure(text, table, f"{written} is read without ref", "use ref")
            self.reads[node.id].append(read.id)
        else:
            self.inputs[self.manifest.called[read.id]] = read
        name = exp.Identifier(this=self.manifest.called[read.id], quoted=True)
        name.meta.update(parts[-1].meta)
        if not table.alias:
            columns = table.args["alias"].args.get("columns") if table.args.get("alias") else None
            alias = exp.TableAlias(this=parts[-1].copy(), columns=columns)
            table.set("alias", alias)
        table.set("this", name)
        table.set("db", exp.Identifier(this=_SCHEMA))
        table.set("catalog", None)

    # -- the query

    def query(self, tables: Mapping[str, Any]) -> Any:
        """The query function, with the columns of seeds and of these tables."""
        sources = {n: self._seed(node) for n, node in self.inputs.items() if node.kind == "seed"}
        sources |= {n: table for n, table in tables.items() if hasattr(table, "source")}
        sql_tables = {n: table_of(n, table) for n, table in {**sources, **tables}.items()}
        declaration = Declared(self._name, None, sources, None, self._checks())
        return self._bound(sql_tables, declaration, tables.keys() - sources.keys())

    @property
    def _name(self) -> str:
        """The name of the function: that of its only output, or of the project."""
        names = [self.manifest.called[node.id] for node in self.outputs]
        return names[0] if len(names) == 1 else self.manifest.project

    def _bound(
        self, sql_tables: Mapping[str, SqlTable], declaration: Declared, stated: Set[str]
    ) -> Any:
        """The query function; the columns of `stated` tables are not those of their sources."""
        missing = [name for name in self.inputs if name not in sql_tables]
        doc = f"The models of the dbt project {self.manifest.project}."
        query: Any = self._function(sql_tables) if not missing else None
        text = QueryText(self._name, doc, self._function, self._columns_read)
        query = query or unbound(text, sql_tables, missing)

        def takes(given: Mapping[str, Any]) -> list[str]:
            names = [n for n in self.inputs if n in given and n not in stated]
            return [n for n in names if n in missing or hasattr(given[n], "source")]

        def with_tables(given: Mapping[str, Any]) -> Any:
            new = {name: table_of(name, given[name]) for name in self.inputs if name in given}
            ddl = {name for name in new if isinstance(given[name], str)}
            return self._bound({**sql_tables, **new}, declaration, stated | ddl)

        query.takes = takes
        query.with_tables = with_tables
        query.columns_read = lambda given: self._columns_read({**sql_tables, **given})
        called = self.manifest.called
        query.written = {called[n.id]: self.manifest.keys.get(n.id, ()) for n in self.choice.views}
        query.left_out = dict(self.choice.left_out)
        query.unread = self.unread
        declare(query, declaration)
        return query

    def _function(self, tables: Mapping[str, SqlTable]) -> Any:
        views, apart, refused = self._planned(tables)
        read = {table for id_ in apart for table in views[id_].tables}
        used = {n: t for n, t in tables.items() if refused or n in read}

        def streams_of(streams: Mapping[str, Stream]) -> Any:
            relations = {n: replace(used[n], stream=stream) for n, stream in streams.items()}
            by_id, wrong = self._streams(views, apart, relations, refused)
            if wrong:  # find the composed view at fault
                raise self._failure(self._streams(views, list(views), relations, refused)[1])
            outputs = [by_id[node.id] for node in self.outputs]
            return outputs[0] if len(outputs) == 1 else tuple(outputs)

        return function_of(used, self._name, "", streams_of)

    def _columns_read(self, tables: Mapping[str, SqlTable]) -> ColumnsRead:
        views, apart, _ = self._planned(tables)
        return columns_of_views(views[id_] for id_ in apart)

    def _planned(self, tables: Mapping[str, SqlTable]) -> _Planned:
        """The plans of the views; planned once for tables with the same names of columns."""
        names = column_names(tables)
        if names not in self.planned:
            self.planned[names] = self._plan(dict(names))
        return self.planned[names]

    def _plan(self, columns: Mapping[str, Sequence[str]]) -> _Planned:
        """The views of nodes, the ids of views computed apart, and the reasons against others.

        Outputs are computed apart, once for all readers. So is a view model that keeps state and
        has several readers; other views are composed into their readers.
        """
        views = Views(columns)
        by_id: dict[str, View] = {}
        apart: list[str] = []
        refused = dict(self.refused)
        readers = Counter(read for reads in self.reads.values() for read in set(reads))
        outputs = {node.id for node in self.outputs}
        for node in self.nodes:
            if node.id in refused or self._reads_refused(node, refused):
                continue
            try:
                view = by_id[node.id] = views.view(self.statements[node.id])
            except CompileError as e:
                refused[node.id] = str(e)
                continue
            if node.id in outputs or (readers[node.id] > 1 and view.keeps_state):
                apart.append(node.id)
                views.cut(view)
        return by_id, apart, refused

    def _streams(
        self,
        views: Mapping[str, View],
        which: Collection[str],
        sql_tables: Mapping[str, SqlTable],
        reasons: Mapping[str, str],
    ) -> tuple[dict[str, Stream], dict[str, str]]:
        """The streams of these views, and the reasons against views that have no operators.

        `reasons` has the reasons against models and tests without a view.
        """
        tables = dict(sql_tables)
        refused = dict(reasons)
        streams: dict[str, Stream] = {}
        clock = clock_of(e for id_, view in views.items() if id_ in which for e in view.exprs)
        for node in self.nodes:
            if node.id in which and not self._reads_refused(node, refused):
                view = views[node.id]
                if not view.tables <= tables.keys():
                    continue  # no output reads it, so its table is no input
                try:
                    table = tables[view.name] = made_of(view, tables, clock)
                    streams[node.id] = table.stream
                except CompileError as e:
                    refused[node.id] = str(e)
        return streams, refused

    def _reads_refused(self, node: DbtNode, refused: dict[str, str]) -> bool:
        """Whether a node reads a refused node; if so, adds it to `refused`."""
        refused_reads = [read for read in self.reads[node.id] if read in refused]
        if refused_reads:
            refused[node.id] = f"it reads {self.manifest.called[refused_reads[0]]}"
        return bool(refused_reads)

    def _failure(self, refused: Mapping[str, str]) -> CompileError:
        called = self.manifest.called
        lines = [
            f"  {called[id_]}: {reason.replace(chr(10), chr(10) + '  ')}"
            for id_, reason in refused.items()
        ]
        first = [called[id_] for id_, why in refused.items() if not why.startswith("it reads ")]
        return CompileError(
            f"{user_line()}: dbt project {self.manifest.project}: {len(refused)} of "
            f"{len(self.nodes)} models and tests cannot be maintained:\n"
            + "\n".join(lines)
            + f"\nChange them, or leave them out, and what reads them: exclude={first!r} "
            f"(--exclude {' --exclude '.join(first)})"
        )

    # -- inputs and checks

    def _seed(self, node: DbtNode) -> Seed:
        folder = self.manifest.folder
        path = str(node.entry.get("original_file_path") or node.entry.get("path"))
        package = str(node.entry.get("package_name"))
        roots = [folder, folder / "dbt_packages" / package, node.entry.get("root_path") or folder]
        if package != self.manifest.project:
            roots = roots[1:]
        file = next((f for root in roots if (f := folder / root / path).is_file()), folder / path)
        cache = self.manifest.path.resolve().parent / "stepping_spark"
        return Seed(file, cache, self._kinds(node), str(node.config.get("delimiter") or ","))

    def _kinds(self, node: DbtNode) -> dict[str, pa.DataType]:
        """The types of a seed's columns that the project sets in `column_types`."""
        kinds: dict[str, pa.DataType] = {}
        adapter = self.manifest.adapter
        dialect = adapter if adapter in {d.value for d in Dialects} else "spark"
        for column, written in (node.config.get("column_types") or {}).items():
            try:
                kind = exp.DataType.build(written, dialect=dialect).sql("spark")
                kind = kind.lower().replace(" ", "")
                if kind.startswith(("varchar", "char")):
                    kind = "string"
                if kind == "timestamp" and "z" not in str(written).lower():
                    kind = "timestamp_ntz"
                kinds[column] = _NARROW.get(kind) or row_type_of(kind, False).arrow
            except (ParseError, TypeError, ValueError) as e:
                raise InputError(
                    f"{user_line()}: dbt project {self.manifest.project}: seed {node.name}: the "
                    f"type of column {column}, {written!r}, is not known ({e}); give a source for "
                    f"{self.manifest.called[node.id]}, or another type in column_types"
                ) from None
        return kinds

    def _checks(self) -> dict[str, Check]:
        return {
            self.manifest.called[node.id]: Check(
                warn=str(node.config.get("severity") or "error").lower() == "warn"
            )
            for node in self.choice.checks
        }
