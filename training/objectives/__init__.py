"""From user vectors and draws to the loss of a step."""

__all__ = ["arguments", "blocked", "contract", "sampled"]
