"""The plan of a study: experiment, search space and data, fixed when the study begins."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from turret.data.configuration import parse_overrides
from turret.data.prepared import PreparedData
from turret.tower.config import Settings
from turret.training.config.experiment import ExperimentConfig, load_experiment
from turret.training.config.named_settings import differences, with_settings
from turret.training.errors import TrainingError
from turret.training.evaluation.evaluation import validated_items
from turret.training.tuning.space import Dimension, check_fixed, default_space, load_space

DATA, EXPERIMENT = Path("var/prepared"), "youtubednn"


class Plan(Settings):
    """The settings shared by all trials; `data` is the absolute path of the prepared data."""

    experiment: ExperimentConfig
    space: dict[str, Dimension]
    data: Path
    fingerprint: str


@dataclass(frozen=True)
class StudyRequest:
    """The arguments of one `turret tune` call; None means the study's own value, or the default."""

    folder: Path
    data: Path | None = None
    experiment: str | None = None
    overrides: Sequence[str] = ()
    space: Path | None = None

    def plan(self) -> Plan:
        """The plan of a new study. Raises TurretError for invalid arguments."""
        fixed = parse_overrides(self.overrides)
        experiment = load_experiment(self.experiment or EXPERIMENT, self.overrides)
        space = load_space(self.space, experiment, fixed) if self.space else default_space(experiment, fixed)
        if not space:
            raise TrainingError("--set fixes every setting that would be searched; name others with --space.")
        data = PreparedData.open(self.data or DATA)
        validated_items(data, experiment.training.metric)  # raises for data that can't be validated
        return Plan(
            experiment=experiment, space=space, data=data.folder.resolve(), fingerprint=data.fingerprint
        )

    def resumed(self, begun: Plan) -> Plan:
        """The plan of an existing study, with the current path of its data.

        Raises:
            TurretError: the call names other data, another experiment or another space.
        """
        remedy = "which its trials keep; leave that out, or begin another study with --study"
        data = PreparedData.open(self.data or begun.data)
        if data.fingerprint != begun.fingerprint:
            raise TrainingError(
                f"{self.folder}: this study was begun on other data than {data.folder} (by its fingerprint), "
                "so its trials could not be compared; name the right one with --data, or begin another study "
                "with --study."
            )
        fixed = parse_overrides(self.overrides)
        if self.experiment is not None:
            experiment = load_experiment(self.experiment, self.overrides)
        else:
            experiment = with_settings(begun.experiment, fixed)
        if changed := differences(begun.experiment, experiment):
            raise TrainingError(
                f"{self.folder}: this study was begun with another experiment ({changed}), {remedy}."
            )
        check_fixed(begun.space, fixed, self.folder)
        if self.space and load_space(self.space, begun.experiment, fixed) != begun.space:
            raise TrainingError(f"{self.folder}: this study was begun with another space, {remedy}.")
        return begun.model_copy(update={"data": data.folder.resolve()})
