"""`/`, `/page/...`: the page for people; its data comes from the calls of the API."""

from pathlib import Path

from fastapi import APIRouter, Request, Response
from starlette.staticfiles import StaticFiles

from turret.service import page
from turret.service.calls import has_admin_calls
from turret.service.http.routes.dependencies import Parts
from turret.service.http.routes.responses import json_response
from turret.service.page.page_settings import PageSettings, admin_url

STATIC = Path(page.__file__).parent / "static"
_files = StaticFiles(directory=STATIC)
router = APIRouter(include_in_schema=False)


@router.get("/page/settings.json")
async def settings_of_page(request: Request, parts: Parts) -> Response:
    """Return what the page needs before its first call: public, as the page itself."""
    admin_here = has_admin_calls(request.scope["server"], parts.admin_port)
    known = PageSettings(
        release=request.app.version,
        pictures=parts.settings.page_pictures,
        admin_here=admin_here,
        admin_url=None if admin_here else admin_url(parts.settings, request.url.hostname or ""),
        keys_required=not parts.keyring.is_open,
    )
    return json_response(known.model_dump())


@router.get("/")
@router.head("/")
async def index(request: Request) -> Response:
    """Return the page. It holds no data, so it needs no key."""
    return await _files.get_response("index.html", request.scope)


@router.get("/page/{path:path}")
@router.head("/page/{path:path}")
async def file(request: Request, path: str) -> Response:
    """Return a file of the page."""
    return await _files.get_response(path, request.scope)
