"""`turret train`, `evaluate` and `export`: run and print."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from shlex import quote
from typing import get_args

from turret.data.configuration import parse_overrides
from turret.data.prepared import PreparedData
from turret.data.progress import hide_progress
from turret.tower.errors import BundleError
from turret.tower.format.listing import bundle_folder
from turret.training.auto.choice import AUTO, chosen_run
from turret.training.config.experiment import ExperimentConfig, load_experiment
from turret.training.config.named_settings import with_settings
from turret.training.distributed.launch import join_world, launch_name
from turret.training.distributed.world import World, process_count
from turret.training.errors import TrainingError
from turret.training.evaluation.evaluation import EvaluatedPart
from turret.training.evaluation.table import metrics_table
from turret.training.export.export import export, export_warnings
from turret.training.process import naming_lack_of_memory, too_large_training
from turret.training.run import Run
from turret.training.trainer import train
from turret.training.verdict.findings import paragraphs
from turret.training.warm_start.parent_bundle import ParentBundle

DATA, EXPERIMENT = Path("var/prepared"), "youtubednn"
REPORT = partial(print, flush=True)  # `| tee` shows each epoch


@dataclass(frozen=True)
class TrainRequest:
    """The arguments of `turret train`.

    `origin` is a bundle, or a folder with a current bundle, for a warm start; its experiment is the default.
    """

    data: Path | None
    experiment: str | None
    folder: Path
    overrides: Sequence[str]
    resume: bool = False
    overwrite: bool = False
    origin: Path | None = None
    loggers: Sequence[str] = ()


def train_run(
    data: Path | None,
    experiment: str | None,
    folder: Path,
    overrides: Sequence[str],
    resume: bool = False,
    overwrite: bool = False,
    origin: Path | None = None,
    loggers: Sequence[str] = (),
) -> None:
    """Train an experiment into `folder`, or resume the run there; arguments as in `TrainRequest`.

    Raises:
        TrainingError: `resume` with `overwrite`, without a run, or with settings that differ from the run's.
    """
    if resume and overwrite:
        raise TrainingError("--resume continues the run that --overwrite removes; give one of the two.")
    request = TrainRequest(data, experiment, folder, overrides, resume, overwrite, origin, loggers)
    if experiment == AUTO and process_count() > 1:
        raise TrainingError(
            "--experiment auto compares short trials in one process; run it without torchrun first, and "
            "train the experiment that it writes (RUN/experiment.toml) with torchrun."
        )
    world = join_world()
    try:
        _train_run(request, world)
    finally:
        world.close()


def _train_run(request: TrainRequest, world: World) -> None:
    folder = request.folder
    if not world.leads:
        hide_progress()
    remedy = (
        "start it again with --resume, which loses at most the steps since the last checkpoint "
        "(training.checkpoint_every)."
    )
    with world.naming_losses(remedy), naming_lack_of_memory(too_large_training(world.size)):
        request = _continued(request, world)
        run, prepared = resolve_run(request)
        progress = train(
            run,
            prepared,
            request.resume,
            request.overwrite,
            REPORT,
            loggers=request.loggers,
            world=world,
        )
    if not world.leads:
        return
    best = "" if progress.best is None else f"best {run.experiment.training.metric} {progress.best:.4f}, "
    epoch = progress.epoch if progress.best is None else progress.best_epoch
    note = "" if epoch else " (none was better than the bundle)"
    print(f"{best}epoch {epoch}{note}; the run is in {folder}")
    print(f"next: `turret report run {quote(str(folder))}` writes a page about it")


def _continued(request: TrainRequest, world: World) -> TrainRequest:
    """The request; after a restart by torchrun it resumes the run that this launch has begun.

    A run that was there before the launch is refused or replaced in each attempt as in the first.
    """
    # Its count of restarts does not tell: on a machine whose processes were well, a restart counts as none.
    began = world.leads and _began_in_this_launch(request.folder)
    return replace(request, resume=True, overwrite=False) if world.agreed(began) else request


def _began_in_this_launch(folder: Path) -> bool:
    launch = launch_name()
    with suppress(TrainingError):
        return launch is not None and Run.read(folder).launch == launch
    return False


def resolve_run(request: TrainRequest, seed: int | None = None) -> tuple[Run, PreparedData]:
    """The run that a request begins or resumes, and its data; `seed` replaces that of requested settings.

    Raises:
        TrainingError: `resume` without a run, or with settings that differ from the run's; a choice by the
            data that fails.
    """
    folder, experiment, overrides, origin = (
        request.folder,
        request.experiment,
        request.overrides,
        request.origin,
    )
    if not request.resume:
        prepared = PreparedData.open(request.data or DATA)
        parent = None if origin is None else bundle_folder(origin).resolve()
        if experiment == AUTO and parent is None:
            run = chosen_run(folder, prepared, overrides, request.overwrite, REPORT)
        else:
            settings = _settings(experiment, overrides, parent)
            run = Run(folder, settings, prepared.folder, prepared.fingerprint, parent)
        return replace(run, launch=launch_name()), prepared
    run = Run.read(folder)
    if origin is not None and not _began_from(run, origin):
        start = f"from {run.origin}" if run.origin else "without --from"
        raise TrainingError(
            f"--resume: {folder} was begun {start}; leave --from out, or start another run with --run."
        )
    if experiment is not None or overrides:
        seeded = overrides if seed is None else [*overrides, f"training.seed={seed}"]
        if not _began_with(run, experiment, seeded):
            raise TrainingError(
                f"--resume: {folder} was begun with other settings, and keeps them; leave out --experiment "
                "and --set, or start another run with --run."
            )
    return run, run.open_data(request.data)


def _began_from(run: Run, origin: Path) -> bool:
    with suppress(BundleError):
        return bundle_folder(origin).resolve() == run.origin
    return False


def _began_with(run: Run, experiment: str | None, overrides: Sequence[str]) -> bool:
    if experiment == AUTO:
        return run.choice is not None and run.experiment == with_settings(
            run.experiment, parse_overrides(overrides)
        )
    return run.experiment == _settings(experiment, overrides, run.origin)


def _settings(experiment: str | None, overrides: Sequence[str], parent: Path | None) -> ExperimentConfig:
    """The named experiment, else the parent bundle's, else the default one."""
    if experiment == AUTO:
        raise TrainingError(
            "--from keeps the towers of its bundle, so --experiment auto has nothing to choose; leave one of "
            "the two out."
        )
    if experiment is None and parent is not None:
        return ParentBundle.open(parent).experiment(overrides)
    return load_experiment(experiment or EXPERIMENT, overrides)


def checked_part(part: str) -> EvaluatedPart:
    """The value of --part. Raises TrainingError where it is no part with targets."""
    if part not in get_args(EvaluatedPart):
        raise TrainingError(f"--part {part}: it must be test or validation.")
    return "test" if part == "test" else "validation"


def evaluate_run(
    folder: Path, data: Path | None, part: str, as_json: bool, baselines: Sequence[str] = ()
) -> None:
    """Evaluate a run on a part of its data, store the report in its folder and print it."""
    checked = checked_part(part)
    run = Run.read(folder)
    with naming_lack_of_memory(_too_large("evaluation", folder)):
        report = run.evaluate(run.open_data(data), checked, baselines)
    if as_json and run.choice is not None:
        report["auto"] = run.choice
    print(json.dumps(report, indent=2) if as_json else f"{metrics_table(report)}\n\n{paragraphs(report)}")


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
