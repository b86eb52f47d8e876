"""`/`, `/page/...`: the page for people; its data comes from the calls of the API."""

from fastapi import APIRouter, Request, Response

from turret.service.errors import NotFoundError
from turret.service.http.routes.dependencies import KeyringPart, SettingsPart
from turret.service.http.routes.responses import json_response
from turret.service.page.assets import PREFIX, Asset, page_assets
from turret.service.page.page_settings import PageSettings, admin_url

_FOREVER = {"Cache-Control": "public, max-age=31536000, immutable"}
_ASK_AGAIN = {"Cache-Control": "no-cache"}
router = APIRouter(include_in_schema=False)


@router.get("/")
@router.head("/")
async def index(request: Request) -> Response:
    """Return the page. It holds no data, so it needs no key."""
    return _answer(request, page_assets().index, _ASK_AGAIN)


@router.get("/page/settings.json")
async def settings_of_page(request: Request, settings: SettingsPart, keyring: KeyringPart) -> Response:
    """Return what the page needs before its first call: public, as the page itself."""
    known = PageSettings(
        release=request.app.version,
        pictures=settings.page_pictures,
        admin_here=request.app.state.admin_here,
        admin_url=None if request.app.state.admin_here else admin_url(settings, request.url.hostname or ""),
        keys_required=not keyring.admits_all(),
    )
    response = json_response(known.model_dump())
    response.headers["Cache-Control"] = "no-store"
    return response


@router.get("/page/{path:path}")
@router.head("/page/{path:path}")
async def asset(request: Request, path: str) -> Response:
    """Return a file of the page; its name has the hash of all files."""
    found = page_assets().files.get(path)
    if found is None:
        raise NotFoundError("path", PREFIX + path, "the page has no such file; reload the page")
    return _answer(request, found, _FOREVER)


def _answer(request: Request, found: Asset, headers: dict[str, str]) -> Response:
    accepted = request.headers.get("accept-encoding", "")
    if found.compressed is None or "gzip" not in accepted:
        return Response(found.content, media_type=found.media_type, headers=headers)
    compressed = {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
    return Response(found.compressed, media_type=found.media_type, headers={**headers, **compressed})
