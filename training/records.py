"""The records of a run: its measurements, its loggers, and the environment in which it was trained.

`history.jsonl` has the measurements, a line each. `environment.json` has the versions, the machine and the
state of the code, and no environment variables and no names of hosts or users. A logger is made of the folder
of the run, the settings by dotted names, the step from which training goes on, and the `id` that it had when
the training began, if any. The methods of a logger may raise.
"""

import json
import os
import platform
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from turret.data.errors import text_without_credentials
from turret.data.extras import install_hint
from turret.data.files import new_file, replace_json
from turret.training.checkpoint import Progress
from turret.training.errors import TrainingError, naming_damage

HISTORY = "history.jsonl"
ENVIRONMENT = "environment.json"
PACKAGES = (
    *("turret", "torch", "numpy", "polars", "numba", "pydantic"),
    *("safetensors", "faiss-cpu", "onnx", "onnxruntime"),
)
_GIT_SECONDS, _PROCESSORS = 10, Path("/proc/cpuinfo")


def record_environment(folder: Path, step: int) -> None:
    """Add the environment to the run in `folder`, with the step from which on it holds.

    A resumed training adds an entry only if something has changed. A file that can't be read is replaced.
    """
    stored = _entries(folder) if step else []
    current = environment()
    if stored and {**stored[-1], "from_step": None} == {**current, "from_step": None}:
        return
    entries = [*stored, {"from_step": step, **current}]
    replace_json(folder / ENVIRONMENT, {"environments": entries})


def load_environment(folder: Path) -> dict[str, Any] | None:
    """The environment that the run in `folder` was last trained in; None if the record can't be read."""
    return next(reversed(_entries(folder)), None)


def _entries(folder: Path) -> list[dict[str, Any]]:
    try:
        stored = json.loads((folder / ENVIRONMENT).read_text(encoding="utf-8"))["environments"]
        return [dict(entry) for entry in stored]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def environment() -> dict[str, Any]:
    """The versions, the machine, and `git_state` of the working folder."""
    # Linux has the model of the processor in /proc alone.
    listed = _PROCESSORS.read_text("utf-8") if _PROCESSORS.is_file() else ""
    versions = {}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    models = re.findall(r"(?m)^model name\s*:\s*(.+)$", listed)
    return {
        "python": platform.python_version(),
        "versions": versions,
        "machine": {
            "system": platform.system(),
            "architecture": platform.machine(),
            "processor": models[0] if models else platform.processor(),
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1),
            "accelerators": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
        },
        "git": git_state(Path.cwd()),
    }


def git_state(folder: Path) -> dict[str, Any] | None:
    """The commit checked out in `folder`, and whether tracked files differ from it.

    None outside a repository, before its first commit, and without git.
    """
    command = ["git", "--no-optional-locks", "-C", str(folder), "describe"]
    command += ["--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    commit = done.stdout.strip()
    return {"commit": commit.removesuffix("-dirty"), "dirty": commit.endswith("-dirty")}


# ---- Loggers: the tools of tracking experiments that get a run's settings and figures

LOGGERS_FILE = "loggers.json"
# These are names of loggers, and of their folders in a run.
TENSORBOARD, WANDB = "tensorboard", "wandb"
DEFAULT = (TENSORBOARD,)
_PROJECT = "turret"
# MLflow takes at most so many parameters in a request.
_PARAMETERS = 100


def _shown(folder: Path) -> str:
    """The folder's name with its parent's, as in run/seed-0."""
    path = folder.resolve()
    return f"{path.parent.name}/{path.name}"


class TensorBoardLogger:
    """Writes scalars to event files in `RUN/tensorboard`; a resumed training hides the steps it repeats."""

    id = None

    def __init__(self, folder: Path, settings: dict[str, Any], step: int, earlier: str | None) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder / TENSORBOARD), purge_step=step)
        if not step:
            # In Markdown four spaces make a block of code.
            text = json.dumps(settings, indent=2).replace("\n", "\n    ")
            self._writer.add_text("settings", f"    {text}")

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Write each figure as a scalar."""
        for name, value in figures.items():
            self._writer.add_scalar(name, value, step)

    def close(self, finished: bool) -> None:
        """Write everything to the file."""
        self._writer.close()


class MLflowLogger:
    """A run in MLflow's tracking store; settings are its parameters.

    The logger goes by MLflow's own settings: `MLFLOW_TRACKING_URI`, `MLFLOW_EXPERIMENT_NAME`.
    """

    def __init__(self, folder: Path, settings: dict[str, Any], step: int, earlier: str | None) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        self._client, self._metric = MlflowClient(), Metric
        self.id: str
        if earlier is not None:
            self.id = earlier
            self._client.update_run(self.id, status="RUNNING")
            return
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", _PROJECT)
        experiment = self._client.get_experiment_by_name(name)
        number = experiment.experiment_id if experiment else self._client.create_experiment(name)
        self.id = self._client.create_run(number, run_name=_shown(folder)).info.run_id
        parameters = [Param(key, str(value)) for key, value in settings.items()]
        for first in range(0, len(parameters), _PARAMETERS):
            self._client.log_batch(self.id, params=parameters[first : first + _PARAMETERS])

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Log the figures as metrics. MLflow allows no @ in a name: ndcg@10 becomes ndcg_at_10."""
        now = int(time.time() * 1000)
        metrics = [
            self._metric(name.replace("@", "_at_"), value, now, step) for name, value in figures.items()
        ]
        self._client.log_batch(self.id, metrics=metrics)

    def close(self, finished: bool) -> None:
        """Set the status of the run."""
        self._client.set_terminated(self.id, "FINISHED" if finished else "KILLED")


class WandbLogger:
    """A run of Weights & Biases, with its files in `RUN/wandb`; settings are its configuration.

    The logger goes by the library's own settings: `WANDB_MODE`, `WANDB_PROJECT`, `WANDB_ENTITY`.
    """

    def __init__(self, folder: Path, settings: dict[str, Any], step: int, earlier: str | None) -> None:
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", _PROJECT),
            name=_shown(folder),
            dir=str(folder),
            config=settings,
            id=earlier,
            resume=None if earlier is None else "allow",
            settings=wandb.Settings(console="off"),
        )
        self.id: str = self._run.id

    def log(self, step: int, figures: Mapping[str, float]) -> None:
        """Log the figures; the service ignores steps that it has already."""
        self._run.log(dict(figures), step=step)

    def close(self, finished: bool) -> None:
        """End the run, which waits until its files are written or uploaded."""
        self._run.finish(exit_code=0 if finished else 1)


Logger = TensorBoardLogger | MLflowLogger | WandbLogger
# Each logger has the name of the module that has to be installed.
LOGGERS: dict[str, Callable[[Path, dict[str, Any], int, str | None], Logger]] = {
    TENSORBOARD: TensorBoardLogger,
    "mlflow": MLflowLogger,
    WANDB: WandbLogger,
}


def check_loggers(names: Sequence[str]) -> None:
    """Raise TrainingError for a name that is no logger's, and for a library that is not installed."""
    for name in names:
        if name not in LOGGERS:
            raise TrainingError(f"--logger {name}: there is no such logger; there are {', '.join(LOGGERS)}.")
        if find_spec(name) is None:
            hint = install_hint(ModuleNotFoundError(name=name))
            raise TrainingError(f"--logger {name}: {hint or f'{name} is not installed'}.")


def stored_loggers(folder: Path) -> dict[str, str | None]:
    """The names of the loggers that a run began with, and their ids; empty if it has none or can't tell."""
    try:
        stored = json.loads((folder / LOGGERS_FILE).read_text(encoding="utf-8"))
        return {str(name): None if run_id is None else str(run_id) for name, run_id in stored.items()}
    except (OSError, ValueError, AttributeError):
        return {}


# ---- Measurements


def load_history(folder: Path) -> list[dict[str, Any]]:
    """The measurements of a run, oldest first, if it has any. Raises TrainingError for a damaged file."""
    path, entries = folder / HISTORY, []
    lines = path.read_bytes().splitlines() if path.is_file() else []
    for number, line in enumerate(lines, start=1):
        with naming_damage(f"{path}, line {number}", "delete the line, or train again"):
            entry = json.loads(line)
            entry["step"], entry["epoch"], entry["seconds"]
        entries.append(entry)
    return entries


class Recorder:
    """The records of one training, from its first step or its checkpoint.

    A recorder writes the history, and hands figures to the loggers. Without a folder it is a clock alone.
    """

    def __init__(
        self,
        folder: Path | None,
        settings: dict[str, Any],
        progress: Progress,
        loggers: Sequence[str],
        warn: Callable[[str], None],
    ) -> None:
        """Open the records in a run's folder, for settings by dotted names, and store the ids of its loggers.

        `warn` takes the warning about a logger that fails, which is left out from there on. Lines of the
        history that the checkpoint does not include, written before training was interrupted, are removed:
        their steps are made again.
        """
        self._folder, self._progress, self._warn = folder, progress, warn
        self._clock = time.monotonic() - progress.seconds
        self._loggers: dict[str, Logger] = {}
        if folder is None:
            return
        record_environment(folder, progress.step)
        if (path := folder / HISTORY).is_file():
            kept = []
            for line in path.read_bytes().splitlines():
                # After a crash the end of a line, or its bytes, may be missing.
                with suppress(ValueError, KeyError, TypeError):
                    entry = json.loads(line)
                    if entry["step"] <= progress.step and entry["epoch"] <= progress.epoch:
                        kept.append(line)
            with new_file(path) as draft:
                draft.write_bytes(b"".join(line + b"\n" for line in kept))
        stored = stored_loggers(folder) if progress.step else {}
        for name in loggers:
            with self._leaving_out(name):
                self._loggers[name] = LOGGERS[name](folder, settings, progress.step, stored.get(name))
        ids = {name: self._loggers[name].id if name in self._loggers else None for name in loggers}
        replace_json(folder / LOGGERS_FILE, {**stored, **ids})

    @property
    def seconds(self) -> float:
        """The seconds of training so far, with those before an interruption."""
        return time.monotonic() - self._clock

    def record(self, figures: Mapping[str, float]) -> None:
        """Record figures that were measured at the present step."""
        if self._folder is None:
            return
        state = self._progress
        entry = {"step": state.step, "epoch": state.epoch, "seconds": round(self.seconds, 3), **figures}
        with (self._folder / HISTORY).open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(entry, allow_nan=False) + "\n")
        for name, logger in list(self._loggers.items()):
            with self._leaving_out(name):
                logger.log(state.step, figures)

    def close(self) -> None:
        """Close the loggers."""
        for name, logger in list(self._loggers.items()):
            with self._leaving_out(name):
                logger.close(self._progress.finished)

    @contextmanager
    def _leaving_out(self, name: str) -> Iterator[None]:
        """Leave a logger out once it fails, with a warning; its library may raise anything."""
        try:
            yield
        except Exception as error:
            self._loggers.pop(name, None)
            reason = text_without_credentials((str(error).strip() or repr(error)).splitlines()[0])
            self._warn(
                f"The logger {name} failed and gets no more figures ({type(error).__name__}: {reason}); "
                "training continues, and history.jsonl has every figure."
            )
