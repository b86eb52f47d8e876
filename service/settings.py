"""The settings of a service, from the command line and from `TURRET_*` in the environment."""

from pathlib import Path
from typing import Any

from pydantic import Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from service.errors import ServiceError


class Settings(BaseSettings):
    """Everything an operator can choose; the environment is read when an object is made.

    - `bundles`: the folder of the bundles; its `current` one is served.
    - `wait`: begin without a version, and serve the first that becomes current.
    - `host`, `port`: where to listen; port 0 takes a free one.
    - `admin_port`: listen for the admin calls there, on 127.0.0.1, and nowhere else.
    - `store`: where histories are kept: `sqlite:///PATH`, `redis://HOST:PORT/DATABASE` (`rediss://` with TLS;
      a password in it is never shown) or `memory://`.
    - `admin_key`: the key of the admin calls; without one, `<bundles>/admin.key` holds it.
    - `body_limit`: bytes of a request's body.
    - `stored_history_limit`: how many of a user's newest stored events a recommendation reads.
    - `history_timeout`, `write_timeout`: seconds to wait for the store before doing without it.
    - `breaker_failures`, `breaker_seconds`: after so many failures in a row no call is made for so long.
    - `redis_connections`: connections of each process to a Redis, at most.
    - `keep_days`: how old events are kept and read; for ever without it.
    - `clock_skew`: seconds by which the time of an event may be ahead; beyond, it counts as now.
    - `ranking_threads`: questions that are ranked at the same time.
    - `workers`: processes that answer; one for each core is a good number.
    - `drain_delay`: how long, after SIGTERM, `/readyz` says 503 while requests are still accepted, so that
      whatever sends them here notices. SIGINT doesn't wait.
    - `drain_seconds`: how long a stopping service waits for requests under way.
    - `activation_seconds`: how long an activation may wait for its turn, and for all workers to follow.
    - `gate_seconds`: how long the checks of a version may take.
    - `overlap_minimum`: the share of the best 10 that a new version must have in common with the live one, on
      average over the live one's recorded histories, unless it is forced.
    - `recall_minimum`: the least recall that an approximate index may have been measured with.
    - `memory_factor`: the memory that a version takes while it is checked and opened, in sizes of its files.
    - `min_version_seconds`: how long a request that names `min_version` may wait for this worker to follow.
    - `shadow_queue`: requests that may wait for the shadow; more are dropped.
    - `watch_seconds`: how often the files of the live version are looked at.
    """

    model_config = SettingsConfigDict(env_prefix="TURRET_", frozen=True, extra="forbid")

    bundles: Path = Path("var/bundles")
    wait: bool = False
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=0, le=65535)
    admin_port: int | None = Field(default=None, ge=0, le=65535)
    store: str = Field(default="sqlite:///var/history.sqlite", repr=False)
    admin_key: SecretStr | None = Field(default=None, min_length=1)
    body_limit: int = Field(default=1_000_000, ge=1)
    stored_history_limit: int = Field(default=10_000, ge=1)
    history_timeout: float = Field(default=1.0, gt=0)
    write_timeout: float = Field(default=5.0, gt=0)
    breaker_failures: int = Field(default=5, ge=1)
    breaker_seconds: float = Field(default=2.0, gt=0)
    redis_connections: int = Field(default=16, ge=1, le=1000)
    keep_days: int | None = Field(default=None, ge=1, le=36_500)
    clock_skew: float = Field(default=300.0, ge=0)
    ranking_threads: int = Field(default=2, ge=1, le=64)
    workers: int = Field(default=1, ge=1, le=64)
    drain_delay: float = Field(default=2.0, ge=0, le=600)
    drain_seconds: int = Field(default=10, ge=0)
    activation_seconds: float = Field(default=30.0, gt=0)
    gate_seconds: float = Field(default=120.0, gt=0)
    overlap_minimum: float = Field(default=0.05, ge=0, le=1)
    recall_minimum: float = Field(default=0.95, ge=0, le=1)
    memory_factor: float = Field(default=1.5, ge=0)
    min_version_seconds: float = Field(default=1.0, ge=0)
    shadow_queue: int = Field(default=100, ge=1)
    watch_seconds: float = Field(default=5.0, gt=0)


def read_settings(**given: Any) -> Settings:
    """Make settings from what is given and, for the rest, from the environment.

    Raises ServiceError naming the setting, the value and what would work.
    """
    try:
        return Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(map(str, first["loc"]))
        is_shown = first["type"] != "missing" and name not in ("admin_key", "store")
        shown = f" can't be {first['input']!r}" if is_shown else ""
        raise ServiceError(
            f"setting {name}{shown}: {first['msg']} (--{name.replace('_', '-')} or TURRET_{name.upper()})"
        ) from None
