"""The folder of a run: what it stores, and what is refused."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from turret.data.manifest import FileHash, hash_file
from turret.data.prepared import PreparedData
from turret.training import run as module
from turret.training.checkpoint import save_tensors
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
        ("{", "can't be read"),
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
        ([], None, "can't be read"),
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
