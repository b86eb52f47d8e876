"""Quick studies, and a way to read them without the project."""

from collections.abc import Sequence
from pathlib import Path

from optuna import load_study
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from turret.data.prepared import PreparedData
from turret.training.tuning.study import StudyRequest, tune

EPOCHS = 4
QUICK = ("tower.dimension=8", "training.batch_size=512", f"training.epochs={EPOCHS}", "training.device=cpu")
SPACE = """
training.learning_rate = { low = 1e-4, high = 3e-2, log = true }
tower.user.hidden = { choices = [[128], [16]] }
"""


def search(
    folder: Path,
    data: PreparedData | Path,
    count: int,
    space: str | None = SPACE,
    overrides: Sequence[str] = QUICK,
    experiment: str | None = "youtubednn",
) -> None:
    """Run `turret tune` with the space written to a file (None: without one)."""
    file = None
    if space is not None:
        file = folder.parent / "space.toml"
        file.write_text(space)
    where = data if isinstance(data, Path) else data.folder
    tune(StudyRequest(folder, where, experiment, overrides, file), count)


def stored(folder: Path) -> list[FrozenTrial]:
    """The finished trials of a study, as anybody with Optuna reads them."""
    storage = JournalStorage(JournalFileBackend(str(folder / "study.journal")))
    study = load_study(study_name="turret", storage=storage)
    return study.get_trials(states=(TrialState.COMPLETE, TrialState.PRUNED))


def told(folder: Path) -> list[object]:
    """All that a study found out, but for how long it took and how often it was interrupted."""
    return [(t.state, t.params, t.values, t.intermediate_values) for t in stored(folder)]
