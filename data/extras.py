"""Optional modules and the extra of pyproject.toml that installs each of them."""

TRAIN = (
    "fastexcel",
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
    # A dependency of fastapi that the service imports by its own name.
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


def install_hint(error: ModuleNotFoundError) -> str | None:
    """Name the extra with the missing module, as a command to paste; None for a module of no extra."""
    module = (error.name or "").partition(".")[0]
    extra = EXTRA_OF.get(module)
    if extra is None:
        return None
    container = _CONTAINERS.get(extra)
    compose = f" (in Docker Compose, use the container {container})" if container else ""
    return f"{module} is not installed; run: pip install 'turret[{extra}]'{compose}"
