"""The parts of all benchmarks: options, the machine, turns, and how a result is printed and kept.

A benchmark is a script with a function that takes `Options` and returns figures as JSON has them.
`run` makes a command of it, `python -m benchmarks.NAME`.
"""

import argparse
import json
import os
import platform
import re
import resource
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

DATA = Path("../shared/data")
RESULTS = Path(__file__).parent / "results"
QUALITY = RESULTS / "quality"
PACKAGES = ("turret", "torch", "numpy", "numba", "polars", "faiss-cpu", "onnxruntime")


@dataclass(frozen=True)
class Options:
    """`data` is the folder of the data sets; `quick` asks for a run of under a minute.

    `given` has all options, including those of a single script. With `is_trial` no result is kept.
    """

    data: Path
    quick: bool
    as_json: bool
    given: argparse.Namespace = field(default_factory=argparse.Namespace)
    is_trial: bool = False


def read_options(
    description: str | None, needs_data: bool = True, more: argparse.ArgumentParser | None = None
) -> Options:
    """Read `--data DIR`, `--quick`, `--trial`, `--json` and the options of `more` from the command line.

    Without `needs_data` the folder need not be there: the script makes its own data.
    """
    parser = argparse.ArgumentParser(description=description, parents=[more] if more else [])
    parser.add_argument("--data", type=Path, default=DATA, help=f"the folder of the data sets ({DATA})")
    parser.add_argument("--quick", action="store_true", help="under a minute; the figures are not claims")
    parser.add_argument("--trial", action="store_true", help="keep no result")
    parser.add_argument("--json", action="store_true", help="end with one JSON object on the last line")
    arguments = parser.parse_args()
    if needs_data and not arguments.data.is_dir():
        parser.error(f"--data {arguments.data}: there is no such folder; name the one with the data sets")
    return Options(arguments.data, arguments.quick, arguments.json, arguments, arguments.trial)


def run(
    *measures: Callable[[Options], Mapping[str, Any]],
    needs_data: bool = True,
    more: argparse.ArgumentParser | None = None,
    is_whole: Callable[[Options], bool] = lambda options: True,
) -> None:
    """Measure as the script that is running, print the figures and keep them under its name.

    With several measures, the first argument of the command names one, and the result has the name of that
    measure. The result is kept if `is_whole` is true of the options.
    """
    name, description = _script()
    parser = argparse.ArgumentParser(add_help=False, parents=[more] if more else [])
    if len(measures) > 1:
        parser.add_argument("measure", choices=[measure.__name__ for measure in measures])
    options = read_options(description, needs_data, parser)
    (measure,) = (
        candidate
        for candidate in measures
        if candidate.__name__ == getattr(options.given, "measure", candidate.__name__)
    )
    figures = measure(options)
    show(figures)
    finish(name if len(measures) == 1 else measure.__name__, options, figures, is_whole(options))


def run_rows(
    measure: Callable[[Options, list[dict[str, Any]]], Iterator[dict[str, Any]]],
    summary: Callable[[list[dict[str, Any]]], Mapping[str, Any]],
    more: argparse.ArgumentParser | None = None,
) -> None:
    """Like `run`, row by row: a row is kept as soon as it is measured; `--resume` measures the others alone.

    `measure` gets the kept rows, and yields the others; the result also has the `summary` of all rows.
    """
    parser = argparse.ArgumentParser(add_help=False, parents=[more] if more else [])
    parser.add_argument("--resume", action="store_true", help="rows that are kept aren't measured again")
    name, description = _script()
    options = read_options(description, more=parser)
    rows = result(name)["rows"] if options.given.resume and (RESULTS / f"{name}.json").is_file() else []
    for row in measure(options, list(rows)):
        print(row, flush=True)
        rows.append(row)
        finish(name, replace(options, as_json=False), {"rows": rows})
    figures = {**summary(rows), "rows": rows}
    show(figures)
    finish(name, options, figures)


def _script() -> tuple[str, str | None]:
    """The name and the docstring of the module that is running."""
    script = sys.modules["__main__"]
    assert script.__spec__ is not None
    return script.__spec__.name.rpartition(".")[2], script.__doc__


def machine() -> dict[str, Any]:
    """The date, the machine and the versions of packages, which belong to the figures."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cores": len(os.sched_getaffinity(0)),
        "processor": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "versions": {name: version(name) for name in PACKAGES},
    }


def over_seeds(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, dict[str, float]]:
    """The mean and the standard deviation of each of these figures over rows of seeds."""
    columns = {name: [row[name] for row in rows] for name in names}
    return {
        name: {"mean": statistics.mean(values), "deviation": statistics.pstdev(values)}
        for name, values in columns.items()
    }


def flat_over_seeds(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, float]:
    """The figures of `over_seeds`, as `NAME` and `NAME_deviation`."""
    summaries = over_seeds(rows, names)
    means = {name: summary["mean"] for name, summary in summaries.items()}
    return means | {f"{name}_deviation": summary["deviation"] for name, summary in summaries.items()}


def peak_memory_mb() -> float:
    """The most memory that this process has held so far, in megabytes (10^6 bytes).

    Linux has it in `/proc`. Other systems have `ru_maxrss` alone, which begins with the memory of the parent
    process, and counts kilobytes on Linux and bytes on macOS.
    """
    status = Path("/proc/self/status")
    if status.exists():
        (kilobytes,) = re.findall(r"VmHWM:\s+(\d+) kB", status.read_text("ascii"))
        return int(kilobytes) * 1024 / 1e6
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / 1e6 if sys.platform == "darwin" else most * 1024 / 1e6


def result(name: str) -> dict[str, Any]:
    """The kept result of a benchmark."""
    content: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return content


def finish(name: str, options: Options, figures: Mapping[str, Any], keep: bool = True) -> None:
    """Write the figures with the machine to `results/NAME.json`, and print them if JSON was asked for.

    A quick run or a trial is not kept, nor is one without `keep`: the kept figures are the claims.
    """
    result = {"benchmark": name, "quick": options.quick, **figures, "machine": machine()}
    if keep and not options.quick and not options.is_trial:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    if options.as_json:
        print(json.dumps(result))


def keep(set_name: str, row: dict[str, Any]) -> None:
    """Write the figures of one seed of `benchmarks.quality`, which have `experiment` and `seed`."""
    folder = QUALITY / set_name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{row['experiment']}_{row['seed']}.json"
    path.write_text(json.dumps(row, indent=2) + "\n", encoding="utf-8")


def kept(set_name: str) -> list[dict[str, Any]]:
    """The kept figures of all seeds of a set, by experiment and seed."""
    rows = [json.loads(path.read_text(encoding="utf-8")) for path in (QUALITY / set_name).glob("*.json")]
    return sorted(rows, key=lambda row: (row["experiment"], row["seed"]))


def show(figures: Mapping[str, Any]) -> None:
    """Print figures for people by their dotted names, a row a line."""
    for name, value in _leaves(figures, ""):
        is_rows = isinstance(value, list) and all(isinstance(row, dict) for row in value)
        for row in value if is_rows else [value]:
            print(f"{name}: {_shown(row)}")


def _leaves(figures: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for name, value in figures.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}"
    if isinstance(value, list):
        return ", ".join(map(_shown, value[:8])) + ", ..." * (len(value) > 8)
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(inner)}" for name, inner in _leaves(value, ""))
    return str(value)


# A side makes a number of steps; it returns the number of examples, and the seconds taken.
Side = Callable[[int], tuple[int, float]]


@dataclass(frozen=True)
class Turn:
    """A side with the number of steps that it takes in its turn."""

    run: Side
    steps: int


def alternate(turns: Mapping[str, Turn], rounds: int) -> dict[str, list[float]]:
    """The examples/s of each side in each of `rounds`: they take turns, so that other work affects all.

    A turn before the first round warms each side up and does not count.
    """
    for turn in turns.values():
        turn.run(turn.steps)
    rates: dict[str, list[float]] = {name: [] for name in turns}
    for _ in range(rounds):
        for name, turn in turns.items():
            examples, seconds = turn.run(turn.steps)
            rates[name].append(examples / seconds)
    return rates


def rate_summary(rates: Mapping[str, list[float]]) -> dict[str, dict[str, float]]:
    """The median, the least and the greatest examples/s of each side."""
    return {
        name: {"median": statistics.median(side_rates), "least": min(side_rates), "greatest": max(side_rates)}
        for name, side_rates in rates.items()
    }


def rate_ratio(rates: Mapping[str, list[float]], ours: str, others: list[str]) -> dict[str, Any]:
    """Our median over the best median of the others, and the least and the greatest such ratio of a round."""
    best = max(others, key=lambda name: statistics.median(rates[name]))
    by_round = [rate / other for rate, other in zip(rates[ours], rates[best], strict=True)]
    return {
        "ratio": statistics.median(rates[ours]) / statistics.median(rates[best]),
        "ratio_least": min(by_round),
        "ratio_greatest": max(by_round),
        "against": best,
    }
