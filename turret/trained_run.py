"""From prepared data to a bundle: `turret.train` and the run that it returns."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from turret.arguments import checked, local_folder
from turret.data.prepared import PreparedData
from turret.training.begin import begin_run
from turret.training.evaluation.evaluation import EvaluatedPart
from turret.training.export.export import export
from turret.training.loop.train import train as train_run
from turret.training.run import Run

_LOG = logging.getLogger("turret")
StrPath = str | PathLike[str]


@dataclass(frozen=True)
class TrainedRun:
    """A folder with trained towers, and the prepared data that they were trained on."""

    run: Run
    data: PreparedData

    @property
    def folder(self) -> Path:
        """The folder of the run."""
        return self.run.folder

    @property
    def choice(self) -> dict[str, Any] | None:
        """The choice of `experiment="auto"`: `{picked, reasons, trials}`; None for a named experiment."""
        return self.run.choice

    @checked
    def evaluate(self, part: EvaluatedPart = "test", baselines: Sequence[str] = ()) -> dict[str, Any]:
        """Rank the whole catalog for every user of a part, beside popularity and other baselines.

        Args:
            part: "test" or "validation".
            baselines: names such as "ease", or "all"; docs/evaluation.md lists them.

        Returns:
            The report of `turret evaluate --json`: `report["towers"]["ndcg@10"]["mean"]`. It is kept
            in the run and exported with it.

        Raises:
            TrainingError: the part is empty, or a baseline does not exist or can't be fitted.
        """
        return self.run.evaluate(self.data, part, baselines)

    @checked
    def export(self, bundles: StrPath, version: str | None = None) -> Path:
        """Publish the model as a bundle; the first one in the folder `bundles` becomes current.

        Args:
            bundles: the folder of the bundles, made if need be.
            version: the bundle's name; by default the time and a fingerprint.

        Returns:
            The bundle's folder.

        Raises:
            TrainingError: the objective ranks by something other than an inner product.
            TowerError: the version exists, or the exported tower answers otherwise than the trained one.
        """
        folder = local_folder("bundles", bundles, "a bundle is published in a local folder")
        return export(self.run, self.data, folder, version)


@checked
def train(
    data: PreparedData | StrPath,
    folder: StrPath,
    *,
    experiment: StrPath | None = None,
    settings: Mapping[str, object] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    report: Callable[[str], None] = _LOG.info,
    loggers: Sequence[str] = (),
) -> TrainedRun:
    """Train both towers on prepared data.

    Args:
        data: prepared data, or its folder.
        folder: the folder of the run.
        experiment: the name of a shipped experiment ("youtubednn" by default), the path of a TOML file, or
            "auto", which looks at the data, tries the experiments that fit, and picks one; the run's
            `choice` has the reasons.
        settings: settings that override the experiment's, by their dotted names, such as
            `{"training.epochs": 5}`.
        resume: continue the run in `folder` from its last checkpoint, with the settings that it has.
        overwrite: replace the run in `folder`.
        report: takes a line for each epoch, and for each reason of a choice.
        loggers: "tensorboard", "mlflow" or "wandb"; by default TensorBoard, or those of a resumed run.

    Raises:
        TrainingError: `folder` holds a run, `resume` has no run to continue or comes with other settings,
            or the experiment can't be trained on this data.
        ConfigurationError: a setting does not exist, does not fit, or contradicts another.
    """
    run, prepared = begin_run(
        local_folder("folder", folder, "a run is written to a local folder"),
        data if isinstance(data, PreparedData) else Path(data),
        None if experiment is None else str(experiment),
        settings or {},
        resume=resume,
        overwrite=overwrite,
        report=report,
    )
    train_run(run, prepared, resume, overwrite, report, loggers=loggers)
    return TrainedRun(run, prepared)


@checked
def open_run(folder: StrPath, data: StrPath | None = None) -> TrainedRun:
    """Open a run that `turret.train` or `turret train` wrote.

    Args:
        folder: the folder of the run.
        data: the folder of its prepared data, if that has moved.

    Raises:
        TrainingError: `folder` holds no run, or `data` is not the data that it was trained on.
    """
    run = Run.read(Path(folder))
    return TrainedRun(run, run.open_data(None if data is None else Path(data)))
