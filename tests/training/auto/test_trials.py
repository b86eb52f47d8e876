from dataclasses import replace

import pytest

from tests.training.auto.facts import facts
from turret.data.prepared import PreparedData
from turret.training.auto.facts import facts_of
from turret.training.auto.trials import obstacle, run_trials, trial_reason, trial_settings
from turret.training.config.experiment import load_experiment

QUICK = {"training.epochs": 1, "training.batch_size": 512, "tower.dimension": 8, "training.device": "cpu"}


def test_trials_need_two_candidates_a_validation_part_and_a_bounded_log() -> None:
    assert obstacle(facts(), 2) is None
    assert obstacle(facts(), 1) == "there is one candidate"
    assert obstacle(facts(has_validation=False), 2) == "the data has no validation part"
    assert obstacle(facts(examples=20_000_000), 2) == "an epoch has more than 10,000,000 examples"


@pytest.mark.parametrize(
    ("examples", "items", "epochs"),
    [
        (100_000, 3_000, 20),  # two million examples
        (100_000, 50_000, 2),  # ten thousand million scores
        (9_000_000, 3_000, 1),
        (10, 3_000, 40),  # no more than the experiment has
    ],
)
def test_a_trial_is_bounded(examples: int, items: int, epochs: int) -> None:
    experiment = load_experiment("transformer", {"training.epochs": 40})
    shortened = trial_settings(experiment, facts(examples=examples, items=items))
    assert shortened.training.epochs == epochs
    assert (shortened.tower, shortened.objective) == (experiment.tower, experiment.objective)


def test_a_trial_that_fails_gives_its_reason_and_the_others_go_on(handmade: PreparedData) -> None:
    """The data has no times for the age of an example."""
    ordinary = load_experiment("demo", QUICK)
    impossible = load_experiment("demo", {**QUICK, "tower.user.example_age": True})
    candidates = {"impossible": impossible, "ordinary": ordinary}
    failed, good = run_trials(candidates, facts_of(handmade), handmade)
    assert (failed.candidate, failed.value) == ("impossible", None)
    assert "tower.user.example_age = true needs times" in failed.failure
    assert trial_reason(failed, "ndcg@10").sentence.startswith("The trial of impossible failed: tower.user.")
    assert (good.candidate, good.epoch, good.epochs) == ("ordinary", 1, 1)
    told = trial_reason(replace(good, value=0.25, seconds=3.4), "ndcg@10")
    assert told.kind == "trial"
    assert told.sentence == (
        "In a trial of at most 1 epoch, ordinary reaches a validation ndcg@10 of 0.2500 at epoch 1 (3 s)."
    )
