"""deploy/production/pack.py: the volumes of the service as tar files."""

import hashlib
import io
import sqlite3
import sys
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from deploy.production import pack as script

# The exit status of the script, the archive that it has written, and its errors.
Pack = Callable[..., tuple[int, bytes, str]]


@pytest.fixture
def var(tmp_path: Path) -> Path:
    """The volume `var`, with the empty volume `bundles` in it."""
    return volume(tmp_path / "var")


def volume(folder: Path) -> Path:
    (folder / "bundles").mkdir(parents=True)
    return folder


@pytest.fixture
def pack(monkeypatch: pytest.MonkeyPatch) -> Pack:
    """Run an action on a folder, with the content of standard input."""
    monkeypatch.delenv("TURRET_STORE", raising=False)

    def run(folder: Path, action: str, given: bytes = b"") -> tuple[int, bytes, str]:
        output, complaints = io.BytesIO(), io.StringIO()
        monkeypatch.setattr(script, "VAR", folder)
        monkeypatch.setattr(script, "BUNDLES", folder / "bundles")
        with monkeypatch.context() as streams:
            streams.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
            streams.setattr(sys, "stdout", io.TextIOWrapper(output, write_through=True))
            streams.setattr(sys, "stderr", complaints)
            status = script.main(action)
            return status, output.getvalue(), complaints.getvalue()

    return run


def test_volumes_are_packed_and_unpacked(var: Path, tmp_path: Path, pack: Pack) -> None:
    """With the state of the folder of bundles, and without folders that are being written."""
    for name in ("bundles/first", "bundles/.staging", "bundles/.gate", ".turret-0123"):
        (var / name).mkdir(parents=True)
    for name in ("keys.json", "bundles/current", "bundles/record.json", "bundles/.gate/first.json"):
        (var / name).write_text(name)
    (var / "bundles/first/manifest.json").write_text("{}")
    (var / "bundles/first").chmod(0o555)
    (var / "bundles/.staging/part").write_text("half")
    (var / ".turret-0123/counter_0.db").write_text("of this run")
    archives = []
    for action in ("state", "bundles"):
        status, archive, said = pack(var, action)
        assert (status, said) == (0, f"sha256 {hashlib.sha256(archive).hexdigest()}\n")
        archives.append(archive)
    other = volume(tmp_path / "other")
    (other / ".turret-4567").mkdir()  # of a killed service
    assert pack(other, "empty")[0] == 0
    for archive in archives:
        assert pack(other, "unpack", archive)[0] == 0
    found = {str(path.relative_to(other)) for path in other.rglob("*") if path.is_file()}
    packed = {"keys.json", "bundles/current", "bundles/record.json", "bundles/.gate/first.json"}
    assert found == packed | {"bundles/first/manifest.json"}
    assert pack(other, "empty")[0] == 3
    (var / "bundles/first").chmod(0o755)
    (other / "bundles/first").chmod(0o755)
    assert pack(other, "clear")[0] == 0
    assert pack(other, "empty")[0] == 0


def test_a_damaged_archive_does_not_leave_the_folder(var: Path, tmp_path: Path, pack: Pack) -> None:
    (tmp_path / "escaped").write_text("before")
    archive = tmp_path / "bad.tar"
    with tarfile.open(archive, "w") as file:
        file.add(tmp_path / "escaped", "../escaped")
    (tmp_path / "escaped").write_text("after")
    status, _, said = pack(var, "unpack", archive.read_bytes())
    assert status == 1
    assert said.startswith("pack.py unpack: '../escaped' would be extracted to")
    assert (tmp_path / "escaped").read_text() == "after"


def test_histories_in_sqlite_are_those_of_one_moment(var: Path, tmp_path: Path, pack: Pack) -> None:
    """The service has the file open, and its last events are only in the log beside it."""
    with closing(sqlite3.connect(var / "history.sqlite", isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode = WAL")
        writer.execute("CREATE TABLE events (name)")
        writer.execute("INSERT INTO events VALUES ('acknowledged')")
        (var / "history.sqlite").chmod(0o600)
        assert (var / "history.sqlite-wal").stat().st_size
        _, archive, _ = pack(var, "state")
        writer.execute("INSERT INTO events VALUES ('later')")
    other = volume(tmp_path / "other")
    assert pack(other, "unpack", archive)[0] == 0
    assert [path.name for path in other.iterdir() if path.is_file()] == ["history.sqlite"]
    assert (other / "history.sqlite").stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(other / "history.sqlite")) as reader:
        assert reader.execute("SELECT name FROM events").fetchall() == [("acknowledged",)]
    assert {path.name for path in var.iterdir()} == {"bundles", "history.sqlite"}


def test_histories_in_a_redis_of_the_plain_profile_are_not_left_out_in_silence(
    var: Path, pack: Pack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURRET_STORE", "redis://redis:6379/0")
    sentence = "pack.py state: the histories are in a Redis, which only the production profile backs up\n"
    assert pack(var, "state") == (1, b"", sentence)


@pytest.mark.parametrize("given", [b"", b"no archive at all", b"\1" * 2000])
def test_a_stream_that_is_no_archive_is_a_sentence(var: Path, pack: Pack, given: bytes) -> None:
    status, _, said = pack(var, "unpack", given)
    assert (status, said[:16]) == (1, "pack.py unpack: ")
