"""Tables of a Spark catalog that offers changes; the catalog is compiled by the test."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyspark
import pytest
from pyspark.sql import DataFrameReader, SparkSession

import stepping_spark as st
from stepping_spark.base.errors import InputError, SourceError
from tests.cases import Z
from tests.pipeline.shop import View, names

JAVAC = shutil.which("javac")
CLASS = "stepping.ChangesCatalog"

needs_javac = pytest.mark.skipif(JAVAC is None, reason="there is no Java compiler")


class Lake:
    """A catalog, whose tables are files of changes."""

    def __init__(self, spark: SparkSession, path: Path) -> None:
        self.name = f"lake_{uuid4().hex[:8]}"
        self.path = path
        self.spark = spark
        spark.conf.set(f"spark.sql.catalog.{self.name}", CLASS)
        spark.conf.set(f"spark.sql.catalog.{self.name}.path", str(path))

    def change(self, version: int, *rows: tuple[str, int, str]) -> None:
        """Commit a version: each row, and what became of it."""
        with (self.path / "users.csv").open("a") as file:
            file.writelines(f"{version},{kind},{i},{name}\n" for kind, i, name in rows)

    def table(self, name: str = "users", **given: Any) -> st.CatalogTable:
        return st.CatalogTable(f"{self.name}.{name}", spark=self.spark, **given)


@pytest.fixture(scope="module")
def jar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The catalog, compiled."""
    assert JAVAC is not None
    folder = tmp_path_factory.mktemp("java")
    source = Path(__file__).with_name("ChangesCatalog.java")
    jars = Path(pyspark.__file__).parent / "jars"
    build = [JAVAC, "-nowarn", "-cp", f"{jars}/*", "-d", str(folder), str(source)]
    subprocess.run(build, check=True, capture_output=True)
    made = shutil.make_archive(str(folder / "changes"), "zip", folder, "stepping")
    return Path(made).rename(folder / "changes.jar")


@pytest.fixture
def lake(spark: SparkSession, jar: Path, tmp_path: Path) -> Lake:
    spark.sql(f"ADD JAR '{jar}'")
    return Lake(spark, tmp_path)


def following(lake: Lake, view: View, table: st.CatalogTable, **given: Any) -> st.Pipeline:
    return st.Pipeline(
        names,
        store=f"parquet:{lake.path / 'state'}",
        users=table,
        into={"names": view},
        **given,
    )


@needs_javac
def test_the_rows_of_a_version_then_its_changes_are_read_and_the_next_process_goes_on(
    lake: Lake,
) -> None:
    view = View()
    lake.change(1, ("insert", 1, "ann"), ("insert", 2, "bob"))
    lake.change(2, ("insert", 3, "eve"), ("delete", 2, "bob"))
    lake.change(3, ("update_preimage", 1, "ann"), ("update_postimage", 1, "joe"))
    with following(lake, view, lake.table(version=1)) as pipeline:
        pipeline.dry_run()
        assert pipeline.lag() == {"users": 3}
        assert pipeline.run(max_steps=1) == 1
        assert view.rows == Z({"ann": 1, "bob": 1})
        assert pipeline.run() == 1
        assert view.rows == Z({"joe": 1, "eve": 1})
        assert pipeline.run() == 0
    lake.change(5, ("insert", 4, "kim"))
    lake.change(6, ("delete", 3, "eve"))
    with following(lake, view, lake.table(version=1), max_versions=1) as pipeline:
        assert pipeline.lag() == {"users": 2}
        assert pipeline.run() == 2
        assert pipeline.lag() == {"users": 0}
    assert view.rows == Z({"joe": 1, "kim": 1})
    assert view.steps == [1, 2, 3, 4]


@needs_javac
def test_versions_are_taken_together_up_to_the_rows_of_a_step(lake: Lake) -> None:
    for version in range(5):
        lake.change(version, *(("insert", 10 * version + i, f"n{version}") for i in range(3)))
    view = View()
    with following(lake, view, lake.table(), max_rows=7) as pipeline:
        assert pipeline.run() == 3  # the rows of version 0, then two versions at a time
    assert view.rows == Z({f"n{i}": 1 for i in range(5)})


@needs_javac
def test_what_cannot_be_read_names_the_table(lake: Lake, spark: SparkSession) -> None:
    view = View()
    with pytest.raises(
        SourceError, match=rf"table {lake.name}\.nobody: its columns cannot be read"
    ):
        following(lake, view, lake.table("nobody")).run()
    with pytest.raises(SourceError, match=rf"table {lake.name}\.nobody: its columns cannot be"):
        following(lake, view, lake.table("nobody")).dry_run()
    frame = spark.sql("SELECT id, 'x' AS name FROM range(3)")
    frame.createOrReplaceTempView("plain")
    with pytest.raises(SourceError, match=r"table plain: its changes from version 0 on cannot be"):
        following(lake, view, st.CatalogTable("plain", spark=spark)).dry_run()


def test_a_spark_without_changes_of_tables_is_refused_with_its_version(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if hasattr(DataFrameReader, "changes"):  # since Spark 4.2
        monkeypatch.delattr(DataFrameReader, "changes")
    spark.sql("SELECT id, 'x' AS name FROM range(3)").createOrReplaceTempView("plain")
    table = st.CatalogTable("plain", spark=spark)
    pipeline = st.Pipeline(names, store=f"parquet:{tmp_path}", users=table, into={"names": View()})
    said = rf"table plain: its changes need Spark 4\.2 or newer, found {spark.version}; read it"
    with pytest.raises(SourceError, match=said):
        pipeline.dry_run()


def test_what_is_given_is_checked() -> None:
    wrong: list[tuple[Any, Any, str]] = [
        ("", 0, "the name of a table"),
        (3, 0, "the name of a table"),
        ("lake.users", -1, "version=-1: expected the number of the version"),
        ("lake.users", "7", "version='7': expected the number of the version"),
    ]
    for name, version, said in wrong:
        with pytest.raises(InputError, match=said):
            st.CatalogTable(name, version=version)
    one, other = st.CatalogTable("lake.users"), st.CatalogTable("lake.users", version=3)
    assert (one.identity, repr(one)) == (other.identity, "CatalogTable('lake.users')")
