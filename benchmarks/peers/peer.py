"""Another library, in an environment and a process of its own, asked for steps one line of JSON at a time.

The environments are made when one is first needed, and kept in a folder outside the repository.
"""

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Timer
from typing import Any, Self

HERE = Path(__file__).parent
ENVIRONMENTS = Path.home() / ".cache" / "turret-peers"
# Large pages, which torch makes use of when asked to: with large tensors it is up to a quarter faster.
LARGE_PAGES = {"THP_MEM_ALLOC_ENABLE": "1"}


class PeerError(Exception):
    """A peer can't take part; the message has the reason and the remedy."""


def environment(requirements: str, folder: Path) -> Path:
    """The Python interpreter of an environment with `requirements/NAME.txt`, which is made if need be.

    An environment belongs to the text of its file: after a change another one is made. One that was not
    finished is made again. Raises PeerError if pip can't install what the file lists.
    """
    source = HERE / "requirements" / f"{requirements}.txt"
    place = folder / f"{requirements}-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}"
    python, finished = place / "bin" / "python", place / "finished"
    if not finished.is_file():
        print(f"Installing {requirements} into {place}, once: this takes minutes and 1 to 2 GB.")
        shutil.rmtree(place, ignore_errors=True)
        try:
            subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
            install = [str(python), "-m", "pip", "install", "--quiet", "-r", str(source)]
            subprocess.run(install, capture_output=True, text=True, check=True)
        except subprocess.CalledProcessError as error:
            shutil.rmtree(place, ignore_errors=True)
            raise PeerError(
                f"{place}: {requirements} could not be installed: {(error.stderr or '').strip()[-500:]} Run "
                "this once where PyPI can be reached, or name a folder with finished environments by --peers."
            ) from None
        finished.touch()
    return python


def peers_option() -> argparse.ArgumentParser:
    """The option that says where the environments are: `--peers DIR`, for the parser of a script."""
    parser = argparse.ArgumentParser(add_help=False)
    about = f"the folder of the peers' environments ({ENVIRONMENTS})"
    parser.add_argument("--peers", type=Path, default=ENVIRONMENTS, help=about)
    return parser


class Peer:
    """A script of `scripts/`, run on the file `data` by the Python of its requirements; see `child.py`.

    It is started on entering, prepares itself while the parent goes on, and ends on leaving. While nobody
    asks, it waits and takes no time of the machine's. No answer may take more than `limit` seconds.
    """

    def __init__(
        self,
        name: str,
        script: str,
        python: Path,
        data: Path,
        settings: Mapping[str, Any],
        limit: float = 600.0,
    ) -> None:
        self.name, self.limit, self.prepared = name, limit, False
        path = HERE / "scripts" / f"{script}.py"
        self.command = [
            str(python), "-P", str(HERE / "child.py"), str(path), str(data), json.dumps(dict(settings))
        ]  # fmt: skip

    def __enter__(self) -> Self:
        self.errors = tempfile.TemporaryFile("w+", encoding="utf-8")
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            self.command, stdin=pipe, stdout=pipe, stderr=self.errors, text=True, env=os.environ | LARGE_PAGES
        )
        return self

    def __exit__(self, *_: object) -> None:
        # It ends when its input does; in the midst of something else it is made to.
        with suppress(subprocess.TimeoutExpired, BrokenPipeError):
            self.process.communicate(timeout=3)
        self.process.kill()
        self.process.wait()
        self.errors.close()

    def wait(self) -> None:
        """Wait until it is prepared. Raises PeerError as `ask` does."""
        if not self.prepared:
            self._exchange("")
            self.prepared = True

    def ask(self, steps: int) -> dict[str, Any]:
        """Make `steps` steps: all that the script says of them, `examples` and `seconds` among it.

        Raises PeerError if the process has ended or takes too long.
        """
        self.wait()
        return self._exchange(f"run {steps}\n")

    def run(self, steps: int) -> tuple[int, float]:
        """Make `steps` steps: how many examples they had, and how many seconds they took."""
        answer = self.ask(steps)
        return int(answer["examples"]), float(answer["seconds"])

    def _exchange(self, request: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        timer = Timer(self.limit, self.process.kill)
        timer.start()
        try:
            self.process.stdin.write(request)
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        in_time = timer.is_alive()
        timer.cancel()
        if not line:
            reason = (
                f"its process ended: {self._last_words()}" if in_time else f"no answer in {self.limit:.0f} s"
            )
            raise PeerError(f"{self.name}: {reason}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _last_words(self) -> str:
        """The last line of its standard error, which is the message of a traceback."""
        # It closes its standard output before it says why.
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=10)
        self.errors.seek(0)
        return ([line.strip() for line in self.errors if line.strip()] or ["no message"])[-1]


def join(made: Mapping[str, Callable[[], Peer]], running: ExitStack) -> tuple[dict[str, Peer], list[str]]:
    """Start peers one after the other: those that are ready, by name, and why each of the others is not."""
    peers: dict[str, Peer] = {}
    missing: list[str] = []
    for name, make in made.items():
        try:
            peer = running.enter_context(make())
            peer.wait()
            peers[name] = peer
        except PeerError as error:
            missing.append(str(error))
    print(*missing, sep="\n", end="\n" * bool(missing))
    return peers, missing
