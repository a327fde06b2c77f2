"""What is published: that it builds, what is in it, and that it installs from wheels."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.cases import ROOT

NOT_OF_USERS = {"bench", "compat", "dev", "docs", "test"}
"""The extras for work on the project."""
PACKAGES = {"stepping_spark", "circuits", "stores"}
PAGE = "stepping_spark-0.1.0.data/data/share/doc/stepping-spark/security.md"

pytestmark = pytest.mark.slow


def run(*command: str | Path, cwd: Path) -> str:
    """What a program prints, warnings too; it has to succeed."""
    done = subprocess.run(
        [str(c) for c in command], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source distribution and the wheel, built from a copy of what the project is made of."""
    folder = tmp_path_factory.mktemp("packaging")
    source, target = folder / "source", folder / "dist"
    # The build writes beside its sources, which other tests look at meanwhile.
    copied = [
        "stepping_spark",
        "circuits",
        "stores",
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "docs",
    ]
    source.mkdir()
    run("cp", "-r", *(ROOT / name for name in copied), source, cwd=ROOT)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", target, cwd=source)
    (sdist,), (wheel,) = target.glob("*.tar.gz"), target.glob("*.whl")
    return sdist, wheel


def test_what_is_built_passes_the_checks_of_the_package_index(built: tuple[Path, Path]) -> None:
    said = run(sys.executable, "-m", "twine", "check", "--strict", *built, cwd=ROOT)
    assert said.count("PASSED") == 2


def test_the_wheel_holds_the_three_packages_typed_and_nothing_else(
    built: tuple[Path, Path],
) -> None:
    wheel = zipfile.ZipFile(built[1])
    names = {n for n in wheel.namelist() if ".dist-info/" not in n} - {PAGE}
    assert wheel.read(PAGE) == (ROOT / "docs" / "guide" / "security.md").read_bytes()
    assert {n.split("/")[0] for n in names} == PACKAGES
    sources = [path for p in PACKAGES for path in (ROOT / p).rglob("*.py*")]
    modules = {str(p.relative_to(ROOT)) for p in sources if p.suffix in (".py", ".pyi")}
    page = {f"stepping_spark/report/page/report.{kind}" for kind in ("html", "css", "js")}
    assert names == modules | page | {f"{package}/py.typed" for package in PACKAGES}


def test_the_source_distribution_has_what_the_wheel_has(built: tuple[Path, Path]) -> None:
    with tarfile.open(built[0]) as sdist:
        names = {n.partition("/")[2] for n in sdist.getnames()}
    with zipfile.ZipFile(built[1]) as wheel:
        assert {n for n in wheel.namelist() if ".dist-info/" not in n} <= {*names, PAGE}
    assert "docs/guide/security.md" in names
    assert {"LICENSE", "README.md", "pyproject.toml"} <= names


def asked_for() -> list[Requirement]:
    """What users install with the project, and with its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    of_users = extras.keys() - NOT_OF_USERS
    texts = [*project["dependencies"], *(d for extra in of_users for d in extras[extra])]
    return [d for d in map(Requirement, texts) if d.name != "stepping-spark"]


def test_each_dependency_of_users_is_listed_with_its_licence() -> None:
    listed = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    rows = re.findall(r"^\| `([^`]+)` \|.*\| \S.* \|$", listed, re.M)
    assert sorted(rows) == sorted({d.name for d in asked_for()})


def test_packages_whose_version_begins_with_zero_have_an_upper_bound() -> None:
    assert not [d for d in asked_for() if d.specifier.contains("0.999")]


USE = """
import stepping_spark as st
class A(st.Data):
    x: int
def query(a: st.ZSet[A]) -> st.ZSet[A]:
    return st.distinct(a)
with st.StoreMemory.from_graph(st.compile(query)) as store:
    (given,) = st.Stepper(st.compile(query), store).step((st.ZSetPython({A(x=1): 2}),))
print(given.to_python() == st.ZSetPython({A(x=1): 1}))
print(st.StorePostgres.__module__)
"""


@pytest.mark.long
def test_the_wheel_installs_into_a_bare_environment_from_wheels_save_for_pyspark(
    built: tuple[Path, Path], tmp_path: Path
) -> None:
    run(sys.executable, "-m", "venv", tmp_path / "bare", cwd=tmp_path)
    python = tmp_path / "bare" / "bin" / "python"
    wanted = f"stepping-spark[draw,jvm,postgres,spark] @ {built[1].as_uri()}"
    # Of PySpark no wheel is published; it has no code to compile, and needs setuptools only.
    wheels = ("--only-binary", ":all:", "--no-binary", "pyspark")
    run(python, "-m", "pip", "install", "-q", *wheels, wanted, cwd=tmp_path)
    program = tmp_path / "program.py"
    program.write_text(USE)
    assert run(python, program, cwd=tmp_path).splitlines()[-2:] == ["True", "stores.postgres.store"]
    draw = "from program import query, st; st.write_png(st.compile(query), 'a.png')"
    run(python, "-c", draw, cwd=tmp_path)
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
