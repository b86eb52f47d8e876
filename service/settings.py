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
_Port = Annotated[int, Field(ge=0, le=65535)]
_Seconds = Annotated[float, Field(gt=0)]
_Count = Annotated[int, Field(ge=1)]
_Share = Annotated[float, Field(ge=0, le=1)]

# The options of `turret serve`; the others are read from the environment alone.
_OPTIONS = ("bundles", "wait", "host", "port", "admin_port", "workers", "store")

# Keys, and addresses that may have a password.
_HIDDEN = ("admin_key", "answer_key", "answer_log", "store", "engine")

_HALF_LIFE = re.compile(r"(?P<name>[a-z0-9_-]{1,32})=(?P<count>[0-9]{1,5})(?P<unit>[smhd])")
_MILLISECONDS = {"s": 1e3, "m": 6e4, "h": 3.6e6, "d": 8.64e7}
MOST_HALF_LIVES = 5
MOST_CONTEXT = 20

# A host by name or address, perhaps with a port, as a content security policy names it.
_ORIGIN = re.compile(r"https?://(\*\.)?[A-Za-z0-9.-]+(:[0-9]{1,5})?")


class Settings(BaseSettings):
    """All settings; the environment is read at construction."""

    model_config = SettingsConfigDict(env_prefix="TURRET_", frozen=True, extra="forbid")

    bundles: Path = Path("var/bundles")  # the folder whose `current` version is served
    wait: bool = False  # start without a version, and serve the first that becomes current
    workers: int = Field(default=1, ge=1, le=64)  # processes that answer; one per core is a good number

    # Addresses; port 0 takes a free one. Admin calls have the port after `port`, or are on it with `same`.
    host: str = "127.0.0.1"
    port: _Port = 8000
    admin_host: str = "127.0.0.1"
    admin_port: _Port | None = Field(default_factory=lambda data: data.get("port", 0) and data["port"] + 1)
    trusted_proxies: str | None = None  # addresses whose `X-Forwarded-For` counts, separated by commas

    # The key of the admin calls, or its file, which is created if missing. Choose another folder for it if
    # other users write models into the bundles' folder; the file of the API keys is outside of that folder,
    # or these users could add a key.
    admin_key: SecretStr | None = None
    admin_key_file: Path = Field(default_factory=lambda data: data.get("bundles", Path()) / "admin.key")
    keys: Path = Field(default_factory=lambda data: data.get("bundles", Path()).parent / "keys.json")
    require_keys: bool = False  # refuse to start without `keys`; else all is open until that file exists
    metrics_open: bool = True  # answer /metrics without a key

    queue_limit: _Count = 64  # unfinished recommendations of a process
    request_seconds: _Seconds = 30.0
    keep_alive_seconds: _Count = 20  # between two requests of a connection
    body_limit: _Count = 1_000_000  # bytes
    # Limit heads, framing and connections in this process; else a proxy has to, as for any uvicorn.
    guard: bool = True
    drain_delay: float = Field(default=2.0, ge=0, le=600)  # of 503 at /readyz after SIGTERM, still answering
    drain_seconds: int = Field(default=10, ge=0)  # for requests under way at the end

    # sqlite:///PATH, redis://HOST:PORT/DATABASE (rediss:// with TLS), redis+cluster://HOST:PORT,HOST:PORT or
    # memory://. An address may have a password, and is never shown.
    store: str = Field(default="sqlite:///var/history.sqlite", repr=False)
    history_timeout: _Seconds = 1.0  # of a read
    write_timeout: _Seconds = 5.0
    stored_history_limit: int = Field(default=10_000, ge=1, le=100_000)  # newest events of a user
    keep_days: int | None = Field(default=None, ge=1, le=36_500)  # of events; None: all
    # Half-lives of what is popular now, by name, such as `hour=1h,week=7d`; empty: nothing is counted.
    popular: Annotated[dict[str, float], NoDecode] = Field(
        default="quarter=15m,hour=1h,week=7d", validate_default=True
    )
    # A process holds so many bytes of the items added, changed and withdrawn since the export of a version.
    overlay_bytes: int = Field(default=256_000_000, ge=0)
    # Services of one group on a Redis serve one version; services with other bundles need another group.
    replica_group: str = Field(default="default", pattern="^[A-Za-z0-9._-]{1,64}$")

    activation_seconds: _Seconds = 30.0  # for the lock, and for all workers to load
    gate_seconds: _Seconds = 120.0
    overlap_minimum: _Share = OVERLAP_MINIMUM  # mean at 10 with the live version over its golden queries
    recall_minimum: _Share = RECALL_MINIMUM  # of an approximate index

    # The addresses of vector engines, one of each product, separated by blanks; bundles name none.
    engine: str | None = Field(default=None, repr=False)
    engine_seconds: _Seconds = 1.0  # of a search

    # The log of answers: a folder, or s3://... or gs://...; None: answers are not logged. Visitors are hashed
    # under the key, or that of the file, which is created if missing: services that share a log need one key.
    # `answer_context` names the features of requests that are logged.
    answer_log: str | None = Field(default=None, repr=False)
    answer_key: SecretStr | None = None
    answer_key_file: Path = Field(
        default_factory=lambda data: data.get("bundles", Path()).parent / "answer.key"
    )
    answer_context: Annotated[tuple[str, ...], NoDecode] = ()
    answer_days: int | None = Field(default=90, ge=1, le=36_500)  # that answers are kept
    answer_bytes: int | None = Field(default=None, ge=1)  # of all files; the oldest are removed first

    log_level: Level = "info"
    log_format: Form = "auto"  # text at a terminal, else JSON
    access_log: bool = True
    recall_sample: _Share = 0.01  # of answers
    drift_sample: _Share = 0.1
    trace_share: _Share = 0.05  # of requests whose caller does not decide

    page: bool = True
    page_pictures: Annotated[tuple[str, ...], NoDecode] = ()  # origins that the page may load pictures from

    @field_validator("admin_port", mode="before")
    @classmethod
    def _same_port(cls, port: object) -> object:
        return None if port == "same" else port

    @field_validator("popular", mode="before")
    @classmethod
    def _are_half_lives(cls, value: object) -> object:
        """Read `hour=1h,week=7d` as milliseconds by name."""
        if not isinstance(value, str):
            return value
        half_lives: dict[str, float] = {}
        for part in filter(None, map(str.strip, value.split(","))):
            match = _HALF_LIFE.fullmatch(part)
            message = "{part} names no half-life; write such as hour=1h,week=7d (1 to 10,000 of s, m, h or d)"
            if match is not None and match["name"] in half_lives:
                message = "two half-lives are called {name}; give each a name of its own"
            elif match is not None and 1 <= int(match["count"]) <= 10_000:
                half_lives[match["name"]] = int(match["count"]) * _MILLISECONDS[match["unit"]]
                continue
            raise PydanticCustomError("half_life", message, {"part": part, "name": part.partition("=")[0]})
        if len(half_lives) > MOST_HALF_LIVES:
            message = "{count} half-lives; name at most {most}"
            raise PydanticCustomError(
                "half_life", message, {"count": len(half_lives), "most": MOST_HALF_LIVES}
            )
        return half_lives

    @field_validator("answer_context", mode="before")
    @classmethod
    def _are_features(cls, value: object) -> object:
        names = value
        if isinstance(value, str):
            names = tuple(dict.fromkeys(filter(None, map(str.strip, value.split(",")))))
        if isinstance(names, list | tuple) and len(names) > MOST_CONTEXT:
            message = "{count} features; name at most {most}"
            raise PydanticCustomError("context", message, {"count": len(names), "most": MOST_CONTEXT})
        return names

    @field_validator("page_pictures", mode="before")
    @classmethod
    def _are_origins(cls, value: object) -> object:
        origins = value.replace(",", " ").split() if isinstance(value, str) else value
        for origin in origins if isinstance(origins, list | tuple) else ():
            if not _ORIGIN.fullmatch(str(origin)):
                message = "{origin} is not an origin; send scheme and host, as in https://img.example.com"
                raise PydanticCustomError("origin", message, {"origin": origin})
        return origins


def read_settings(**values: Any) -> Settings:
    """Make settings from the arguments that are not None and, for the rest, from the environment.

    Raises ServiceError with the setting, the value and the remedy.
    """
    try:
        return Settings(**{name: value for name, value in values.items() if value is not None})
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        is_shown = first["type"] != "missing" and name not in _HIDDEN
        shown = f" can't be {first['input']!r}" if is_shown else ""
        option = f"--{name.replace('_', '-')} or " if name in _OPTIONS else ""
        raise ServiceError(f"setting {name}{shown}: {first['msg']} ({option}TURRET_{name.upper()})") from None
