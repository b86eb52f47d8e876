"""Messages of the command line in the terms of Python: arguments in place of options."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from turret.data.errors import MissingExtraError, TurretError
from turret.data.extras import install_hint

# The argument of each option for a column.
COLUMNS = {f"--{name}": f"{name}=..." for name in ("user", "item", "time")}
_OPTION = re.compile(r"--[a-z][a-z-]*")


@contextmanager
def naming_arguments(arguments: Mapping[str, str]) -> Iterator[None]:
    """Replace the options in the message of a TurretError by `arguments`, such as `--overwrite`.

    Raises MissingExtraError for a module of an extra that is not installed.
    """
    try:
        yield
    except TurretError as error:
        message = _OPTION.sub(lambda option: arguments.get(option[0], option[0]), str(error))
        error.args = (message, *error.args[1:])
        raise
    except ModuleNotFoundError as error:
        if hint := install_hint(error):
            raise MissingExtraError(hint, name=error.name) from error
        raise


def log_settings(
    user: str | None, item: str | None, time: str | None, settings: Mapping[str, object] | None
) -> dict[str, object]:
    """The settings of a log by their dotted names; None for columns that are not named."""
    return {"columns.user": user, "columns.item": item, "columns.time": time, **(settings or {})}
