"""The folder of a run: its files, the history and the environment of its training, and its loggers."""

import getpass
import json
import shutil
import socket
import subprocess
import sys
from importlib.machinery import ModuleSpec
from importlib.metadata import version
from pathlib import Path
from unittest.mock import MagicMock, call

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tests.support.tools import require, small_files
from turret.data.manifest import FileHash, hash_file
from turret.data.prepared import PreparedData
from turret.training import run as module
from turret.training.checkpoint import Progress, load_parameters, save_tensors
from turret.training.config.experiment import ExperimentConfig
from turret.training.errors import TrainingError
from turret.training.records import (
    ENVIRONMENT,
    HISTORY,
    LOGGERS,
    Recorder,
    check_loggers,
    environment,
    git_state,
    load_environment,
    load_history,
    record_environment,
)
from turret.training.run import MODEL, RUN, Run, build_model, remove_run


def run_in(folder: Path, data: PreparedData, **settings: object) -> Run:
    return Run(folder, ExperimentConfig.model_validate(settings), data.folder, data.fingerprint)


def test_a_run_knows_its_data_and_its_bundle_from_any_folder(
    tmp_path: Path, handmade: PreparedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paths are stored whole, so that later commands can be typed elsewhere."""
    monkeypatch.chdir(handmade.folder.parent)
    data = Path(handmade.folder.name)
    Run(tmp_path, ExperimentConfig(), data, handmade.fingerprint, Path("bundles/spring")).write()
    monkeypatch.chdir(tmp_path)
    assert Run.read(tmp_path).open_data().fingerprint == handmade.fingerprint
    assert Run.read(tmp_path).origin == handmade.folder.parent / "bundles" / "spring"


def test_only_the_data_of_a_run_is_opened(tmp_path: Path, handmade: PreparedData, shop: PreparedData) -> None:
    run = run_in(tmp_path, handmade)
    assert run.open_data().folder == handmade.folder
    assert run.open_data(handmade.folder).folder == handmade.folder
    with pytest.raises(TrainingError, match=r"not the data that .* was trained on") as refused:
        run.open_data(shop.folder)
    assert str(shop.folder) in str(refused.value)


def test_the_saved_model_is_the_one_that_is_opened(tmp_path: Path, handmade: PreparedData) -> None:
    """Ready to answer: without dropout."""
    run = run_in(tmp_path, handmade, training={"seed": 1})
    with pytest.raises(TrainingError, match="no model was saved yet"):
        run.open_model(handmade)
    trained = {
        name: torch.full_like(t, 0.5)
        for name, t in build_model(run.experiment, handmade).state_dict().items()
    }
    save_tensors(tmp_path / MODEL, trained)
    opened = run.open_model(handmade)
    assert not opened.training
    assert all(torch.equal(value, trained[name]) for name, value in opened.state_dict().items())


def test_reports_on_an_earlier_model_do_not_count(tmp_path: Path, handmade: PreparedData) -> None:
    """A bundle never carries figures of parameters that it does not hold."""
    run = run_in(tmp_path, handmade)
    model = build_model(run.experiment, handmade)
    save_tensors(tmp_path / MODEL, model.state_dict())
    run.save_metrics("test", {"users": 1})
    torch.nn.init.zeros_(next(model.parameters()))
    save_tensors(tmp_path / MODEL, model.state_dict())
    assert run.metrics() == {}
    run.save_metrics("validation", {"users": 2})
    assert run.metrics() == {"validation": {"users": 2}}


def test_a_model_is_not_read_again_for_its_reports(
    tmp_path: Path, handmade: PreparedData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file is known by its size, time and number; a copy is known by its hash."""
    run = run_in(tmp_path / "run", handmade)
    run.folder.mkdir()
    save_tensors(run.folder / MODEL, build_model(run.experiment, handmade).state_dict())
    run.save_metrics("test", {"users": 1})
    copy = run_in(shutil.copytree(run.folder, tmp_path / "copy", copy_function=shutil.copyfile), handmade)
    read: list[Path] = []

    def hashed(path: Path) -> FileHash:
        read.append(path)
        return hash_file(path)

    monkeypatch.setattr(module, "hash_file", hashed)
    assert run.metrics() == copy.metrics() == {"test": {"users": 1}}
    assert read == [copy.folder / MODEL]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "there is no run here"),
        ("[]", "can't be read"),
        ('{"experiment": {}, "data": 5, "fingerprint": ""}', "can't be read"),
        ('{"experiment": [1], "data": "d", "fingerprint": ""}', "can't be read"),
        ("\udcff", "can't be read"),
    ],
)
def test_what_is_no_run_is_said(tmp_path: Path, content: str | None, words: str) -> None:
    if content is not None:
        (tmp_path / RUN).write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(TrainingError, match=words) as refused:
        Run.read(tmp_path)
    assert str(tmp_path) in str(refused.value)


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("training.momentum", 0.9, r"training\.momentum"),
        (
            "objective.loss",
            {"kind": "squared_hinge"},
            r"loss\.kind can't be 'squared_hinge'.*install the package",
        ),
        (
            "tower.user",
            {"kind": "decayed"},
            r"user\.kind can't be 'decayed'.*install the package that adds it",
        ),
    ],
)
def test_an_experiment_of_other_settings_is_refused_in_one_line(
    setting: str, value: object, words: str, tmp_path: Path, handmade: PreparedData
) -> None:
    """A setting that is no longer one, and kinds whose package is gone."""
    run_in(tmp_path, handmade).write()
    stored = json.loads((tmp_path / RUN).read_text())
    section, name = setting.split(".")
    stored["experiment"][section][name] = value
    (tmp_path / RUN).write_text(json.dumps(stored))
    with pytest.raises(TrainingError, match=words) as refused:
        Run.read(tmp_path)
    assert "\n" not in str(refused.value)


def test_a_torn_file_is_refused(tmp_path: Path) -> None:
    path, model = tmp_path / "m.safetensors", torch.nn.Linear(3, 2)
    save_tensors(path, model.state_dict())
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(TrainingError, match="can't be read"):
        load_parameters(path, model)


def test_a_full_disk_is_a_sentence_and_keeps_the_file_that_is_there(tmp_path: Path) -> None:
    """safetensors has an error of its own for it."""
    path, model = tmp_path / "m.safetensors", torch.nn.Linear(3, 2)
    save_tensors(path, model.state_dict())
    before = path.read_bytes()
    with small_files(4000), pytest.raises(TrainingError, match=rf"^{path}: it can't be written .*make room"):
        save_tensors(path, {"weight": torch.ones(1000, 3)})
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["m.safetensors"]


def test_a_resumed_training_drops_lines_that_its_checkpoint_does_not_include(tmp_path: Path) -> None:
    """Those of later steps, that of an epoch which is not ended, bytes that are no text, and half a line."""
    for step, epoch in ((1, 0), (4, 1), (5, 1), (8, 1), (9, 1), (8, 2), (9, 2)):
        entry = {"step": step, "epoch": epoch, "seconds": 1.0}
        with (tmp_path / HISTORY).open("a") as stream:
            stream.write(json.dumps(entry) + "\n")
    with (tmp_path / HISTORY).open("ab") as stream:
        stream.write(b'\xff\xfe\n{"step": 1')
    with pytest.raises(TrainingError, match="line 8: it can't be read"):
        load_history(tmp_path)
    state = Progress(step=8, epoch=1)
    recorder = Recorder(tmp_path, {}, state, [], pytest.fail)
    state.epoch = 2
    recorder.record({})
    kept = [(entry["step"], entry["epoch"]) for entry in load_history(tmp_path)]
    assert kept == [(1, 0), (4, 1), (5, 1), (8, 1), (8, 2)]


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    done = subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def stored(folder: Path) -> list[dict[str, object]]:
    entries: list[dict[str, object]] = json.loads((folder / ENVIRONMENT).read_text())["environments"]
    return entries


def test_the_commit_is_recorded_and_whether_tracked_files_differ(tmp_path: Path) -> None:
    """A file that git does not track changes nothing; outside a repository there is no state."""
    assert git_state(tmp_path) is None
    git(tmp_path, "init", "-q")
    assert git_state(tmp_path) is None
    (tmp_path / "a").write_text("1")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-qm", "first")
    (tmp_path / "b").write_text("1")
    state = {"commit": git(tmp_path, "rev-parse", "HEAD"), "dirty": False}
    assert git_state(tmp_path) == state
    (tmp_path / "a").write_text("2")
    assert git_state(tmp_path) == {**state, "dirty": True}


def test_versions_and_machine_are_recorded_without_names_of_host_and_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor any environment variable."""
    monkeypatch.setenv("SOME_SECRET", "xyzzy-4711")
    monkeypatch.chdir(tmp_path)
    record_environment(tmp_path, 0)
    (entry,) = stored(tmp_path)
    assert entry == {"from_step": 0, **environment()}
    assert environment()["versions"]["torch"] == version("torch")
    assert environment()["machine"]["memory_gb"] > 0
    text = (tmp_path / ENVIRONMENT).read_text()
    assert "xyzzy" not in text
    assert f'"{getpass.getuser()}"' not in text
    assert socket.gethostname() not in text


@pytest.mark.parametrize("content", [None, "{", "[]", '{"environments": [1]}'])
def test_a_missing_or_damaged_record_is_none_and_is_replaced(tmp_path: Path, content: str | None) -> None:
    """It must not keep a training from going on."""
    if content is not None:
        (tmp_path / ENVIRONMENT).write_text(content)
    assert load_environment(tmp_path) is None
    record_environment(tmp_path, 3)
    assert load_environment(tmp_path) == stored(tmp_path)[-1]
    assert stored(tmp_path)[-1]["from_step"] == 3


SETTINGS = {"training.seed": 3, "tower.user.hidden": [8]}


def logged(folder: Path, name: str, step: int = 0, finished: bool = True) -> None:
    """Two measurements from `step` on."""
    state = Progress(step=step, finished=finished)
    recorder = Recorder(folder, SETTINGS, state, [name], pytest.fail)
    for figures in ({"loss/train": 2.5}, {"validation/ndcg@10": 0.25}):
        state.step += 1
        recorder.record(figures)
    recorder.close()


def test_tensorboard_has_every_figure_and_the_settings(tmp_path: Path) -> None:
    logged(tmp_path, "tensorboard")
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(one.step, one.value) for one in events.Scalars("loss/train")] == [(1, 2.5)]
    assert [(one.step, one.value) for one in events.Scalars("validation/ndcg@10")] == [(2, 0.25)]
    assert "settings/text_summary" in events.Tags()["tensors"]


def test_wandb_has_settings_figures_and_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resumed training names the run that it continues."""
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    wandb = MagicMock(__spec__=ModuleSpec("wandb", None))
    wandb.init.return_value.id = "id0"
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    logged(tmp_path, "wandb", finished=False)
    logged(tmp_path, "wandb", step=2)
    first, second = (call.kwargs for call in wandb.init.call_args_list)
    assert (first["project"], first["config"], first["dir"]) == ("mine", SETTINGS, str(tmp_path))
    assert [(one["id"], one["resume"]) for one in (first, second)] == [(None, None), ("id0", "allow")]
    run = wandb.init.return_value
    assert run.finish.call_args_list == [call(exit_code=1), call(exit_code=0)]
    assert run.log.call_args_list[:2] == [
        call({"loss/train": 2.5}, step=1),
        call({"validation/ndcg@10": 0.25}, step=2),
    ]


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore")  # MLflow calls deprecated functions of SQLAlchemy
def test_mlflow_has_settings_figures_and_status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a local database and the experiment `turret`; a resumed training continues the same run."""
    require("mlflow")
    import mlflow

    address = f"sqlite:///{tmp_path / 'mlflow.db'}"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    client = mlflow.MlflowClient(tracking_uri=address)
    for step, finished, status in ((0, False, "KILLED"), (2, True, "FINISHED")):
        logged(tmp_path, "mlflow", step, finished)
        (run,) = client.search_runs([client.get_experiment_by_name("turret").experiment_id])
        assert run.info.status == status
    assert run.info.run_name == f"{tmp_path.parent.name}/{tmp_path.name}"
    assert run.data.params == {"training.seed": "3", "tower.user.hidden": "[8]"}
    values = client.get_metric_history(run.info.run_id, "validation/ndcg_at_10")
    assert [(one.step, one.value) for one in values] == [(2, 0.25), (4, 0.25)]


@pytest.mark.parametrize(
    ("fails", "calls"), [("open", []), ("log", ["log"]), ("close", ["log", "log", "close"])]
)
def test_a_logger_that_fails_gives_one_warning_and_the_others_go_on(
    fails: str, calls: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = (MagicMock(**{"return_value.id": None}) for _ in range(2))
    failing = bad if fails == "open" else getattr(bad.return_value, fails)
    failing.side_effect = ConnectionError("no server at http://me:secret@host\nat all")
    monkeypatch.setitem(LOGGERS, "bad", bad)
    monkeypatch.setitem(LOGGERS, "good", good)
    warnings: list[str] = []
    recorder = Recorder(tmp_path, {}, Progress(finished=True), ["bad", "good"], warnings.append)
    recorder.record({"loss": 1.0})
    recorder.record({"loss": 1.0})
    recorder.close()
    assert len(load_history(tmp_path)) == 2
    assert warnings == [
        "The logger bad failed and gets no more figures (ConnectionError: no server at http://host); "
        "training continues, and history.jsonl has every figure."
    ]
    assert [name for name, _, _ in bad.return_value.method_calls] == calls
    assert [name for name, _, _ in good.return_value.method_calls] == ["log", "log", "close"]


def test_an_unknown_logger_and_a_missing_library_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    check_loggers(["tensorboard"])
    with pytest.raises(
        TrainingError, match="--logger neptune: there is no such logger; there are tensorboard"
    ):
        check_loggers(["neptune"])
    monkeypatch.setattr("turret.training.records.find_spec", lambda _: None)
    for name in ("mlflow", "wandb"):
        with pytest.raises(TrainingError, match=rf"--logger {name}: .*pip install .*\[{name}\]'"):
            check_loggers([name])


def test_a_run_keeps_all_that_was_measured(evaluated: Run, tmp_path: Path) -> None:
    """Loss and learning rate of steps; loss, validation metric and speed of epochs; seconds of all."""
    folder = shutil.copytree(evaluated.folder, tmp_path / "run")
    history, progress = load_history(folder), evaluated.progress()
    assert progress is not None
    epochs = [entry for entry in history if "loss/epoch" in entry]
    assert [entry["epoch"] for entry in epochs] == [1, 2]
    assert [[entry["epoch"], entry["validation/ndcg@10"]] for entry in epochs] == progress.validated
    assert epochs[-1]["step"] == progress.step
    assert all(entry["examples_per_second"] > 0 for entry in epochs)
    assert history[0]["step"] == 1
    assert {"loss/train", "learning_rate"} < history[0].keys()
    assert [entry["seconds"] for entry in history] == sorted(entry["seconds"] for entry in history)
    assert [entry["from_step"] for entry in stored(folder)] == [0]
    assert json.loads((folder / "loggers.json").read_text()) == {"tensorboard": None}
    remove_run(folder)
    assert list(folder.iterdir()) == []
