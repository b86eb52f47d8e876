"""`make release`: the files that could be published, checked, into var/release; nothing is uploaded.

Everything is made from the committed files alone. `dist` has the source distribution and the wheel, which is
built from it; a fresh environment with the wheel runs `turret demo`; the bill of materials of it lies beside;
with buildx the images of both architectures are built, too.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
RELEASE = ROOT / "var" / "release"
PLATFORMS = "linux/amd64,linux/arm64"
_DEMO_PORT = 8930
_HEADING = re.compile(r"^## \[(.+?)\](?: - (\S+))?$", re.MULTILINE)


class ReleaseError(Exception):
    """What has to be mended before this version can be published."""


def main() -> int:
    """Make and check the files; return the exit status."""
    try:
        release(RELEASE)
    except ReleaseError as error:
        print(f"make release: {error}", file=sys.stderr)
        return 1
    return 0


def release(folder: Path) -> None:
    """Make all files in `folder`, which is replaced; raise ReleaseError at the first fault."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    check_changelog((ROOT / "CHANGELOG.md").read_text("utf-8"), version)
    shutil.rmtree(folder, ignore_errors=True)
    dist = folder / "dist"
    with tempfile.TemporaryDirectory(prefix="turret-release-") as scratch:
        source = committed_files(Path(scratch) / "source")
        _run([sys.executable, "-m", "build", "--outdir", str(dist), str(source)])
        files = sorted(dist.iterdir())
        _run([sys.executable, "-m", "twine", "check", "--strict", *map(str, files)])
        (wheel,) = dist.glob("*.whl")
        _run([sys.executable, "-m", "check_wheel_contents", str(wheel)])
        python = install(wheel, Path(scratch) / "environment")
        run_demo(python, Path(scratch) / "demo")
        write_bill(python, wheel, folder / f"sbom-turret-{version}.json")
        said = build_images(source, version)
    print("\n".join([f"{path.relative_to(ROOT)}: {digest(path)}" for path in files]))
    print(said)
    print(f"To publish: twine upload {dist.relative_to(ROOT)}/*")


def check_changelog(text: str, version: str) -> None:
    """Raise ReleaseError unless `version` is the newest section, has a date, and nothing is unreleased."""
    found = list(_HEADING.finditer(text))
    ends = [*(heading.start() for heading in found[1:]), len(text)]
    bodies = {heading[1]: text[heading.end() : end].strip() for heading, end in zip(found, ends, strict=True)}
    if bodies.pop("Unreleased", ""):
        raise ReleaseError(
            f"CHANGELOG.md has entries under [Unreleased]; move them to a section [{version}] with a date"
        )
    dates = {heading[1]: heading[2] for heading in found}
    if version not in dates or next(iter(bodies)) != version:
        raise ReleaseError(
            f"the newest section of CHANGELOG.md has to be [{version}], as pyproject.toml says"
        )
    if not re.fullmatch(r"\d{4}-\d{2}-\d{2}", dates[version] or ""):
        raise ReleaseError(f"[{version}] of CHANGELOG.md needs its date: ## [{version}] - 2026-11-30")


def committed_files(folder: Path) -> Path:
    """The files of the last commit, in `folder`; raise ReleaseError for changes that are not committed."""
    changed = _output(["git", "status", "--porcelain"]).strip()
    if changed:
        raise ReleaseError(f"commit or remove these changes first:\n{changed}")
    folder.mkdir(parents=True)
    archive = folder.with_suffix(".tar")
    _run(["git", "archive", "--output", str(archive), "HEAD"])
    _run(["tar", "-x", "-f", str(archive), "-C", str(folder)])
    return folder


def install(wheel: Path, folder: Path) -> Path:
    """Install the wheel with what it needs to train and serve; return the Python of the environment."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    wanted = [f"turret[train,serve] @ {wheel.resolve().as_uri()}"]
    _run([str(python), "-m", "pip", "install", "--quiet", *constraints, *wanted])
    return python


def run_demo(python: Path, folder: Path) -> None:
    """Run `turret demo` in an empty folder, where nothing of the clone can be imported."""
    folder.mkdir(parents=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TURRET_"))}
    _run([str(python), "-m", "turret", "demo", "--once", "--port", str(_DEMO_PORT)], folder, kept)


def write_bill(python: Path, wheel: Path, target: Path) -> None:
    """Write the bill of materials of the environment that the wheel was installed into."""
    words = [str(python), str(ROOT / "deploy" / "sbom.py"), wheel.name, f"sha256:{digest(wheel)}", "library"]
    target.write_text(_output(words), "utf-8")


def digest(path: Path) -> str:
    """The SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def build_images(source: Path, version: str) -> str:
    """Build both images for both architectures, into the cache of buildx; return a sentence about it."""
    if (
        not shutil.which("docker")
        or subprocess.run(["docker", "buildx", "version"], capture_output=True).returncode
    ):
        return (
            "No images were built: this needs docker with buildx, and emulation of the other architecture "
            f"({PLATFORMS})."
        )
    for target in ("serve", "train"):
        tag = version if target == "serve" else f"{version}-train"
        words = ["docker", "buildx", "build", "--platform", PLATFORMS, "--target", target]
        _run([*words, "--tag", f"turret:{tag}", "--build-arg", f"VERSION={version}", str(source)])
    return f"The images turret:{version} and turret:{version}-train are built for {PLATFORMS}."


def _run(words: list[str], folder: Path = ROOT, environment: dict[str, str] | None = None) -> None:
    """Run a command in `folder`; raise ReleaseError if it fails."""
    print(f"\n$ {' '.join(words)}", flush=True)
    status = subprocess.run(words, cwd=folder, env=environment, check=False).returncode
    if status:
        raise ReleaseError(f"{' '.join(words[:4])} ... ended with status {status}")


def _output(words: list[str]) -> str:
    """The output of a command; raise ReleaseError if it fails."""
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ReleaseError(
            f"{' '.join(words[:4])} ... ended with status {done.returncode}: {done.stderr.strip()}"
        )
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
