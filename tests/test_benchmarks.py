"""The figures of benchmarks, those that `turret plan` installs, and scripts that need no data."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch

from benchmarks.abuse_requests import calls
from benchmarks.first_week import claim, summary
from benchmarks.floors import Part, Thing, attended_pairs, measured
from benchmarks.next_items import difference, questions
from benchmarks.plan_figures import TARGET, fit, plan_figures, worst_error
from benchmarks.timed_sets import TIMED
from tests.support.places import ROOT
from turret.tower.layers.packed import PackedHistories


def test_rates_are_found_and_none_is_negative() -> None:
    """A figure that seems to fall with a size does not grow with it."""
    points = [{"base": 1.0, "x": x, "y": y} for x, y in ((1.0, 2.0), (4.0, 2.0), (4.0, 9.0), (7.0, 1.0))]
    rising = [5 + 3 * point["x"] + 0.25 * point["y"] for point in points]
    assert fit(points, rising, ("base", "x", "y")) == pytest.approx({"base": 5.0, "x": 3.0, "y": 0.25})
    falling = [9 + 2 * point["x"] - 0.5 * point["y"] for point in points]
    rates = fit(points, falling, ("base", "x", "y"))
    assert rates["y"] == 0.0
    assert min(rates.values()) >= 0.0
    assert 0.05 < worst_error(points, falling, rates) < 0.5
    # Small values count as much as large ones.
    assert fit([{"x": 1.0}, {"x": 1000.0}], [1.0, 2000.0], ("x",))["x"] == pytest.approx(1.2)


def test_the_installed_figures_are_those_of_the_last_results_and_near_the_measured_points() -> None:
    """A model that does not describe the measured points would not describe others."""
    installed = TARGET.read_text(encoding="utf-8")
    assert installed == plan_figures(), "run `python -m benchmarks.plan_figures`"
    figures = json.loads(installed)["quantities"]
    assert {name: one["worst_error"] for name, one in figures.items() if one["worst_error"] > 0.35} == {}


def test_the_interval_covers_the_true_difference_as_often_as_it_says() -> None:
    """Of 200 samples of normal differences 95 % do, give or take three standard deviations of that share."""
    random = np.random.default_rng(5)
    covered = 0
    for _ in range(200):
        values = random.normal(0.3, 1.0, 100)
        found = difference(values, np.zeros(100), range(100))
        covered += found["low"] <= 0.3 <= found["high"]
    assert 0.95 - 3 * (0.95 * 0.05 / 200) ** 0.5 - 0.02 < covered / 200 <= 1.0


def test_questions_of_one_session_are_drawn_together() -> None:
    """A hundred copies of each of ten values say no more than the ten: the interval must not shrink."""
    values = np.arange(10.0)
    once = difference(values, np.zeros(10), range(10))
    copied = difference(np.repeat(values, 100), np.zeros(1000), np.repeat(np.arange(10), 100))
    assert copied == pytest.approx(once)
    apart = difference(np.repeat(values, 100), np.zeros(1000), range(1000))
    assert apart["high"] - apart["low"] < 0.3 * (once["high"] - once["low"])


def test_a_question_has_the_context_of_the_first_click_or_of_its_own() -> None:
    """The choice of a set of clicks with features: the session's, or those of the target."""
    clicks = pl.DataFrame(
        {
            "session_id": [1, 1, 1],
            "item_id": [5, 6, 7],
            "timestamp_ms": [10, 20, 30],
            "device": ["desk", "phone", "watch"],
        }
    )
    for by_click, devices in ((False, ["desk", "desk"]), (True, ["phone", "watch"])):
        read = questions(clicks, 0, 40, features=["device"], by_click=by_click).features
        assert [features["device"] for features in read] == devices
    assert "tower.user.context_features" in " ".join(TIMED["globo"].with_context().recipe.base)


def test_the_mean_is_over_questions() -> None:
    """Three of one session and one of another: not the mean of the two sessions' means."""
    found = difference([1.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0], [7, 7, 7, 9])
    assert found["difference"] == 0.75
    assert found["low"] < 0.0


def test_a_set_is_compared_with_its_best_baseline_and_the_claim_is_the_least_ratio() -> None:
    def row(towers: float, **baselines: float) -> dict[str, Any]:
        return summary(
            {
                "towers": interval(towers),
                **{name: interval(mean) for name, mean in baselines.items()},
                "differences": {name: interval(towers - mean) for name, mean in baselines.items()},
                "auto": {"picked": "set"},
            }
        )

    def interval(mean: float) -> dict[str, dict[str, float]]:
        return {"ndcg@10": {"mean": mean, "low": mean - 0.01, "high": mean + 0.01}}

    best = row(0.33, popularity=0.1, ease=0.3, item_knn=0.2)
    assert best["best_baseline"] == "ease"
    assert best["auto_over_best_baseline"] == pytest.approx(1.1)
    assert best["differences"]["ease"]["mean"] == pytest.approx(0.03)
    assert claim([best, row(0.18, popularity=0.2)])["auto_over_best_baseline"] == pytest.approx(0.9)


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["first_week", "operations proxy", "operations replicas", "preparation"])
def test_a_quick_run_prints_its_figures(name: str, tmp_path: Path) -> None:
    """`benchmarks.thresholds` judges some of them."""
    options = ["--quick", "--json", "--data", str(tmp_path)]
    command = [sys.executable, "-m", *f"benchmarks.{name}".split(), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    figures = json.loads(done.stdout.splitlines()[-1])
    assert (figures["benchmark"], figures["quick"]) == (re.split("[ .]", name)[-1], True)


def test_a_call_that_no_line_of_the_attacks_names_is_attacked_in_each_of_its_places() -> None:
    """Path, body, absent and nested properties get the longest texts and the longest lists."""
    text = {"type": "string", "maxLength": 20}
    inner = {"type": "object", "properties": {"list": {"type": "array", "maxItems": 3, "items": text}}}
    new = {"properties": {"word": text, "deep": {"$ref": "#/components/schemas/Deep"}}, "required": ["deep"]}
    path = {
        "parameters": [{"name": "key", "in": "path", "required": True, "schema": text}],
        "requestBody": {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/New"}}}},
        "security": [{"key": ["write"]}],
    }
    schemas = {"schemas": {"New": new, "Deep": inner}}
    (call,) = calls({"components": schemas, "paths": {"/v9/new/{key}": {"post": path}}})
    assert (call.name, call.scope, call.normal().body) == ("POST /v9/new/{key}", "write", b'{"deep":{}}')
    requests = list(call.hostile())
    places = {request.place for request in requests}
    assert places == {"key", "", "word", "deep", "deep.list", "@place@", "deep.@place@"}
    bodies = {request.body for request in requests}
    assert b'{"deep": {}, "word": "' + b"," * 20 + b'"}' in bodies
    assert b'{"deep": {}, "word": 1e400}' in bodies
    assert b'{"deep": {"list": ["a","a","a"]}}' in bodies
    assert f"/v9/new/{'%2F' * 20}" in {request.target for request in requests}


def test_a_floor_adds_up_its_parts_and_the_first_turn_does_not_count() -> None:
    seconds = iter((9.0, 4.0, 8.0, 5.0))
    parts = (Part("bytes", 10.0, lambda: 10.0), Part("multiplications", 3.0, lambda: 3.0))
    thing = Thing("a thing", "both", parts, lambda: next(seconds), torch.get_num_threads())
    row = measured(thing, turns=3)
    assert (row["floor_us"], row["taken_us"]) == (2e6, 5e6)
    assert (row["share_least"], row["share"], row["share_greatest"]) == (0.25, 0.4, 0.5)
    assert row["counts"] == {"bytes": 10.0, "multiplications": 3.0}


def test_attention_pairs_each_step_of_a_segment_with_itself_and_the_earlier_ones() -> None:
    """Windows that begin together share a segment: here one of three steps and one of two."""
    starts, ends = torch.tensor([0, 0, 0, 3, 3]), torch.tensor([1, 2, 3, 4, 5])
    histories = PackedHistories(torch.arange(5), starts, ends, torch.zeros(5), torch.zeros(5))
    assert attended_pairs(histories) == 3 + 2 + 1 + 2 + 1
