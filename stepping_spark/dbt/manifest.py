"""The manifest of a dbt project: models, tests, seeds and sources, as `dbt compile` wrote them."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from stepping_spark.callsite import user_line
from stepping_spark.errors import InputError
from stepping_spark.rows.row_class import field_name

COMPILE = "dbt compile --full-refresh"
"""What writes a manifest that can be read here."""

_NAME_IN_QUOTES = re.compile(r'"((?:[^"]|"")*)"|`((?:[^`]|``)*)`|([^.]+)')
_OF_SPARK = ("spark", "databricks")
_READ = ("model", "seed", "snapshot", "test")


@dataclass(frozen=True)
class Node:
    """A model, a test, a seed, a snapshot or a source of a project."""

    id: str
    said: Mapping[str, Any]

    @property
    def kind(self) -> str:
        """What it is: model, test, seed, snapshot or source."""
        return str(self.said["resource_type"])

    @property
    def config(self) -> Mapping[str, Any]:
        """The configuration."""
        found: Mapping[str, Any] = self.said.get("config") or {}
        return found

    @property
    def materialized(self) -> str:
        """How dbt makes a table of a model."""
        return str(self.config.get("materialized") or "view")

    @property
    def name(self) -> str:
        """The name in the project; a version of a model has its number behind it."""
        version = self.said.get("version")
        name = str(self.said["name"])
        return name if version is None else f"{name}_v{version}"

    @property
    def code(self) -> str | None:
        """The compiled SQL; None: there is none."""
        code = self.said.get("compiled_code")
        return None if code is None else str(code)

    @property
    def reads(self) -> list[str]:
        """The ids of what it reads."""
        return list((self.said.get("depends_on") or {}).get("nodes") or ())

    @property
    def file(self) -> str:
        """The file in which the compiled SQL stands, as the project has it."""
        said = self.said.get("compiled_path") or self.said.get("original_file_path")
        return str(said or self.id)

    @property
    def table(self) -> str:
        """The last part of the name of its table."""
        said = self.said
        return str(said.get("identifier") or said.get("alias") or said["name"])

    @property
    def names(self) -> list[tuple[str, ...]]:
        """What its table is called, from the longest name to the shortest."""
        written = str(self.said.get("relation_name") or "")
        found = [next(filter(None, m.groups()), "") for m in _NAME_IN_QUOTES.finditer(written)]
        parts = [self.said.get("database"), self.said.get("schema"), self.table]
        named = [tuple(found), tuple(str(p) for p in parts if p), tuple(map(str, parts[1:]))]
        lower = dict.fromkeys(tuple(p.lower() for p in name) for name in named)
        return [name for name in lower if len(name) > 1]


@dataclass(frozen=True)
class Manifest:
    """What is in a manifest. `folder` is that of the project."""

    path: Path
    folder: Path
    project: str
    adapter: str
    nodes: Mapping[str, Node]

    @property
    def quoted_names(self) -> bool:
        """Whether `"x"` is a name in its SQL."""
        return self.adapter not in _OF_SPARK

    @cached_property
    def called(self) -> Mapping[str, str]:
        """By the id of each node, the name of its view or input; no two are equal."""
        names = Counter(n.name.lower() for n in self.nodes.values() if n.kind != "source")
        tables = Counter(n.name.lower() for n in self.nodes.values() if n.kind == "source")
        found: dict[str, str] = {}
        for id_, node in self.nodes.items():
            name = node.name
            if node.kind == "source" and names[name.lower()] + tables[name.lower()] > 1:
                name = f"{node.said['source_name']}_{name}"
            elif node.kind != "source" and names[name.lower()] > 1:
                name = f"{node.said['package_name']}_{name}"
            found[id_] = field_name(name, found.values())
        return found

    @cached_property
    def by_table(self) -> Mapping[tuple[str, ...], Node]:
        """The nodes by the names of their tables; a short name that several have is left out."""
        having: dict[tuple[str, ...], list[Node]] = {}
        for node in self.nodes.values():
            for name in node.names if node.kind != "test" else ():
                having.setdefault(name, []).append(node)
        return {name: nodes[0] for name, nodes in having.items() if len(nodes) == 1}

    @cached_property
    def keys(self) -> Mapping[str, tuple[str, ...]]:
        """By the id of each model, its key; a model without one is not there."""
        tested: dict[tuple[str, str], set[str]] = {}
        for node in self.nodes.values():
            of, column = node.said.get("attached_node"), node.said.get("column_name")
            if of and column and not node.config.get("where"):
                name = (node.said.get("test_metadata") or {}).get("name")
                tested.setdefault((of, column), set()).add(str(name))
        found = {
            of: (column,)
            for (of, column), names in reversed(tested.items())
            if {"unique", "not_null"} <= names
        }
        for id_, node in self.nodes.items():
            key = node.config.get("unique_key")
            if node.kind == "model" and key:
                found[id_] = (key,) if isinstance(key, str) else tuple(key)
        return found


def manifest_at(path: str | os.PathLike[str]) -> Manifest:
    """The manifest at a path, or of the project at a path. Raises `InputError` if there is none."""
    given = Path(path)
    file = given / "target" / "manifest.json" if given.is_dir() else given
    where = f"{user_line()}: dbt project"
    if not file.is_file():
        raise InputError(
            f"{where}: there is no manifest at {file}; run `{COMPILE}` in the project, and give "
            "the path of the project or of its target/manifest.json"
        )
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
        metadata = said["metadata"]
        nodes = dict(_nodes(said))
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise InputError(
            f"{where}: {file} is no manifest of dbt ({type(e).__name__}: {e}); give the file "
            f"target/manifest.json that `{COMPILE}` wrote"
        ) from None
    folder = file.resolve().parent.parent
    project, adapter = metadata.get("project_name"), metadata.get("adapter_type")
    return Manifest(file, folder, str(project or folder.name), str(adapter or "spark"), nodes)


def _nodes(said: Mapping[str, Any]) -> Iterator[tuple[str, Node]]:
    for id_, node in said["nodes"].items():
        if node["resource_type"] in _READ:
            yield id_, Node(id_, node)
    for id_, node in (said.get("sources") or {}).items():
        yield id_, Node(id_, {**node, "resource_type": "source"})
