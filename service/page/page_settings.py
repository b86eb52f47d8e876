"""The settings that the page reads at its start."""

from ipaddress import ip_address

from pydantic import BaseModel

from turret.service.settings import Settings


class PageSettings(BaseModel):
    """What the page needs to know before its first call for data.

    `pictures`: the origins of pictures that it may load. `admin_here`: whether this port takes admin calls;
    `admin_url` is the page on the port that does, if the caller can reach it.
    """

    release: str
    pictures: tuple[str, ...]
    admin_here: bool
    admin_url: str | None
    keys_required: bool


def admin_url(settings: Settings, hostname: str) -> str | None:
    """The address of the page on the admin port for a caller that reached the service as `hostname`.

    None where there is no such port, where it is a random one, or where it listens on the loopback only and
    the caller came from elsewhere.
    """
    port = settings.admin_port
    if not port or not hostname or (_is_loopback(settings.admin_host) and not _is_loopback(hostname)):
        return None
    shown = f"[{hostname}]" if ":" in hostname else hostname
    return f"http://{shown}:{port}/"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
