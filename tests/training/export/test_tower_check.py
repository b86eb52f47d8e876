"""A package's user tower is checked before the first step; each fault ends in a sentence."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.tower.small_towers import ITEMS, USERS, config, item_features, no_features
from turret.data.prepared import PreparedData
from turret.tower.towers.model import TwoTowers
from turret.tower.towers.pooled import PooledUserConfig, PooledUserTower
from turret.training import trainer
from turret.training.config.experiment import ExperimentConfig
from turret.training.errors import TrainingError
from turret.training.export.tower_check import check_user_tower
from turret.training.run import Run


def model() -> TwoTowers:
    torch.manual_seed(0)
    return TwoTowers(config(dropout=0.0), ITEMS, item_features(), no_features(USERS))


class OwnTower(PooledUserTower):
    """A tower of this module, as a package has one."""


def after(change: Callable[[Tensor], object]) -> Callable[[Any], Any]:
    """A method that changes what the method before it returns."""
    return lambda before: lambda *inputs: change(before(*inputs))


def failing(before: Any) -> Any:
    def method(*inputs: object) -> Tensor:
        raise ValueError("boom")

    return method


@pytest.mark.parametrize(
    ("method", "changed", "words"),
    [
        ("forward", after(lambda v: v[:, :5]), r"of shape \(3, 5\) from `forward`; .*\(3, 6\)"),
        ("forward", after(lambda v: v[:1]), r"of shape \(1, 6\) from `forward`; .*\(3, 6\)"),
        ("forward", after(lambda v: v.double()), r"torch\.float64 .* from `forward`; return torch\.float32"),
        ("forward", after(lambda v: None), "gives 'NoneType' from `forward`; return a tensor"),
        ("forward", after(lambda v: v * torch.nan), "gives NaN or infinity from `forward`"),
        ("forward", failing, r"fails in `forward` \(test_tower_check\.py, line \d+\): ValueError: boom"),
        ("served", failing, r"fails in `served` \(test_tower_check\.py, line \d+\): ValueError: boom"),
        (
            "served",
            after(lambda v: v + 0.1),
            r"other vectors from `served` than from `forward` \(by up to 0.1",
        ),
    ],
)
def test_a_method_that_breaks_the_contract_is_named(method: str, changed: Any, words: str) -> None:
    made = model()
    made.user.__class__ = OwnTower
    setattr(made.user, method, changed(getattr(made.user, method)))
    with pytest.raises(TrainingError, match=rf"tower\.user\.kind = 'pooled' .*{words}"):
        check_user_tower(made)


def test_a_context_of_another_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PooledUserConfig, "context", property(lambda self: "window"))
    with pytest.raises(TrainingError, match=r"has the context 'window'; use one of .*causal_segment"):
        check_user_tower(model())


@pytest.mark.nightly
def test_a_tower_that_keeps_the_contract_passes() -> None:
    """Exported and run, without drawing from torch's generator."""
    made = model()
    before = torch.random.get_rng_state()
    check_user_tower(made)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.nightly
def test_an_operator_that_no_service_runs_is_named_with_those_that_it_runs() -> None:
    made = model()
    before = made.user.served
    made.user.served = (  # type: ignore[method-assign]
        lambda history, length, *others: before(
            history.cumsum(1) - history.cumsum(1) + history, length, *others
        )
    )
    with pytest.raises(TrainingError, match=r"operator 'CumSum'.* these operators alone: Abs, Add, .*Where"):
        check_user_tower(made)


@pytest.mark.nightly
def test_an_export_that_fails_gives_the_reason_of_the_exporter() -> None:
    made = model()
    before = made.user.served
    made.user.served = (  # type: ignore[method-assign]
        lambda history, length, *others: before(history[:, : int(length.max())], length, *others)
    )
    with pytest.raises(
        TrainingError, match=r"'pooled' (fails in the export of `served`|is exported to a form)"
    ):
        check_user_tower(made)


def test_training_checks_the_towers_of_packages_alone(
    handmade: PreparedData, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    checked: list[TwoTowers] = []
    monkeypatch.setattr(trainer, "check_user_tower", checked.append)
    run = Run(tmp_path, ExperimentConfig(), handmade.folder, handmade.fingerprint)
    trainer.Trainer(run, handmade, report=lambda line: None)
    assert not checked
    monkeypatch.setattr(trainer, "PACKAGED", {"pooled"})
    assert checked == [trainer.Trainer(run, handmade, report=lambda line: None).model]
