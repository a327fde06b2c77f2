"""The direction of imports, the layout of the root, and what importing costs."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

from stepping_spark.circuit import operators
from tests.cases import PACKAGES, ROOT

# The packages and modules of stepping_spark, each importing only from itself and those before it.
ORDER = (
    "base",
    "rows",
    "spark",
    "relations",
    "expressions",
    "zsets",
    "circuit",
    "passes",
    "language",
    "reference",
    "plan",
    "execution",
    "report",
    "stepper",
)

# Above them, each importing only from the groups before it.
ABOVE = (
    ("circuits", "stores"),
    ("stepping_spark.sql",),
    ("stepping_spark.pipeline",),
    ("stepping_spark",),
    ("stepping_spark.cli",),
    ("examples",),
)

# `stepping_spark` alone, with the functions that users import as F.
FACADE = ("stepping_spark", "stepping_spark.functions")

# What may not be imported though it comes before: by whom, and what.
NEVER = {
    "stepping_spark.reference": (
        "stepping_spark.relations.arrow",
        "stepping_spark.relations.codec",
        "stepping_spark.relations.hashing",
        "stepping_spark.relations.relation",
        "stepping_spark.relations.store",
        "stepping_spark.relations.transfer",
        "stepping_spark.relations.sums.arrow",
        "stepping_spark.relations.sums.sql",
        "stepping_spark.plan",
        "stepping_spark.execution",
    ),
    "stepping_spark.language.algebra": ("stepping_spark.base.callsite",),
    "stepping_spark.language": ("stepping_spark.passes",),
    "stepping_spark.plan": ("stepping_spark.language",),
    "stores": ("stepping_spark.execution",),
    "stores.parquet": ("stores.memory",),
    "circuits": ("stepping_spark.circuit",),
}
# Not held to NEVER: where a query is traced, and its circuit optimized.
ENTRANCE = "stepping_spark.language.compile"
# These import nothing else of their room.
APART = (
    "stepping_spark.execution.arrow",
    "stepping_spark.execution.spark",
    "stepping_spark.language.algebra",
    "stepping_spark.stepper.evolve",
)
# What the house may have: rooms (the entries of ORDER and ABOVE, without the examples), floors
# (rooms that stand on one another), and arrows (a room that imports from another one).
MOST_ROOMS, MOST_FLOORS, MOST_ARROWS = 20, 13, 114
# Of code: docstrings, imports, comments and blank lines are not counted.
MOST_CODE = 400
LEAST_CODE = 80  # of a module with a single reader

# What users may import. The examples use these alone, and of them only what `__all__` names.
PUBLIC = {
    "stepping_spark",
    "stepping_spark.cli",
    "stepping_spark.functions",
    "circuits",
    "stores",
    "stores.contract",
}

ROOT_FOLDERS = {"stepping_spark", "circuits", "stores", "tests", "examples", "docs"}
ROOT_FILES = {"pyproject.toml", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE"}


@dataclass(frozen=True)
class Import:
    """One imported module, as a line of source has it."""

    importer: str
    imported: str
    place: str
    in_function: bool
    names: tuple[str, ...]


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
                yield Import(module, name, place, in_function, names_of(node))
        inside = in_function or isinstance(
            node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
        )
        for child in children:
            yield from walk(child, inside)

    return tuple(walk(ast.parse(path.read_text(encoding="utf-8")), False))


def names_of(node: ast.AST) -> tuple[str, ...]:
    return tuple(a.name for a in node.names) if isinstance(node, ast.ImportFrom) else ()


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
    for height, group in enumerate(ABOVE, start=len(ORDER)):
        for entry in group:
            inside = module in FACADE if entry == FACADE[0] else is_in(module, entry)
            if inside:
                return height, entry
    package, _, rest = module.partition(".")
    entry = rest.partition(".")[0]
    if package == "stepping_spark" and entry in ORDER:
        return ORDER.index(entry), f"stepping_spark.{entry}"
    return None


def is_in(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def is_below(imported: str, importer: str) -> bool:
    low, high = layer(imported), layer(importer)
    return low is not None and high is not None and (low[0] < high[0] or low == high)


def test_every_module_has_a_layer_and_every_layer_a_module() -> None:
    layers = {module: layer(module) for module in MODULES}
    strays = [module for module, found in layers.items() if found is None]
    assert not strays, f"say in ORDER where these belong: {strays}"
    used = {found[1] for found in layers.values() if found is not None}
    gone = [name for name in ORDER if f"stepping_spark.{name}" not in used]
    assert not gone, f"ORDER names what is not there: {gone}"


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


def test_rooms_are_few_and_few_of_them_know_each_other() -> None:
    names: dict[tuple[str, str], set[str]] = {}  # of an arrow: what is imported
    for module in MODULES:
        importer = layer(module)
        for found in imports_of(module):
            imported = layer(found.imported)
            if importer is None or imported is None or importer == imported:
                continue
            if importer[1] != "examples":
                what = {f"{found.imported}.{name}" for name in found.names} or {found.imported}
                names.setdefault((importer[1], imported[1]), set()).update(what)
    house = nx.DiGraph(names.keys())
    floors = nx.dag_longest_path(house)
    assert len(house) <= MOST_ROOMS, f"put one of these into another: {sorted(house)}"
    assert len(floors) <= MOST_FLOORS, "move what leads up one floor more: " + " → ".join(floors)
    thin = sorted(names.items(), key=lambda arrow: len(arrow[1]))[:20]
    assert len(names) <= MOST_ARROWS, (
        f"{len(names)} arrows between rooms, at most {MOST_ARROWS}: move a name to the room that "
        "needs it or to one that both read, or hand the value in. The thinnest:\n"
        + "\n".join(f"{a} → {b}: {', '.join(sorted(what))}" for (a, b), what in thin)
    )


@pytest.mark.parametrize("importer", NEVER)
def test_a_package_does_not_import_what_it_must_not_know(importer: str) -> None:
    wrong = [
        f"{found.place}: {module} imports {found.imported}"
        for module in MODULES
        if is_in(module, importer) and module != ENTRANCE
        for found in imports_of(module)
        if any(is_in(found.imported, never) for never in NEVER[importer])
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("importer", APART)
def test_what_stands_apart_imports_nothing_else_of_its_room(importer: str) -> None:
    wrong = [
        f"{found.place}: {module} imports {found.imported}"
        for module in MODULES
        if is_in(module, importer)
        for found in imports_of(module)
        if layer(found.imported) == layer(importer) and not is_in(found.imported, importer)
    ]
    assert not wrong, "\n".join(wrong)


def test_no_package_imports_a_private_name_of_another() -> None:
    wrong = [
        f"{found.place}: {module} imports {name} of {found.imported}"
        for module in MODULES
        for found in imports_of(module)
        for name in found.names
        if name.startswith("_") and layer(module) != layer(found.imported)
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("example", [m for m in MODULES if is_in(m, "examples")])
def test_an_example_imports_only_what_is_public(example: str) -> None:
    found = imports_of(example)
    wrong = [f"{i.place}: {i.imported} is not public" for i in found if i.imported not in PUBLIC]
    for i in found:
        names = [n for n in i.names if not i.imported.endswith(f".{n}")]  # a module, by its package
        public = importlib.import_module(i.imported).__all__ if names else ()
        wrong += [f"{i.place}: {n} of {i.imported} is not" for n in names if n not in public]
    assert not wrong, "\n".join(wrong)


# Where what a user gives is looked at: it may be anything.
OF_USERS = {
    "stepping_spark.pipeline.inputs",
    "stepping_spark.pipeline.row_class",
    "stepping_spark.zsets.from_change_feed",
    "stepping_spark.zsets.from_dataframe",
    "stepping_spark.zsets.python",
    "stepping_spark.zsets.spark",
}
HELD = {"pa.Table", "DataFrame"}


def asked_of_a_value(node: ast.AST) -> set[str]:
    """The classes of tables that an isinstance, or a union of types, names."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
        return {ast.unparse(n) for n in ast.walk(node.args[1])} & HELD
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        found = {ast.unparse(n) for n in ast.walk(node)} & HELD
        return found if found == HELD else set()
    return set()


def test_only_two_packages_ask_whether_the_driver_or_spark_holds_a_value() -> None:
    wrong = [
        f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}: {ast.unparse(node)}"
        for module, path in MODULES.items()
        if module not in OF_USERS
        and not is_in(module, "stepping_spark.relations")
        and not is_in(module, "stepping_spark.spark")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if asked_of_a_value(node)
    ]
    assert not wrong, "take a Relation:\n" + "\n".join(wrong)


def test_nothing_is_known_of_a_value_by_its_identity() -> None:
    text = {module: path.read_text(encoding="utf-8") for module, path in MODULES.items()}
    assert [m for m, t in text.items() if "WeakKeyDictionary" in t] == []


def lines_of_code(path: Path) -> int:
    """The lines that are no docstring, import, comment, and not empty."""
    text = path.read_text(encoding="utf-8")
    left_out: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom):
            left_out.update(range(node.lineno, (node.end_lineno or 0) + 1))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body and ast.get_docstring(node) is not None else None
            if first is not None:
                left_out.update(range(first.lineno, (first.end_lineno or 0) + 1))
    lines = enumerate(text.splitlines(), 1)
    return sum(1 for n, t in lines if n not in left_out and t.strip() and t.strip()[0] != "#")


OUR_MODULES = {m: p for m, p in MODULES.items() if m.split(".")[0] in PACKAGES}


def test_no_module_is_longer_than_a_head_can_hold() -> None:
    long = {m: n for m, p in OUR_MODULES.items() if (n := lines_of_code(p)) > MOST_CODE}
    assert not long, f"split these: {long}"


# Small, and read in one place: what users name, and what imports a package that may be absent.
SMALL = {
    "stepping_spark.cli.__main__": "what `python -m stepping_spark.cli` runs",
    "stepping_spark.functions": "what users import as F",
    "stepping_spark.language.cache": "public, and of its own kind",
    "stepping_spark.pipeline.postgres.table": "imports psycopg",
}


def test_a_module_has_two_readers_or_stands_by_its_size() -> None:
    readers: dict[str, set[str]] = {m: set() for m in OUR_MODULES}
    for module in OUR_MODULES:
        for found in imports_of(module):
            readers.get(found.imported, set()).add(module)
    small = [
        m
        for m, path in OUR_MODULES.items()
        if path.name != "__init__.py" and m not in SMALL
        if len(readers[m]) < 2 and lines_of_code(path) < LEAST_CODE
    ]
    assert not small, f"put each into the module that reads it: {small}"


# Names that two modules define, and why.
ALSO = {
    "Items": "the items of a list as an expression; and `st.Items`, an iterable as a source",
}


def defined_names(path: Path) -> Iterator[str]:
    """The classes and the aliases of types that a module defines."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name, value = node.targets[0].id, ast.unparse(node.value)
            if name[0].isupper() and not name.isupper() and not value.startswith("TypeVar"):
                yield name
        elif isinstance(node, ast.AnnAssign) and "TypeAlias" in ast.unparse(node.annotation):
            yield ast.unparse(node.target)


def test_a_name_of_a_class_or_an_alias_has_one_meaning() -> None:
    owners: dict[str, list[str]] = {}
    for module, path in OUR_MODULES.items():
        if is_in(module, "stores.contract"):  # tests
            continue
        for name in {n for n in defined_names(path) if n[0] != "_"}:
            owners.setdefault(name, []).append(module)
    twice = {n: found for n, found in owners.items() if len(found) > 1 and n not in ALSO}
    assert not twice, "\n".join(f"{n}: {', '.join(found)}" for n, found in twice.items())


@pytest.mark.parametrize("package", [m for m, p in MODULES.items() if p.name == "__init__.py"])
def test_a_package_says_what_it_is(package: str) -> None:
    docstring = ast.get_docstring(ast.parse(MODULES[package].read_text(encoding="utf-8")))
    assert docstring, f"{package} has no docstring: its chapter"
    if package == "stepping_spark":  # the facade: CONTRIBUTING has its packages
        return
    within = {m.rpartition(".")[2] for m in MODULES if m.rpartition(".")[0] == package}
    unnamed = within - set(re.findall(r"`(\w+)`", docstring)) - {"__main__"}
    assert not unnamed, f"the docstring of {package} does not say what these are: {unnamed}"


# Imported in one module, where something of them is used first: PySpark may not be there, and all
# take long. `Graph.nx` is the only use of networkx, and no module uses pandas.
LATE = ("pyspark", "py4j", "pandas", "networkx")


@pytest.mark.parametrize("module", [m for m in MODULES if not is_in(m, "examples")])
def test_no_module_imports_pyspark_when_it_is_imported(module: str) -> None:
    for_checkers = [
        n
        for node in ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8")))
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for child in node.body
        for n in ast.walk(child)
    ]
    wrong = [
        f"{MODULES[module].relative_to(ROOT)}:{getattr(node, 'lineno', 0)}: imports {name}"
        for node in ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8")))
        for name in imported_names(node, module, MODULES[module])
        if name.partition(".")[0] in LATE
        and ast.dump(node) not in {ast.dump(n) for n in for_checkers}
    ]
    assert not wrong, "take it from stepping_spark.base.packages:\n" + "\n".join(wrong)


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


def test_what_an_operator_is_stands_in_its_class_and_not_in_lists() -> None:
    found = []
    for module, path in MODULES.items():
        if module.split(".")[0] not in ("stepping_spark", "circuits"):
            continue
        if any(is_in(module, meaning) for meaning in MEANINGS):
            continue
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and getattr(call.func, "id", "") == "isinstance":
                named = {n.id for n in ast.walk(call.args[1]) if isinstance(n, ast.Name)}
                if len(named & _OPERATORS) > 1:
                    found.append(f"{path.relative_to(ROOT)}:{call.lineno}")
    assert found == []


# What the nodes of an operator, or the operator itself, mean.
MEANINGS = (
    "stepping_spark.execution.arrow",
    "stepping_spark.execution.spark",
    "stepping_spark.reference",
)
_OPERATORS = {
    name
    for name, found in vars(operators).items()
    if isinstance(found, type) and issubclass(found, operators.Operator)
}
