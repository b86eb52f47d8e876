"""The run that a training begins or resumes, for the command line, Python and retraining alike."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from turret.data.configuration import parse_overrides
from turret.data.prepared import PreparedData
from turret.tower.errors import BundleError
from turret.tower.format.listing import bundle_folder
from turret.training.auto.choice import choose
from turret.training.batches.baskets import examples_of
from turret.training.config.experiment import ExperimentConfig, load_experiment, with_settings
from turret.training.distributed import process_count
from turret.training.errors import TrainingError
from turret.training.run import AUTO_TRIALS, DATA, EXPERIMENT, RUN, Run, check_no_run
from turret.training.warm_start import ParentBundle

AUTO = "auto"


def begin_run(
    folder: Path,
    data: PreparedData | Path | None = None,
    experiment: ExperimentConfig | str | None = None,
    overrides: Sequence[str] | Mapping[str, object] = (),
    *,
    resume: bool = False,
    overwrite: bool = False,
    origin: Path | None = None,
    report: Callable[[str], None] = print,
) -> tuple[Run, PreparedData]:
    """A new run in `folder`, or with `resume` the one that is there, and its data.

    Nothing is written but the trials of a choice by the data, one of which goes on as the run.

    Args:
        folder: the folder of the run.
        data: prepared data or its folder; for a resumed run only if it was moved.
        experiment: settings, the name or the file of an experiment, or "auto" for a choice by the data; None
            for the experiment of `origin`, else the default one.
        overrides: `section.key=value` texts, or values by dotted names.
        resume: whether to continue; a run of several processes that has not begun begins, so that torchrun
            may start the same command again.
        overwrite: whether a choice by the data may take the place of a run.
        origin: a bundle, or a folder with a current one, for a warm start.
        report: takes the reasons of a choice.

    Raises:
        TrainingError: a run that is resumed was begun otherwise; or a choice by the data has nothing to
            choose, every trial failed, or the folder has a run that it may not overwrite.
        ConfigurationError: a setting does not exist, does not fit, or contradicts another.
    """
    values = overrides if isinstance(overrides, Mapping) else parse_overrides(overrides)
    if resume and (process_count() == 1 or (folder / RUN).is_file()):
        run = Run.read(folder)
        _check_begun(run, experiment, values, origin)
        return run, run.open_data(data.folder if isinstance(data, PreparedData) else data)
    prepared = data if isinstance(data, PreparedData) else PreparedData.open(data or DATA)
    parent = None if origin is None else bundle_folder(origin).resolve()
    if experiment != AUTO:
        settings = settings_of(experiment, values, parent)
        prepared = examples_of(settings, prepared)
        return Run(folder, settings, prepared.folder, prepared.fingerprint, parent), prepared
    if parent is not None:
        raise TrainingError(
            "--from keeps the towers of its bundle, so --experiment auto has nothing to choose; leave one of "
            "the two out."
        )
    if not overwrite:
        check_no_run(folder)
    trials = folder / AUTO_TRIALS
    shutil.rmtree(trials, ignore_errors=True)
    try:
        chosen, choice = choose(prepared, values, trials, report)
    except BaseException:
        shutil.rmtree(trials, ignore_errors=True)
        raise
    trial = trials / choice["picked"]
    return Run(folder, chosen, prepared.folder, prepared.fingerprint, choice=choice, trial=trial), prepared


def settings_of(
    experiment: ExperimentConfig | str | None, values: Mapping[str, object], parent: Path | None
) -> ExperimentConfig:
    """The settings of a run, as `begin_run` takes them; `parent` is a bundle. Raises ConfigurationError."""
    if isinstance(experiment, ExperimentConfig):
        return with_settings(experiment, values)
    if experiment is None and parent is not None:
        return ParentBundle.open(parent).experiment(values)
    return load_experiment(experiment or EXPERIMENT, values)


def _check_begun(
    run: Run, experiment: ExperimentConfig | str | None, values: Mapping[str, object], origin: Path | None
) -> None:
    """Raise TrainingError unless a run that is resumed was begun from this bundle with these settings."""
    if origin is not None and not _is_origin(run, origin):
        start = f"from {run.origin}" if run.origin else "without --from"
        raise TrainingError(
            f"--resume: {run.folder} was begun {start}; leave --from out, or start another run with --run."
        )
    if experiment is None or (experiment == AUTO and run.choice is not None):
        experiment = run.experiment
    if experiment == AUTO or settings_of(experiment, values, None) != run.experiment:
        raise TrainingError(
            f"--resume: {run.folder} was begun with other settings, and keeps them; leave out --experiment "
            "and --set, or start another run with --run."
        )


def _is_origin(run: Run, origin: Path) -> bool:
    with suppress(BundleError):
        return bundle_folder(origin).resolve() == run.origin
    return False
