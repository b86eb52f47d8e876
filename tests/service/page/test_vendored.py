"""The third-party files of the page are those that the script downloaded."""

import hashlib
import subprocess
from pathlib import Path

import pytest

from turret.service.page import vendored
from turret.service.page.vendored import FOLDER, PACKAGES, integrity


def test_every_file_is_stored_unchanged_and_listed_with_its_hash() -> None:
    readme = (FOLDER / "README.md").read_text(encoding="utf-8")
    rows = {line.split("`")[1]: line for line in readme.splitlines() if line.startswith("| `")}
    names = {name for package in PACKAGES for name in package.files.values()}
    assert names == rows.keys() == {path.name for path in FOLDER.iterdir()} - {"README.md"}
    for package in PACKAGES:
        for name in package.files.values():
            assert f"{package.name} {package.version}" in rows[name]
            assert package.licence in rows[name]
            assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() in rows[name]


def test_every_package_comes_with_its_licence() -> None:
    for package in PACKAGES:
        assert any("LICENSE" in name for name in package.files.values()), package.name


def test_the_integrity_is_written_as_npm_does() -> None:
    assert integrity(b"").startswith(
        "sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwv"
    )


def test_a_package_with_another_integrity_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def pack(command: list[str], **_: object) -> None:
        Path(command[command.index("--pack-destination") + 1], "other.tgz").write_bytes(b"another package")

    monkeypatch.setattr(subprocess, "run", pack)
    monkeypatch.setattr(vendored, "FOLDER", tmp_path)
    with pytest.raises(SystemExit, match=r"uplot@1.6.32 has the integrity sha512-.*nothing was stored"):
        vendored.main()
    assert list(tmp_path.iterdir()) == []
