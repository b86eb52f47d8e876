"""A worker's place among the processes of a service."""

from dataclasses import dataclass
from pathlib import Path

from turret.service.keys.keyring import Keyring
from turret.service.versions.record import Record


@dataclass
class WorkerContext:
    """The facts that a worker has from its supervisor.

    `supervisor` is the pid of that process; None runs a service in a single process, which starts no others.
    `number` counts the workers from 0. `metrics_folder` holds the metrics of all workers (None: there is only
    this one), `keyring` the keys that the supervisor has read (None: read them again). `admin_port` is the
    number of the only port with admin calls (None: that of the settings). `host` names this service among its
    replicas, `records` is the file of the record that its workers share where no store has one, `record` the
    first one that this worker has read; without a supervisor it makes them itself. `is_draining` becomes true
    when the service begins to end.
    """

    supervisor: int | None = None
    number: int = 0
    metrics_folder: Path | None = None
    keyring: Keyring | None = None
    admin_port: int | None = None
    host: str = "local"
    records: Path | None = None
    record: Record | None = None
    is_draining: bool = False
