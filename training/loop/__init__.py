"""Trainings: the loop of steps, its optimiser, the repeat term and the refit."""

__all__ = ["optimiser", "train", "trainer"]
