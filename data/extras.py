"""Optional packages: the extra that installs a missing module, and entries that installed packages add."""

import json
from collections.abc import Callable, Iterable
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args
from urllib.parse import unquote, urlsplit

from turret.data.errors import TurretError

if TYPE_CHECKING:  # commands that read no settings start without both
    from importlib.metadata import EntryPoint

    from pydantic import BaseModel

# The modules that each extra installs, by import name.
_MODULES = {
    "train": "bm25s fastexcel jinja2 markupsafe matplotlib numba onnx onnxscript optuna polars safetensors "
    "scipy tensorboard torch",
    "serve": "fastapi hiredis orjson prometheus_client pydantic_settings redis starlette uvicorn",
    "bundle": "faiss numpy onnxruntime rich typer",
    "client": "httpx2",
    "baselines": "implicit",
    "otel": "opentelemetry",
    "mlflow": "mlflow",
    "gcs": "gcsfs",
    "answers": "pyarrow",
    "milvus": "pymilvus",
    "spark": "pyspark",
    "sql": "adbc_driver_manager adbc_driver_postgresql duckdb pymysql",
    "s3": "s3fs",
    "wandb": "wandb",
}
EXTRA_OF = {module: extra for extra, modules in _MODULES.items() for module in modules.split()}


def install_command(extra: str) -> str:
    """Return the command that installs an extra, from the clone that Turret comes from if it exists."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        origin = json.loads(distribution("turret").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        origin = {}
    clone = Path(unquote(urlsplit(origin.get("url", "")).path))
    if "dir_info" not in origin or not (clone / "pyproject.toml").is_file():
        return f"pip install 'turret[{extra}]'"
    return f"pip install {'--editable ' * ('editable' in origin['dir_info'])}'{clone}[{extra}]'"


def install_hint(error: ModuleNotFoundError) -> str | None:
    """Name the extra with the missing module, as a command to paste; None for a module of no extra."""
    module = (error.name or "").partition(".")[0]
    extra = EXTRA_OF.get(module)
    return None if extra is None else f"{module} is not installed; run: {install_command(extra)}"


Entry = TypeVar("Entry")


def registry(
    ours: Iterable[Entry], group: str, base: type, error: type[TurretError], name: Callable[[Entry], str]
) -> dict[str, Entry]:
    """Return our entries and those of the entry points of `group`, by name.

    Raises `error` as `load` does, and when two entries have the same name.
    """
    from importlib.metadata import entry_points

    entries = {name(entry): entry for entry in ours}
    for point in sorted(entry_points(group=group), key=attrgetter("name")):
        entry = load(point, base, error)
        if (key := name(entry)) in entries:
            raise error(
                f"two entries of {group} are named {key!r}; uninstall the package of {_described(point)}"
            )
        entries[key] = entry
    return entries


def load(point: "EntryPoint", base: type, error: type[TurretError]) -> Any:
    """Import the object of an entry point: an instance or a subclass of `base`.

    Raises `error`, naming the entry point and its package, for another object.
    """
    loaded = point.load()
    if not isinstance(loaded, base) and not (isinstance(loaded, type) and issubclass(loaded, base)):
        raise error(f"{_described(point)} is {loaded!r}, no {base.__name__}; update or uninstall its package")
    return loaded


def kind_of(settings: "type[BaseModel]") -> str:
    """Return the name of these settings: the only value of their `kind`, a literal."""
    (name,) = get_args(settings.model_fields["kind"].annotation)
    return str(name)


def _described(point: "EntryPoint") -> str:
    package = f" of the package {point.dist.name}" if point.dist else ""
    return f"entry point {point.name!r} ({point.value}) of {point.group}{package}"
