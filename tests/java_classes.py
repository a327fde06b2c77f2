"""An archive of Spark's classes, from which each Java of the tests starts in half the time.

Many tests start a Java of their own. To read, check and link the classes that its first query needs
takes it 3 seconds of the processor. Classes of an archive are only mapped into memory. A run of all
tests makes the archive if there is none, beside the tests (`tests/beside.py`). Java ignores an
archive that is missing, or that another Java or other jars have made.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from stepping_spark.spark.session import get_session
from tests.cases import ROOT

ARCHIVES = ROOT / ".pytest_cache" / "classes"
# Tests run many short queries, once each: the second compiler of the JVM, and collectors of garbage
# that work beside it, take more of two cores than they give back. With room for young objects and
# for code, garbage is collected less often, and no code is thrown away.
SHORT_QUERIES = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xmn384m -XX:ReservedCodeCacheSize=240m"


def options() -> str:
    """The options of the Java of a Spark session, with the archive if there can be one."""
    archive = archive_of_this_java()
    return SHORT_QUERIES + (f' "-XX:SharedArchiveFile={archive}"' if archive is not None else "")


def archive_of_this_java() -> Path | None:
    """Where the archive of this Java and this Spark is, or will be; None if one of them lacks."""
    java, spark = shutil.which("java"), find_spec("pyspark")
    if "JAVA_HOME" in os.environ:
        java = shutil.which("java", path=Path(os.environ["JAVA_HOME"]) / "bin")
    if java is None or spark is None or spark.origin is None:
        return None
    files = (Path(java).resolve(), Path(spark.origin).resolve())
    said = "".join(f"{path} {path.stat().st_mtime_ns}\n" for path in files)
    return ARCHIVES / f"{hashlib.sha256(said.encode()).hexdigest()[:16]}.jsa"


def make() -> None:
    """Make the archive, unless there is one; those of another Java or Spark are removed."""
    archive = archive_of_this_java()
    if archive is None or archive.exists():
        return
    shutil.rmtree(ARCHIVES, ignore_errors=True)
    ARCHIVES.mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir=ARCHIVES) as directory:
        made = Path(directory) / archive.name
        said = f'{SHORT_QUERIES} "-XX:ArchiveClassesAtExit={made}"'
        subprocess.run(
            [sys.executable, "-m", "tests.java_classes"],
            cwd=ROOT,
            env={**os.environ, "SPARK_SUBMIT_OPTS": said},
            stdout=subprocess.DEVNULL,  # Java names each class that no archive can have
            stderr=subprocess.DEVNULL,
            check=False,
        )
        if made.exists():
            made.rename(archive)


def main() -> None:
    """Let Java load what most programs need, and end: at its end it writes the archive."""
    session = get_session()
    java = session.sparkContext._gateway.proc  # type: ignore[union-attr]
    frame = session.createDataFrame([(1, "a"), (2, "b"), (2, None)], "a BIGINT, b STRING")
    frame.createOrReplaceTempView("t")
    with tempfile.TemporaryDirectory() as directory:
        frame.write.parquet(f"{directory}/t")
        session.read.parquet(f"{directory}/t").toArrow()
    sums = "SELECT b, sum(a) AS s, collect_list(a) AS c FROM t GROUP BY b"
    place = "row_number() OVER (PARTITION BY b ORDER BY a)"
    session.sql(f"SELECT u.*, s, {place} FROM t u LEFT JOIN ({sums}) USING (b)").collect()
    frame.mapInArrow(lambda batches: batches, frame.schema).toArrow()
    session.stop()
    java.stdin.close()
    java.wait(timeout=300)


if __name__ == "__main__":
    main()
