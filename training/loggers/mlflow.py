"""Figures for MLflow, by its own settings: `MLFLOW_TRACKING_URI`, `MLFLOW_EXPERIMENT_NAME`."""

import os
import time
from collections.abc import Mapping

from turret.training.loggers.contract import LoggedRun, Logger, LoggerKind

_EXPERIMENT = "turret"
# MLflow's limit of parameters in a request.
_PARAMETERS = 100


class MLflowLogger(Logger):
    """A run in MLflow's tracking store; settings are its parameters."""

    def __init__(self, run: LoggedRun) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Metric, Param

        self._client, self._metric = MlflowClient(), Metric
        if run.earlier is not None:
            self.id = run.earlier
            self._client.update_run(self.id, status="RUNNING")
            return
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", _EXPERIMENT)
        experiment = self._client.get_experiment_by_name(name)
        number = experiment.experiment_id if experiment else self._client.create_experiment(name)
        self.id = self._client.create_run(number, run_name=run.name).info.run_id
        parameters = [Param(key, str(value)) for key, value in run.settings.items()]
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


MLFLOW = LoggerKind("mlflow", MLflowLogger, "mlflow")
