"""From user vectors and draws to the loss of a step."""

__all__ = ["blocked", "catalog", "contract", "sampled", "several_positives"]
