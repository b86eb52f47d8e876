"""The settings of a service, from the command line and from `TURRET_*` variables."""

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from turret.service.errors import ServiceError
from turret.tower.config import OVERLAP_MINIMUM, RECALL_MINIMUM

Level = Literal["debug", "info", "warning", "error"]
Form = Literal["auto", "json", "text"]

# The options of `turret serve`; the others are read from the environment alone.
_OPTIONS = ("bundles", "wait", "host", "port", "admin_port", "workers", "store")

# A host by name or address, perhaps with a port: what a content security policy names.
_ORIGIN = re.compile(r"https?://(\*\.)?[A-Za-z0-9.-]+(:[0-9]{1,5})?")


class Settings(BaseSettings):
    """All settings; the environment is read at construction.

    - `bundles`: the bundles folder; its `current` version is served.
    - `wait`: start without a version, and serve the first that becomes current.
    - `host`, `port`: the address to listen on; port 0 takes a free one.
    - `admin_host`, `admin_port`: the address of the admin calls, by default the port after `port`; `same`
      serves them on `port`.
    - `store`: the store of histories: `sqlite:///PATH`, `redis://HOST:PORT/DATABASE` (`rediss://` with TLS;
      a password in it is never shown), `redis+cluster://HOST:PORT,HOST:PORT` or `memory://`.
    - `admin_key`: the key of the admin calls, at least 32 characters.
    - `admin_key_file`: the file with the key if `admin_key` is not set, created if missing; by default
      `<bundles>/admin.key`. Choose another folder if others write models into that one.
    - `keys`: the file of the API keys, by default `keys.json` beside the bundles folder. Not inside: the
      authors of models should not be able to add keys.
    - `require_keys`: refuse to start without that file; otherwise reading and writing are open until it
      exists.
    - `metrics_open`: answer /metrics without a key.
    - `trusted_proxies`: addresses whose `X-Forwarded-For` is trusted, separated by commas.
    - `queue_limit`: the unfinished recommendations of a process; more are refused.
    - `request_seconds`: the time limit of a request.
    - `keep_alive_seconds`: between two requests of a connection.
    - `guard`: limit the head, the framing and the connections in this process; without it uvicorn runs as
      it was released, and a proxy has to limit them.
    - `body_limit`: bytes of a request's body.
    - `stored_history_limit`: how many of a user's newest stored events a recommendation reads.
    - `fresh_items_limit`: the most items added to the live version, and the most of its own items with
      replaced fields.
    - `history_timeout`, `write_timeout`: seconds to wait for the store in reads and in writes.
    - `replica_group`: services on one Redis that are replicas of each other, and serve one version; services
      with other bundles need another group.
    - `keep_days`: the retention period of events; unlimited by default.
    - `workers`: processes that answer; one per core is a good number.
    - `drain_delay`: how long, after SIGTERM, `/readyz` answers 503 while requests are still accepted, so
      that load balancers notice. SIGINT doesn't wait.
    - `drain_seconds`: how long a stopping service waits for requests under way.
    - `log_level`: the lowest logged level: `debug`, `info`, `warning` or `error`.
    - `log_format`: `json`, `text`, or `auto`: text at a terminal, else JSON.
    - `access_log`: log every answered request; probes only if they fail.
    - `recall_sample`: the share of answers whose recall is measured.
    - `drift_sample`: the share of answers that are compared with the golden ones.
    - `traces`: whether to trace; by default if `OTEL_EXPORTER_OTLP_ENDPOINT` is set.
    - `trace_share`: the share of requests that are traced unless the caller decides.
    - `activation_seconds`: how long an activation may wait for the lock, and for all workers to load.
    - `gate_seconds`: how long the checks of a version may take.
    - `overlap_minimum`: the least mean overlap at 10 of a new version with the live one, over its golden
      queries, unless forced.
    - `recall_minimum`: the least measured recall of an approximate index.
    - `engine`: the address of the vector engine, with its credentials, if not the one in the manifests.
    - `engine_seconds`: seconds to wait for the engine in a search.
    - `engine_fallback`: how to answer while the engine is unavailable: `exact` searches the vectors of the
      bundle, which takes memory and processor time; `popular` recommends popular items.
    - `page`: serve the page for people at `/`.
    - `page_pictures`: origins of pictures that the page may load, separated by commas
      (`https://img.example.com`); without it, it loads none.
    """

    model_config = SettingsConfigDict(env_prefix="TURRET_", frozen=True, extra="forbid")

    bundles: Path = Path("var/bundles")
    wait: bool = False
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    admin_host: str = "127.0.0.1"
    # The port after `port`; with 0, another free one.
    admin_port: int | None = Field(
        default_factory=lambda given: given.get("port", 0) and given["port"] + 1, ge=0, le=65535
    )
    store: str = Field(default="sqlite:///var/history.sqlite", repr=False)
    admin_key: SecretStr | None = None
    admin_key_file: Path = Field(default_factory=lambda values: values.get("bundles", Path()) / "admin.key")
    keys: Path = Field(default_factory=lambda values: values.get("bundles", Path()).parent / "keys.json")
    require_keys: bool = False
    metrics_open: bool = True
    trusted_proxies: str | None = None
    queue_limit: int = Field(default=64, ge=1)
    request_seconds: float = Field(default=30.0, gt=0)
    keep_alive_seconds: int = Field(default=20, ge=1)
    guard: bool = True
    body_limit: int = Field(default=1_000_000, ge=1)
    stored_history_limit: int = Field(default=10_000, ge=1, le=100_000)
    fresh_items_limit: int = Field(default=10_000, ge=0)
    history_timeout: float = Field(default=1.0, gt=0)
    write_timeout: float = Field(default=5.0, gt=0)
    replica_group: str = Field(default="default", pattern="^[A-Za-z0-9._-]{1,64}$")
    keep_days: int | None = Field(default=None, ge=1, le=36_500)
    workers: int = Field(default=1, ge=1, le=64)
    drain_delay: float = Field(default=2.0, ge=0, le=600)
    drain_seconds: int = Field(default=10, ge=0)
    log_level: Level = "info"
    log_format: Form = "auto"
    access_log: bool = True
    recall_sample: float = Field(default=0.01, ge=0, le=1)
    drift_sample: float = Field(default=0.1, ge=0, le=1)
    traces: bool | None = None
    trace_share: float = Field(default=0.05, ge=0, le=1)
    activation_seconds: float = Field(default=30.0, gt=0)
    gate_seconds: float = Field(default=120.0, gt=0)
    overlap_minimum: float = Field(default=OVERLAP_MINIMUM, ge=0, le=1)
    recall_minimum: float = Field(default=RECALL_MINIMUM, ge=0, le=1)
    engine: str | None = Field(default=None, repr=False)
    engine_seconds: float = Field(default=1.0, gt=0)
    engine_fallback: Literal["exact", "popular"] = "exact"
    page: bool = True
    page_pictures: Annotated[tuple[str, ...], NoDecode] = ()

    @field_validator("admin_port", mode="before")
    @classmethod
    def _same_port(cls, port: object) -> object:
        return None if port == "same" else port

    @field_validator("page_pictures", mode="before")
    @classmethod
    def _parts(cls, text: object) -> object:
        return text.replace(",", " ").split() if isinstance(text, str) else text

    @field_validator("page_pictures")
    @classmethod
    def _are_origins(cls, origins: tuple[str, ...]) -> tuple[str, ...]:
        for origin in origins:
            if not _ORIGIN.fullmatch(origin):
                message = "{origin} is not an origin; send scheme and host, as in https://img.example.com"
                raise PydanticCustomError("origin", message, {"origin": origin})
        return origins


def read_settings(**values: Any) -> Settings:
    """Make settings from arguments and, for the rest, from the environment.

    Raises ServiceError with the setting, the value and the remedy.
    """
    try:
        return Settings(**values)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        is_shown = first["type"] != "missing" and name not in ("admin_key", "store", "engine")
        shown = f" can't be {first['input']!r}" if is_shown else ""
        option = f"--{name.replace('_', '-')} or " if name in _OPTIONS else ""
        raise ServiceError(f"setting {name}{shown}: {first['msg']} ({option}TURRET_{name.upper()})") from None
