"""Doubles of MLflow and Weights & Biases with the documented calls that the loggers use."""

import re
import sys
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest


@dataclass(frozen=True)
class Metric:
    """mlflow.entities.Metric."""

    key: str
    value: float
    timestamp: int
    step: int


@dataclass(frozen=True)
class Param:
    """mlflow.entities.Param."""

    key: str
    value: str


@dataclass
class Tracking:
    """What a double was given."""

    experiments: list[str] = field(default_factory=list)
    runs: list[dict[str, Any]] = field(default_factory=list)


def install_mlflow(monkeypatch: pytest.MonkeyPatch) -> Tracking:
    """Put a double of mlflow in the place of the library."""
    store = Tracking()

    class MlflowClient:
        def get_experiment_by_name(self, name: str) -> Any:
            if name not in store.experiments:
                return None
            return SimpleNamespace(experiment_id=str(store.experiments.index(name)))

        def create_experiment(self, name: str) -> str:
            store.experiments.append(name)
            return str(len(store.experiments) - 1)

        def create_run(self, experiment_id: str, run_name: str) -> Any:
            store.runs.append(
                {
                    "experiment": experiment_id,
                    "name": run_name,
                    "status": "RUNNING",
                    "params": {},
                    "metrics": [],
                }
            )
            return SimpleNamespace(info=SimpleNamespace(run_id=str(len(store.runs) - 1)))

        def update_run(self, run_id: str, status: str) -> None:
            store.runs[int(run_id)]["status"] = status

        def log_batch(self, run_id: str, metrics: Any = (), params: Any = ()) -> None:
            assert len(params) <= 100
            for param in params:
                store.runs[int(run_id)]["params"][param.key] = param.value
            for metric in metrics:
                assert re.fullmatch(r"[\w\-. :/]+", metric.key)  # the names that MLflow allows
                store.runs[int(run_id)]["metrics"].append((metric.step, metric.key, metric.value))

        def set_terminated(self, run_id: str, status: str) -> None:
            store.runs[int(run_id)]["status"] = status

    entities = {"Metric": Metric, "Param": Param}
    _install(monkeypatch, "mlflow", {"MlflowClient": MlflowClient})
    _install(monkeypatch, "mlflow.entities", entities)
    return store


def install_wandb(monkeypatch: pytest.MonkeyPatch) -> Tracking:
    """Put a double of wandb in the place of the library."""
    store = Tracking()

    class WandbRun:
        def __init__(self, given: dict[str, Any]) -> None:
            self.id = given["id"] or f"id{len(store.runs)}"
            self.stored = {**given, "metrics": [], "exit_code": None}
            store.runs.append(self.stored)

        def log(self, data: dict[str, float], step: int) -> None:
            self.stored["metrics"] += [(step, name, value) for name, value in data.items()]

        def finish(self, exit_code: int) -> None:
            self.stored["exit_code"] = exit_code

    contents = {"init": lambda **given: WandbRun(given), "Settings": lambda **given: given}
    _install(monkeypatch, "wandb", contents)
    return store


def _install(monkeypatch: pytest.MonkeyPatch, name: str, contents: dict[str, Any]) -> None:
    module = ModuleType(name)
    module.__spec__ = ModuleSpec(name, None)
    vars(module).update(contents)
    monkeypatch.setitem(sys.modules, name, module)
