"""`/`, `/page/...`: the page for people; its data comes from the calls of the API."""

from pathlib import Path

from fastapi import APIRouter, Request, Response
from starlette.staticfiles import StaticFiles

from turret.service import page
from turret.service.calls import has_admin_calls
from turret.service.http.routes.dependencies import Parts, json_response
from turret.service.settings import Settings

STATIC = Path(page.__file__).parent / "static"
_files = StaticFiles(directory=STATIC)
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
router = APIRouter(include_in_schema=False)


@router.get("/page/settings.json")
async def settings_of_page(request: Request, parts: Parts) -> Response:
    """Return the settings that the page needs before its first call; they are public, as the page is.

    `pictures`: the origins of pictures that the page may load. `admin_here`: whether this port takes admin
    calls; `admin_url` is the page on the port that does, if the caller can reach it. `half_lives`: the names
    of the half-lives of popular items, the shortest first.
    """
    admin_here = has_admin_calls(request.scope["server"], parts.admin_port)
    known = {
        "release": request.app.version,
        "pictures": parts.settings.page_pictures,
        "admin_here": admin_here,
        "admin_url": None if admin_here else admin_url(parts.settings, request.url.hostname or ""),
        "half_lives": sorted(parts.settings.popular, key=parts.settings.popular.__getitem__),
        "keys_required": not parts.keyring.is_open,
    }
    return json_response(known)


@router.get("/")
@router.head("/")
async def index(request: Request) -> Response:
    """Return the page. It holds no data, so it needs no key."""
    return await _files.get_response("index.html", request.scope)


@router.get("/page/{path}")
@router.head("/page/{path}")
async def file(request: Request, path: str) -> Response:
    """Return a file of the page."""
    return await _files.get_response(path, request.scope)


def admin_url(settings: Settings, hostname: str) -> str | None:
    """The address of the page on the admin port for a caller that reached the service as `hostname`.

    None where there is no such port, where it is a random one, or where it listens on the loopback only and
    the caller came from elsewhere.
    """
    port, is_local = settings.admin_port, hostname in _LOOPBACK
    if not port or not hostname or (settings.admin_host in _LOOPBACK and not is_local):
        return None
    shown = f"[{hostname}]" if ":" in hostname else hostname
    return f"http://{shown}:{port}/"
