"""The wheel installs one complete package, also beside folders named data, tower, training and service."""

import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.support.command_line import environment

ROOT = Path(__file__).parent.parent
FOLDERS = ("data", "tower", "training", "service")
BUILD = "import sys; from setuptools import build_meta; print(getattr(build_meta, sys.argv[1])(sys.argv[2]))"


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel, and a working directory whose folders raise when they are imported."""

    python: Path
    packages: Path
    folder: Path

    def run(self, *command: str) -> str:
        """The output of a command that succeeds in the working directory."""
        env = {**environment(), "PATH": f"{self.python.parent}:{os.environ['PATH']}"}
        del env["PYTHONPATH"]
        done = subprocess.run(
            command, cwd=self.folder, env=env, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout


def built(kind: str, source: Path, target: Path) -> Path:
    """Build a wheel (`build_wheel`) or a source distribution (`build_sdist`) from the sources in a folder."""
    command = [sys.executable, "-c", BUILD, kind, str(target)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return target / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources, as building writes into them."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md", "constraints.txt"):
        shutil.copy(ROOT / name, source)
    for name in ("turret", *FOLDERS):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=ignored)
    return source


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built("build_wheel", source, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The environment holds the wheel alone; the dependencies are those of this process."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder / "env", symlinks=True)
    python = folder / "env" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check", "install"]
    subprocess.run([*pip, "--quiet", "--no-deps", "--no-index", str(wheel)], check=True, timeout=120)
    (packages,) = (folder / "env" / "lib").glob("python*/site-packages")
    dependencies = [path for path in sys.path if Path(path).name == "site-packages"]
    (packages / "dependencies.pth").write_text("\n".join(dependencies) + "\n")
    for name in FOLDERS:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(f"raise RuntimeError('the wrong {name}')\n")
    return Installed(python, packages, folder)


@pytest.mark.process
def test_the_wheel_holds_every_file_of_the_packages(wheel: Path) -> None:
    kept = [path for name in ("turret", *FOLDERS) for path in (ROOT / name).rglob("*") if path.is_file()]
    packaged = {path.relative_to(ROOT) for path in kept if "__pycache__" not in path.parts}
    with ZipFile(wheel) as archive:
        names = {Path(name) for name in archive.namelist() if ".dist-info/" not in name}
    assert names == {path if path.parts[0] == "turret" else Path("turret", path) for path in packaged}


@pytest.mark.process
def test_the_source_distribution_builds_the_same_wheel(source: Path, wheel: Path, tmp_path: Path) -> None:
    """Packages are links to folders beside them, of which the archive has the files."""
    archive = built("build_sdist", source, tmp_path / "dist")
    with tarfile.open(archive) as files:
        files.extractall(tmp_path, filter="data")
    (unpacked,) = (path for path in tmp_path.iterdir() if path.name != "dist")
    again = built("build_wheel", unpacked, tmp_path / "dist")
    with ZipFile(wheel) as first, ZipFile(again) as second:
        assert sorted(first.namelist()) == sorted(second.namelist())
    assert {path.name for path in unpacked.iterdir()} >= {"LICENSE", "CHANGELOG.md", "constraints.txt"}
    assert not (unpacked / "tests").exists()


@pytest.mark.process
def test_the_command_line_runs_beside_folders_of_the_same_names(installed: Installed) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    names = {path.name for path in installed.packages.iterdir()}
    assert {name for name in names if not name.endswith((".dist-info", ".pth"))} == {"turret"}
    assert "Usage: turret" in installed.run(str(installed.python), "-m", "turret", "--help")
    assert installed.run("turret", "--version") == f"turret {version}\n"
    made = installed.run("turret", "data", "synth", "shop", "--users", "50", "--items", "600")
    assert "events of 50 users" in made
    assert "50" in installed.run("turret", "data", "prepare", "shop", "--to", "prepared")
