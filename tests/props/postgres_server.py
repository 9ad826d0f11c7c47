"""A PostgreSQL server of one's own for tests and measurements: on loopback, with its own data folder, gone when the
block ends.
"""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from context_bench.core.errors import MissingProgram

_QUICK = ("fsync=off", "full_page_writes=off")
_ALWAYS = (
    "shared_buffers=32MB",
    "max_connections=60",
    "listen_addresses=127.0.0.1",
    "log_min_messages=fatal",
    "autovacuum=off",
)


class PostgresServer:
    """`with PostgresServer() as server: server.url("name")` is the address of a new, empty database.

    Nobody without its password gets in. `safe`: commits really wait for the disk. Raises `MissingProgram` without
    initdb.
    """

    def __init__(self, *, safe: bool = False, settings: Sequence[str] = ()) -> None:
        self.user, self.password = "bench", secrets.token_hex(12)
        self._settings = (*_ALWAYS, *(() if safe else _QUICK), *settings)
        self._folder = Path()
        self.port = 0

    def __enter__(self) -> PostgresServer:
        """Make the data folder and start."""
        self._folder = Path(tempfile.mkdtemp(prefix="context-bench-pg-"))
        try:
            if os.geteuid() == 0:  # the server refuses to run as root
                shutil.chown(self._folder, *_unprivileged())
            secret = self._folder / "secret"
            secret.write_text(self.password)
            secret.chmod(0o644 if os.geteuid() == 0 else 0o600)
            known = ("--username", self.user, "--pwfile", str(secret), "--auth", "scram-sha-256")
            self._run(
                "initdb", "--pgdata", str(self._data), *known, "--encoding", "UTF8", "--locale", "C.UTF-8", "--no-sync"
            )
            secret.unlink()
            self.port = _free_port()
            self.start()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop and remove everything."""
        try:
            self.stop(crash=True)
        finally:
            self._remove()

    def start(self) -> None:
        """Let the server run (again), on the same port; returns when it answers."""
        told = " ".join(
            f"-c {each}" for each in (*self._settings, f"port={self.port}", f"unix_socket_directories={self._folder}")
        )
        self._run(
            "pg_ctl",
            "start",
            "--wait",
            "--pgdata",
            str(self._data),
            "--log",
            str(self._folder / "log"),
            "--options",
            told,
        )

    def stop(self, *, crash: bool = False) -> None:
        """End it: orderly (open connections are broken off), or as when the machine loses power."""
        self._run(
            "pg_ctl",
            "stop",
            "--wait",
            "--pgdata",
            str(self._data),
            "--mode",
            "immediate" if crash else "fast",
            check=False,
        )

    def url(self, database: str, *, password: bool = True) -> str:
        """The address of a database, which is made if it is not there yet."""
        import psycopg
        from psycopg import sql

        with psycopg.connect(self._dsn("postgres"), autocommit=True) as connection:
            if not connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (database,)).fetchone():
                connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(database)))
        return self._dsn(database, password=password)

    def _dsn(self, database: str, *, password: bool = True) -> str:
        return f"postgresql://{self.user}{f':{self.password}' if password else ''}@127.0.0.1:{self.port}/{database}"

    @property
    def _data(self) -> Path:
        return self._folder / "data"

    def _run(self, program: str, *arguments: str, check: bool = True) -> None:
        as_user = (
            ["setpriv", "--reuid", _unprivileged()[0], "--regid", _unprivileged()[1], "--clear-groups"]
            if os.geteuid() == 0
            else []
        )
        environment = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C.UTF-8", "TZ": "UTC"}
        # The server inherits what it is given: with a pipe it would have to end before anybody saw the pipe's end.
        with tempfile.TemporaryFile() as said:
            command = [*as_user, program_of(program), *arguments]
            done = subprocess.run(
                command, stdout=said, stderr=said, stdin=subprocess.DEVNULL, env=environment, cwd=self._folder
            )
            if check and done.returncode:
                said.seek(0)
                log = self._folder / "log"
                more = log.read_text(errors="replace")[-2000:] if log.exists() else ""
                raise RuntimeError(f"{program} failed: {said.read().decode(errors='replace')}\n{more}")

    def _remove(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)


def program_of(name: str) -> str:
    """Where a program of the PostgreSQL server is; Debian keeps them off the path. Raises `MissingProgram`."""
    installed = sorted(
        Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: int(path.parts[4].partition(".")[0])
    )
    found = str(installed[-1]) if installed else shutil.which(name)
    if found is None:
        raise MissingProgram(f"a PostgreSQL server needs {name}: apt-get install postgresql")
    return found


def _unprivileged() -> tuple[str, str]:
    return ("nobody", "nogroup")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
