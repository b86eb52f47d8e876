"""The protocol of a logger."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class LoggedRun:
    """A run at the start of its training, or where a killed training continues.

    `settings` are named by dots; `step` is 0, or that of the checkpoint; `earlier` is the `id` that the
    logger had when the training began, if it was there.
    """

    folder: Path
    settings: dict[str, Any]
    step: int = 0
    earlier: str | None = None

    @property
    def name(self) -> str:
        """The name to show: the folder's, with its parent's, as in run/seed-0."""
        path = self.folder.resolve()
        return f"{path.parent.name}/{path.name}"


class Logger(ABC):
    """Takes the figures of one run; its builder has taken the settings. Any method may raise."""

    id: str | None = None
    """The name under which a resumed training continues, or None."""

    @abstractmethod
    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Take figures by name, such as `loss/train`, after `step` steps; steps never fall."""

    @abstractmethod
    def close(self, finished: bool) -> None:
        """End the log; `finished` is false where training was interrupted or failed."""


@dataclass(frozen=True)
class LoggerKind:
    """A kind of logger by name: its builder, and the module that has to be installed."""

    name: str
    open: Callable[[LoggedRun], Logger]
    module: str
