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
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import polars as pl

from benchmarks.harness import RESULTS, finish, read_options
from benchmarks.messy_shop import ORDERS, PRODUCTS, Shop, write_shop

_SHOP_COLUMNS = ("--user", "customer", "--item", "sku", "--time", "ordered_at", "--on-bad", "drop")
_GLOBO_DAYS = 2


@dataclass(frozen=True)
class WeekSet:
    """A log as a user has it.

    Attributes:
        name: of the set in the result.
        protocol: one sentence on the log; the split is each user's last event, unless it says otherwise.
        source: from the folder of the data sets and a scratch folder, the arguments of `turret data prepare`.
    """

    name: str
    protocol: str
    source: Callable[[Path, Path], list[str]]


def _messy_shop(_: Path, scratch: Path) -> list[str]:
    return _shop(scratch, Shop())


def _shop(scratch: Path, shop: Shop) -> list[str]:
    write_shop(scratch, shop)
    return [str(scratch / ORDERS), "--items", str(scratch / PRODUCTS), *_SHOP_COLUMNS]


def _online_retail(data: Path, _: Path) -> list[str]:
    folder = data / "online-retail"
    return [str(folder), "--quantity", "quantity", "--on-bad", "drop"]


def _movielens(data: Path, _: Path) -> list[str]:
    return [str(data / "ml-100k" / "original")]


def _globo(data: Path, scratch: Path) -> list[str]:
    clicks = pl.scan_parquet(data / "globo" / "clicks.parquet")
    # The newest complete day and the clicks after it, of which there are few.
    first = datetime(2017, 10, 16, tzinfo=UTC)
    begin, end = (1000 * int(at.timestamp()) for at in (first, first + timedelta(days=_GLOBO_DAYS)))
    wanted = pl.col("timestamp_ms").is_between(begin, end, closed="left")
    path = scratch / "clicks.parquet"
    scratch.mkdir(parents=True, exist_ok=True)
    clicks.filter(wanted).sink_parquet(path)
    return [str(path), "--user", "user_id", "--item", "item_id", "--time", "timestamp_ms", "--on-bad", "drop"]


SETS = {
    one.name: one
    for one in (
        WeekSet("messy_shop", "a generated shop, tastes for categories without an order", _messy_shop),
        WeekSet(
            "online-retail",
            "a year of a wholesaler of gifts; lines without a customer and returns are left out",
            _online_retail,
        ),
        WeekSet(
            "ml-100k",
            "MovieLens 100K as GroupLens ships it, with genres, years and attributes of users",
            _movielens,
        ),
        WeekSet("globo", f"clicks on news, of {_GLOBO_DAYS} days from 2017-10-16 on", _globo),
    )
}
QUICK = WeekSet(
    "small_shop", "the generated shop, small", lambda _, scratch: _shop(scratch, Shop(600, 200, 12, 10))
)


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
