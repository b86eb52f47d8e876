"""The key of the admin calls that every service has, also one without a file of keys."""

import os
import secrets
from pathlib import Path

from service.errors import ServiceError
from service.settings import Settings


def admin_key(settings: Settings) -> str:
    """Take the key from the settings, or from `<bundles>/admin.key`, which is made if it isn't there.

    Raises ServiceError when that file can't be made or read.
    """
    if settings.admin_key:
        return settings.admin_key.get_secret_value()
    path = settings.bundles / "admin.key"
    try:
        return _read_or_make(path)
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
