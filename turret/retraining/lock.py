"""The lock that keeps two retrainings apart."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from turret.data.errors import TurretError
from turret.data.files import tried_lock


class LockedError(TurretError):
    """Another process retrains in the same folder."""


@contextmanager
def retrain_lock(work: Path) -> Iterator[None]:
    """Make the work folder, and lock it during the block; the system releases the lock of a killed process.

    Raises LockedError if another process holds the lock, or where the file system has none.
    """
    try:
        work.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LockedError(
            f"--work {work}: the folder can't be made ({error.strerror}); name another one"
        ) from None
    with tried_lock(work) as is_locked:
        if is_locked is None:
            raise LockedError(f"--work {work}: its file system has no locks; name a folder on a local disk")
        if not is_locked:
            raise LockedError(f"another `turret retrain` is running in {work}; wait until it has ended")
        yield
