"""dbt projects for tests: manifests that are written by hand, and the example with its seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def model(name: str, code: str | None, *reads: str, **more: Any) -> dict[str, Any]:
    """A model as a manifest has it; `reads` are ids."""
    config = {"materialized": "table", **more.pop("config", {})}
    return {
        "unique_id": f"model.shop.{name}",
        "resource_type": "model",
        "name": name,
        "alias": name,
        "database": "db",
        "schema": "lake",
        "package_name": "shop",
        "original_file_path": f"models/{name}.sql",
        "relation_name": f'"db"."lake"."{name}"',
        "language": "sql",
        "config": config,
        "depends_on": {"nodes": list(reads)},
        "compiled_code": code,
        **more,
    }


def data_test(name: str, code: str, of: str, **more: Any) -> dict[str, Any]:
    """A data test of a model."""
    found = model(name, code, of, **more)
    return found | {
        "unique_id": f"test.shop.{name}",
        "resource_type": "test",
        "attached_node": of,
        "relation_name": None,
    }


def table(source: str, name: str, **more: Any) -> dict[str, Any]:
    """A table of a source."""
    return {
        "unique_id": f"source.shop.{source}.{name}",
        "resource_type": "source",
        "source_name": source,
        "name": name,
        "identifier": name,
        "database": "db",
        "schema": source,
        "relation_name": f'"db"."{source}"."{name}"',
        **more,
    }


def seed(name: str, **config: Any) -> dict[str, Any]:
    """A seed."""
    found = model(name, None, config=config)
    return found | {
        "unique_id": f"seed.shop.{name}",
        "resource_type": "seed",
        "original_file_path": f"seeds/{name}.csv",
    }


def project(folder: Path, *nodes: Mapping[str, Any], adapter: str = "postgres") -> Path:
    """The manifest of a project in a folder."""
    said: dict[str, Any] = {
        "metadata": {"project_name": "shop", "adapter_type": adapter},
        "nodes": {n["unique_id"]: n for n in nodes if n["resource_type"] != "source"},
        "sources": {n["unique_id"]: n for n in nodes if n["resource_type"] == "source"},
    }
    path = folder / "target" / "manifest.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(said))
    return path
