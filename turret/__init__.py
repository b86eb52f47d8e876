"""Turret turns a log of events into a service that recommends each user's next items.

The names in `__all__` are the public Python API, described in docs/python.md. All are loaded on first use:
`import turret` loads no other package, and changes nothing in the process.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from turret.data.errors import MissingExtraError as MissingExtraError
    from turret.data.errors import TurretError as TurretError
    from turret.histories import load_histories as load_histories
    from turret.logs import append as append
    from turret.logs import prepare as prepare
    from turret.model import Model as Model
    from turret.model import Recommendation as Recommendation
    from turret.model import load as load
    from turret.trained_run import TrainedRun as TrainedRun
    from turret.trained_run import open_run as open_run
    from turret.trained_run import train as train
    from turret.vector_index import VectorIndex as VectorIndex
    from turret.vector_index import choose_index as choose_index
    from turret.vector_metrics import evaluate as evaluate

    __version__: str

_MODULES = {
    "MissingExtraError": "turret.data.errors",
    "Model": "turret.model",
    "Recommendation": "turret.model",
    "TrainedRun": "turret.trained_run",
    "TurretError": "turret.data.errors",
    "VectorIndex": "turret.vector_index",
    "append": "turret.logs",
    "choose_index": "turret.vector_index",
    "evaluate": "turret.vector_metrics",
    "load": "turret.model",
    "load_histories": "turret.histories",
    "open_run": "turret.trained_run",
    "prepare": "turret.logs",
    "train": "turret.trained_run",
}
__all__ = ["__version__", *_MODULES]


def __getattr__(name: str) -> Any:
    """Load a public name. Raises MissingExtraError where its extra is not installed."""
    if name == "__version__":
        return _version()
    if name not in _MODULES:
        raise AttributeError(f"module 'turret' has no attribute {name!r}")
    try:
        value = getattr(import_module(_MODULES[name]), name)
    except ModuleNotFoundError as error:
        from turret.data.errors import MissingExtraError
        from turret.data.extras import install_hint

        if hint := install_hint(error):
            raise MissingExtraError(f"turret.{name}: {hint}", name=error.name) from error
        raise
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("turret")
    except PackageNotFoundError:  # a checkout that is not installed
        return "0"
