"""Writes the manifest of `examples/sandwiches` again: `python -m tests.dbt.compiled path/to/dbt`.

It needs the packages dbt-core and dbt-duckdb, in an environment of their own. The manifest is what
dbt writes, without the macros and pages of dbt itself, and without what says where and when.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.cases import ROOT

PROJECT = ROOT / "examples" / "sandwiches"
OF_DBT = ("macros", "docs")
OF_A_RUN = ("generated_at", "invocation_id", "invocation_started_at", "user_id", "project_id")


def plain(manifest: dict[str, Any]) -> dict[str, Any]:
    """A manifest that is the same wherever and whenever it is written."""
    for name in OF_DBT:
        manifest[name] = {}
    for name in OF_A_RUN:
        manifest["metadata"].pop(name, None)
    for node in manifest["nodes"].values():
        node.pop("created_at", None)
        if "root_path" in node:
            node["root_path"] = None
    return manifest


def main(dbt: str) -> None:
    """Compile a copy of the project, and keep the manifest."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "sandwiches"
        shutil.copytree(PROJECT, copy, ignore=shutil.ignore_patterns("target", "logs"))
        command = [dbt, "compile", "--full-refresh", "--profiles-dir", "."]
        subprocess.run(command, cwd=copy, check=True)
        manifest = json.loads((copy / "target" / "manifest.json").read_text("utf-8"))
    text = json.dumps(plain(manifest), indent=1, sort_keys=True) + "\n"
    (PROJECT / "target" / "manifest.json").write_text(text, "utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
