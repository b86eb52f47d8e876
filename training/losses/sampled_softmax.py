"""Softmax losses over a draw."""

import torch
from torch import Tensor

from training.corrections import masked, minus_log_count
from training.samplers.draw import Draw


def sampled_softmax(positive: Tensor, drawn: Tensor, draw: Draw) -> Tensor:
    """log(exp s_y + sum_j exp(s_j - l_j)) - s_y.

    The sum over the draw estimates the softmax's other terms without bias, because the positive is
    kept exactly and masked among the drawn. With the whole catalogue as the draw (l = 0) this *is* the
    full softmax. Wrong with counts that are not those of the draw: a temperature applied afterwards or
    a floor under q bends the long tail.

    Args:
        positive: [B] tempered scores s_y of the positives.
        drawn: [B, K] tempered scores s_j of the candidates.
        draw: the candidates' log expected counts l_j, and which of them are valid.

    Returns:
        [B], at least zero; exactly zero where no candidate is valid.

    Source: Blanc & Rendle 2018, eq. 2-3; Bengio & Senecal 2008.
    """
    others = masked(minus_log_count(drawn, draw), draw)
    return -torch.cat([positive.unsqueeze(1), others], dim=1).log_softmax(dim=1)[:, 0]


def sampled_softmax_corrected(positive: Tensor, drawn: Tensor, draw: Draw) -> Tensor:
    """`sampled_softmax` with s_y - l_y in place of s_y: the positive is corrected as the candidates are.

    The form for draws in which the positive takes part like any other item, above all in-batch
    candidates, where popular items appear as negatives as often as they are positives.

    Args:
        positive: [B] tempered scores.
        drawn: [B, K] tempered scores.
        draw: with `positive_log_count`, the log expected count of each positive.

    Returns:
        [B], at least zero.

    Source: Yi et al. 2019, eq. 5; TensorFlow `sampled_softmax_loss`.
    """
    return sampled_softmax(positive - draw.positive_log_count, drawn, draw)
