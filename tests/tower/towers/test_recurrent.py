from typing import ClassVar

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests.contracts.user_towers import UserTowerContract, from_the_start, vectors
from tests.tower.small_towers import USERS, config, no_features
from turret.tower.inference.onnx_check import check_onnx
from turret.tower.towers.recurrent import RecurrentUserConfig, RecurrentUserTower
from turret.training.export.onnx_form import user_tower_onnx


class TestRecurrentUserTower(UserTowerContract):
    settings: ClassVar[dict[str, object]] = {"kind": "recurrent", "state": 5, "dropout": 0.0}

    @pytest.mark.nightly
    def test_it_can_be_exported_again(self) -> None:
        for _ in range(2):
            check_onnx(user_tower_onnx(self.model()), "user_tower.onnx")


def sigmoid(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(1.0 / (1.0 + np.exp(-values)))


def test_agrees_with_the_gates_in_plain_numpy() -> None:
    """Reset, update and new state, step by step (Cho et al. 2014)."""
    torch.manual_seed(0)
    asked = config(**TestRecurrentUserTower.settings).user
    assert isinstance(asked, RecurrentUserConfig)
    made = RecurrentUserTower(asked, 6, no_features(USERS))
    weights = {name: value.detach().double().numpy() for name, value in made.state_dict().items()}
    state = np.zeros(5)
    ours = made(from_the_start(), vectors()).detach().numpy()
    for t, step in enumerate(vectors()[:5].double().numpy()):
        given = weights["network.weight_ih_l0"] @ step + weights["network.bias_ih_l0"]
        kept = weights["network.weight_hh_l0"] @ state + weights["network.bias_hh_l0"]
        reset, update = sigmoid(given[:5] + kept[:5]), sigmoid(given[5:10] + kept[5:10])
        new = np.tanh(given[10:] + reset * kept[10:])
        state = (1.0 - update) * new + update * state
        expected = weights["output.weight"] @ state + weights["output.bias"]
        np.testing.assert_allclose(ours[t], expected, rtol=1e-4, atol=1e-5)
