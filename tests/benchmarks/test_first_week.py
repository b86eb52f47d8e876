"""The figures of the first week are those of the evaluations, and rows are resumed by set."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import first_week
from benchmarks.first_week import kept, result, summary
from benchmarks.first_week_sets import SETS, WeekSet


def interval(mean: float) -> dict[str, dict[str, float]]:
    return {"ndcg@10": {"mean": mean, "low": mean - 0.01, "high": mean + 0.01}}


def report(towers: float, **baselines: float) -> dict[str, Any]:
    return {
        "towers": interval(towers),
        **{name: interval(mean) for name, mean in baselines.items()},
        "differences": {name: interval(towers - mean) for name, mean in baselines.items()},
        "auto": {"picked": "set", "reasons": [{"sentence": "Picked: set."}]},
        "users": 7,
        "exclude_seen": True,
        "baselines_left_out": {"als": "implicit is not installed"},
        "verdict": [{"sentence": "Better than popularity."}],
    }


def test_a_set_is_compared_with_its_best_baseline() -> None:
    row = summary(report(0.33, popularity=0.1, ease=0.3, item_knn=0.2))
    assert row["best_baseline"] == "ease"
    assert row["auto_over_best_baseline"] == pytest.approx(1.1)
    assert row["differences"]["ease"]["mean"] == pytest.approx(0.03)
    assert row["picked"] == "set"
    assert row["left_out"] == {"als": "implicit is not installed"}


def test_the_claim_is_the_least_ratio_of_all_sets() -> None:
    rows = [
        {"set": "one", **summary(report(0.3, ease=0.2))},
        {"set": "two", **summary(report(0.18, popularity=0.2))},
    ]
    figures = result(rows)
    assert figures["auto_over_best_baseline"] == pytest.approx(0.9)
    assert list(figures["sets"]) == ["one", "two"]
    assert "set" not in figures["sets"]["one"]


def test_the_newest_row_of_a_set_counts(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    assert kept(path) == []
    rows = [{"set": "one", "value": 1}, {"set": "two", "value": 2}, {"set": "one", "value": 3}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert {row["set"]: row["value"] for row in kept(path)} == {"one": 3, "two": 2}


def test_resumed_sets_are_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One set has a row; the other one is measured, and its row is appended before the result is written."""
    path, measured = tmp_path / "rows.jsonl", []

    def measure(one: WeekSet, data: Path, scratch: Path) -> dict[str, Any]:
        measured.append(one.name)
        return {"set": one.name, "seconds": {}, **summary(report(0.4, ease=0.2))}

    monkeypatch.setattr(first_week, "ROWS", path)
    monkeypatch.setattr(first_week, "SETS", {name: SETS[name] for name in ("ml-100k", "globo")})
    monkeypatch.setattr(first_week, "measured", measure)
    monkeypatch.setattr("benchmarks.protocol.RESULTS", tmp_path)
    path.write_text(json.dumps({"set": "ml-100k", **summary(report(0.3, ease=0.2))}) + "\n")
    monkeypatch.setattr(sys, "argv", ["first_week", "--resume", "--json", "--data", str(tmp_path)])
    first_week.main()
    assert measured == ["globo"]
    assert [row["set"] for row in kept(path)] == ["ml-100k", "globo"]
    printed = json.loads(capsys.readouterr().out)
    assert printed["auto_over_best_baseline"] == pytest.approx(1.5)
    assert json.loads((tmp_path / "first_week.json").read_text())["sets"] == printed["sets"]


@pytest.mark.nightly
def test_a_quick_run_goes_through_the_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It keeps nothing, and has every baseline that can be fitted."""
    monkeypatch.setattr(first_week, "ROWS", tmp_path / "rows.jsonl")
    monkeypatch.setattr(sys, "argv", ["first_week", "--quick", "--json", "--data", str(tmp_path)])
    first_week.main()
    (row,) = json.loads(capsys.readouterr().out)["sets"].values()
    assert {"popularity", "recent_popularity", "co_occurrence", "item_knn", "ease"} <= set(row["baselines"])
    assert set(row["seconds"]) == {"prepare", "train", "evaluate"}
    assert row["picked"]
    assert not (tmp_path / "rows.jsonl").exists()
