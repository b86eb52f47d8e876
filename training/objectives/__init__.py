"""Objectives: they compute the loss of a step from user vectors and draws."""

__all__ = ["arguments", "blocked", "contract", "sampled", "taught"]
