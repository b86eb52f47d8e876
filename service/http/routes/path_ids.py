"""Ids in paths: a one-to-one mapping of ids and paths; queries that are text."""

from collections.abc import Awaitable, Callable
from urllib.parse import unquote_to_bytes

from fastapi import Request
from starlette.convertors import Convertor, register_url_convertor

from turret.service.errors import InvalidFieldError


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


async def check_query_utf8(request: Request) -> None:
    """Raise InvalidFieldError for a query string that isn't UTF-8, naming its parameter."""
    for part in request.scope["query_string"].split(b"&"):
        try:
            unquote_to_bytes(part).decode()
        except UnicodeDecodeError:
            name = unquote_to_bytes(part.partition(b"=")[0]).decode(errors="replace")
            message = "this isn't UTF-8; send it in UTF-8 and percent-encode its bytes (é is %C3%A9)"
            raise InvalidFieldError(name, None, message) from None
