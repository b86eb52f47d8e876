"""A training from its first step to the model that is kept: the loop, the repeat term, and the refit."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from turret.data.files import replace_json
from turret.data.prepared import PreparedData
from turret.data.progress import counted
from turret.tower.slots import with_slots
from turret.training.checkpoint import Progress, save_tensors
from turret.training.config.experiment import with_settings
from turret.training.distributed import WORLD, process_count
from turret.training.errors import TrainingError
from turret.training.evaluation.evaluation import Relevant, means_of, slot_sets, validated_items, values_of
from turret.training.evaluation.metrics import Values
from turret.training.evaluation.repeats import fit_repeats, last_trained, values_across
from turret.training.loop.pairs import add_pairs, refit_pairs
from turret.training.loop.trainer import Observe, Report, Trainer
from turret.training.records import DEFAULT, check_loggers, stored_loggers
from turret.training.run import (
    CHECKPOINT,
    REFIT,
    REFIT_COST,
    REFITTED,
    REPEATS,
    Run,
    StoredRepeats,
    check_no_run,
    check_same_run,
    remove_run,
    with_validation,
)
from turret.training.used_items import wants_repeats
from turret.training.warm_start import ParentBundle, warm_start_weights

# A run with fewer steps reports that. Adam's first steps are as long as the learning rate, however small the
# gradients of a trained model are; randomly initialised vectors need more steps.
FEW_WARM_STEPS, FEW_STEPS = 20, 100


def train(
    run: Run,
    data: PreparedData,
    resume: bool = False,
    overwrite: bool = False,
    report: Report = print,
    observe: Observe | None = None,
    loggers: Sequence[str] = (),
) -> Progress:
    """Train `run` on `data`, from the start or from its checkpoint; `observe` may end it at an evaluation.

    The folder stays unchanged when the run can't begin. Without `loggers` a resumed run keeps the loggers
    that it began with, and a new one has TensorBoard. The best metric includes the repeat term, if the run
    has one. A run that is observed has no refit.

    Raises:
        TrainingError: the folder has a run and neither `resume` nor `overwrite` is set, the experiment
            does not fit the data, a logger does not exist or is not installed, or as `check_same_run`.
    """
    check_loggers(loggers)
    world = WORLD.get()
    if max(world.size, process_count()) > 1:
        check_same_run(run)
    is_begun = resume and world.agreed((run.folder / CHECKPOINT).is_file())
    if not (resume or overwrite):
        check_no_run(run.folder)
    trainer = Trainer(run, data, report, observe)
    if trainer.users is None:
        trainer.report("The data has no validation part: all epochs are run and the last model is kept.")
    if is_begun:
        loggers = loggers or tuple(stored_loggers(run.folder))
        trainer.resume()
    else:
        wants_refit = observe is None and trainer.settings.refit
        _begin(trainer, has_refit=wants_refit and _has_refit(trainer))
    progress, users, report = trainer.train(loggers or DEFAULT), trainer.users, trainer.report
    validated, slot = trainer.validated, trainer.slot
    del trainer  # this frees its tables and their moments
    if world.leads and run.lacks_pairs():
        add_pairs(run, data, validated, slot, report)
    if world.leads and wants_repeats(run.experiment, data):
        _add_repeats(run, data, users, report)
    if world.agreed(run.lacks_refit()) and not world.agreed(run.is_refitted()):
        _refit(run, data, progress.best_epoch, report)
    if world.leads:
        shutil.rmtree(run.folder / REFIT, ignore_errors=True)
        return replace(progress, best=run.best().get(run.experiment.training.metric))
    return progress


def _begin(trainer: Trainer, has_refit: bool) -> None:
    """Make the folder of a new run, with one for its refit, and load the weights that it starts from."""
    run, settings, batches = trainer.run, trainer.settings, trainer.batches
    start = _warm_start(trainer, run.origin) if run.origin else ""
    if trainer.world.leads:
        remove_run(run.folder)
        run.write()
        if has_refit:
            (run.folder / REFIT).mkdir()
        run.take_trial()
    if run.trial is not None and (run.folder / CHECKPOINT).is_file():
        trainer.resume()
    if start:
        trainer.report_first(start)
    elif getattr(run.experiment.tower.user, "start", "") == "alike":
        trainer.report_first("The towers begin alike.")
    planned = settings.epochs * batches.steps_per_epoch
    if planned < (FEW_WARM_STEPS if run.origin else FEW_STEPS):
        trainer.report(
            f"The run has only {planned} steps: training.batch_size = {settings.batch_size} is large for "
            f"{batches.example_count:,} examples; a smaller one may give a better model."
        )


def _warm_start(trainer: Trainer, origin: Path) -> str:
    """Load the weights of the parent bundle `origin`, and describe them."""
    transfer = warm_start_weights(trainer.model, trainer.data, ParentBundle.open(origin))
    return f"Warm start from {origin}: {transfer}"


def _has_refit(trainer: Trainer) -> bool:
    """Whether the data has the parts that a refit needs: reports a missing one."""
    starts, ends = trainer.data.bounds("test")
    has_test = bool((trainer.data.first_targets(starts, ends) < ends).any())
    if trainer.users is None or not has_test:
        part = "test" if trainer.users is not None else "validation"
        trainer.report(f"There is no refit (training.refit = true), as the data has no {part} part.")
        return False
    return True


def _refit(run: Run, data: PreparedData, epochs: int, report: Report) -> None:
    """Train anew on the training and validation parts for the epochs that validation chose.

    Until it has ended, the refit is a run in its own folder, and is resumed as one. There is no refit where
    no epoch was better than the parent bundle.
    """
    if not epochs:
        return
    experiment = with_settings(run.experiment, {"training.epochs": epochs})
    again = replace(run, folder=run.folder / REFIT, experiment=experiment)
    world = WORLD.get()
    is_begun = world.agreed((again.folder / CHECKPOINT).is_file())
    trainer = Trainer(again, with_validation(data), report)
    trainer.report(
        f"Refit on the training and validation parts, for {counted(epochs, 'epoch')}, as the best model had."
    )
    if is_begun:
        trainer.resume()
    elif run.origin:
        _warm_start(trainer, run.origin)
    refitted = trainer.train(())
    if world.leads:
        replace_json(run.folder / REFIT_COST, {"seconds": refitted.seconds})
        refit_pairs(run, with_validation(data))
        save_tensors(run.folder / REFITTED, trainer.best)


def train_trial(run: Run, data: PreparedData, until: int) -> tuple[Progress, dict[str, Values]]:
    """Begin `run`, or go on with it, `until` so many epochs, without reports, loggers or a refit.

    Returns its progress, and the result of `values_of` for the validation users and its best model, with the
    repeat term that was fitted on other users if it is kept.
    """
    trainer = Trainer(run, data, report=lambda _: None)
    assert trainer.users is not None
    run.folder.mkdir(parents=True, exist_ok=True)
    if (run.folder / CHECKPOINT).is_file():
        trainer.resume()
    progress, values = trainer.train((), until), dict[str, Values]()
    if wants_repeats(run.experiment, data):
        values = _add_repeats(run, data, trainer.users, trainer.report)
    metric, evaluation = run.experiment.training.metric, run.experiment.evaluation
    if not values:
        sets = slot_sets(data, trainer.users, "validation", evaluation)
        values = values_of(run.open_ranker(data, "validation"), data, sets, metric, evaluation)
    return progress, values


def _add_repeats(run: Run, data: PreparedData, users: Relevant | None, report: Report) -> dict[str, Values]:
    """Fit the repeat term of a trained run, and keep it if it raises the metric of other users.

    Data without a validation part has the last training event of each user in its place. Returns the metric
    of each user of the validation part as `values_of`, with the term if it is kept; an empty dict where
    nothing is measured.
    """
    settings, evaluation = run.experiment.training, run.experiment.evaluation
    (run.folder / REPEATS).unlink(missing_ok=True)
    part, is_validated = "validation", users is not None
    if users is None:
        part, data = "last training events:", last_trained(data)
        try:
            users = validated_items(data, settings)
        except TrainingError as error:
            report(f"The repeat term is left out, as nothing measures it: {error}")
            return {}
    towers = run.open_ranker(data, "validation", repeats=False)
    fit = fit_repeats(towers, data, evaluation.exclude_seen, users)
    if fit is None:
        report("The repeat term is left out, as fewer than two users have a history to measure it on.")
        return {}
    sets, metric = slot_sets(data, users, "validation", evaluation), settings.metric
    without = values_of(towers, data, sets, metric, evaluation)
    values = values_across(towers, fit, data, sets, metric, evaluation)
    figures = [means_of(user_values) for user_values in (without, values)]
    is_kept = figures[1][metric] > figures[0][metric]
    report(
        f"{part} {metric} {with_slots(figures[0], metric)} without the repeat term, "
        f"{with_slots(figures[1], metric)} with it, fitted on other users"
        f"{'' if is_kept else ', so it is left out'}"
    )
    best = figures[is_kept] if is_validated else {}
    kept = StoredRepeats(term=fit.term if is_kept else None, validation=best)
    replace_json(run.folder / REPEATS, kept.model_dump(mode="json"))
    return (values if is_kept else without) if is_validated else {}
