"""Gowalla's quality by the part that settings are chosen on: a random tenth, the last tenth, or the test.

Protocol: two recipes, the one that was found on a random tenth of each user's training items (our first
validation part) and the shipped one, found on the last tenth. Each is trained without either tenth, the epoch
being the best on it by NDCG@20, and on all training items for all its epochs, for the figures on the test.
Test-selected: the shipped recipe on all training items, the epoch being the best on the test, which is no
claim. Ties by ascending row. Every training is kept when it ends, and `--resume` goes on.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.harness import RESULTS, Options, finish, read_options, show
from benchmarks.quality import CONFIG, trained
from benchmarks.quality_sets import SETS, last_tenth, random_tenth, validated_on_test, whole
from turret.data.manifest import hash_file
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.training.config.experiment import load_experiment
from turret.training.evaluation.evaluation import EvaluatedPart, evaluate

SET = SETS["gowalla"]
EARLIER, SHIPPED = "found on a random tenth", "shipped"
# The settings of each recipe that differ from the shipped experiment.
RECIPES: dict[str, tuple[str, ...]] = {
    EARLIER: (
        "tower.scoring.temperature=0.1",
        "tower.scoring.item_bias=false",
        "tower.user.item_dropout=0.4",
        "tower.user.hidden=[]",
        "training.epochs=25",
        "training.patience=25",
        "training.learning_rate=4e-3",
    ),
    SHIPPED: (),
}
Row = dict[str, Any]


@dataclass(frozen=True)
class Part:
    """How data is divided, which part gives the figures, and which recipes are trained on the rest.

    `more` are further settings: the test selects by all of its users, as it is reported.
    """

    split: Callable[[Path, Path], PrepareConfig]
    measured: EvaluatedPart
    recipes: tuple[str, ...]
    more: tuple[str, ...] = ()


# By the part that selects the epoch.
PARTS = {
    "test": Part(validated_on_test, "validation", (SHIPPED,), ("training.validation_users=1000000",)),
    "random tenth": Part(random_tenth, "validation", (SHIPPED, EARLIER)),
    "none": Part(whole, "test", (EARLIER, SHIPPED)),
    "last tenth": Part(last_tenth, "validation", (SHIPPED, EARLIER)),
}


def parser() -> argparse.ArgumentParser:
    """The options that only this script has."""
    made = argparse.ArgumentParser(add_help=False)
    made.add_argument("--seeds", type=int, nargs="+", default=[0], help="(0)")
    made.add_argument("--resume", action="store_true", help="trainings that are kept aren't run again")
    return made


def one(data: PreparedData, recipe: str, part: str, seed: int, quick: bool, work: Path) -> Row:
    """Train once; the metrics on the part, and the epoch that was kept, None without a part to select it."""
    epochs = ["training.epochs=1"] if quick else []
    settings = [*RECIPES[recipe], *PARTS[part].more, *epochs, f"training.seed={seed}"]
    run, found = trained(work, data, load_experiment(SET.experiment, settings))
    report = evaluate(run.open_model(data), data, PARTS[part].measured, CONFIG, seed)
    return {
        "recipe": recipe,
        "part": part,
        "seed": seed,
        "epochs": found["epochs"],
        "best_epoch": found["best_epoch"] or None,
        **{name: report["towers"][name]["mean"] for name in SET.metrics},
        "seconds": found["seconds"],
    }


def rows(options: Options, kept: Sequence[Row]) -> Iterator[list[Row]]:
    """Every recipe on every part: all rows so far, after each training."""
    done, source = list(kept), options.data / SET.name
    seeds = options.given.seeds[:1] if options.quick else options.given.seeds
    with tempfile.TemporaryDirectory() as folder:
        for name, part in PARTS.items():
            work = Path(folder) / name
            prepare(part.split(source, work / "files"), work / "prepared")
            data = PreparedData.open(work / "prepared")
            for recipe in part.recipes:
                for seed in seeds:
                    if not of(done, recipe, name, seed):
                        done.append(one(data, recipe, name, seed, options.quick, work / f"{recipe}{seed}"))
                        print(done[-1], flush=True)
                        yield done


def of(found: Sequence[Row], recipe: str, part: str, seed: int | None = None) -> list[Row]:
    """The rows of a recipe that was validated on a part, of one seed or of all."""
    chosen = [row for row in found if (row["recipe"], row["part"]) == (recipe, part)]
    return chosen if seed is None else [row for row in chosen if row["seed"] == seed]


def main() -> None:
    """Measure, print and keep."""
    options, path = read_options(__doc__, more=parser()), RESULTS / "validation_parts.json"
    hashes = {name: hash_file(options.data / SET.name / name).sha256 for name in SET.files}
    kept: list[Row] = []
    if options.given.resume and path.is_file():
        kept = json.loads(path.read_text(encoding="utf-8"))["rows"]
    for found in rows(options, kept):
        kept = list(found)
        about = {"set": SET.name, "source_sha256": hashes, "rows": kept}
        finish("validation_parts", replace(options, as_json=False), about)
    figures = {"set": SET.name, "source_sha256": hashes, "rows": kept}
    show(figures)
    finish("validation_parts", options, figures)


if __name__ == "__main__":
    main()
