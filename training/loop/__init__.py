"""Trainings: the loop of steps, its optimiser, and what follows the loop."""

__all__ = ["optimiser", "train", "trainer"]
