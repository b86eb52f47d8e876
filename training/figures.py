"""Plots as files: their formats, and how they are written."""

from pathlib import Path

from matplotlib.figure import Figure

from turret.training.errors import TrainingError

FORMATS = (".png", ".svg", ".pdf")


def check_format(path: Path, option: str) -> None:
    """Raise TrainingError for a file name without a known format, naming the option that gave it."""
    if path.suffix.lower() not in FORMATS:
        raise TrainingError(
            f"{option} {path}: the name must end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}."
        )


def save_figure(figure: Figure, path: Path) -> None:
    """Write a figure to `path`, in the format of its suffix."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # No date: the same report gives the same file.
    dateless = {"Date": None} if path.suffix.lower() == ".svg" else None
    figure.savefig(path, dpi=150, metadata=dateless)
