"""The test of non-inferiority, and its sentences."""

from pathlib import Path

import numpy as np
import pytest

from tests.activation.conftest import PublishTaste
from turret.activation.held_out import HeldOut
from turret.activation.not_worse import Comparison, UnclearError, WorseError, compare_versions
from turret.data.errors import TurretError
from turret.data.prepared import PreparedData


def comparison(
    new: list[float], live: list[float], margin: float = 0.1, warning: str | None = None
) -> Comparison:
    rows = np.arange(len(new))
    users = HeldOut(rows, rows, rows, "of the test part", warning)
    return Comparison.of(("new", "live"), "ndcg@10", margin, users, np.array(new), np.array(live))


def test_equal_versions_are_not_worse_without_any_margin() -> None:
    sentence = comparison([0.5, 0.1] * 20, [0.5, 0.1] * 20, margin=0.0).check()
    assert sentence.startswith(
        "new is not worse than live: ndcg@10 is 0.3000 against 0.3000 for 40 users with "
    )
    assert sentence.endswith("interval over paired users [+0.0000, +0.0000]; a loss of up to 0 % is accepted")


def test_a_loss_within_the_margin_is_accepted() -> None:
    assert "not worse" in comparison([0.46, 0.48] * 50, [0.5, 0.5] * 50).check()


def test_a_certain_loss_is_refused() -> None:
    with pytest.raises(WorseError, match=r"new is worse than live: .* -0\.1000 \(-20\.0%\)") as caught:
        comparison([0.3, 0.5] * 50, [0.5, 0.5] * 50).check()
    assert caught.value.exit_status == 3
    margin = float(str(caught.value).split("--margin ")[1].split(" ")[0])
    assert margin == pytest.approx(0.24, abs=0.01)
    assert "not worse" in comparison([0.3, 0.5] * 50, [0.5, 0.5] * 50, margin).check()


def test_noise_is_told_from_a_loss() -> None:
    """No difference on average, but a spread that hides a loss of a tenth."""
    new, live = [0.0, 1.0] * 300, [1.0, 0.0] * 300
    with pytest.raises(UnclearError, match="600 users are too few to show that new is not worse") as caught:
        comparison(new, live).check()
    assert caught.value.exit_status == 4
    needed = int(str(caught.value).split("about ")[1].split(" users")[0].replace(",", ""))
    # Differences of 1 and -1 deviate by 1; the tolerance is for the resamples.
    assert needed == pytest.approx((1.96 / 0.05) ** 2, rel=0.1)


def test_a_remedy_is_one() -> None:
    """A margin above 1, or fewer users than there are, would be none."""
    with pytest.raises(UnclearError, match=r"; train again, or compare on more users$"):
        comparison([0.0] * 60, [1.0] + [0.0] * 59).check()
    with pytest.raises(WorseError, match=r"--margin 0\.14 would accept it$"):
        comparison([0.45, 0.43, 0.42, 0.43] * 25, [0.5] * 100, margin=0.13).check()


def test_few_users_tell_nothing() -> None:
    with pytest.raises(UnclearError, match="at least 30 users are needed"):
        comparison([1.0] * 29, [0.0] * 29).check()


def test_metrics_of_zero_tell_nothing() -> None:
    with pytest.raises(UnclearError, match="can't tell new from live"):
        comparison([0.0] * 40, [0.0] * 40).check()
    assert comparison([0.1] * 40, [0.0] * 40).check().endswith("no loss is accepted")


def test_an_advantage_of_the_live_version_is_said() -> None:
    assert comparison([0.5] * 40, [0.5] * 40, warning="it knows them").check().endswith("(it knows them)")
    with pytest.raises(WorseError, match=r"\(it knows them\)$"):
        comparison([0.1] * 40, [0.5] * 40, warning="it knows them").check()


def test_a_bundle_is_compared_with_another_one(
    tmp_path: Path, publish_taste: PublishTaste, tastes: PreparedData
) -> None:
    publish_taste("good")
    publish_taste("bad", noise=3.0)
    with pytest.raises(WorseError, match="bad is worse than good: ndcg@10 is"):
        compare_versions(tmp_path / "bundles", "bad", "good", tastes).check()
    sentence = compare_versions(tmp_path / "bundles", "good", "bad", tastes, "recall@3").check()
    assert sentence.startswith("good is not worse than bad: recall@3 is")


@pytest.mark.parametrize("metric", ["ndcg", "auc@10", "ndcg@0", "ndcg@1001", "ndcg@x"])
def test_an_unknown_metric_is_refused(tmp_path: Path, tastes: PreparedData, metric: str) -> None:
    with pytest.raises(TurretError, match="must be ndcg, recall, hr or mrr at a number"):
        compare_versions(tmp_path, "a", "b", tastes, metric)
