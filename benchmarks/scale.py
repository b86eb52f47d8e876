"""What each part of Turret holds and takes by size: the figures of `turret plan`.

Each part is measured at two sizes or more, so that what it always takes and what grows are both known:
`python -m benchmarks.scale PART` writes `results/scale_PART.json`. Costs are processor seconds, which other
programs on the machine change less than seconds of the clock. `--work` is the folder of the data that they
make.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.harness import finish, read_options, show
from benchmarks.scale_histories import measure_histories
from benchmarks.scale_preparation import measure_preparation
from benchmarks.scale_requests import measure_stores
from benchmarks.scale_service import measure_catalogs
from benchmarks.scale_training import measure_training, measure_validation

WORK = Path("var/benchmarks/scale")
PARTS: dict[str, Callable[[Path, bool], Any]] = {
    "preparation": measure_preparation,
    "training": measure_training,
    "validation": measure_validation,
    "service": measure_catalogs,
    "requests": measure_stores,
    "histories": lambda folder, quick: measure_histories(quick),
}


def main() -> None:
    """Measure one part."""
    more = argparse.ArgumentParser(add_help=False)
    more.add_argument("part", choices=list(PARTS), help="what is measured")
    more.add_argument("--work", type=Path, default=WORK, help=f"the folder of its data ({WORK})")
    options = read_options(__doc__, needs_data=False, more=more)
    part, work = options.given.part, options.given.work / ("quick" if options.quick else "")
    work.mkdir(parents=True, exist_ok=True)
    figures = {"points": PARTS[part](work, options.quick)}
    show(figures)
    finish(f"scale_{part}", options, figures)


if __name__ == "__main__":
    main()
