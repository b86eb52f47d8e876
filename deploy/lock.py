"""Write the locks of the images, `deploy/locks/*.txt`: every package with its version and its files' hashes.

`make lock` runs it; it needs uv and a network. The versions are those of constraints.txt. torch has two
locks: the build without CUDA, of https://download.pytorch.org/whl/cpu, and PyPI's build with CUDA's packages.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
LOCKS = ROOT / "deploy" / "locks"
_COMMAND = ["uv", "pip", "compile", "--quiet", "--constraint", "constraints.txt", "--python-version", "3.11"]
_FORMAT = ["--python-platform", "linux", "--generate-hashes", "--no-header", "--no-annotate"]
_CUDA = re.compile(r"(nvidia-|cuda-|triton==|torch==)")
# The hash of its wheel for Python 3.11 on x86-64.
CPU_TORCH = "torch==2.13.0+cpu", "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b"


def main() -> int:
    """Write all locks; returns the exit status."""
    LOCKS.mkdir(exist_ok=True)
    _write("build", _compile("-", text="setuptools>=77\nwheel\n"))
    _write("serve", _compile("pyproject.toml", "--extra", "serve", "--extra", "answers"))
    train = _compile("pyproject.toml", "--extra", "train", "--extra", "history", "--extra", "answers")
    _write("train", [entry for entry in train if not _CUDA.match(entry)])
    _write("torch-cuda", [entry for entry in train if _CUDA.match(entry)])
    wheel, digest = CPU_TORCH
    _write("torch-cpu", [f"{wheel} --hash=sha256:{digest}"])
    return 0


def _compile(*source: str, text: str = "") -> list[str]:
    """Entries of several lines, each a package with its hashes."""
    command = [*_COMMAND, *_FORMAT, *source]
    run = subprocess.run(command, cwd=ROOT, input=text, capture_output=True, text=True, check=False)
    if run.returncode:
        sys.exit(f"make lock: uv found no versions for {source[-1]}: {run.stderr.strip()}")
    return re.split(r"\n(?=\w)", run.stdout.strip())


def _write(name: str, entries: list[str]) -> None:
    path = LOCKS / f"{name}.txt"
    path.write_text("# Written by `make lock`.\n" + "\n".join(entries) + "\n", encoding="utf-8")
    print(f"{path.relative_to(ROOT)}: {len(entries)} packages")


if __name__ == "__main__":
    sys.exit(main())
