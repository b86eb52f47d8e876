"""The default thresholds of the gate.

Without imports of `settings`: a trainer activates versions too, and its image lacks pydantic-settings.
"""

import os

from turret.service.errors import ServiceError

OVERLAP_MINIMUM, MEMORY_FACTOR = 0.05, 1.5


def from_environment(name: str, default: float) -> float:
    """Read `TURRET_<NAME>` as a number. Raises ServiceError for any other text."""
    variable = f"TURRET_{name.upper()}"
    value = os.environ.get(variable, str(default))
    try:
        return float(value)
    except ValueError:
        raise ServiceError(f"{variable} can't be {value!r}; give a number, such as {default:g}") from None
