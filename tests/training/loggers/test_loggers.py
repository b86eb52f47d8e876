"""Each logger, with doubles of the libraries, and with the libraries where they are installed."""

from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.training.loggers.doubles import install_mlflow, install_wandb
from turret.training.errors import TrainingError
from turret.training.loggers import registry
from turret.training.loggers.contract import LoggedRun, Logger, LoggerKind
from turret.training.loggers.opened import OpenLoggers, stored_loggers
from turret.training.loggers.registry import LOGGERS, chosen_loggers

SETTINGS = {"training.seed": 3, "tower.user.hidden": [8]}


def logged(folder: Path, name: str, step: int = 0, finished: bool = True) -> None:
    """Two measurements from `step` on."""
    warnings: list[str] = []
    loggers = OpenLoggers([LOGGERS[name]], LoggedRun(folder, SETTINGS, step), warnings.append)
    loggers.log(step + 1, {"loss/train": 2.5})
    loggers.log(step + 2, {"validation/ndcg@10": 0.25})
    loggers.close(finished)
    assert warnings == []


def test_tensorboard_has_every_figure_and_the_settings(tmp_path: Path) -> None:
    logged(tmp_path, "tensorboard")
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(one.step, one.value) for one in events.Scalars("loss/train")] == [(1, 2.5)]
    assert [(one.step, one.value) for one in events.Scalars("validation/ndcg@10")] == [(2, 0.25)]
    assert "settings/text_summary" in events.Tags()["tensors"]


def test_mlflow_has_settings_figures_and_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the experiment `turret`; a resumed training continues the same run."""
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    store = install_mlflow(monkeypatch)
    logged(tmp_path, "mlflow", finished=False)
    (run,) = store.runs
    assert store.experiments == ["turret"]
    assert run["name"] == f"{tmp_path.parent.name}/{tmp_path.name}"
    assert run["params"] == {"training.seed": "3", "tower.user.hidden": "[8]"}
    assert run["status"] == "KILLED"
    logged(tmp_path, "mlflow", step=2)
    assert len(store.runs) == 1
    assert run["metrics"] == [
        *((1, "loss/train", 2.5), (2, "validation/ndcg_at_10", 0.25)),
        *((3, "loss/train", 2.5), (4, "validation/ndcg_at_10", 0.25)),
    ]
    assert run["status"] == "FINISHED"


def test_wandb_has_settings_figures_and_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resumed training names the run that it continues."""
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    store = install_wandb(monkeypatch)
    logged(tmp_path, "wandb", finished=False)
    logged(tmp_path, "wandb", step=2)
    first, second = store.runs
    assert (first["project"], first["config"], first["dir"]) == ("mine", SETTINGS, str(tmp_path))
    assert (first["id"], first["resume"], first["exit_code"]) == (None, None, 1)
    assert (second["id"], second["resume"], second["exit_code"]) == ("id0", "allow", 0)
    assert first["metrics"] == [(1, "loss/train", 2.5), (2, "validation/ndcg@10", 0.25)]


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")  # MLflow calls what SQLAlchemy has deprecated
def test_the_real_mlflow_takes_it_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Into a local database."""
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("sqlalchemy")
    address = f"sqlite:///{tmp_path / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    logged(tmp_path, "mlflow")
    logged(tmp_path, "mlflow", step=2)
    client = mlflow.MlflowClient(tracking_uri=address)
    (run,) = client.search_runs([client.get_experiment_by_name("turret").experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params["training.seed"] == "3"
    values = client.get_metric_history(run.info.run_id, "validation/ndcg_at_10")
    assert [(one.step, one.value) for one in values] == [(2, 0.25), (4, 0.25)]


@pytest.mark.nightly
def test_the_real_wandb_takes_it_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Offline, into the folder of the run."""
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    logged(tmp_path, "wandb")
    (written,) = (tmp_path / "wandb").glob("offline-run-*/*.wandb")
    assert b"validation/ndcg@10" in written.read_bytes()
    assert stored_loggers(tmp_path)["wandb"]
    logged(tmp_path, "wandb", step=2)


class Failing(Logger):
    """Fails at one of its calls."""

    def __init__(self, call: str) -> None:
        self.call = call
        self.calls: list[str] = []
        self._did("open")

    def log(self, step: int, figures: Any) -> None:
        self._did("log")

    def close(self, finished: bool) -> None:
        self._did("close")

    def _did(self, call: str) -> None:
        self.calls.append(call)
        if call == self.call:
            raise ConnectionError("no server\nat all")


@pytest.mark.parametrize(
    ("call", "calls"), [("open", 0), ("log", ["open", "log"]), ("close", ["open", "log", "log", "close"])]
)
def test_a_logger_that_fails_gives_one_warning_and_the_others_go_on(
    call: str, calls: Any, tmp_path: Path
) -> None:
    opened: list[Failing] = []

    def kind(name: str, fails: str) -> LoggerKind:
        def build(_: LoggedRun) -> Failing:
            logger = Failing(fails)
            opened.append(logger)
            return logger

        return LoggerKind(name, build, "json")

    warnings: list[str] = []
    kinds = [kind("bad", call), kind("good", "never")]
    loggers = OpenLoggers(kinds, LoggedRun(tmp_path, {}), warnings.append)
    loggers.log(1, {"loss": 1.0})
    loggers.log(2, {"loss": 1.0})
    loggers.close(True)
    assert warnings == [
        "The logger bad failed and gets no more figures (ConnectionError: no server); training continues, "
        "and history.jsonl has every figure."
    ]
    assert [logger.calls for logger in opened] == [
        *([calls] if calls else []),
        ["open", "log", "log", "close"],
    ]


def test_an_unknown_logger_and_a_missing_library_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each name counts once."""
    assert [kind.name for kind in chosen_loggers(["tensorboard", "tensorboard"])] == ["tensorboard"]
    with pytest.raises(
        TrainingError, match="--logger neptune: there is no such logger; there are tensorboard"
    ):
        chosen_loggers(["neptune"])
    monkeypatch.setattr(registry, "find_spec", lambda _: None)
    for name in ("mlflow", "wandb"):
        with pytest.raises(TrainingError, match=rf"--logger {name}: .*pip install 'turret\[{name}\]'"):
            chosen_loggers([name])


@pytest.mark.parametrize("content", [None, "{", "[]"])
def test_a_damaged_file_of_loggers_is_none(content: str | None, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "loggers.json").write_text(content)
    assert stored_loggers(tmp_path) == {}
