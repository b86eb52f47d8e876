"""A Postgres server for tests, on a socket in a folder of its own and on no port."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.until import until

_PACKAGED = "/usr/lib/postgresql"
NAME, USER = "shop", "turret"


def program(name: str) -> str | None:
    """The path of a program of the server, which Debian leaves out of the path; None without the server."""
    packaged = sorted(Path(_PACKAGED).glob(f"*/bin/{name}"), key=lambda path: float(path.parts[4]))
    return str(packaged[-1]) if packaged else shutil.which(name)


class PostgresServer:
    """A running server with an empty database, whose one user has a password."""

    def __init__(self, folder: Path, password: str) -> None:
        self.folder, self.password = folder, password
        # The server refuses to run as root.
        self._user = pwd.getpwnam("postgres") if os.geteuid() == 0 else None
        if self._user is not None:
            os.chown(folder, self._user.pw_uid, self._user.pw_gid)
        secret = folder / "password"
        secret.write_text(password)
        secret.chmod(0o644)
        options = ["--auth=scram-sha-256", f"--username={USER}", f"--pwfile={secret}", "--no-sync"]
        self._run("initdb", f"--pgdata={folder / 'data'}", "--encoding=UTF8", "--locale=C", *options).wait()
        settings = ("listen_addresses=", f"unix_socket_directories={folder}", "fsync=off")
        self.process = self._run("postgres", "-D", str(folder / "data"), *(f"-c{line}" for line in settings))
        until(self._answers, "Postgres answers")
        self.ask(f"create database {NAME}", database="postgres")

    def _run(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        path = program(name)
        assert path is not None
        with open(self.folder / "log", "ab") as log:
            rights: dict[str, Any] = {}
            if self._user is not None:
                rights = {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}
            return subprocess.Popen([path, *words], cwd="/", stdout=log, stderr=log, **rights)

    @property
    def address(self) -> str:
        """The address without a password."""
        return f"postgresql:///{NAME}?host={self.folder}"

    def ask(self, statement: str, database: str = NAME) -> str:
        """Run a statement, and return its rows as lines."""
        done = subprocess.run(
            [
                "psql",
                "-h",
                self.folder,
                "-U",
                USER,
                "-d",
                database,
                "-AtXq",
                "-v",
                "ON_ERROR_STOP=1",
                "-c",
                statement,
            ],
            env={"PATH": os.environ["PATH"], "PGPASSWORD": self.password},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(done.stderr)
        return done.stdout.strip()

    def _answers(self) -> bool:
        assert self.process.poll() is None, (self.folder / "log").read_text()
        try:
            return self.ask("select 1", database="postgres") == "1"
        except RuntimeError:
            return False

    def kill(self) -> None:
        """End it at once, with its processes."""
        self.process.send_signal(3)  # SIGQUIT: an immediate shutdown
        self.process.wait()


@contextmanager
def own_postgres(password: str) -> Iterator[PostgresServer]:
    """A server that ends with the block; its folder has a short name, as a socket's path has 107 bytes."""
    folder = Path(tempfile.mkdtemp(prefix="turret-pg-"))
    server = None
    try:
        server = PostgresServer(folder, password)
        yield server
    finally:
        if server is not None:
            server.kill()
        shutil.rmtree(folder, ignore_errors=True)
