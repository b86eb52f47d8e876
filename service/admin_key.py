"""The key of the admin calls that every service has, also one without a file of keys."""

import contextlib
import os
import secrets
import tempfile
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
    if not path.exists():
        _make(path)
    key = path.read_text(encoding="utf-8", errors="replace").strip()
    if not key:
        raise ServiceError(f"{path} is empty; delete it for a new key, or set TURRET_ADMIN_KEY")
    return key


def _make(path: Path) -> None:
    """Make the file with its contents at once: several workers start together, and one of them is first."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # 0600 from its beginning
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(secrets.token_urlsafe(32) + "\n")
        with contextlib.suppress(FileExistsError):
            os.link(name, path)
    finally:
        os.unlink(name)
