"""Errors that a user can cause; messages state the problem, the place and a remedy, and no credentials."""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from pathlib import Path
from reprlib import repr as shortened
from typing import TypeGuard

# Possessive repeats (`*+`) never try a shorter match, and no two attempts pass over the same characters, so
# each expression takes linear time.
_HOST = r"(?:\[[^\]]*+\]|[^:@,\[\]]++)(?::\d++)?+"
_HOSTS = re.compile(rf"(?:{_HOST})?+(?:,(?:{_HOST})?+)*+")
# A template such as redis://[[USER]:PASSWORD@]HOST is no address. A URL that became a path has one slash.
_SCHEME = re.compile(r"(?<![A-Za-z0-9+.-])[A-Za-z0-9+.-]++:(?://|/(?=[^\s/@]++@))(?!\[\[)")
_IN_TEXT = re.compile(rf"{_SCHEME.pattern}[^\s\"]++")
# Parameters in queries, fragments and JDBC addresses have these names if their values are secret.
_SECRET = "key|token|secret|signature|pass|pwd|credential|bearer|jwt"
_PARAMETER = re.compile(
    rf"([?&#;](?:(?:(?!{_SECRET})[^?=&#;])*+(?:{_SECRET})[^?=&#;]*+|sig|auth)=)[^&#;'\"]++", re.I
)


def brief(value: object, most: int = 60) -> str:
    """Return the beginning of a text or a type for a message; records have types of any length."""
    text = str(value)
    return text if len(text) <= most else f"{text[:most]}..."


def without_credentials(address: str) -> str:
    """Return an address without its user and password, and with *** for secret query parameters.

    A password may hold characters that should be percent-encoded, such as @ or /. A path may hold an @.
    """
    if "," in address and len(_SCHEME.findall(address)) > 1:  # a cluster has several addresses
        return ",".join(map(without_credentials, address.split(",")))
    scheme, _, place = address_parts(address)
    return _PARAMETER.sub(r"\1***", scheme + place)


def address_parts(address: str) -> tuple[str, str, str]:
    """Return the scheme of an address with its slashes, its credentials (`user:password`), and the rest."""
    match = _SCHEME.match(address)
    scheme = match[0] if match else ""
    rest = address[len(scheme) :]
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    place = rest
    if "@" in authority:
        place = authority.rpartition("@")[2] + rest[len(authority) :]
    elif not _HOSTS.fullmatch(authority):
        place = rest.rpartition("@")[2]
    return scheme, rest[: len(rest) - len(place)].removesuffix("@"), place


def text_without_credentials(text: str) -> str:
    """Return a text in which each address with a scheme is without its credentials."""
    return _IN_TEXT.sub(lambda match: without_credentials(match[0]), text) if ":/" in text else text


class TurretError(Exception):
    """The base of every error that a user can cause; its text is the whole message, without credentials.

    An error class that quotes requests returns the message unchanged: the message holds no address of the
    operator, and the text of a client is not searched.
    """

    exit_status = 1
    """The exit status of a command that ends with this error."""

    def __str__(self) -> str:
        return text_without_credentials(super().__str__())


def shown(value: object) -> str:
    """Return the beginning and the end of the `repr` of a value."""
    try:
        return shortened(value)
    except ValueError:  # Python writes no number of more than 4,300 digits
        return "a number of thousands of digits"


_NOT_UTF8 = re.compile("[\0\ud800-\udfff]")


def is_utf8(text: str) -> bool:
    """Tell whether a text is valid UTF-8, as files and other libraries need; Python reads other bytes too."""
    return not _NOT_UTF8.search(text)


def is_path(value: object) -> TypeGuard[str | PathLike[str]]:
    """Tell whether a value is a text or a path, in UTF-8."""
    text = fspath(value) if isinstance(value, str | PathLike) else None
    return isinstance(text, str) and not _NOT_UTF8.search(text)


def path_of(name: str, value: object) -> Path:
    """Return the argument `name` as a path. Raises TurretError if its value is no path."""
    if not is_path(value):
        raise TurretError(f"{name} can't be {shown(value)}: give a path")
    return Path(value)


def system_sentence(error: Exception) -> str | None:
    """Describe an error of the operating system to a user; None for another error, and for a closed pipe."""
    if not isinstance(error, OSError) or not error.strerror or error.errno == errno.EPIPE:
        return None
    place = brief(error.filename or "a file", 200)
    return f"{place}: {error.strerror}; check the path, its permissions and the space"


@contextmanager
def system_errors_told() -> Iterator[None]:
    """Raise TurretError for errors of the operating system: a path, a permission, a full disk."""
    try:
        yield
    except OSError as error:
        if (sentence := system_sentence(error)) is None:
            raise
        raise TurretError(sentence) from error


class ArgumentError(TurretError, ValueError):
    """An argument of a Python call whose value doesn't fit."""


class MissingExtraError(TurretError, ImportError):
    """A public name whose extra is not installed; the message has the command that installs it."""


class DataError(TurretError):
    """Events, columns, features or prepared folders that can't be used."""


class FetchError(DataError):
    """A public data set that can't be downloaded, checked or unpacked."""


class ConfigurationError(DataError):
    """Settings that do not exist, are invalid or contradict each other."""


class SourceError(DataError):
    """Files that are missing, unreadable or of an unknown format."""


class TextEncodingError(SourceError):
    """Text that is not in the encoding that it should have."""


class ColumnError(DataError):
    """Columns that are missing or have the wrong type."""


class BadRowsError(DataError):
    """Invalid rows in a log, unless they are to be dropped."""


class EmptyDataError(DataError):
    """A log without remaining events."""


class EmptyResultError(EmptyDataError):
    """A query on a database without rows."""
