"""The direction of imports, the layout of the root, and what importing costs."""

from __future__ import annotations

import ast
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

ROOT = Path(__file__).resolve().parent.parent

# The modules of stepping_spark, each importing only from those before it. An entry may name a
# package, which then stands for the modules in it that have no entry of their own.
LAYERS = (
    "errors",
    "interrupts",
    "origin",
    "atoms",
    "types",
    "kinds",
    "sql_text",
    "literals",
    "rows",
    "schema",
    "relations",
    "hashing",
    "carried",
    "java",
    "session",
    "advice",
    "spark_errors",
    "spark_types",
    "operations",
    "guards",
    "expr",
    "code_of",
    "clock",
    "arrow_calls",
    "spark_hash",
    "derived",
    "moments",
    "symbolic",
    "functions",
    "index",
    "store",
    "codec",
    "algebra",
    "boxes",
    "settling",
    "few",
    "frames",
    "arrow_rows",
    "keyed",
    "zset_python",
    "zset",
    "change_feed",
    "agg",
    "stream_types",
    "floats",
    "sums",
    "scalars",
    "operators",
    "reducers",
    "reduction_plan",
    "graph",
    "flat",
    "picture",
    "render",
    "body",
    "monotone",
    "deltas",
    "spark_calls",
    "trace",
    "feedback",
    "primitives",
    "lookups",
    "matches",
    "updates",
    "lifting",
    "grouping",
    "reduce_plan",
    "aggregates",
    "linear",
    "cache",
    "rewrite",
    "first_step",
    "recursion",
    "passes",
    "strict",
    "compile",
    "reference_values",
    "reference_reducers",
    "reference",
    "terms",
    "loops",
    "plan",
    "planner",
    "lower_reducers",
    "lower",
    "local_columns",
    "local_joins",
    "local_sums",
    "local_reducers",
    "local",
    "python_rows",
    "source",
    "projection",
    "layers",
    "iterations",
    "blame",
    "nulls",
    "metrics",
    "values",
    "working",
    "questions",
    "driver",
    "once",
    "queries",
    "scheduler",
    "repeats",
    "run",
    "streaming",
    "explain",
)

# Above them, each importing only from the groups before it. `stepping_spark` alone is the facade.
ABOVE = (
    ("circuits", "stores"),
    ("stepping_spark",),
    ("stepping_spark.cli", "examples"),
)

PACKAGES = ("stepping_spark", "circuits", "stores")
ROOT_FOLDERS = {"stepping_spark", "circuits", "stores", "tests", "examples", "docs"}
ROOT_FILES = {"pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE"}


@dataclass(frozen=True)
class Import:
    """One imported module, as a line of source has it."""

    importer: str
    imported: str
    place: str
    in_function: bool


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules() -> dict[str, Path]:
    return {
        module_name(path): path
        for package in (*PACKAGES, "examples")
        for path in sorted((ROOT / package).rglob("*.py"))
    }


MODULES = modules()


@cache
def imports_of(module: str) -> tuple[Import, ...]:
    """The imports of the project's own modules, save those for type checkers only."""
    path = MODULES[module]

    def walk(node: ast.AST, in_function: bool) -> Iterator[Import]:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            children: list[ast.AST] = list(node.orelse)
        else:
            children = list(ast.iter_child_nodes(node))
        place = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
        for name in imported_names(node, module, path):
            if name.split(".")[0] in (*PACKAGES, "examples", "tests"):
                yield Import(module, name, place, in_function)
        inside = in_function or isinstance(
            node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
        )
        for child in children:
            yield from walk(child, inside)

    return tuple(walk(ast.parse(path.read_text(encoding="utf-8")), False))


def imported_names(node: ast.AST, module: str, path: Path) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = node.module or ""
    if node.level:
        package = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
        above = package[: len(package) - node.level + 1]
        base = ".".join([*above, base] if base else above)
    # `from package import module` imports the module; `from module import name` only the module.
    names = (f"{base}.{alias.name}" for alias in node.names)
    return list(dict.fromkeys(name if name in MODULES else base for name in names))


def layer(module: str) -> tuple[int, str] | None:
    """The height of a module, and the entry that gives it."""
    for height, group in enumerate(ABOVE, start=len(LAYERS)):
        for entry in group:
            if module == entry or (entry != "stepping_spark" and module.startswith(f"{entry}.")):
                return height, entry
    package, _, rest = module.partition(".")
    while package == "stepping_spark" and rest:
        if rest in LAYERS:
            return LAYERS.index(rest), f"stepping_spark.{rest}"
        rest = rest.rpartition(".")[0]
    return None


def is_below(imported: str, importer: str) -> bool:
    low, high = layer(imported), layer(importer)
    return low is not None and high is not None and (low[0] < high[0] or low == high)


def test_every_module_has_a_layer_and_every_layer_a_module() -> None:
    layers = {module: layer(module) for module in MODULES}
    strays = [module for module, found in layers.items() if found is None]
    assert not strays, f"say in LAYERS where these belong: {strays}"
    used = {found[1] for found in layers.values() if found is not None}
    gone = [name for name in LAYERS if f"stepping_spark.{name}" not in used]
    assert not gone, f"LAYERS names what is not there: {gone}"


def test_every_module_imports_only_from_those_below_it() -> None:
    wrong = [
        f"{found.place}: {module} imports {found.imported}, which is not below it"
        for module in MODULES
        for found in imports_of(module)
        if not is_below(found.imported, module)
    ]
    assert not wrong, "\n".join(wrong)


def test_no_two_modules_import_each_other_even_by_way_of_others() -> None:
    edges = [(m, found.imported) for m in MODULES for found in imports_of(m) if found.imported != m]
    assert not list(nx.simple_cycles(nx.DiGraph(edges)))


def test_no_function_imports_from_the_project() -> None:
    found = [i for module in MODULES for i in imports_of(module) if i.in_function]
    assert not found, "\n".join(f"{i.place}: imports {i.imported} inside a function" for i in found)


def in_new_process(code: str) -> str:
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


@pytest.mark.parametrize("package", PACKAGES)
def test_each_package_can_be_the_first_import_of_a_process(package: str) -> None:
    in_new_process(f"import {package}")


def test_importing_the_library_starts_no_java_and_takes_little_time() -> None:
    seconds = in_new_process(
        "import time, stepping_spark\n"
        "from pyspark import SparkContext\n"
        "assert SparkContext._gateway is None, 'a JVM was started'\n"
        "print(time.process_time())"
    )
    assert float(seconds) < 5


def is_installed() -> bool:
    """Whether this folder is installed here, as editable."""
    found = importlib.metadata.distributions(name="stepping-spark")
    told = [d.read_text("direct_url.json") for d in found]
    return any(json.loads(text)["url"] == ROOT.as_uri() for text in told if text)


@pytest.mark.skipif(not is_installed(), reason="this folder is not installed as editable")
def test_a_script_beside_a_clone_imports_the_package_and_not_the_folder(tmp_path: Path) -> None:
    (tmp_path / "stepping_spark").mkdir()
    script = tmp_path / "script.py"
    script.write_text("import stepping_spark as st; st.Data")
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, str(script)], env=plain, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def files_of_the_project() -> list[Path]:
    """What git keeps or would keep; without git, all that is no dotfile and no build product."""
    if shutil.which("git"):
        run = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode == 0:
            names = (Path(name) for name in run.stdout.split("\0") if name)
            return [name for name in names if (ROOT / name).is_file()]
    paths = (path.relative_to(ROOT) for path in sorted(ROOT.rglob("*")) if path.is_file())
    return [path for path in paths if not any(map(is_a_product, path.parts))]


def is_a_product(part: str) -> bool:
    return part.startswith(".") or part in ("__pycache__", "build", "dist") or ".egg-info" in part


def test_the_root_holds_the_six_folders_and_the_five_files() -> None:
    files = files_of_the_project()
    folders = {path.parts[0] for path in files if len(path.parts) > 1}
    assert {name for name in folders if not name.startswith(".")} == ROOT_FOLDERS
    loose = {path.name for path in files if len(path.parts) == 1}
    assert {name for name in loose if not name.startswith(".")} == ROOT_FILES


def test_no_file_names_the_host_of_a_package_registry() -> None:
    hosts = [
        ".".join(parts).encode()
        for parts in (
            ("pypi", "org"),
            ("pythonhosted", "org"),
            ("anaconda", "org"),
            ("maven", "org"),
            ("maven", "apache", "org"),
            ("npmjs", "org"),
            ("crates", "io"),
        )
    ]
    found = [
        f"{path}: {host.decode()}"
        for path in files_of_the_project()
        for host in hosts
        if host in (ROOT / path).read_bytes()
    ]
    assert not found, "\n".join(found)
