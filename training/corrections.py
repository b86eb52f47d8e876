"""Small steps between scores and a loss, always in this order: temperature, log expected count, mask."""

from torch import Tensor

from training.samplers.draw import Draw


def minus_log_count(drawn: Tensor, draw: Draw) -> Tensor:
    """The logQ correction: tempered scores [B, K] less the log of each candidate's expected count."""
    return drawn - draw.log_count


def masked(corrected: Tensor, draw: Draw) -> Tensor:
    """Scores [B, K] with minus infinity in place of masked candidates: no softmax mass and no gradient."""
    return corrected.masked_fill(~draw.valid, float("-inf"))
