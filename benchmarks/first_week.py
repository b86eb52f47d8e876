"""The first week of a shop: does `turret train --experiment auto` beat every baseline on its log?

Protocol: for each set the commands of a newcomer run as they are, each in a process of its own: `turret data
prepare`, `turret train --experiment auto` and `turret evaluate --baselines all --json`. Nothing is set but
the columns that `turret data prepare` asks for. `auto` looks at the training and the validation part alone;
the figures are of the test part, each user's last event, ranked in the whole catalog with the same masks for
all. `auto_over_best_baseline` of a set is NDCG@10 of the towers over that of the best baseline, chosen on the
test part, and the result has the least of all sets. Differences are paired by user, with 95 % intervals.
`seconds` are those of the three commands. Rows are kept in `results/first_week.jsonl` as sets end; `--resume`
takes them from there. Which logs there are is in `benchmarks/first_week_sets.py`.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.first_week_sets import QUICK, SETS, WeekSet
from benchmarks.harness import RESULTS, finish, read_options

METRIC = "ndcg@10"
ROWS = RESULTS / "first_week.jsonl"
Row = dict[str, Any]


def measured(one: WeekSet, data: Path, scratch: Path) -> Row:
    """Run the week of one set and summarise its evaluation."""
    prepared, run = scratch / "prepared", scratch / "run"
    source = one.source(data, scratch / "log")
    seconds = {
        "prepare": _turret("data", "prepare", *source, "--to", str(prepared))[1],
        "train": _turret("train", "--data", str(prepared), "--run", str(run), "--experiment", "auto")[1],
    }
    printed, seconds["evaluate"] = _turret("evaluate", str(run), "--baselines", "all", "--json")
    return {"set": one.name, "seconds": seconds, **summary(json.loads(printed))}


def _turret(*arguments: str) -> tuple[str, float]:
    """The output of a command and its seconds; its progress goes to standard error."""
    clock = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "turret", *arguments], stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"turret {' '.join(arguments)} ended with status {done.returncode}")
    print(done.stdout[-2000:] if arguments[0] == "train" else "", file=sys.stderr, flush=True)
    return done.stdout, time.perf_counter() - clock


def summary(report: Row) -> Row:
    """The figures of one evaluation: the towers, each baseline and the paired differences."""
    baselines = {name: report[name][METRIC] for name in report["differences"]}
    best = max(baselines, key=lambda name: baselines[name]["mean"])
    towers = report["towers"][METRIC]
    return {
        "picked": report["auto"]["picked"],
        "reasons": [reason["sentence"] for reason in report["auto"]["reasons"]],
        "users": report["users"],
        "exclude_seen": report["exclude_seen"],
        "towers": towers,
        "baselines": baselines,
        "left_out": report["baselines_left_out"],
        "differences": {name: found[METRIC] for name, found in report["differences"].items()},
        "best_baseline": best,
        "auto_over_best_baseline": towers["mean"] / baselines[best]["mean"],
        "verdict": [finding["sentence"] for finding in report["verdict"]],
    }


def result(rows: list[Row]) -> Row:
    """The figures that are claimed, and the rows by set."""
    return {
        "auto_over_best_baseline": min(row["auto_over_best_baseline"] for row in rows),
        "metric": METRIC,
        "sets": {row["set"]: {key: value for key, value in row.items() if key != "set"} for row in rows},
    }


def kept(path: Path) -> list[Row]:
    """The rows of earlier runs, the newest of each set."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    rows = {row["set"]: row for row in map(json.loads, lines)}
    return list(rows.values())


def main() -> None:
    """Measure the sets, print a line for each, and keep the result."""
    more = argparse.ArgumentParser(add_help=False)
    more.add_argument("--set", action="append", choices=list(SETS), help="one set (repeatable; all)")
    more.add_argument("--resume", action="store_true", help="take sets that have a row from there")
    options = read_options(__doc__, more=more)
    names = options.given.set or list(SETS)
    sets = [QUICK] if options.quick else [SETS[name] for name in names]
    rows = {row["set"]: row for row in kept(ROWS) if row["set"] in SETS} if not options.quick else {}
    for one in sets:
        if options.given.resume and one.name in rows:
            continue
        with TemporaryDirectory(prefix="first_week-") as scratch:
            rows[one.name] = measured(one, options.data, Path(scratch))
        if not options.quick:
            with ROWS.open("a", encoding="utf-8") as file:
                file.write(json.dumps(rows[one.name]) + "\n")
        row = rows[one.name]
        if not options.as_json:
            print(
                f"{one.name}: {row['picked']}, {METRIC} {row['towers']['mean']:.4f}; {row['best_baseline']} "
                f"{row['baselines'][row['best_baseline']]['mean']:.4f}"
            )
    order = [QUICK.name] if options.quick else [name for name in SETS if name in rows]
    is_whole = options.quick or len(order) == len(SETS)
    finish("first_week", options, result([rows[name] for name in order]), keep=is_whole)


if __name__ == "__main__":
    main()
