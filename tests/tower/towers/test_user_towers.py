"""The registry of user towers: every entry keeps its promises, and a package can add one."""

import re
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnxruntime
import pytest
import torch

from tests.support.places import ROOT
from tests.support.plugin import install, run_with
from tests.tower.small_towers import (
    ITEMS,
    USERS,
    config,
    item_features,
    no_features,
    packed,
    user_features,
)
from turret.data.errors import ConfigurationError
from turret.tower.errors import TowerError
from turret.tower.inference.operators import OPERATORS
from turret.tower.layers.packed import PackedHistories
from turret.tower.towers import user_towers
from turret.tower.towers.model import TwoTowers
from turret.tower.towers.pooled import PooledUserTower
from turret.tower.towers.user import UserTower, UserTowerKind, UserTowerSettings
from turret.tower.towers.user_towers import OURS, USER_TOWERS
from turret.training.export.onnx_form import user_tower_onnx

PACKAGE = """
from typing import Literal

from turret.tower.towers.user import UserTower, UserTowerKind, UserTowerSettings, last_columns
from torch import nn

from turret.tower.layers.gather import gather_rows, step_at


class LastSettings(UserTowerSettings):
    kind: Literal["last"]
    factor: float = 0.5


class LastTower(UserTower):
    def __init__(self, config, dimension, prepared):
        super().__init__(config, prepared)
        self.factor = config.factor
        self.output = nn.Linear(dimension + self.feature_width, dimension)

    def forward(self, histories, vectors):
        return self.output(self.factor * gather_rows(vectors, histories.ends - 1))

    def served(self, history, length, features, times=()):
        return self.output(self.factor * step_at(history, length - 1))

    def feature_reader(self):
        return last_columns(self.output, self.feature_width)


KIND = UserTowerKind(LastSettings, LastTower)
"""


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=pytest.mark.nightly) if kind in ("recurrent", "transformer") else kind
        for kind in sorted(USER_TOWERS)
    ],
)
def test_every_kind_trains_and_serves_with_features(kind: str) -> None:
    """By its defaults: exported, its vectors are those of training, and its features have a reader."""
    torch.manual_seed(0)
    asked = config(kind=kind, features="all", dropout=0.0)
    model = TwoTowers(asked, ITEMS, item_features(), user_features()).eval()
    histories = packed()
    vectors = model.item_vectors(histories.rows)
    expected = model.user_vectors(histories, vectors)
    assert expected.shape == (5, 6)
    reader, first = model.user.feature_reader()
    assert 0 <= first <= reader.in_features - model.user.feature_width
    assert model.user.rows is not None
    exported = onnxruntime.InferenceSession(user_tower_onnx(model))
    names = {entry.name for entry in exported.get_inputs()}
    assert {"history", "length", "feature_age"} <= names
    assert ({"gaps", "clocks"} <= names) == asked.user.reads_times
    assert np.isfinite(expected.detach().numpy()).all()


@pytest.mark.parametrize("kind", sorted(kind.name for kind in OURS))
def test_every_kind_of_ours_has_its_row_in_the_documents(kind: str) -> None:
    assert f"| `{kind}` |" in (ROOT / "docs" / "training.md").read_text(encoding="utf-8")


def test_the_documents_list_the_operators_of_a_served_tower() -> None:
    written = (ROOT / "docs" / "training.md").read_text(encoding="utf-8")
    listed = written.partition("operators only:")[2].partition(".")[0]
    assert re.findall(r"`(\w+)`", listed) == sorted(OPERATORS)


@pytest.mark.nightly
def test_a_package_adds_a_tower_by_an_entry_point(tmp_path: Path) -> None:
    """It is read from settings, built, and exported like ours."""
    install(tmp_path, "last_tower", PACKAGE, {"turret.user_towers": "last = last_tower:KIND"})
    code = """
from tests.tower.small_towers import ITEMS, config, item_features, packed, user_features
from turret.tower.towers.model import TwoTowers
from turret.training.export.onnx_form import user_tower_onnx
asked = config(kind="last", factor=0.25, dropout=0.0)
model = TwoTowers(asked, ITEMS, item_features(), user_features()).eval()
histories = packed()
print(tuple(model.user_vectors(histories, model.item_vectors(histories.rows)).shape))
print(type(model.user).__name__, asked.model_dump()["user"]["factor"], len(user_tower_onnx(model)) > 100)
"""
    run = run_with(tmp_path, code)
    assert run.stdout.splitlines() == ["(5, 6)", "LastTower 0.25 True"], run.stderr


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("a = missing_module:KIND", "entry point 'a' .* can't be loaded"),
        ("a = last_tower:LastTower", "of the package last_tower is .*, not of the type UserTowerKind"),
        ("a = last_tower:TWICE", "two entries of turret.user_towers are named 'pooled'"),
    ],
)
def test_a_broken_entry_point_is_named(tmp_path: Path, entry: str, words: str) -> None:
    twice = """
from turret.tower.towers.pooled import PooledUserConfig, PooledUserTower
TWICE = UserTowerKind(PooledUserConfig, PooledUserTower)
"""
    install(tmp_path, "last_tower", PACKAGE + twice, {"turret.user_towers": entry})
    run = run_with(tmp_path, "import turret.tower.towers.user_towers")
    assert run.returncode
    assert re.search(words, run.stderr), run.stderr


def _last_settings() -> type[UserTowerSettings]:
    class LastSettings(UserTowerSettings):
        kind: Literal["last"]

    return LastSettings


class _Unnamed(UserTowerSettings):
    pass


class _OfTwoNames(UserTowerSettings):
    kind: Literal["one", "other"]


class _Unfinished(UserTower):
    def forward(self, histories: PackedHistories, vectors: torch.Tensor) -> torch.Tensor:
        return vectors


@pytest.mark.parametrize(
    ("settings", "build", "words"),
    [
        (dict, PooledUserTower, "the settings of a UserTowerKind are .*dict.*; give a subclass"),
        (_Unnamed, PooledUserTower, r"_Unnamed needs a name, as in kind: Literal"),
        (_OfTwoNames, PooledUserTower, r"_OfTwoNames needs a name, as in kind: Literal"),
        (_last_settings(), torch.nn.Linear, "the tower of a UserTowerKind is .*Linear.*; give a subclass"),
        (_last_settings(), _Unfinished, "_Unfinished.* lacks methods of UserTower: feature_reader, served"),
    ],
)
def test_a_kind_of_other_bases_or_without_a_name_is_refused(
    settings: type[Any], build: type[Any], words: str
) -> None:
    """When it is made, so that the message is about the package."""
    with pytest.raises((TowerError, ConfigurationError), match=words):
        UserTowerKind(settings, build)


def _failing(*_: object) -> UserTower:
    raise KeyError("boom")


def _no_tower(*_: object) -> object:
    return torch.nn.Linear(2, 2)


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (_failing, r"tower\.user\.kind = 'last' can't be built: KeyError\('boom'\)"),
        (_no_tower, "'last' builds 'Linear', which is no UserTower or did not call"),
    ],
)
def test_a_builder_of_a_package_that_fails_is_named(
    build: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = _last_settings()
    monkeypatch.setitem(USER_TOWERS, "last", UserTowerKind(settings, build))
    monkeypatch.setattr(user_towers, "PACKAGED", {"last"})
    with pytest.raises(TowerError, match=words):
        user_towers.build_user_tower(settings(kind="last"), 6, no_features(USERS))
