"""`turret train`, `evaluate` and `export`, of one run or of several seeds: run and print."""

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from shlex import quote

from turret.data.prepared import PreparedData
from turret.data.progress import LOGGER
from turret.training.begin import AUTO, begin_run
from turret.training.checkpoint import Progress
from turret.training.comparison.seeds import (
    SeedRuns,
    evaluation_summary,
    parse_seeds,
    training_summary,
)
from turret.training.comparison.tables import evaluation_table, paragraphs, training_table
from turret.training.config.experiment import with_settings
from turret.training.distributed import join_world, process_count
from turret.training.errors import TrainingError
from turret.training.evaluation.evaluation import EvaluatedPart
from turret.training.evaluation.table import metrics_table
from turret.training.export.export import export, export_warnings
from turret.training.process import naming_lack_of_memory, too_large_training
from turret.training.run import RUN, SEEDS, Run, remove_run
from turret.training.trainer import train

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
    """Train one run, or one for each seed of `seeds`; a folder of several seeds is resumed without them.

    For the other arguments see `begin_run`.

    Raises:
        TrainingError: the folder has runs and neither `resume` nor `overwrite` is set, or both are, there is
            nothing to resume, or the settings differ from those of the runs there.
    """
    if resume and overwrite:
        raise TrainingError("--resume continues what --overwrite removes; give one of the two.")
    known = SeedRuns.read(folder)
    if seeds is None and known is not None and not resume:
        raise TrainingError(
            f"{folder} holds the runs of several seeds; continue them with --resume, replace them "
            "with --seeds and --overwrite, or name another folder with --run."
        )
    first = partial(
        begin_run, data=data, experiment=experiment, overwrite=overwrite, origin=origin, report=REPORT
    )
    go = partial(train, resume=resume, overwrite=overwrite, report=REPORT, loggers=loggers)
    if seeds is None and known is None:
        _train_one(partial(first, folder, overrides=overrides, resume=resume), go, experiment == AUTO)
        return
    _check_seeds(folder, overrides, known, resume, overwrite)
    runs = SeedRuns(folder, known.seeds if known and resume else ()).with_seeds(
        parse_seeds(seeds) if seeds else ()
    )
    begun = known.begun() if known and resume else []
    if begun and (experiment or overrides):
        overrides = [*overrides, f"training.seed={begun[0]}"]
    start = runs.run_folder(begun[0]) if begun else folder
    template, prepared = first(start, overrides=overrides, resume=bool(begun))
    if known and overwrite:
        for seed in known.seeds:
            remove_run(known.run_folder(seed))
        (folder / SEEDS).unlink()
    if runs != known or overwrite:
        runs.write(training_summary(runs))
    _train_seeds(runs, template, partial(go, data=prepared))


def _train_one(
    first: Callable[[], tuple[Run, PreparedData]], go: Callable[..., Progress], is_auto: bool
) -> None:
    """Train one run, in this process or with those that torchrun has started."""
    if is_auto and process_count() > 1:
        raise TrainingError(
            "--experiment auto compares short trials in one process; run it without torchrun first, and "
            "train the experiment that it writes (RUN/experiment.toml) with torchrun."
        )
    world = join_world()
    try:
        if not world.leads:
            logging.getLogger(LOGGER).disabled = True
        remedy = (
            "start it again with --resume, which loses at most the steps since the last checkpoint "
            "(training.checkpoint_every)."
        )
        with world.naming_losses(remedy), naming_lack_of_memory(too_large_training(world.size)):
            run, prepared = first()
            progress = go(run, prepared, world=world)
    finally:
        world.close()
    if not world.leads:
        return
    best = "" if progress.best is None else f"best {run.experiment.training.metric} {progress.best:.4f}, "
    epoch = progress.epoch if progress.best is None else progress.best_epoch
    note = "" if epoch else " (none was better than the bundle)"
    print(f"{best}epoch {epoch}{note}; the run is in {run.folder}")
    print(f"next: `turret report run {quote(str(run.folder))}` writes a page about it")


def _train_seeds(runs: SeedRuns, template: Run, go: Callable[[Run], object]) -> None:
    """Train one run a seed, except for those that are finished, and print mean and deviation."""
    for number, seed in enumerate(runs.seeds, start=1):
        title = f"seed {seed} ({number} of {len(runs.seeds)})"
        if seed in runs.finished():
            REPORT(f"{title}: trained already")
            continue
        REPORT(title)
        seeded = with_settings(template.experiment, {"training.seed": seed})
        go(replace(template, folder=runs.run_folder(seed), experiment=seeded))
        runs.write(training_summary(runs))
    print(training_table(training_summary(runs)))
    print(f"the runs are in {runs.folder}")
    example = quote(str(runs.run_folder(runs.seeds[0])))
    print(f"next: `turret report run {example}` writes a page about the first one")


def _check_seeds(
    folder: Path, overrides: Sequence[str], known: SeedRuns | None, resume: bool, overwrite: bool
) -> None:
    if (folder / RUN).is_file():
        raise TrainingError(f"{folder} holds a run of one seed; name another folder with --run.")
    if resume and known is None:
        raise TrainingError(f"{folder}: there are no runs of several seeds here; leave out --resume.")
    if known is not None and not (resume or overwrite):
        raise TrainingError(
            f"{folder} holds the runs of several seeds already; continue them with --resume, replace them "
            "with --overwrite, or name another folder with --run."
        )
    if any(setting.partition("=")[0].strip() == "training.seed" for setting in overrides):
        raise TrainingError("--seeds sets training.seed; leave out --set training.seed.")
    if process_count() > 1:
        raise TrainingError(
            "--seeds trains one run after the other in one process; with torchrun, train each seed by "
            "itself (--set training.seed=1)."
        )


def evaluate_command(
    folder: Path, data: Path | None, part: EvaluatedPart, as_json: bool, baselines: Sequence[str] = ()
) -> None:
    """Evaluate a run, or the finished runs of several seeds, store the reports and print them."""
    runs = SeedRuns.read(folder)
    with naming_lack_of_memory(_too_large("evaluation", folder)):
        if runs is None:
            run = Run.read(folder)
            report = run.evaluate(run.open_data(data), part, baselines)
            if as_json and run.choice is not None:
                report["auto"] = run.choice
        else:
            finished = runs.finished_runs()
            prepared = finished[0].open_data(data)
            for run in finished:
                run.evaluate(run.open_data(prepared.folder), part, baselines)
            report = evaluation_summary(finished, part)
            runs.write({**training_summary(runs), "evaluation": {**runs.evaluations(), part: report}})
    if as_json:
        print(json.dumps(report, indent=2))
    else:
        table = metrics_table(report) if runs is None else evaluation_table(report)
        print(f"{table}\n\n{paragraphs(report)}")


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
