"""`turret train`, `evaluate`, `compare` and `export`, of one run or of several seeds: run and print."""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from shlex import quote

from turret.data.configuration import parse_overrides
from turret.data.prepared import PreparedData
from turret.data.progress import LOGGER
from turret.tower.slots import with_slots
from turret.training.auto.choice import RULE_AHEAD
from turret.training.begin import AUTO, begin_run
from turret.training.checkpoint import Progress
from turret.training.comparison.compare import (
    begun_seeds,
    compare,
    evaluation_summary,
    is_finished,
    open_runs,
    parse_seeds,
    seed_folder,
    training_summary,
)
from turret.training.config.experiment import with_settings
from turret.training.distributed import join_world, joined, process_count
from turret.training.errors import TrainingError
from turret.training.evaluation.evaluation import EvaluatedPart
from turret.training.evaluation.table import comparison_table, metrics_table, seeds_table, verdict_text
from turret.training.export.export import export, export_warnings
from turret.training.loop.train import train
from turret.training.process import naming_lack_of_memory, too_large_training
from turret.training.run import RUN, Run, remove_run

REPORT = partial(print, flush=True)  # `| tee` shows each epoch


def train_command(
    folder: Path,
    data: Path | None = None,
    experiment: str | None = None,
    overrides: Sequence[str] = (),
    *,
    resume: bool = False,
    overwrite: bool = False,
    origin: Path | None = None,
    loggers: Sequence[str] = (),
    seeds: str | None = None,
) -> None:
    """Train one run, or one for each seed of `seeds`; a folder of several seeds is resumed without `seeds`.

    For the other arguments see `begin_run`.

    Raises:
        TrainingError: the folder has runs and neither `resume` nor `overwrite` is set, or both are, there is
            nothing to resume, or the settings differ from those of the runs there.
    """
    if resume and overwrite:
        raise TrainingError("--resume continues what --overwrite removes; give one of the two.")
    known = begun_seeds(folder)
    if known and not (resume or (seeds and overwrite)):
        raise TrainingError(
            f"{folder} holds the runs of several seeds; continue them with --resume, replace them "
            "with --seeds and --overwrite, or name another folder with --run."
        )
    begin = partial(
        begin_run, data=data, experiment=experiment, overwrite=overwrite, origin=origin, report=REPORT
    )
    go = partial(train, resume=resume, overwrite=overwrite, report=REPORT, loggers=loggers)
    if seeds is None and not known:
        if experiment == AUTO and process_count() > 1:
            raise TrainingError(
                "--experiment auto compares trials in one process; run it without torchrun first, and "
                "train the experiment that it writes (RUN/experiment.toml) with torchrun."
            )
        _train_one(partial(begin, folder, overrides=overrides, resume=resume), go)
        return
    if (folder / RUN).is_file():
        raise TrainingError(f"{folder} holds a run of one seed; name another folder with --run.")
    if resume and not known:
        raise TrainingError(f"{folder}: there are no runs of several seeds here; leave out --resume.")
    if process_count() > 1:
        raise TrainingError(
            "--seeds trains one run after the other in one process; with torchrun, train each seed by "
            "itself (--set training.seed=1)."
        )
    values = parse_overrides(overrides)
    if "training.seed" in values:
        raise TrainingError("--seeds sets training.seed; leave out --set training.seed.")
    # Seeds that were begun come first: a new one takes their settings.
    numbers = dict.fromkeys([*(known if resume else ()), *(parse_seeds(seeds) if seeds else ())])
    _train_seeds(folder, [*numbers], values, begin, go, resume=resume, overwrite=overwrite)


def _train_one(begin: Callable[[], tuple[Run, PreparedData]], go: Callable[..., Progress]) -> None:
    """Train one run, in this process or with those that torchrun has started."""
    world = join_world()
    try:
        if not world.leads:
            logging.getLogger(LOGGER).disabled = True
        remedy = (
            "start it again with --resume, which loses at most the steps since the last checkpoint "
            "(training.checkpoint_every)."
        )
        with world.naming_losses(remedy), naming_lack_of_memory(too_large_training(world.size)):
            run, prepared = begin()
            with joined(world):
                progress = go(run, prepared)
    finally:
        world.close()
    if not world.leads:
        return
    metric, best_metrics = run.experiment.training.metric, run.best()
    _print_rules_ahead(run)
    best = f"best {metric} {with_slots(best_metrics, metric)}, " if best_metrics else ""
    epoch = progress.epoch if progress.best is None else progress.best_epoch
    note = "" if epoch else " (none was better than the bundle)"
    note += ", before the refit" * run.is_refitted()
    print(f"{best}epoch {epoch}{note}; the run is in {run.folder}")
    print(f"next: `turret report run {quote(str(run.folder))}` writes a page about it")


def _print_rules_ahead(run: Run) -> None:
    """Print where a baseline beat every candidate of `--experiment auto`, and the figure of the run there."""
    for reason in (run.choice or {}).get("reasons", ()):
        if reason["kind"] == RULE_AHEAD:
            value = run.best().get(reason["figures"]["metric"])
            print(reason["sentence"] + ("" if value is None else f" The trained model has {value:.4f}."))


def _train_seeds(
    folder: Path,
    seeds: Sequence[int],
    values: Mapping[str, object],
    begin: Callable[..., tuple[Run, PreparedData]],
    go: Callable[[Run, PreparedData], object],
    *,
    resume: bool,
    overwrite: bool,
) -> None:
    """Train one run a seed, except for those that are finished, and print mean and deviation."""
    template: Run | None = None
    for number, seed in enumerate(seeds, start=1):
        run_folder = seed_folder(folder, seed)
        is_begun = resume and (run_folder / RUN).is_file()
        if template is None or is_begun:
            template, prepared = begin(
                run_folder, overrides={**values, "training.seed": seed}, resume=is_begun
            )
        if overwrite and number == 1:
            for replaced in begun_seeds(folder):
                remove_run(seed_folder(folder, replaced))
        title = f"seed {seed} ({number} of {len(seeds)})"
        seeded = with_settings(template.experiment, {"training.seed": seed})
        run = replace(template, folder=run_folder, experiment=seeded)
        if is_begun and is_finished(run):
            REPORT(f"{title}: trained already")
            continue
        REPORT(title)
        go(run, prepared)
    runs = open_runs(folder)
    _print_rules_ahead(runs[0])
    print(seeds_table([run.experiment.training.seed for run in runs], training_summary(runs), "training"))
    print(f"the runs are in {folder}")
    print(f"next: `turret report run {quote(str(runs[0].folder))}` writes a page about the first one")


def evaluate_command(
    folder: Path, data: Path | None, part: EvaluatedPart, as_json: bool, baselines: Sequence[str] = ()
) -> None:
    """Evaluate a run, or the finished runs of several seeds, store the reports and print them."""
    runs = open_runs(folder)
    with naming_lack_of_memory(_too_large("evaluation", folder)):
        prepared = runs[0].open_data(data)
        reports = [run.evaluate(run.open_data(prepared.folder), part, baselines) for run in runs]
        report = reports[0] if runs[0].folder == folder else evaluation_summary(runs, part)
    if as_json:
        choice = runs[0].choice
        print(json.dumps(report if choice is None else {**report, "auto": choice}, indent=2))
    else:
        print(f"{metrics_table(report)}\n\n{verdict_text(report)}")


def compare_command(folders: Sequence[Path], part: EvaluatedPart, metric: str, as_json: bool) -> None:
    """Compare runs with the first of them: print a table by `metric`, or JSON with all metrics.

    Raises:
        TrainingError: the runs can't be compared, or have no such metric in common.
    """
    report = compare(folders, part)
    metrics = report["runs"][0]["metrics"]
    if metric not in metrics:
        raise TrainingError(f"--metric {metric}: the runs have {', '.join(metrics)} in common; name one.")
    print(json.dumps(report, indent=2) if as_json else comparison_table(report, metric))


def export_run(folder: Path, data: Path | None, bundles: Path, version: str | None) -> Path:
    """Publish a run's model as a bundle, print reasons to doubt it, and return the bundle's folder."""
    run = Run.read(folder)
    with naming_lack_of_memory(_too_large("export", folder)):
        prepared = run.open_data(data)
        published = export(run, prepared, bundles, version)
    for warning in export_warnings(run, prepared):
        print(warning)
    return published


def _too_large(work: str, folder: Path) -> str:
    return f"{folder}: the {work} does not fit into memory; run it on a machine with more."
