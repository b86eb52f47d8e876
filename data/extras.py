"""Optional modules and the extra of pyproject.toml that installs each of them."""

import json
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

TRAIN = (
    "fastexcel",
    "jinja2",
    "matplotlib",
    "numba",
    "onnx",
    "onnxscript",
    "optuna",
    "polars",
    "safetensors",
    "tensorboard",
    "torch",
)
SERVE = ("fastapi", "hiredis", "orjson", "prometheus_client", "pydantic_settings", "redis", "uvicorn")
EXTRA_OF = {
    **dict.fromkeys(TRAIN, "train"),
    **dict.fromkeys(SERVE, "serve"),
    # Dependencies of jinja2 and fastapi that are imported by their own names.
    "markupsafe": "train",
    "starlette": "serve",
    "opentelemetry": "otel",
    "implicit": "baselines",
    "mlflow": "mlflow",
    "gcsfs": "gcs",
    "pyarrow": "pandas",
    "pymilvus": "milvus",
    "pyspark": "spark",
    "s3fs": "s3",
    "wandb": "wandb",
}
# The container of docker-compose.yml that has the extra.
_CONTAINERS = {"train": "trainer", "serve": "service"}


def install_command(extra: str) -> str:
    """The command that installs an extra, from the clone that Turret was installed from if it is there."""
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
    if extra is None:
        return None
    container = _CONTAINERS.get(extra)
    compose = f" (in Docker Compose, use the container {container})" if container else ""
    return f"{module} is not installed; run: {install_command(extra)}{compose}"
