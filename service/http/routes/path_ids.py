"""Ids in paths, a one-to-one mapping of ids and paths; the parameters of query strings."""

from collections.abc import Awaitable, Callable
from typing import Annotated, get_args, get_origin
from urllib.parse import unquote_to_bytes

from fastapi import Path, Request
from fastapi.dependencies.models import Dependant
from pydantic import Field
from starlette.convertors import Convertor, register_url_convertor

from turret.data.vocabulary import ID_LENGTH
from turret.service.errors import InvalidFieldError

Id = Annotated[str, Field(min_length=1, max_length=ID_LENGTH)]
# Not checked against its bounds: other texts name no item, which is 404 to a call that reads.
ItemId = Annotated[str, Path(json_schema_extra={"minLength": 1, "maxLength": ID_LENGTH})]


class _Id(Convertor[str]):
    """An id of any characters, with slashes and newlines; Starlette's `path` ends at a newline."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        """Return the id as it is."""
        return value

    def to_string(self, value: str) -> str:
        """Return the id as it is."""
        return value


class _Item(_Id):
    """An id that doesn't end in /similar, which is another call."""

    regex = r"(?s:(?!.*/similar\Z).*)"


register_url_convertor("id", _Id())
register_url_convertor("item", _Item())


def check_utf8(field: str) -> Callable[[Request], Awaitable[None]]:
    """Make a dependency that raises InvalidFieldError, naming `field`, for a path that isn't UTF-8.

    The server replaces undecodable bytes by U+FFFD, so different paths would name the same user or item.
    """

    async def check(request: Request) -> None:
        try:
            unquote_to_bytes(request.scope["raw_path"]).decode()
        except UnicodeDecodeError:
            shown = next(iter(request.path_params.values()), None)
            message = "this isn't UTF-8; send the id in UTF-8 and percent-encode its bytes (é is %C3%A9)"
            raise InvalidFieldError(field, shown, message) from None

    return check


async def check_query(request: Request) -> None:
    """Raise InvalidFieldError for a parameter that the call doesn't have, is sent twice, or isn't UTF-8.

    A misspelt filter or limit would else be ignored, and the answer be that of another request.
    """
    if not request.scope["query_string"]:
        return
    for part in request.scope["query_string"].split(b"&"):
        try:
            unquote_to_bytes(part).decode()
        except UnicodeDecodeError:
            name = unquote_to_bytes(part.partition(b"=")[0]).decode(errors="replace")
            message = "this isn't UTF-8; send it in UTF-8 and percent-encode its bytes (é is %C3%A9)"
            raise InvalidFieldError(name, None, message) from None
    known = _parameters(request.scope["route"].dependant)
    seen: set[str] = set()
    for name, value in request.query_params.multi_items():
        if name not in known:
            remedy = f"send {', '.join(known)} only" if known else "this call takes none"
            # Without its value, which may be a key that was sent in the wrong place.
            raise InvalidFieldError(name, None, f"unknown query parameter; {remedy}")
        if name in seen and not known[name]:
            raise InvalidFieldError(name, value, "this parameter is sent twice; send it once")
        seen.add(name)


def _parameters(call: Dependant) -> dict[str, bool]:
    """The query parameters of a call, and whether each may be repeated."""
    own = {one.alias: _is_list(one.field_info.annotation) for one in call.query_params}
    for inner in call.dependencies:
        own |= _parameters(inner)
    return own


def _is_list(annotation: object) -> bool:
    return any(get_origin(part) is list for part in (annotation, *get_args(annotation)))
