"""Addresses, and the configuration of the uvicorn server on them."""

import resource
import socket
import sys
from contextlib import suppress

import uvicorn

from turret.service.errors import ServiceError
from turret.service.http.app import Application
from turret.service.http.guard import guarded
from turret.service.settings import Settings

# Of a process, which can't read a key file, open a version or answer a probe without a descriptor that is not
# for connections.
_MAX_CONNECTIONS, _MIN_CONNECTIONS, _RESERVED_FILES = 4_096, 16, 256
UNREAD_SECONDS = 30.0


def config_of(settings: Settings, app: Application) -> uvicorn.Config:
    """Configure the server of an application."""
    components, limit = app.state.components, connection_limit()
    guard = guarded(limit, components.metrics.count_refusal, components.admin_port)
    return uvicorn.Config(
        app,
        lifespan="on",
        http=guard if settings.guard else "httptools",
        # The guard closes connections beyond the limit; uvicorn lets them be, and refuses all requests.
        limit_concurrency=None if settings.guard else limit,
        ws="none",
        log_config=None,  # its lines go through our handlers
        log_level="error",  # its warnings are about bad requests: any client could fill the log
        access_log=False,
        server_header=False,
        proxy_headers=settings.trusted_proxies is not None,
        forwarded_allow_ips=settings.trusted_proxies,
        timeout_keep_alive=settings.keep_alive_seconds,
        timeout_graceful_shutdown=settings.drain_seconds,
    )


def connection_limit() -> int:
    """Raise the descriptor limit of this process to the hard limit; return the connections that it allows.

    Raises ServiceError where it allows almost none.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):  # macOS has a lower limit beside an infinite one
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if hard == resource.RLIM_INFINITY:
        return _MAX_CONNECTIONS
    if hard < _MIN_CONNECTIONS + _RESERVED_FILES:
        raise ServiceError(
            f"a process may open {hard} files, and {_RESERVED_FILES} of them are not for connections; raise "
            "the limit (`ulimit -n`, LimitNOFILE= of systemd, ulimits of docker compose) to "
            f"{_MAX_CONNECTIONS + _RESERVED_FILES}"
        )
    return min(_MAX_CONNECTIONS, hard - _RESERVED_FILES)


def reserve(host: str, port: int, option: str = "port") -> socket.socket:
    """Bind an address that `share` may then bind too; port 0 chooses a free one. Raises ServiceError.

    The socket never listens. Its options change once it is bound, or two services could have one port
    unnoticed.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        reserved = _bind(family, (host, port), is_shared=False)
    except OSError as error:
        raise ServiceError(
            f"can't listen on {host}:{port} ({error.strerror}); stop the process that uses it, or choose "
            f"another {option}"
        ) from None
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    return reserved


def share(reserved: socket.socket, unread_seconds: float = UNREAD_SECONDS) -> socket.socket:
    """Bind the address of `reserved` for a worker: the kernel spreads connections over those that listen.

    It also ends those whose client takes nothing for `unread_seconds` (Linux only).
    """
    bound = _bind(reserved.family, reserved.getsockname(), is_shared=True)
    if sys.platform == "linux":  # a connection inherits the option
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(unread_seconds * 1000))
    return bound


def _bind(family: int, address: tuple[object, ...], is_shared: bool) -> socket.socket:
    bound = socket.socket(family, socket.SOCK_STREAM)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, is_shared)
        bound.bind(address)
    except BaseException:
        bound.close()
        raise
    return bound


def url_of(bound: socket.socket) -> str:
    """Return the URL of a bound socket."""
    host, port = bound.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
