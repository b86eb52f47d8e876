"""Loggers: the tools of tracking experiments that get a run's settings and figures."""

__all__ = ["contract", "opened", "registry", "tensorboard", "wandb"]
