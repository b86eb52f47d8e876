import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import turret.cli
from tests.retraining.records import record
from turret.data.errors import ConfigurationError, TurretError
from turret.retraining import commands
from turret.retraining.commands import NotActivatedError, retrain_once
from turret.retraining.record import Figures, RetrainRecord, append_record
from turret.retraining.settings import RetrainSettings

FIGURES = Figures(
    metric="ndcg@10", users=99, new=0.25, live=0.2, low=0.01, high=0.09, margin=0.1, rule="newest"
)


def invoke(*words: str | Path) -> Result:
    return CliRunner().invoke(turret.cli.app, ["retrain", *map(str, words)])


@pytest.fixture
def work(tmp_path: Path) -> Path:
    append_record(tmp_path, record("20260501-030000", new_events=1234, figures=FIGURES))
    failed = {"decision": "failed", "status": 1, "step": "train", "version": None, "mode": None}
    append_record(tmp_path, record("20260502-030000", **failed))
    return tmp_path


def test_the_history_is_a_table(work: Path) -> None:
    shown = invoke("--history", "--work", work)
    assert shown.exit_code == 0
    first, second = [line for line in shown.stdout.splitlines() if "│ 2026050" in line]
    for text in ("activated", "1,234", "warm", "ndcg@10 0.2500", "0.2000", "+0.0500 [+0.0100, +0.0900]"):
        assert text in first
    assert "failed (train)" in second


def test_the_history_is_json_too(work: Path) -> None:
    listed = json.loads(invoke("--history", "--json", "--work", work).stdout)
    assert [one["decision"] for one in listed] == ["activated", "failed"]
    assert listed[0]["figures"]["low"] == 0.01


def test_a_folder_without_records_is_a_sentence(tmp_path: Path) -> None:
    shown = invoke("--history", "--work", tmp_path)
    assert shown.exit_code == 0
    assert "has no records yet" in shown.stderr


SETTINGS = RetrainSettings(data=Path("d"), bundles=Path("b"), work=Path("w"))


def decided(made: RetrainRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "retrain", lambda settings: made)


def test_a_decision_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    decided(record("r1", message="r1 is live"), monkeypatch)
    retrain_once(SETTINGS, as_json=False)
    assert capsys.readouterr().out == "activated: r1 is live\n"
    retrain_once(SETTINGS, as_json=True)
    assert json.loads(capsys.readouterr().out)["run"] == "r1"


@pytest.mark.parametrize(("decision", "status"), [("refused", 3), ("refused", 1), ("unclear", 4)])
def test_a_version_that_is_not_good_enough_has_the_exit_status_of_activate(
    decision: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided(record("r1", decision=decision, status=status, message="it is worse"), monkeypatch)
    with pytest.raises(NotActivatedError, match="it is worse") as refused:
        retrain_once(SETTINGS, as_json=False)
    assert refused.value.exit_status == status
    assert isinstance(refused.value, TurretError)


def test_settings_are_checked_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="--url"):
        RetrainSettings(data=tmp_path, bundles=tmp_path, work=tmp_path, canary=0.5).check()
