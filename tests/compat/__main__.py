"""A program: the marked selection of tests with each PySpark that is supported.

    python -m tests.compat [--keep] [4.0 | 4.1 | 4.2 | 4.3 | client ...]

Each version has an environment of its own in `.compat/`, of 0.8 GB; `client` is `pyspark-client`
alone, beside a Connect server of the same version in the environment of that. With `--keep` the
environments stay, and the next run uses them as they are. Prints the table of the guide.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import venv
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.cases import ROOT

FOLDER = ROOT / ".compat"
VERSIONS = ("4.0", "4.1", "4.2", "4.3")
CLIENT, OF_CLIENT = "client", "4.2"  # the newest version of pyspark-client
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"


@dataclass(frozen=True)
class Environment:
    """A virtual environment with one PySpark."""

    name: str

    @property
    def requirement(self) -> str:
        if self.name == CLIENT:
            return f"pyspark-client=={OF_CLIENT}.*"
        return f"pyspark[connect]=={self.name}.*"

    @property
    def python(self) -> Path:
        return FOLDER / self.name / "bin" / "python"

    def make(self) -> None:
        """Make the environment, unless there is one."""
        done = FOLDER / self.name / "complete"
        if done.exists():
            return
        print(f"{self.name}: making the environment", file=sys.stderr, flush=True)
        venv.create(FOLDER / self.name, clear=True, with_pip=True)
        # One call: the project's own requirement of PySpark is met by this version.
        install = ("-m", "pip", "install", "--quiet", "-e", f"{ROOT}[compat]", self.requirement)
        subprocess.run([self.python, *install], check=True, stdout=sys.stderr)
        done.touch()

    def says(self, code: str) -> str:
        run = subprocess.run(
            [self.python, "-c", code], check=True, capture_output=True, text=True, cwd="/"
        )
        return run.stdout.strip()


@contextlib.contextmanager
def server(environment: Environment) -> Iterator[str]:
    """A Connect server of an environment, until the block ends; gives its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home = environment.says("import pyspark; print(*pyspark.__path__)")
    settings = {
        "spark.connect.grpc.binding.port": port,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": 2,
    }
    confs = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    submit = [f"{home}/bin/spark-submit", "--master", "local[2]", "--class", SERVER]
    with tempfile.TemporaryDirectory() as folder, open(f"{folder}/log", "w") as log:
        process = subprocess.Popen(
            [*submit, *confs, "spark-internal"],
            cwd=folder,
            env={
                **os.environ,
                "SPARK_HOME": home,
                "SPARK_LOCAL_IP": "127.0.0.1",
                "PYTHONPATH": str(ROOT),
                "PYSPARK_PYTHON": str(environment.python),
            },
            stdout=log,
            stderr=log,
        )
        try:
            wait_for(port, process, Path(folder, "log"))
            yield f"sc://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(60)


def wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until something listens at a port of this machine."""
    for _ in range(120):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        if process.poll() is not None:
            break
        time.sleep(1)
    sys.exit(f"the Connect server did not start:\n{log.read_text()}")


def selection(environment: Environment, **more: str) -> str:
    """Run the selection; gives a row of the table."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        # Other files need packages that this environment lacks.
        files = [p for p in (ROOT / "tests").rglob("test_*.py") if "mark.compat" in p.read_text()]
        options = ["-m", "compat", "-n", "0", "-q", "-p", "no:cacheprovider"]
        subprocess.run(
            [environment.python, "-m", "pytest", *options, f"--junitxml={report}", *sorted(files)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **more},
            stdout=sys.stderr,
            check=False,
        )
        found = ET.parse(report).getroot()[0].attrib
    tests, skipped = int(found["tests"]), int(found["skipped"])
    failed = int(found["failures"]) + int(found["errors"])
    version = environment.says("import pyspark; print(pyspark.__version__)")
    what = "`pyspark-client`, Spark Connect" if environment.name == CLIENT else "`pyspark`"
    row = (what, version, tests - failed - skipped, failed, round(float(found["time"])))
    return f"| {' | '.join(map(str, row))} |"


def run(environment: Environment) -> str:
    environment.make()
    if environment.name != CLIENT:
        return selection(environment)
    beside = Environment(OF_CLIENT)
    beside.make()
    with server(beside) as address:
        return selection(environment, SPARK_REMOTE=address)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.compat")
    parser.add_argument("--keep", action="store_true", help="keep the environments in .compat")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(VERSIONS)}, {CLIENT}")
    given = parser.parse_args()
    unknown = set(given.names) - {*VERSIONS, CLIENT}
    if unknown:
        parser.error(f"there is {', '.join(VERSIONS)} and {CLIENT}, found {', '.join(unknown)}")
    rows = [run(Environment(name)) for name in given.names or (*VERSIONS, CLIENT)]
    print("| package | version | passed | failed | seconds |\n|---|---|---|---|---|")
    print("\n".join(rows))
    if not given.keep:
        shutil.rmtree(FOLDER)
    sys.exit(any(row.split(" | ")[3] != "0" for row in rows))


if __name__ == "__main__":
    main()
