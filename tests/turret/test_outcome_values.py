"""The value of a version that was never live, from logged answers and their propensities."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import turret
from tests.support.command_line import invoke, output
from tests.support.trained import trained_shop
from tests.turret.test_outcomes import DAY, HOUR, NOON, answer, frame_of
from turret.data.answers.form import minute_file, visitor_of
from turret.data.errors import DataError, EmptyDataError
from turret.data.synthetic.answers import KEY
from turret.outcomes import value as value_module
from turret.outcomes.attribution import EVENTS
from turret.outcomes.replay import replay
from turret.outcomes.value import Logged, by_user, logistic, value_of
from turret.tower.bundle.golden import load

RELEVANCE = np.array([0.5, 0.3, 0.2, 0.1, 0.05])
EXAMINED = np.array([1.0, 0.5])


def logged(answers: int, explore: float, seed: int = 0) -> Logged:
    """Answers of two items of five: the first two, or a draw of all with the probability `explore`.

    The version shows the items 2 and 0, and its scores are no better than a guess.
    """
    random = np.random.default_rng(seed)
    drawn = np.argsort(random.random((answers, 5)), axis=1)[:, :2]
    items = np.where(random.random((answers, 1)) < explore, drawn, [0, 1])
    rewards = (random.random(items.shape) < EXAMINED * RELEVANCE[items]).astype(np.float64)
    ones = np.ones(items.shape)
    return Logged(
        users=np.repeat(np.arange(answers // 2), 2),
        is_shown=ones > 0,
        propensities=explore / 5 + (1 - explore) * (items == [0, 1]),
        rewards=rewards,
        is_same=items == [2, 0],
        scores=random.standard_normal(items.shape),
        of_version=random.standard_normal(items.shape),
        values=ones,
        values_of_version=ones,
    )


def test_every_estimate_is_near_the_value_by_the_click_model() -> None:
    value = value_of(logged(40_000, 0.5))
    truth = 1.0 * 0.2 + 0.5 * 0.5
    for estimate in value.estimates.values():
        assert estimate.low < truth < estimate.high
        assert estimate.high - estimate.low < 0.06
    assert value.logged.value == pytest.approx(0.5 * (0.5 + 0.15) + 0.5 * RELEVANCE.mean() * 1.5, rel=0.05)
    assert [place["support"] for place in value.places] == pytest.approx([1.0, 1.0], abs=0.1)
    assert "explored places, beside" in value.text("autumn")


@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_the_calibration_of_a_long_log_knows_every_place(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Also where it leaves out answers by a step that divides the number of places, two here."""
    monkeypatch.setattr(value_module, "_CALIBRATED", 40_000 // step)
    estimates = value_of(logged(40_000, 0.5)).estimates
    widths = [estimates[name].high - estimates[name].low for name in ("doubly_robust", "inverse_propensity")]
    assert widths[0] < 0.95 * widths[1]  # 0.92 where all places are known, 0.99 where one is


def test_the_estimates_are_the_formulas_by_hand() -> None:
    """One place, four answers; the model of the reward is a constant, as there are no scores."""
    nothing = np.full((4, 1), np.nan)
    ones = np.ones((4, 1))
    log = Logged(
        users=np.arange(4),
        is_shown=ones > 0,
        propensities=np.array([[0.5], [0.25], [0.5], [0.8]]),
        rewards=np.array([[1.0], [0.0], [1.0], [0.0]]),
        is_same=np.array([[True], [True], [False], [False]]),
        scores=nothing,
        of_version=nothing,
        values=ones,
        values_of_version=ones,
    )
    value = value_of(log, least_size=0)
    assert value.estimates["inverse_propensity"].value == pytest.approx(2 / 4)
    assert value.estimates["self_normalised"].value == pytest.approx(2 / 6)
    assert value.effective_size == pytest.approx(36 / 20)
    assert value.places[0]["support"] == pytest.approx(6 / 4)
    clipped = value_of(log, clip=3.0, least_size=0)
    assert clipped.estimates["inverse_propensity"].value == pytest.approx(2 / 4)
    assert clipped.estimates["self_normalised"].value == pytest.approx(2 / 5)
    assert clipped.clipped == 0.5


def test_the_interval_is_by_user() -> None:
    """Ten answers of each user that are all alike say no more than one."""
    users, terms = np.arange(500), np.random.default_rng(0).random(500)
    single, tenfold = by_user(terms, users), by_user(np.repeat(terms, 10), np.repeat(users, 10))
    assert tenfold.high - tenfold.low == pytest.approx(single.high - single.low)


def test_a_log_without_exploration_and_one_that_is_too_small_are_refused() -> None:
    with pytest.raises(DataError, match="propensities are 1 or 0: no statement is possible"):
        value_of(logged(20_000, 0.0))
    with pytest.raises(DataError, match=r"the effective size at place \d is [\d,]+ answers, and 1,000 are"):
        value_of(logged(2_000, 0.5))


def test_a_place_that_is_not_explored_is_not_counted() -> None:
    log = logged(40_000, 0.5)
    certain = np.where(np.arange(2) == 0, 1.0, log.propensities)
    places = value_of(replace(log, propensities=certain)).places
    assert [place["place"] for place in places] == [2]


def test_a_place_where_the_log_could_not_show_the_items_is_left_out() -> None:
    """As with the propensities of draws given the places before, or with a pool without the items."""
    log = logged(40_000, 0.5)
    never = log.is_same & ((np.arange(40_000) % 2 == 0)[:, None] | [True, False])
    value = value_of(replace(log, is_same=never))
    assert [place["place"] for place in value.places] == [1]
    assert value.unsupported == [2]
    assert "left out: the places 2" in value.text("autumn")
    with pytest.raises(DataError, match="the log could show at most"):
        value_of(replace(log, is_same=log.is_same & (np.arange(40_000) % 2 == 0)[:, None]))


def test_a_log_without_any_reward_has_the_value_zero() -> None:
    log = logged(40_000, 0.5)
    value = value_of(replace(log, rewards=np.zeros_like(log.rewards)))
    assert value.estimates["inverse_propensity"].value == 0
    assert value.estimates["doubly_robust"].value == pytest.approx(0, abs=1e-3)


def test_the_regression_finds_the_chances_of_two_groups() -> None:
    """The maximum likelihood of a factor with two values are the shares of its groups."""
    inputs = np.column_stack([np.ones(100), np.arange(100) >= 60])
    is_positive = np.concatenate([np.arange(60) < 15, np.arange(40) < 30])
    chances = 1 / (1 + np.exp(-np.array([[1, 0], [1, 1]]) @ logistic(inputs, is_positive)))
    assert chances == pytest.approx([0.25, 0.75], abs=1e-3)


def test_a_version_answers_each_request_with_the_history_before_it() -> None:
    """As the bundle answers in this process, for a known user, a later history, and a stranger."""
    shop = trained_shop()
    bundle = load(shop.bundles, "ids")
    model_items = [str(item) for item in bundle.vocabulary.ids(range(12))]
    bought = [("ann", model_items[0], 0), ("ann", model_items[1], HOUR), ("bob", model_items[2], 5)]
    rows = [(visitor_of(user, KEY), user, item, NOON + time, None, None) for user, item, time in bought]
    times = [(1, "ann"), (2 * HOUR, "ann"), (10, "eve")]
    answers = [answer(time, user, *model_items[:5]) for time, user in times]
    events = pl.DataFrame(list(rows), schema=EVENTS, orient="row")
    log = replay(bundle, frame_of(*answers).lazy(), events, events.clear(), DAY)
    model = turret.load(shop.bundles / "ids")
    for place, history in ((0, model_items[:1]), (2, model_items[:2]), (1, [])):
        expected = [str(item.id) for item in model.recommend(history, 5)]
        assert log.is_same[place].tolist() == [a == b for a, b in zip(model_items, expected, strict=False)]
        if history:
            scores = [item.score for item in model.recommend(history, 5)]
            scale = log.of_version[place] / scores
            assert scale == pytest.approx(scale[0], rel=1e-3)
    assert np.isnan(log.scores[1]).all()
    by_other_key = events.with_columns(visitor=pl.lit(visitor_of("ann", b"another key")))
    with pytest.raises(EmptyDataError, match="name the key that the service hashes users with by --key"):
        replay(bundle, frame_of(*answers).lazy(), by_other_key, events.clear(), DAY)


def test_the_command_refuses_a_log_that_says_nothing_about_a_version(tmp_path: Path) -> None:
    shop = trained_shop()
    rows = [answer(number, f"u{number}", "i0001", "i0002") for number in range(50)]
    path = minute_file(tmp_path / "answers", NOON, "0")
    path.parent.mkdir(parents=True)
    frame_of(*rows).write_parquet(path)
    (tmp_path / "key").write_bytes(KEY)
    (tmp_path / "log.csv").write_text("user_id,item_id,timestamp\nu1,i0001,1777600000\nu1,i0002,1777600001\n")
    store = ("--store", f"sqlite:///{tmp_path}/history.sqlite")
    output("history", "load", "log.csv", *store, folder=tmp_path)
    words = ("--answers", "answers", *store, "--key", "key")
    refused = invoke("outcomes", *words, "--of", shop.bundles / "ids", folder=tmp_path)
    assert refused.returncode == 1
    assert "propensities are 1 or 0: no statement is possible" in refused.stderr
    unknown = invoke(
        "outcomes", *words, "--value", "weight", "--items", shop.bundles / "ids", folder=tmp_path
    )
    assert "no item of ids has a number in the field 'weight'; name another" in unknown.stderr
    valued = output(
        "outcomes", *words, "--value", "price", "--items", shop.bundles / "ids", "--json", folder=tmp_path
    )
    assert json.loads(valued)["versions"][0]["revenue"] == 0
    assert pl.read_parquet(path).height == 50
