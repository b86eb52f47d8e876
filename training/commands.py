"""`turret train`, `evaluate` and `export`, of one run or of several seeds: run and print."""

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from shlex import quote

from turret.data.configuration import parse_overrides
from turret.data.prepared import PreparedData
from turret.data.progress import hide_progress
from turret.tower.errors import BundleError
from turret.tower.format.listing import bundle_folder
from turret.training.auto.choice import AUTO, chosen_run
from turret.training.comparison.seeds import (
    SeedRuns,
    evaluation_summary,
    evaluation_table,
    parse_seeds,
    training_summary,
    training_table,
    with_seed,
)
from turret.training.config.experiment import ExperimentConfig, load_experiment
from turret.training.config.named_settings import with_settings
from turret.training.distributed.processes import join_world, launch_name
from turret.training.distributed.world import World, process_count
from turret.training.errors import TrainingError
from turret.training.evaluation.evaluation import EvaluatedPart
from turret.training.evaluation.table import metrics_table
from turret.training.export.export import export, export_warnings
from turret.training.process import naming_lack_of_memory, too_large_training
from turret.training.run import DATA, EXPERIMENT, RUN, SEEDS, Run, remove_run
from turret.training.trainer import train
from turret.training.verdict.findings import paragraphs
from turret.training.warm_start import ParentBundle

REPORT = partial(print, flush=True)  # `| tee` shows each epoch


@dataclass(frozen=True)
class TrainRequest:
    """The arguments of `turret train`.

    `origin` is a bundle, or a folder with a current bundle, for a warm start; its experiment is the default.
    Raises TrainingError for `resume` with `overwrite`.
    """

    data: Path | None
    experiment: str | None
    folder: Path
    overrides: Sequence[str]
    resume: bool = False
    overwrite: bool = False
    origin: Path | None = None
    loggers: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.resume and self.overwrite:
            raise TrainingError("--resume continues what --overwrite removes; give one of the two.")


def train_command(request: TrainRequest, seeds: str | None = None) -> None:
    """Train one run, or one for each seed of `seeds`; a folder of several seeds is resumed without them.

    Raises:
        TrainingError: the folder has runs and neither `resume` nor `overwrite` is set, there is nothing to
            resume, or the settings differ from those of the runs there.
    """
    known = SeedRuns.read(request.folder)
    if seeds is None and known is None:
        _train_one(request)
    elif seeds is None and not request.resume:
        raise TrainingError(
            f"{request.folder} holds the runs of several seeds; continue them with --resume, replace them "
            "with --seeds and --overwrite, or name another folder with --run."
        )
    else:
        _train_seeds(request, parse_seeds(seeds) if seeds else (), known)


def _train_one(request: TrainRequest) -> None:
    if request.experiment == AUTO and process_count() > 1:
        raise TrainingError(
            "--experiment auto compares short trials in one process; run it without torchrun first, and "
            "train the experiment that it writes (RUN/experiment.toml) with torchrun."
        )
    world = join_world()
    try:
        if not world.leads:
            hide_progress()
        remedy = (
            "start it again with --resume, which loses at most the steps since the last checkpoint "
            "(training.checkpoint_every)."
        )
        with world.naming_losses(remedy), naming_lack_of_memory(too_large_training(world.size)):
            request = _continued(request, world)
            run, prepared = _resolve_run(request)
            progress = train(
                run,
                prepared,
                request.resume,
                request.overwrite,
                REPORT,
                loggers=request.loggers,
                world=world,
            )
    finally:
        world.close()
    if not world.leads:
        return
    best = "" if progress.best is None else f"best {run.experiment.training.metric} {progress.best:.4f}, "
    epoch = progress.epoch if progress.best is None else progress.best_epoch
    note = "" if epoch else " (none was better than the bundle)"
    print(f"{best}epoch {epoch}{note}; the run is in {request.folder}")
    print(f"next: `turret report run {quote(str(request.folder))}` writes a page about it")


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


def _resolve_run(request: TrainRequest, seed: int | None = None) -> tuple[Run, PreparedData]:
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
        run = new_run(folder, prepared, experiment, overrides, REPORT, request.overwrite, parent)
        return replace(run, launch=launch_name()), prepared
    run = Run.read(folder)
    if origin is not None and not _began_from(run, origin):
        start = f"from {run.origin}" if run.origin else "without --from"
        raise TrainingError(
            f"--resume: {folder} was begun {start}; leave --from out, or start another run with --run."
        )
    if experiment is not None or overrides:
        seeded = overrides if seed is None else [*overrides, f"training.seed={seed}"]
        check_begun_with(run, _requested(run, experiment, seeded))
    return run, run.open_data(request.data)


def new_run(
    folder: Path,
    data: PreparedData,
    experiment: str | None,
    overrides: Sequence[str] | Mapping[str, object],
    report: Callable[[str], None],
    overwrite: bool = False,
    parent: Path | None = None,
) -> Run:
    """A new run in `folder`: of the named experiment, else of the parent bundle's, else of the default one.

    Raises:
        TrainingError: a choice by the data ("auto") has nothing to choose, every trial failed, or the folder
            has a run that it may not overwrite.
        ConfigurationError: a setting does not exist, does not fit, or contradicts another.
    """
    if experiment != AUTO:
        settings = _experiment(experiment, overrides, parent)
        return Run(folder, settings, data.folder, data.fingerprint, parent)
    if parent is not None:
        raise TrainingError(
            "--from keeps the towers of its bundle, so --experiment auto has nothing to choose; leave one of "
            "the two out."
        )
    return chosen_run(folder, data, overrides, overwrite, report)


def _experiment(
    name: str | None, overrides: Sequence[str] | Mapping[str, object], parent: Path | None
) -> ExperimentConfig:
    if name is None and parent is not None:
        assert not isinstance(overrides, Mapping)  # of the command line alone
        return ParentBundle.open(parent).experiment(overrides)
    return load_experiment(name or EXPERIMENT, overrides)


def _began_from(run: Run, origin: Path) -> bool:
    with suppress(BundleError):
        return bundle_folder(origin).resolve() == run.origin
    return False


def check_begun_with(run: Run, experiment: ExperimentConfig | None) -> None:
    """Raise TrainingError unless a run that is resumed was begun with this experiment."""
    if experiment != run.experiment:
        raise TrainingError(
            f"--resume: {run.folder} was begun with other settings, and keeps them; leave out --experiment "
            "and --set, or start another run with --run."
        )


def _requested(run: Run, experiment: str | None, overrides: Sequence[str]) -> ExperimentConfig | None:
    """The experiment that is requested for a run that exists; None for a choice that it has not made."""
    if experiment != AUTO:
        return _experiment(experiment, overrides, run.origin)
    return None if run.choice is None else with_settings(run.experiment, parse_overrides(overrides))


def _train_seeds(request: TrainRequest, seeds: Sequence[int], known: SeedRuns | None) -> None:
    """Train one run a seed, except for those that are finished, and report mean and deviation."""
    _check_seeds(request, known)
    begun = known.begun() if known and request.resume else []
    if known and begun:
        template, prepared = _resolve_run(replace(request, folder=known.run_folder(begun[0])), begun[0])
    else:
        template, prepared = _resolve_run(replace(request, resume=False))
    if known and request.overwrite:
        for seed in known.seeds:
            remove_run(known.run_folder(seed))
        (known.folder / SEEDS).unlink()
    runs = SeedRuns(request.folder, known.seeds if known and request.resume else ()).with_seeds(seeds)
    if runs != known or request.overwrite:
        runs.write(training_summary(runs))
    for number, seed in enumerate(runs.seeds, start=1):
        title = f"seed {seed} ({number} of {len(runs.seeds)})"
        if seed in runs.finished():
            REPORT(f"{title}: trained already")
            continue
        REPORT(title)
        run = replace(template, folder=runs.run_folder(seed), experiment=with_seed(template.experiment, seed))
        train(run, prepared, request.resume, request.overwrite, REPORT, loggers=request.loggers)
        runs.write(training_summary(runs))
    print(training_table(training_summary(runs)))
    print(f"the runs are in {runs.folder}")
    first = quote(str(runs.run_folder(runs.seeds[0])))
    print(f"next: `turret report run {first}` writes a page about the first one")


def _check_seeds(request: TrainRequest, known: SeedRuns | None) -> None:
    folder = request.folder
    if (folder / RUN).is_file():
        raise TrainingError(f"{folder} holds a run of one seed; name another folder with --run.")
    if request.resume and known is None:
        raise TrainingError(f"{folder}: there are no runs of several seeds here; leave out --resume.")
    if known is not None and not (request.resume or request.overwrite):
        raise TrainingError(
            f"{folder} holds the runs of several seeds already; continue them with --resume, replace them "
            "with --overwrite, or name another folder with --run."
        )
    if any(setting.partition("=")[0].strip() == "training.seed" for setting in request.overrides):
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
