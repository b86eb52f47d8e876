"""One measured turn of `benchmarks.preparation`, in a process of its own: WAY SOURCE TARGET."""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl

from benchmarks.harness import peak_memory_mb
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig


def prepare_parts(source: Path, target: Path) -> None:
    """Prepare the events as `turret data prepare` does."""
    prepare(PrepareConfig(source=source), target)


def _sorted(source: Path) -> pl.LazyFrame:
    return pl.scan_parquet(source / "part-*.parquet").sort("user_id", "timestamp")


# The ways that polars documents to sort files of more or of less than fits memory.
BARE: dict[str, Callable[[Path, Path], None]] = {
    "sink_parquet": lambda source, target: _sorted(source).sink_parquet(target),
    "collect, in memory": lambda source, target: (
        _sorted(source).collect(engine="in-memory").write_parquet(target)
    ),
    "collect, streaming": lambda source, target: (
        _sorted(source).collect(engine="streaming").write_parquet(target)
    ),
}
WAYS: dict[str, Callable[[Path, Path], None]] = {"prepare": prepare_parts, **BARE}


def main() -> None:
    """Take the turn, and print its seconds and the peak of this process."""
    way, source, target = sys.argv[1:]
    start = time.perf_counter()
    WAYS[way](Path(source), Path(target))
    print(json.dumps({"seconds": time.perf_counter() - start, "peak_gb": peak_memory_mb() / 1e3}))


if __name__ == "__main__":
    main()
