"""Every loss over a draw, by the name that an experiment gives it."""

from training.losses.contract import Loss
from training.losses.sampled_softmax import sampled_softmax, sampled_softmax_corrected

SAMPLED_LOSSES: dict[str, Loss] = {
    "sampled_softmax": sampled_softmax,
    "sampled_softmax_corrected": sampled_softmax_corrected,
}
