"""Starts the service: sets the environment before the heavy imports."""

import os

from turret.service.settings import Settings

# Libraries read these when they are loaded. A query is too small for several threads, and a process with
# threads can't be forked; ONNX Runtime would start one for telemetry.
_ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "ORT_DISABLE_TELEMETRY": "1",
}


def serve(settings: Settings) -> None:
    """Serve until SIGINT or SIGTERM, finish running requests, and return.

    Raises ServiceError or BundleError when a port is taken or no version can be served.
    """
    os.environ.update(_ENVIRONMENT)
    from turret.service.process.supervisor import Supervisor
    from turret.service.versions.memory import few_arenas

    few_arenas()
    Supervisor(settings).run()
