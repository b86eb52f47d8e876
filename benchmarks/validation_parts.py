"""Gowalla's quality by the part that settings are chosen on: a random tenth, the last tenth, or the test.

Protocol: two recipes, the one that was found on a random tenth of each user's training items (our first
validation part) and the shipped one, found on the last tenth. Each is trained without either tenth, the epoch
being the best on it by NDCG@20, and on all training items for all its epochs, for the figures on the test.
Test-selected: the shipped recipe on all training items, the epoch being the best on the test, which is no
claim. Ties by ascending row. Every training is kept when it ends, and `--resume` goes on.
"""

import argparse
import itertools
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.harness import Options, run_rows
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


def measure(options: Options, kept: Sequence[Row]) -> Iterator[Row]:
    """Every recipe on every part."""
    source = options.data / SET.name
    seeds = options.given.seeds[:1] if options.quick else options.given.seeds
    with tempfile.TemporaryDirectory() as folder:
        for name, part in PARTS.items():
            work = Path(folder) / name
            prepare(part.split(source, work / "files"), work / "prepared")
            data = PreparedData.open(work / "prepared")
            for recipe, seed in itertools.product(part.recipes, seeds):
                if not any(row["seed"] == seed for row in of(kept, recipe, name)):
                    yield one(data, recipe, name, seed, options.quick, work / f"{recipe}{seed}")


def of(found: Sequence[Row], recipe: str, part: str) -> list[Row]:
    """The rows of a recipe that was validated on a part."""
    return [row for row in found if (row["recipe"], row["part"]) == (recipe, part)]


def sources(options: Options) -> dict[str, Any]:
    """The set, and the hashes of its files."""
    hashes = {name: hash_file(options.data / SET.name / name).sha256 for name in SET.files}
    return {"set": SET.name, "source_sha256": hashes}


if __name__ == "__main__":
    seeds = argparse.ArgumentParser(add_help=False)
    seeds.add_argument("--seeds", type=int, nargs="+", default=[0], help="(0)")
    run_rows(measure, sources, seeds)
