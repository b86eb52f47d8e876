"""deploy/production/pack.py: the volumes of the service as tar files."""

import hashlib
import io
import os
import sqlite3
import subprocess
import sys
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from tests.deploy.conftest import DEPLOY
from tests.support.rights import BOUND, needs_root


@pytest.fixture
def var(tmp_path: Path) -> Path:
    """The volume `var`, with the empty volume `bundles` in it."""
    folder = tmp_path / "var"
    (folder / "bundles").mkdir(parents=True)
    return folder


def pack(
    folder: Path, action: str, given: bytes = b"", before: tuple[str, ...] = (), **variables: str
) -> "subprocess.CompletedProcess[bytes]":
    """The script that runs in a container, on a folder of the test."""
    text = (DEPLOY / "production" / "pack.py").read_text("utf-8").replace('"/app/var"', repr(str(folder)))
    command = [*before, sys.executable, "-c", text, action]
    environment = {"PATH": os.environ["PATH"], **variables}
    return subprocess.run(command, input=given, env=environment, capture_output=True, check=False)


def test_volumes_are_packed_and_unpacked(var: Path, tmp_path: Path) -> None:
    """With the state of the folder of bundles, and without folders that are being written."""
    for name in ("bundles/first", "bundles/.staging", "bundles/.gate"):
        (var / name).mkdir(parents=True)
    for name in ("keys.json", "bundles/current", "bundles/routes.json", "bundles/.gate/first.json"):
        (var / name).write_text(name)
    (var / "bundles/first/manifest.json").write_text("{}")
    (var / "bundles/first").chmod(0o555)
    (var / "bundles/.staging/part").write_text("half")
    archives = [pack(var, action).stdout for action in ("state", "bundles")]
    other = tmp_path / "other"
    (other / "bundles").mkdir(parents=True)
    assert pack(other, "empty").returncode == 0
    for archive in archives:
        assert pack(other, "unpack", archive).returncode == 0
    found = {str(path.relative_to(other)) for path in other.rglob("*") if path.is_file()}
    packed = {"keys.json", "bundles/current", "bundles/routes.json", "bundles/.gate/first.json"}
    assert found == packed | {"bundles/first/manifest.json"}
    assert pack(other, "empty").returncode == 3
    (var / "bundles/first").chmod(0o755)
    (other / "bundles/first").chmod(0o755)
    assert pack(other, "clear").returncode == 0
    assert pack(other, "empty").returncode == 0


def test_a_damaged_archive_does_not_leave_the_folder(var: Path, tmp_path: Path) -> None:
    (tmp_path / "escaped").write_text("before")
    archive = tmp_path / "bad.tar"
    with tarfile.open(archive, "w") as file:
        file.add(tmp_path / "escaped", "../escaped")
    (tmp_path / "escaped").write_text("after")
    done = pack(var, "unpack", archive.read_bytes())
    assert done.returncode == 1
    assert done.stderr.startswith(b"pack.py unpack: '../escaped' would be extracted to")
    assert (tmp_path / "escaped").read_text() == "after"


def test_the_checksum_of_an_archive_is_that_of_its_content(var: Path) -> None:
    (var / "keys.json").write_text("{}")
    done = pack(var, "state")
    assert done.stderr.decode() == f"sha256 {hashlib.sha256(done.stdout).hexdigest()}\n"


def test_histories_in_sqlite_are_those_of_one_moment(var: Path, tmp_path: Path) -> None:
    """The service has the file open, and its last events are only in the log beside it."""
    with closing(sqlite3.connect(var / "history.sqlite", isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("CREATE TABLE events (name)")
        writer.execute("INSERT INTO events VALUES ('acknowledged')")
        (var / "history.sqlite").chmod(0o600)
        assert (var / "history.sqlite-wal").stat().st_size
        archive = pack(var, "state").stdout
        writer.execute("INSERT INTO events VALUES ('later')")
    other = tmp_path / "other"
    (other / "bundles").mkdir(parents=True)
    assert pack(other, "unpack", archive).returncode == 0
    assert [path.name for path in other.iterdir() if path.is_file()] == ["history.sqlite"]
    assert (other / "history.sqlite").stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(other / "history.sqlite")) as reader:
        assert reader.execute("SELECT name FROM events").fetchall() == [("acknowledged",)]
    assert {path.name for path in var.iterdir()} == {"bundles", "history.sqlite"}


def test_histories_in_a_redis_of_the_plain_profile_are_not_left_out_in_silence(var: Path) -> None:
    done = pack(var, "state", TURRET_STORE="redis://redis:6379/0")
    assert done.returncode == 1
    assert done.stderr == (
        b"pack.py state: the histories are in a Redis, which only the production profile backs up\n"
    )


@needs_root
@pytest.mark.parametrize("action", ["state", "bundles", "unpack", "clear", "empty"])
def test_a_folder_of_bundles_without_rights_is_a_sentence(var: Path, action: str) -> None:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as file:
        file.addfile(tarfile.TarInfo("bundles/current"))
    (var / "bundles").chmod(0)
    done = pack(var, action, archive.getvalue(), BOUND)
    (var / "bundles").chmod(0o755)
    assert done.returncode == 1
    assert done.stderr.startswith(f"pack.py {action}: [Errno 13] Permission denied: ".encode())
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("given", [b"", b"no archive at all", b"\1" * 2000])
def test_a_stream_that_is_no_archive_is_a_sentence(var: Path, given: bytes) -> None:
    done = pack(var, "unpack", given)
    assert done.returncode == 1
    assert done.stderr.startswith(b"pack.py unpack: ")
    assert b"Traceback" not in done.stderr
