"""How good the recommended experiment is on data that everybody knows: --set NAME.

The whole catalog is ranked, the user's own items masked, ties by ascending row. Sets that are split by time
have nobody's figures to stand beside: baselines are asked the same questions, and the differences have
bootstrap intervals. Every seed's figures, with its configuration and its curve, are kept in
results/quality/SET, and the mean over seeds in results/quality_SET.json. It takes hours; `--resume` goes on.
"""

import argparse
import hashlib
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from benchmarks import timed_quality
from benchmarks.harness import Options, finish, keep, kept, machine, peak_memory_mb, read_options, show
from benchmarks.quality_sets import SETS, QualitySet
from benchmarks.timed_sets import TIMED
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.training.config.experiment import EvaluationConfig, ExperimentConfig, load_experiment
from turret.training.evaluation.evaluation import evaluate
from turret.training.run import Run
from turret.training.trainer import train

CONFIG = EvaluationConfig(k=(10, 20, 50))
Figures = dict[str, Any]


def parser() -> argparse.ArgumentParser:
    """The options that only this script has."""
    made = argparse.ArgumentParser(add_help=False)
    made.add_argument("--set", choices=sorted({**SETS, **TIMED}), required=True, help="which data set")
    made.add_argument("--experiment", help="a shipped experiment or a TOML file (the recommended one)")
    made.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="(0 1 2)")
    made.add_argument("--override", action="append", default=[], metavar="KEY=VALUE", help="repeatable")
    made.add_argument(
        "--resume",
        action="store_true",
        help="seeds that are kept, of these settings and files, aren't run again",
    )
    return made


def trained(work: Path, data: PreparedData, experiment: ExperimentConfig) -> tuple[Run, Figures]:
    """One run, with the validation metric over the seconds spent."""
    run = Run(work, experiment, data.folder, data.fingerprint)
    curve: list[tuple[int, float, float]] = []
    start = time.perf_counter()

    def observe(epoch: int, value: float) -> bool:
        curve.append((epoch, round(time.perf_counter() - start, 1), round(value, 5)))
        return False

    progress = train(run, data, observe=observe)
    return run, {
        "epochs": progress.epoch,
        "best_epoch": progress.best_epoch,
        "validation": progress.best,
        "curve": curve,
        "seconds": time.perf_counter() - start,
    }


def tested(run: Run, data: PreparedData, chosen: QualitySet) -> Figures:
    """The metrics on the test part, of the towers and of popularity."""
    report = evaluate(run.open_model(data), data, "test", CONFIG, run.experiment.training.seed)
    return {
        **{name: report["towers"][name]["mean"] for name in chosen.metrics},
        **{f"popularity_{name}": report["popularity"][name]["mean"] for name in chosen.metrics},
    }


def one_seed(
    chosen: QualitySet, work: Path, folders: Sequence[Path], experiment: ExperimentConfig, first: bool
) -> Figures:
    """Train and test; where the protocol refits, the first seed is also trained without the validation part.

    Nothing is chosen from that: it says what the settings reach on validation, over the time spent.
    """
    seed, shown = experiment.training.seed, {}
    if len(folders) > 1 and first:
        _, selected = trained(work / f"selected{seed}", PreparedData.open(folders[0]), experiment)
        shown = {name: selected[name] for name in ("curve", "validation")}
    data = PreparedData.open(folders[-1])
    run, found = trained(work / f"trained{seed}", data, experiment)
    return {"seed": seed, **found, **shown, **tested(run, data, chosen)}


def measure(options: Options, chosen: QualitySet) -> Figures:
    """Prepare the data, run every seed and keep its figures, and take the means."""
    source = options.data / (chosen.folder or chosen.name)
    name = options.given.experiment or chosen.experiment
    quick = ["training.epochs=1"] if options.quick else []
    seeds = options.given.seeds[:1] if options.quick else options.given.seeds
    hashes = {file: hashlib.sha256((source / file).read_bytes()).hexdigest() for file in chosen.files}
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        work = Path(scratch)
        folders: list[Path] = []
        for part in (chosen.prepared, chosen.refitted):
            if part is not None:
                folders.append(work / f"prepared{len(folders)}")
                prepare(part(source, work / "files"), folders[-1])
        for seed in seeds:
            experiment = load_experiment(name, [*options.given.override, *quick, f"training.seed={seed}"])
            about = {
                "experiment": Path(name).stem,
                "configuration": experiment.model_dump(mode="json"),
                "source_sha256": hashes,
            }
            row = measured_before(chosen.name, seed, about) if options.given.resume else None
            if row is None:
                found = one_seed(chosen, work, folders, experiment, first=seed == seeds[0])
                row = {**found, **about, "machine": machine()}
                if not options.quick:
                    keep(chosen.name, row)
            rows.append(row)
    return summary(chosen, rows)


def measured_before(set_name: str, seed: int, about: Figures) -> Figures | None:
    """The kept figures of a seed, if they are of the same experiment, settings and files."""
    for row in kept(set_name):
        told = {**row, "configuration": _as_today(row["configuration"])}
        if row["seed"] == seed and all(told[name] == value for name, value in about.items()):
            return row
    return None


def _as_today(configuration: Figures) -> Figures | None:
    """A kept configuration with what was not a setting yet at its default; None if it can't be one today."""
    try:
        return ExperimentConfig.model_validate(configuration).model_dump(mode="json")
    except ValidationError:
        return None


def summary(chosen: QualitySet, rows: Sequence[Figures]) -> Figures:
    """Mean and standard deviation over the seeds."""
    return {
        "set": chosen.name,
        "protocol": chosen.protocol,
        "experiment": rows[0]["experiment"],
        **{name: statistics.mean(row[name] for row in rows) for name in chosen.metrics},
        **{f"{name}_deviation": statistics.pstdev(row[name] for row in rows) for name in chosen.metrics},
        **{f"popularity_{name}": rows[0][f"popularity_{name}"] for name in chosen.metrics},
        "seconds": statistics.mean(row["seconds"] for row in rows),
        "seeds": [row["seed"] for row in rows],
        "configuration": rows[0]["configuration"],
        "source_sha256": rows[0]["source_sha256"],
        "peak_memory_mb": peak_memory_mb(),
    }


def main() -> None:
    """Run the benchmark."""
    options = read_options(__doc__, more=parser())
    name = options.given.set
    if name in TIMED and options.given.resume:
        raise SystemExit(
            f"--resume: {name} is compared with its baselines question by question, and no seed's answers "
            "are kept; run all seeds without it."
        )
    if name in TIMED:
        recommended, figures = TIMED[name].recipe.experiment, timed_quality.measure(options, TIMED[name])
    else:
        recommended, figures = SETS[name].experiment, measure(options, SETS[name])
    show(figures)
    as_recommended = options.given.experiment in (None, recommended) and not options.given.override
    finish(f"quality_{name}", options, figures, keep=as_recommended and len(figures["seeds"]) > 2)


if __name__ == "__main__":
    main()
