"""`/openapi.json` and `/docs`: files that `make docs` writes from the routes, valid for every version."""

from pathlib import Path

from starlette.responses import FileResponse

STATIC = Path(__file__).parent / "static"


async def openapi_document() -> FileResponse:
    """The description of all calls for programs."""
    return FileResponse(STATIC / "openapi.json", media_type="application/json")


async def docs_page() -> FileResponse:
    """The same for people, without scripts."""
    return FileResponse(STATIC / "docs.html", media_type="text/html")
