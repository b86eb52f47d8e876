import pytest

from turret.data.errors import ConfigurationError
from turret.planning.request import EXPERIMENT, KEEP, VALIDATION_USERS, experiment_defaults
from turret.retraining.settings import RetrainSettings
from turret.training.config.experiment import TrainingConfig, load_experiment


@pytest.mark.parametrize("name", ["youtubednn", "transformer"])
def test_the_defaults_are_those_of_the_experiment(name: str) -> None:
    experiment = load_experiment(name)
    assert experiment_defaults(name) == {
        "dimension": experiment.tower.dimension,
        "history": experiment.tower.user.history_length,
        "epochs": experiment.training.epochs,
    }


def test_an_experiment_that_is_not_shipped_is_a_sentence() -> None:
    with pytest.raises(ConfigurationError, match=f"--experiment nope: .* {EXPERIMENT} is the default"):
        experiment_defaults("nope")


def test_copied_defaults_are_those_of_the_commands() -> None:
    """They are copied, as their modules import much."""
    assert RetrainSettings.keep == KEEP
    assert TrainingConfig().validation_users == VALIDATION_USERS
