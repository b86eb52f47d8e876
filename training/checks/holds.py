"""Assertions that also run under `python -O`, and whose sentences name the kind that is checked."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from turret.data.errors import TurretError


def holds(condition: bool | Tensor, sentence: str) -> None:
    """Raise AssertionError with `sentence` unless the condition holds."""
    if not bool(condition):
        raise AssertionError(sentence)


def close(found: Tensor, expected: Tensor, sentence: str, rtol: float = 1e-5, atol: float = 1e-7) -> None:
    """Raise AssertionError with `sentence` unless two tensors have one shape and nearly the same values."""
    holds(found.shape == expected.shape, f"{sentence} (shape {tuple(found.shape)})")
    one, other = found.detach().double(), expected.detach().double()
    if not torch.allclose(one, other, rtol=rtol, atol=atol):
        raise AssertionError(f"{sentence} (by up to {float((one - other).abs().max()):.3g})")


@contextmanager
def about(what: str) -> Iterator[None]:
    """Put `what` in front of the sentences of failed assertions and of refusals."""
    try:
        yield
    except (AssertionError, TurretError) as error:
        raise AssertionError(f"{what}: {error}") from error
