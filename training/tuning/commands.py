"""`turret tune`: run a study and print its best trials."""

from functools import partial

from optuna.trial import TrialState

from turret.data.prepared import PreparedData
from turret.data.progress import counted
from turret.data.text import text_table
from turret.training.device import pick_device
from turret.training.tuning.plan import StudyRequest
from turret.training.tuning.study import JOURNAL, StoredStudy, open_storage
from turret.training.tuning.trials import BEST, EPOCH, REASON, SECONDS, Trials, shown_setting

COLUMNS = 5


def tune(request: StudyRequest, count: int) -> None:
    """Begin or continue a study until it has `count` trials, then print the best ones.

    Raises:
        TurretError: the request is invalid or contradicts the study, or every trial failed.
    """
    if not (request.folder / JOURNAL).is_file():
        request.plan()  # raises before a folder is made
    with open_storage(request.folder) as storage:
        study = StoredStudy(storage, request)
        data = PreparedData.open(study.plan.data)
        pick_device(study.plan.experiment.training.device)
        report = partial(print, flush=True)  # `| tee` shows each trial
        if done := len(study.finished()):
            report(f"Continuing {request.folder} after {done} trials.")
        trials = Trials(study, data, request.folder, report)
        trials.run(count)
        print(study_table(study))
        run = trials.run_folder(study.best()[0])
        print(f"Best experiment: {request.folder / BEST}. Its run: {run}.")


def study_table(study: StoredStudy) -> str:
    """A column for each of the best trials, a row for each setting, and the counts of all outcomes."""
    finished, best = study.finished(), study.best()[:COLUMNS]
    trials = [finished[number - 1] for number in best]
    rows: list[list[str] | None] = [
        [study.plan.experiment.training.metric, *(f"{trial.values[0]:.4f}" for trial in trials)],
        ["epoch", *(str(trial.user_attrs[EPOCH]) for trial in trials)],
        ["seconds", *(f"{trial.user_attrs[SECONDS]:.0f}" for trial in trials)],
        None,
        *(
            [name, *(shown_setting(dimension.decode(trial.params[name])) for trial in trials)]
            for name, dimension in study.plan.space.items()
        ),
    ]
    table = text_table(("trial", *map(str, best)), rows)
    return f"{_counts(study)} The best by the validation metric:\n{table}"


def _counts(study: StoredStudy) -> str:
    finished = study.finished()
    failed = sum(REASON in trial.user_attrs for trial in finished)
    stopped = sum(trial.state == TrialState.PRUNED for trial in finished) - failed
    text = f"{counted(len(finished), 'trial')}, {stopped} stopped early"
    return f"{text}, {failed} failed." if failed else f"{text}."
