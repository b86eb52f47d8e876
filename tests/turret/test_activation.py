"""`turret activate`: recorded metrics, and both versions on events that neither was trained on."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import turret.cli
from tests.conftest import contents
from tests.support.trained import trained_shop
from tests.turret.conftest import DAY, START, Prepare, PublishTaste, manifest, taste_contents
from turret.activation.held_out import HeldOut, held_out
from turret.activation.live import activate_version
from turret.activation.non_inferiority import Comparison, UnclearError, WorseError
from turret.activation.ranking import values_of_users
from turret.data.errors import DataError, TurretError
from turret.data.prepared import PreparedData
from turret.service.versions.gate_report import read_report
from turret.tower.bundle.bundle import Bundle
from turret.tower.bundle.publish import publish
from turret.tower.format.listing import current
from turret.training.evaluation.evaluation import TOWERS
from turret.training.evaluation.per_user import load_per_user
from turret.training.run import PER_USER


def activate(folder: Path, *words: str | Path) -> Result:
    given = ["activate", *words, "--bundles", folder / "bundles", "--not-worse-than", "live"]
    return CliRunner().invoke(turret.cli.app, list(map(str, given)))


def test_a_worse_version_stays_out_and_a_better_one_comes_in(
    tmp_path: Path, publish_taste: PublishTaste, tastes: PreparedData
) -> None:
    publish_taste("first", noise=0.6)
    publish_taste("worse", noise=3.0)
    publish_taste("better")
    refused = activate(tmp_path, "worse", "--data", tastes.folder)
    assert (refused.exit_code, refused.stdout) == (3, "")
    assert refused.stderr.startswith("turret: worse is worse than first: ndcg@10 is ")
    assert current(tmp_path / "bundles") == "first"
    none = "none of the 120 users with events of the test part has a target of --metric "
    for metric in ("auc", "again mrr@5"):
        nobody = activate(tmp_path, "better", "--data", tastes.folder, "--metric", metric)
        assert nobody.exit_code == 1
        assert f"{none}{metric}" in nobody.stderr
    accepted = activate(tmp_path, "better", "--data", tastes.folder, "--metric", "new mrr@5")
    assert accepted.stdout.startswith("better is not worse than first: new mrr@5 is ")
    (tmp_path / "bundles" / "current").write_text("first\n")
    accepted = activate(tmp_path, "better", "--data", tastes.folder)
    assert (accepted.exit_code, accepted.stderr) == (0, "")
    assert accepted.stdout.startswith("better is not worse than first: ndcg@10 is ")
    assert current(tmp_path / "bundles") == "better"


def test_without_another_live_version_nothing_is_compared(
    tmp_path: Path, publish_taste: PublishTaste
) -> None:
    publish_taste("first")
    assert activate(tmp_path, "first").stdout.startswith(
        "first is live already, so it is compared with none."
    )
    (tmp_path / "bundles" / "current").unlink()
    shown = activate(tmp_path, "first").stdout
    assert shown.startswith("No version is live, so first is compared with none.")
    assert current(tmp_path / "bundles") == "first"


@pytest.mark.parametrize(
    ("mean", "other_data", "refusal"),
    [
        (None, False, "was never evaluated"),
        (
            0.27,
            False,
            r"ndcg@10 is 0\.2700 \(new 0\.1250\) against 0\.3600 \(new 0\.1250\) of version live, each "
            "on the test part of the same",
        ),
        (0.06, True, "each on the test part of its own data, which is below it by more than 20%"),
        (0.3, True, None),
    ],
)
def test_a_plain_activation_needs_force_for_a_version_unknown_or_far_below_the_live_one(
    tmp_path: Path, tastes: PreparedData, mean: float | None, other_data: bool, refusal: str | None
) -> None:
    def made(version: str, mean: float | None, data: str) -> None:
        towers = {"ndcg@10": {"mean": mean}, "new ndcg@10": {"mean": 0.125}}
        metrics = {} if mean is None else {"test": {"towers": towers}}
        bundle = taste_contents(version, tastes)
        card = bundle.card.model_copy(update={"metrics": metrics, "fingerprints": {"data": data}})
        publish(tmp_path / "bundles", replace(bundle, card=card, model=version.encode()))

    def plainly(*words: str) -> Result:
        return CliRunner().invoke(
            turret.cli.app, ["activate", *words, "--bundles", str(tmp_path / "bundles")]
        )

    made("live", 0.36, "d")
    made("new", mean, "e" if other_data else "d")
    done = plainly("new")
    assert current(tmp_path / "bundles") == ("live" if refusal else "new")
    assert done.exit_code == (1 if refusal else 0)
    if refusal:
        assert re.search(refusal, done.stderr)
        assert "--not-worse-than live" in done.stderr
        assert plainly("new", "--force").exit_code == 0
        assert current(tmp_path / "bundles") == "new"


def test_a_version_that_is_far_below_in_one_half_of_the_answers_needs_force(
    tmp_path: Path, tastes: PreparedData
) -> None:
    """Even by the upper end of its interval, as few users may have such targets."""
    for version, high in (("live", 0.2), ("unclear", 0.11), ("bad", 0.09)):
        new = {"mean": 0.125 if version == "live" else 0.05, "high": high}
        towers = {"ndcg@10": {"mean": 0.36}, "new ndcg@10": new}
        made = taste_contents(version, tastes)
        card = made.card.model_copy(update={"metrics": {"test": {"towers": towers}}})
        publish(tmp_path / "bundles", replace(made, card=card, model=version.encode()))
    activate_version("unclear", tmp_path / "bundles", None)
    activate_version("live", tmp_path / "bundles", None)
    with pytest.raises(TurretError, match=r"below it in new ndcg@10 by more than 20%"):
        activate_version("bad", tmp_path / "bundles", None)


def test_a_version_without_a_metric_goes_live_where_it_replaces_no_other_model(
    tmp_path: Path, tastes: PreparedData
) -> None:
    """The first one of a folder, and the live model with another index; the report of the gate says so."""
    bundles = tmp_path / "bundles"
    for version in ("first", "same"):
        made = taste_contents(version, tastes)
        publish(bundles, replace(made, card=made.card.model_copy(update={"metrics": {}})))

    def said(version: str) -> str:
        activate_version(version, bundles, None)
        report = read_report(bundles, version)
        assert report is not None
        return next(check.words for check in report.checks if check.name == "metric")

    assert said("same") == "it has the same model as version first"
    (bundles / "current").unlink()
    assert said("first").startswith("version first was never evaluated;")


def after(days: float) -> str:
    """The time before the events of a day, which begin `days` days after the first ones."""
    return datetime.fromtimestamp(START + days * DAY - 1, UTC).isoformat(timespec="milliseconds")


def test_both_trained_on_the_data_are_measured_on_its_test_part(tastes: PreparedData) -> None:
    chosen = held_out(tastes, manifest("new", tastes.fingerprint), manifest("live", tastes.fingerprint))
    np.testing.assert_array_equal(chosen.starts, tastes.splits[:, 1])
    np.testing.assert_array_equal(chosen.ends, tastes.offsets[1:])
    assert (chosen.rule, chosen.warning) == ("of the test part", None)


def test_an_older_live_version_is_measured_on_later_events_of_the_test_part(tastes: PreparedData) -> None:
    """Users without a later event are left out: the live version may have been trained on their last one."""
    last = datetime.fromtimestamp(START + 3 * DAY + 59, UTC).isoformat()
    chosen = held_out(tastes, manifest("new", tastes.fingerprint), manifest("live", "older", last))
    times = [int(tastes.times[start]) for start in chosen.starts]
    assert len(chosen.users) == 60
    assert min(times) == (START + 3 * DAY + 60) * 1000
    assert chosen.rule == f"of the test part and after {last}"


def test_two_versions_of_other_data_are_measured_on_events_after_both(tastes: PreparedData) -> None:
    chosen = held_out(tastes, manifest("new", "other", after(2)), manifest("live", "older", after(1)))
    np.testing.assert_array_equal(chosen.starts, tastes.offsets[:-1] + 2)
    np.testing.assert_array_equal(chosen.ends, tastes.offsets[1:])
    assert chosen.warning is None
    reverse = held_out(tastes, manifest("new", "other", after(1)), manifest("live", "older", after(2)))
    np.testing.assert_array_equal(reverse.starts, chosen.starts)


@pytest.mark.parametrize(
    ("until", "warning", "refusal"),
    [
        (after(9), "none is after", "no event that version other was not trained on"),
        (None, "has no times", "without times"),
    ],
)
def test_events_are_told_of_if_the_live_version_may_know_them_and_refused_if_the_new_one_may(
    tastes: PreparedData, until: str | None, warning: str, refusal: str
) -> None:
    of_data, other = manifest("one", tastes.fingerprint), manifest("other", "newer", until)
    chosen = held_out(tastes, of_data, other)
    np.testing.assert_array_equal(chosen.starts, tastes.splits[:, 1])
    assert chosen.warning is not None
    assert chosen.warning.startswith("version other may have been trained on some of these events")
    assert warning in chosen.warning
    with pytest.raises(DataError, match=refusal):
        held_out(tastes, other, of_data)


def comparison(new: list[float], live: list[float], margin: float = 0.1) -> Comparison:
    rows = np.arange(len(new))
    users = HeldOut(rows, rows, rows, "of the test part")
    values = ({"ndcg@10": np.array(own)} for own in (new, live))
    return Comparison.of(("new", "live"), "ndcg@10", margin, users, *values)


@pytest.mark.parametrize(
    ("new", "live", "margin", "end"),
    [
        ([0.5, 0.1] * 20, [0.5, 0.1] * 20, 0.0, "[+0.0000, +0.0000]; a loss of up to 0 % is accepted"),
        ([0.46, 0.48] * 50, [0.5, 0.5] * 50, 0.1, "a loss of up to 10 % is accepted"),
        ([0.1] * 40, [0.0] * 40, 0.1, "no loss is accepted"),
    ],
)
def test_a_loss_within_the_margin_is_accepted(
    new: list[float], live: list[float], margin: float, end: str
) -> None:
    sentence = comparison(new, live, margin).check()
    assert sentence.startswith(f"new is not worse than live: ndcg@10 is {np.mean(new):.4f} against ")
    assert sentence.endswith(end)


def test_a_certain_loss_is_refused() -> None:
    with pytest.raises(WorseError, match=r"new is worse than live: .* -0\.1000 \(-20\.0%\)") as caught:
        comparison([0.3, 0.5] * 50, [0.5, 0.5] * 50).check()
    assert caught.value.exit_status == 3
    margin = float(str(caught.value).split("--margin ")[1].split(" ")[0])
    assert margin == pytest.approx(0.24, abs=0.01)
    assert "not worse" in comparison([0.3, 0.5] * 50, [0.5, 0.5] * 50, margin).check()


def test_both_halves_are_told_beside_the_compared_metric() -> None:
    """Each over the users with such targets; and one of them is compared alone."""
    rows, again = np.arange(80), np.repeat([0.5, np.nan], 40)
    held = HeldOut(rows, rows, rows, "of the test part")
    news, lives = (
        {"ndcg@10": np.full(80, value), "again ndcg@10": again, "new ndcg@10": np.full(80, np.nan)}
        for value in (0.25, 0.125)
    )
    told = Comparison.of(("new", "live"), "ndcg@10", 0.1, held, news, lives)
    assert (told.users, told.slots) == (80, {"again ndcg@10": (0.5, 0.5)})
    assert "(again ndcg@10 is 0.5000 against 0.5000); a loss of up to 10 %" in told.check()
    own = Comparison.of(("new", "live"), "again ndcg@10", 0.1, held, news, lives)
    assert (own.users, own.new, own.slots) == (40, 0.5, {"ndcg@10": (0.25, 0.125)})


def test_noise_is_told_from_a_loss() -> None:
    """No difference on average, but a spread that hides a loss of a tenth."""
    new, live = [0.0, 1.0] * 300, [1.0, 0.0] * 300
    with pytest.raises(UnclearError, match="600 users are too few to show that new is not worse") as caught:
        comparison(new, live).check()
    assert caught.value.exit_status == 4
    needed = int(str(caught.value).split("about ")[1].split(" users")[0].replace(",", ""))
    # Differences of 1 and -1 deviate by 1; the tolerance is for the resamples.
    assert needed == pytest.approx((1.96 / 0.05) ** 2, rel=0.1)


@pytest.mark.parametrize(
    ("new", "live", "sentence"),
    [
        ([1.0] * 29, [0.0] * 29, "at least 30 users are needed"),
        ([0.0] * 40, [0.0] * 40, "can't tell new from live"),
    ],
)
def test_few_users_and_metrics_of_zero_tell_nothing(
    new: list[float], live: list[float], sentence: str
) -> None:
    with pytest.raises(UnclearError, match=sentence):
        comparison(new, live).check()


def test_an_unknown_item_is_a_miss_and_an_unknown_history_gets_popular_items(
    tmp_path: Path, prepared: Prepare
) -> None:
    """The bundle has the items 100 to 159, the most popular first."""
    log = "user_id,item_id\na,101\na,900\nb,900\nb,100\nc,901\nc,159\n"
    data = prepared(log, columns={"in_file_order": True}, split={"kind": "last"})
    publish(tmp_path / "bundles", contents())
    users = np.arange(3)
    targets = HeldOut(users, np.asarray(data.offsets[1:]) - 1, np.asarray(data.offsets[1:]), "")
    bundle = Bundle.open(tmp_path / "bundles" / "v1")
    assert values_of_users(bundle, data, targets, "hr@10")["hr@10"].tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize("exclude_seen", [True, False])
def test_items_of_the_history_are_ranked_as_the_bundle_says(
    tmp_path: Path, prepared: Prepare, exclude_seen: bool
) -> None:
    data = prepared("user_id,item_id\na,101\na,101\n", columns={"in_file_order": True})
    publish(tmp_path / "bundles", contents(exclude_seen=exclude_seen))
    bundle = Bundle.open(tmp_path / "bundles" / "v1")
    targets = HeldOut(np.array([0]), np.array([1]), np.array([2]), "")
    assert values_of_users(bundle, data, targets, "hr@1")["hr@1"].tolist() == [0.0 if exclude_seen else 1.0]


@pytest.mark.parametrize("name", ["ids", "features"])
def test_a_bundle_has_the_metrics_that_its_run_was_evaluated_with(name: str) -> None:
    """An activation (ONNX, from a bundle) and an evaluation (torch, from a run) measure the same."""
    shop = trained_shop()
    bundle = Bundle.open(shop.bundles / name)
    chosen = held_out(shop.data, bundle.manifest, bundle.manifest)
    loaded = load_per_user(shop.folder / name / PER_USER["test"])
    users, stored = loaded.users, loaded.values[TOWERS]
    assert shop.data.users.ids(chosen.users) == users
    values = values_of_users(bundle, shop.data, chosen, "ndcg@10")["ndcg@10"]
    # Items that tie but for rounding may change places.
    assert np.isclose(values, stored["ndcg@10"]).mean() > 0.98
    assert values.mean() == pytest.approx(stored["ndcg@10"].mean(), abs=0.003)
