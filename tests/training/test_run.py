"""The folder of a run and its files: what is stored, and what is refused."""

import json
from pathlib import Path

import pytest
import torch

from tests.support.limits import small_files
from turret.data.prepared import PreparedData
from turret.training.checkpoint import load_parameters, save_tensors
from turret.training.config.experiment import ExperimentConfig
from turret.training.errors import TrainingError
from turret.training.run import MODEL, RUN, Run, build_model


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


def test_the_age_of_an_example_needs_times(handmade: PreparedData, shop: PreparedData) -> None:
    """An order of rows tells nobody how long ago something was."""
    config = ExperimentConfig.model_validate({"tower": {"user": {"example_age": True}}})
    build_model(config, shop)
    with pytest.raises(TrainingError, match=r"tower\.user\.example_age = true needs times.*set it to false"):
        build_model(config, handmade)


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


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "there is no run here"),
        ("[]", "can't be read"),
        ('{"experiment": {}, "data": 5, "fingerprint": ""}', "can't be read"),
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
    ("place", "value", "words"),
    [
        (["training", "momentum"], 0.9, r"training\.momentum"),
        (
            ["objective", "loss"],
            {"kind": "squared_hinge"},
            r"objective\.loss\.kind can't be 'squared_hinge'.*install the package",
        ),
        (
            ["tower", "user"],
            {"kind": "decayed"},
            r"tower\.user\.kind can't be 'decayed'.*install the package that adds it",
        ),
        ([], [1], "can't be read"),
    ],
    ids=str,
)
def test_an_experiment_of_other_settings_is_refused_in_one_line(
    place: list[str], value: object, words: str, tmp_path: Path, handmade: PreparedData
) -> None:
    """A setting that is no longer one, a kind whose package is gone, and what is no experiment."""
    run_in(tmp_path, handmade).write()
    stored = json.loads((tmp_path / RUN).read_text())
    section, *names = ["experiment", *place]
    holder = stored
    for name in names:
        holder, section = holder[section], name
    holder[section] = value
    (tmp_path / RUN).write_text(json.dumps(stored))
    with pytest.raises(TrainingError, match=words) as refused:
        Run.read(tmp_path)
    assert "\n" not in str(refused.value)


def test_a_torn_file_or_one_of_another_model_is_refused(tmp_path: Path) -> None:
    path, model = tmp_path / "m.safetensors", torch.nn.Linear(3, 2)
    save_tensors(path, model.state_dict())
    with pytest.raises(TrainingError, match="another model"):
        load_parameters(path, model, is_objective=True)
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
