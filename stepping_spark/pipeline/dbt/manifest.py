"""The manifest of a dbt project, and the choice of the models to maintain."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import InputError
from stepping_spark.rows.row_class import field_name

COMPILE = "dbt compile --full-refresh"
"""The command that writes a manifest that this module can read."""

_NAME_IN_QUOTES = re.compile(r'"((?:[^"]|"")*)"|`((?:[^`]|``)*)`|([^.]+)')
_OF_SPARK = ("spark", "databricks")
_READ = ("model", "seed", "snapshot", "test")


@dataclass(frozen=True)
class DbtNode:
    """A model, a test, a seed, a snapshot or a source of a project."""

    id: str
    entry: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """The kind of node: model, test, seed, snapshot or source."""
        return str(self.entry["resource_type"])

    @property
    def config(self) -> Mapping[str, Any]:
        """The configuration."""
        settings: Mapping[str, Any] = self.entry.get("config") or {}
        return settings

    @property
    def materialized(self) -> str:
        """The materialization of a model; `view` if it has no setting."""
        return str(self.config.get("materialized") or "view")

    @property
    def name(self) -> str:
        """The name in the project; a versioned model has the suffix `_v` and its version."""
        version = self.entry.get("version")
        name = str(self.entry["name"])
        return name if version is None else f"{name}_v{version}"

    @property
    def code(self) -> str | None:
        """The compiled SQL, or None."""
        code = self.entry.get("compiled_code")
        return None if code is None else str(code)

    @property
    def reads(self) -> list[str]:
        """The ids of the nodes that it reads."""
        return list((self.entry.get("depends_on") or {}).get("nodes") or ())

    @property
    def file(self) -> str:
        """The path of the compiled SQL within the project; else of the source file, else the id."""
        path = self.entry.get("compiled_path") or self.entry.get("original_file_path")
        return str(path or self.id)

    @property
    def table(self) -> str:
        """The last part of the name of its table."""
        entry = self.entry
        return str(entry.get("identifier") or entry.get("alias") or entry["name"])

    @property
    def names(self) -> list[tuple[str, ...]]:
        """The names of its table, from the longest to the shortest, in lower case."""
        written = str(self.entry.get("relation_name") or "")
        words = [next(filter(None, m.groups()), "") for m in _NAME_IN_QUOTES.finditer(written)]
        parts = [self.entry.get("database"), self.entry.get("schema"), self.table]
        named = [tuple(words), tuple(str(p) for p in parts if p), tuple(map(str, parts[1:]))]
        lower = dict.fromkeys(tuple(p.lower() for p in name) for name in named)
        return [name for name in lower if len(name) > 1]


@dataclass(frozen=True)
class DbtManifest:
    """The content of a manifest. `folder` is the folder of the project."""

    path: Path
    folder: Path
    project: str
    adapter: str
    nodes: Mapping[str, DbtNode]

    @property
    def quoted_names(self) -> bool:
        """Whether `"x"` is a name in its SQL."""
        return self.adapter not in _OF_SPARK

    @cached_property
    def called(self) -> Mapping[str, str]:
        """The name of the view or input of each node, by its id; the names are unique."""
        names = Counter(n.name.lower() for n in self.nodes.values() if n.kind != "source")
        tables = Counter(n.name.lower() for n in self.nodes.values() if n.kind == "source")
        name_of: dict[str, str] = {}
        for id_, node in self.nodes.items():
            name = node.name
            if node.kind == "source" and names[name.lower()] + tables[name.lower()] > 1:
                name = f"{node.entry['source_name']}_{name}"
            elif node.kind != "source" and names[name.lower()] > 1:
                name = f"{node.entry['package_name']}_{name}"
            name_of[id_] = field_name(name, name_of.values())
        return name_of

    @cached_property
    def by_table(self) -> Mapping[tuple[str, ...], DbtNode]:
        """The nodes by the names of their tables, without names that several nodes share."""
        having: dict[tuple[str, ...], list[DbtNode]] = {}
        for node in self.nodes.values():
            for name in node.names if node.kind != "test" else ():
                having.setdefault(name, []).append(node)
        return {name: nodes[0] for name, nodes in having.items() if len(nodes) == 1}

    @cached_property
    def keys(self) -> Mapping[str, tuple[str, ...]]:
        """The key of each model that has one, by the model's id."""
        tested: dict[tuple[str, str], set[str]] = {}
        for node in self.nodes.values():
            of, column = node.entry.get("attached_node"), node.entry.get("column_name")
            if of and column and not node.config.get("where"):
                name = (node.entry.get("test_metadata") or {}).get("name")
                tested.setdefault((of, column), set()).add(str(name))
        key_of = {
            of: (column,)
            for (of, column), names in reversed(tested.items())
            if {"unique", "not_null"} <= names
        }
        for id_, node in self.nodes.items():
            key = node.config.get("unique_key")
            if node.kind == "model" and key:
                key_of[id_] = (key,) if isinstance(key, str) else tuple(key)
        return key_of


def manifest_at(path: str | os.PathLike[str]) -> DbtManifest:
    """The manifest at a path, or of the project at a path. Raises `InputError` if there is none."""
    place = Path(path)
    file = place / "target" / "manifest.json" if place.is_dir() else place
    where = f"{user_line()}: dbt project"
    if not file.is_file():
        raise InputError(
            f"{where}: there is no manifest at {file}; run `{COMPILE}` in the project, and give "
            "the path of the project or of its target/manifest.json"
        )
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        metadata = content["metadata"]
        nodes = dict(_nodes(content))
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise InputError(
            f"{where}: {file} is no manifest of dbt ({type(e).__name__}: {e}); give the file "
            f"target/manifest.json that `{COMPILE}` wrote"
        ) from None
    folder = file.resolve().parent.parent
    project, adapter = metadata.get("project_name"), metadata.get("adapter_type")
    return DbtManifest(file, folder, str(project or folder.name), str(adapter or "spark"), nodes)


def _nodes(content: Mapping[str, Any]) -> Iterator[tuple[str, DbtNode]]:
    for id_, node in content["nodes"].items():
        if node["resource_type"] in _READ:
            yield id_, DbtNode(id_, node)
    for id_, node in (content.get("sources") or {}).items():
        yield id_, DbtNode(id_, {**node, "resource_type": "source"})


WRITTEN = ("table", "incremental", "materialized_view")
"""The materializations of models that become views of the pipeline."""

_COMPOSED = ("view", "ephemeral")
_PYTHON = "it is a Python model, and only SQL is maintained; write it as a query function"
_SNAPSHOT = "it is a snapshot, which keeps what rows were; write the view with changes=True instead"


@dataclass(frozen=True)
class ModelChoice:
    """The choice of models and tests of a project, in an order in which readers come last.

    `models` are planned, `views` are the models among them that become outputs, and `checks` are
    tests. `refused` has the reasons against models and tests that cannot be maintained, by id, and
    `left_out` the reasons against those that were not chosen, by name.
    """

    models: tuple[DbtNode, ...]
    views: tuple[DbtNode, ...]
    checks: tuple[DbtNode, ...]
    refused: dict[str, str]
    left_out: dict[str, str]


def chosen(
    manifest: DbtManifest, select: Collection[str], exclude: Collection[str], *, checks: bool
) -> ModelChoice:
    """The choice of models and tests of a project. Raises `InputError` for unknown names."""
    order = _in_order(manifest)
    _check_compiled(manifest, order)
    models = {manifest.called[n.id]: n for n in order if n.kind == "model"}
    tests = {manifest.called[n.id]: n for n in order if n.kind == "test"}
    selected, excluded = _list_given("select", select), _list_given("exclude", exclude)
    _check_names("select", selected, models)
    _check_names("exclude", excluded, {**models, **tests})
    left_out = _left_out(manifest, order, excluded)
    lost = [name for name in selected if name in left_out]
    if lost:
        raise InputError(
            f"{user_line()}: dbt project {manifest.project}: select= names {lost[0]}, and "
            f"{left_out[lost[0]]}; leave it out of one of the two"
        )
    view_models = [models[name] for name in selected] or [
        n for name, n in models.items() if name not in left_out and n.materialized not in _COMPOSED
    ]
    if not view_models:
        raise InputError(
            f"{user_line()}: dbt project {manifest.project}: no model is materialized as "
            f"{', '.join(WRITTEN)}, and only these are written; name the models for views: "
            f"select=[{next(iter(models), '…')!r}] (--select)"
        )
    needed = set(_with_what_they_read(manifest, view_models))
    of_views = {n.id for n in view_models}
    planned = [n for n in order if n.kind == "model" and n.id in needed]
    planned = [n for n in planned if n.materialized != "ephemeral" or n.id in of_views]
    views = [n for n in planned if n.id in of_views]
    of_tests = [
        n
        for name, n in tests.items()
        if checks and name not in left_out and n.reads and needed.issuperset(n.reads)
    ]
    for name, node in models.items():
        if node.id not in needed:
            left_out.setdefault(name, "it is no table, and nothing that is maintained reads it")
    tested = {n.id for n in of_tests}
    for name, node in tests.items():
        if node.id not in tested:
            why = "it tests what is not maintained" if checks else "checks=False"
            left_out.setdefault(name, why)
    refused = {n.id: reason for n in (*planned, *of_tests) if (reason := _refusal(n)) is not None}
    return ModelChoice(tuple(planned), tuple(views), tuple(of_tests), refused, left_out)


def _left_out(
    manifest: DbtManifest, order: list[DbtNode], excluded: Collection[str]
) -> dict[str, str]:
    """The reasons against excluded nodes, readers of excluded models, and snapshots, by name."""
    reasons: dict[str, str] = {}
    for node in order:
        name = manifest.called[node.id]
        reads = [manifest.nodes[id_] for id_ in node.reads if id_ in manifest.nodes]
        missing = [manifest.called[r.id] for r in reads if r.kind == "model"]
        missing = [other for other in missing if other in reasons]
        if name in excluded:
            reasons[name] = "it is named in exclude="
        elif node.kind == "snapshot":
            reasons[name] = _SNAPSHOT
        elif missing:
            reasons[name] = f"it reads {missing[0]}, which is left out"
    return reasons


def _in_order(manifest: DbtManifest) -> list[DbtNode]:
    nodes = manifest.nodes
    reads = {id_: [r for r in node.reads if r in nodes] for id_, node in nodes.items()}
    return [nodes[id_] for id_ in TopologicalSorter(reads).static_order()]


def _check_compiled(manifest: DbtManifest, order: list[DbtNode]) -> None:
    without = [n.name for n in order if n.kind == "model" and n.code is None]
    if without:
        names = ", ".join(without[:3]) + (", …" if without[3:] else "")
        raise InputError(
            f"{user_line()}: dbt project {manifest.project}: {manifest.path} has no compiled SQL "
            f"of {len(without)} model{'' if len(without) == 1 else 's'} ({names}): `dbt parse` "
            f"and `dbt run --select` leave it out; run `{COMPILE}`"
        )


def _list_given(option: str, names: Collection[str]) -> list[str]:
    if isinstance(names, str):
        raise InputError(f"{user_line()}: {option}={names!r}: write a list, {option}=[{names!r}]")
    return list(names)


def _check_names(option: str, names: Collection[str], allowed: Collection[str]) -> None:
    unknown = [name for name in names if name not in allowed]
    if unknown:
        raise InputError(
            f"{user_line()}: {option}= names {', '.join(map(repr, unknown))}; name some of "
            f"{', '.join(sorted(allowed))}"
        )


def _with_what_they_read(manifest: DbtManifest, nodes: Collection[DbtNode]) -> Iterator[str]:
    seen: set[str] = set()
    pending = [n.id for n in nodes]
    while pending:
        id_ = pending.pop()
        if id_ in manifest.nodes and id_ not in seen:
            seen.add(id_)
            pending += manifest.nodes[id_].reads
            yield id_


def _refusal(node: DbtNode) -> str | None:
    """The reason in a configuration why a model or a test cannot be maintained, or None."""
    if node.entry.get("language") == "python":
        return _PYTHON
    if node.kind == "model" and node.materialized not in (*WRITTEN, *_COMPOSED):
        names = ", ".join((*_COMPOSED, *WRITTEN))
        return f"it is materialized as {node.materialized}, which is none of {names}"
    if node.kind == "test":
        for name, usual in (("fail_calc", "count(*)"), ("error_if", "!= 0"), ("warn_if", "!= 0")):
            value = node.config.get(name) or usual
            if value != usual:
                return f"its {name} is {value!r}, and a check fails for each row: {usual!r}"
    return None
