"""Compiled kernels: numbers, dropout, unit vectors and threads."""

import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from tests.support.places import ROOT
from turret.tower.config import ScoringConfig
from turret.tower.kernels.compiled import FOLDER, compiled_sum, in_parts, sources
from turret.tower.kernels.elementwise import Dropout
from turret.tower.towers.model import scored_items


@compiled_sum
def total(values: np.ndarray) -> float:
    added = 0.0
    for value in values:
        added += value
    return added


def test_infinity_and_nan_keep_their_meaning_in_reordered_sums() -> None:
    """A sum in which one is stays so: bad vectors are not lost."""
    assert np.isnan(total(np.array([1.0, np.nan])))
    assert np.isinf(total(np.array([1.0, np.inf])))


def test_changed_modules_do_not_meet_code_compiled_from_others(tmp_path: Path) -> None:
    """Each state of the sources has a folder of its own."""
    (tmp_path / "tower").mkdir()
    module = tmp_path / "tower" / "kernel.py"
    module.write_text("@compiled\ndef one(): ...")
    before = sources(tmp_path)
    assert sources(tmp_path) == before
    module.write_text("@compiled\ndef two(): ...")
    assert sources(tmp_path) != before
    assert FOLDER.endswith(f"compiled-{sources(ROOT)}")


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_the_rate_is_dropped_and_the_mean_stays(rate: float) -> None:
    """Of 300,000 values, within five deviations of the share; a rate is met to a 512th."""
    values = torch.ones(1000, 300)
    torch.manual_seed(0)
    kept = Dropout(rate)(values)
    share = float((kept == 0).float().mean())
    assert abs(share - rate) < 1 / 512 + 5 * (rate * (1 - rate) / values.numel()) ** 0.5
    assert abs(float(kept.mean()) - 1.0) < 5 * (rate / (1 - rate) / values.numel()) ** 0.5
    assert len(kept.unique()) == 2


def test_the_gradient_of_dropout_drops_the_same() -> None:
    values = torch.randn(37, 11, generator=torch.Generator().manual_seed(0)).requires_grad_()
    torch.manual_seed(0)
    kept = Dropout(0.4)(values)
    (gradient,) = torch.autograd.grad(kept.sum(), values)
    torch.testing.assert_close(kept, values * gradient)


def test_places_are_dropped_independently() -> None:
    """No two of the eight values of a word go together more often than by chance."""
    torch.manual_seed(3)
    kept = (Dropout(0.5)(torch.ones(200_000, 8)) > 0).double()
    correlations = torch.corrcoef(kept.T) - torch.eye(8, dtype=torch.float64)
    assert correlations.abs().max() < 5 / 200_000**0.5


def test_a_seed_repeats_with_any_number_of_threads_and_another_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("turret.tower.kernels.elementwise.LEAST_WORDS", 999)
    values, threads, drop = torch.ones(3000, 100), torch.get_num_threads(), Dropout(0.3)
    drawn = []
    try:
        for seed, count in ((0, 1), (0, 2), (1, 1)):
            torch.set_num_threads(count)
            torch.manual_seed(seed)
            drawn.append(drop(values))
    finally:
        torch.set_num_threads(threads)
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])
    assert not torch.equal(drawn[2], drop(values))


def test_when_served_nothing_is_dropped() -> None:
    values = torch.ones(10)
    assert Dropout(0.5).eval()(values) is values
    assert Dropout(0.0)(values) is values
    assert len(Dropout(0.5)(torch.ones(4, 2, dtype=torch.float64)).unique()) <= 2


@pytest.mark.parametrize("shape", [(5, 3), (3000, 64), (2, 4, 6), (7,), (0, 4)])
def test_unit_vectors_and_their_gradients_are_those_of_torch(shape: tuple[int, ...]) -> None:
    """Also of a vector of zeros, through which no slope is infinite."""
    vectors = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    vectors[:1] = 0.0
    vectors.requires_grad_()
    slopes = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    ours, theirs = scored_items(vectors, ScoringConfig()), normalize(vectors, dim=-1)
    torch.testing.assert_close(ours, theirs)
    for one, other in zip(
        torch.autograd.grad((ours * slopes).sum(), vectors),
        torch.autograd.grad((theirs * slopes).sum(), vectors),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_an_error_on_another_thread_is_raised() -> None:
    """The part of the caller is done only after it."""
    caller, failed = threading.current_thread(), threading.Event()

    def work(start: int, stop: int) -> None:
        if threading.current_thread() is caller:
            assert failed.wait(60)
        else:
            failed.set()
            raise ValueError("broken elsewhere")

    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with pytest.raises(ValueError, match="broken elsewhere"):
            in_parts(10, work)
    finally:
        torch.set_num_threads(threads)
