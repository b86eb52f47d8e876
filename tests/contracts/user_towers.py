"""What every user tower has to pass, whatever it computes."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor

from tests.tower.small_towers import (
    ITEMS,
    USERS,
    config,
    item_features,
    no_features,
    packed,
    times,
    user_features,
)
from turret.data.features import Features
from turret.tower.config import ScoringConfig
from turret.tower.inference.onnx_check import check_onnx
from turret.tower.layers.packed import PackedHistories
from turret.tower.towers.model import TwoTowers
from turret.training.export.onnx_form import user_tower_onnx

FEATURES = {
    "country": torch.tensor([1, 1, 1, 2, 2]),
    "age": torch.tensor([0.5, 0.5, 0.5, 0.0, 0.0]),
    "likes": torch.tensor([[1, 2], [1, 2], [1, 2], [2, 0], [2, 0]]),
}


def vectors(seed: int = 0) -> Tensor:
    return torch.randn(8, 6, generator=torch.manual_seed(seed))


def from_the_start() -> PackedHistories:
    """Every position of two histories: the examples of each share their window's start."""
    return PackedHistories(
        rows=torch.tensor([3, 1, 4, 1, 5, 2, 6, 0]),
        starts=torch.tensor([0, 0, 0, 0, 0, 5, 5, 5]),
        ends=torch.arange(1, 9),
        users=torch.tensor([0, 0, 0, 0, 0, 2, 2, 2]),
        ages=torch.zeros(8),
        **times(),
    )


def padded(histories: PackedHistories, given: Tensor, extra: int = 0) -> tuple[Tensor, Tensor]:
    """The windows as [B, T, D], oldest first and zeros behind, and their lengths [B]."""
    lengths = histories.ends - histories.starts
    history = torch.zeros(len(lengths), int(lengths.max()) + extra, given.shape[1])
    for b, (start, end) in enumerate(zip(histories.starts, histories.ends, strict=True)):
        history[b, : end - start] = given[start:end]
    return history, lengths


def padded_times(histories: PackedHistories, extra: int = 0) -> dict[str, Tensor]:
    """Gaps and clocks as [B, T], with something behind that nobody may read."""
    found = {}
    for name, column in times().items():
        rows, _ = padded(histories, column.unsqueeze(1), extra)
        found[name] = torch.where(rows[:, :, 0] == 0.0, 77.0, rows[:, :, 0])
        for b, (start, end) in enumerate(zip(histories.starts, histories.ends, strict=True)):
            found[name][b, : end - start] = column[start:end]
    return found


class UserTowerContract:
    """Subclasses say what is built; it reads all of `user_features` or none, and no example age.

    A kind of another package has a subclass, too, with the package on the path (docs/training.md).
    """

    settings: ClassVar[dict[str, object]]
    scoring: ClassVar[ScoringConfig] = ScoringConfig()

    @property
    def reads_times(self) -> bool:
        """Whether gaps and clocks are among the inputs."""
        return config(**self.settings).user.reads_times

    def stir(self, made: TwoTowers) -> None:
        """Change parameters that begin at zero, which would hide their factors."""

    def model(self, features: bool = False) -> TwoTowers:
        """Towers in evaluation mode, the same each time."""
        prepared: Features = user_features() if features else no_features(USERS)
        torch.manual_seed(0)
        asked = config(**{**self.settings, "features": "all" if features else ()})
        asked = asked.model_copy(update={"scoring": self.scoring})
        made = TwoTowers(asked, ITEMS, item_features(), prepared).eval()
        self.stir(made)
        return made

    def test_it_gives_a_vector_for_each_example(self) -> None:
        """As wide as the items' vectors."""
        assert self.model().user(packed(), vectors()).shape == (5, 6)

    def test_the_future_changes_nothing_in_the_past(self) -> None:
        """Replacing a step moves the examples that read it and no other."""
        tower, histories = self.model().user, from_the_start()
        before = tower(histories, vectors())
        for place in range(8):
            changed = vectors()
            changed[place] = 3.0
            after = tower(histories, changed)
            reads = (histories.starts <= place) & (place < histories.ends)
            torch.testing.assert_close(before[~reads], after[~reads], rtol=0, atol=1e-6)
            assert not torch.isclose(before[reads], after[reads]).all(dim=1).any()

    def test_a_batch_of_one_is_a_batch_of_many(self) -> None:
        """Windows that slide and overlap among them."""
        tower = self.model(features=True).user
        for histories in (packed(), from_the_start()):
            together = tower(histories, vectors())
            for b in range(len(histories.starts)):
                start, end = int(histories.starts[b]), int(histories.ends[b])
                alone = PackedHistories(
                    rows=histories.rows[start:end],
                    starts=torch.tensor([0]),
                    ends=torch.tensor([end - start]),
                    users=histories.users[b : b + 1],
                    ages=histories.ages[b : b + 1],
                    **{name: column[start:end] for name, column in times().items()},
                )
                torch.testing.assert_close(tower(alone, vectors()[start:end])[0], together[b])

    def test_packed_is_padded(self) -> None:
        """What a bundle serves, with room to spare, is what training saw."""
        tower = self.model(features=True).user
        history, lengths = padded(packed(), vectors(), extra=2)
        now = replace(packed(), ages=torch.zeros(5))
        given = tuple(padded_times(packed(), extra=2).values()) if self.reads_times else ()
        served = tower.served(history, lengths, FEATURES, given)
        torch.testing.assert_close(served, tower(now, vectors()))

    @pytest.mark.nightly
    def test_onnx_is_torch(self) -> None:
        """To 1e-5, at sizes that the export did not see."""
        model = self.model(features=True)
        exported = user_tower_onnx(model)
        check_onnx(exported, "user_tower.onnx")
        session = onnxruntime.InferenceSession(exported)
        histories = replace(packed(), ages=torch.zeros(5))
        for extra in (0, 1, 30):
            history, lengths = padded(histories, vectors(), extra)
            inputs = {"history": history.numpy(), "length": lengths.numpy()}
            inputs |= {f"feature_{name}": given.numpy() for name, given in FEATURES.items()}
            if self.reads_times:
                inputs |= {name: given.numpy() for name, given in padded_times(histories, extra).items()}
            (ours,) = session.run(["user_vector"], inputs)
            expected = model.user_vectors(histories, vectors()).detach().numpy()
            np.testing.assert_allclose(ours, expected, atol=1e-5)

    def test_every_parameter_is_trained(self) -> None:
        """Each gets a gradient that isn't zero."""
        tower = self.model(features=True).user
        direction = torch.randn(8, 6, generator=torch.manual_seed(1))
        torch.autograd.backward((tower(from_the_start(), vectors()) * direction).sum())
        for name, parameter in tower.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.abs().max() > 0, name

    def test_items_on_the_way_get_a_gradient(self) -> None:
        """All that the window holds, the oldest too."""
        given = vectors().requires_grad_()
        torch.autograd.backward(self.model().user(from_the_start(), given)[4].square().sum())
        assert given.grad is not None
        assert (given.grad[:5].abs().sum(dim=1) > 0).all()
        assert (given.grad[5:] == 0).all()
