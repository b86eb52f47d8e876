"""The key of the admin calls."""

import hmac
import os
import secrets
from pathlib import Path

from service.errors import RequestError, ServiceError
from service.settings import Settings


class AdminKey:
    """Compares keys in constant time, and says where the right one is found, never what it is."""

    def __init__(self, key: str, place: str) -> None:
        self._expected = f"Bearer {key}".encode()
        self._place = place

    def check(self, authorization: str | None) -> None:
        """Raise RequestError (401) unless `authorization` is `Bearer KEY`."""
        # The scheme is written in any case (RFC 9110, section 11.1); the key is not.
        scheme, _, key = (authorization or "").partition(" ")
        given = f"{scheme.capitalize()} {key}".encode("utf-8", "replace")
        if not hmac.compare_digest(given, self._expected):
            what = "is wrong" if authorization else "is missing"
            raise RequestError(
                401,
                "Authorization",
                None,
                f"the admin key {what}; send 'Authorization: Bearer KEY' with the key from {self._place}",
                {"WWW-Authenticate": "Bearer"},
            )


def admin_key(settings: Settings) -> AdminKey:
    """Take the key from the settings, or from `<bundles>/admin.key`, which is made if it isn't there.

    Raises ServiceError when that file can't be made or read.
    """
    if settings.admin_key:
        return AdminKey(settings.admin_key.get_secret_value(), "the service's TURRET_ADMIN_KEY")
    path = settings.bundles / "admin.key"
    try:
        return AdminKey(_read_or_make(path), f"the file {path}")
    except OSError as error:
        raise ServiceError(
            f"the admin key can't be kept in {path}: {error.strerror}; set TURRET_ADMIN_KEY instead"
        ) from None


def _read_or_make(path: Path) -> str:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        key = path.read_text(encoding="utf-8", errors="replace").strip()
        if not key:
            raise ServiceError(f"{path} is empty; delete it for a new key, or set TURRET_ADMIN_KEY") from None
        return key
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        key = secrets.token_urlsafe(32)
        file.write(key + "\n")
        return key
