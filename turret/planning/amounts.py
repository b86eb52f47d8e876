"""Amounts that remember which sizes exceed those measured, and how bytes, seconds and counts are written."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from turret.data.errors import ConfigurationError

_COUNT = re.compile(r"([0-9][0-9_,]*(?:\.[0-9]+)?(?:e[+]?[0-9]{1,2})?)([kMG]?)")
_FACTORS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}
_LARGEST_COUNT = 10**13
_BYTES = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6))
_TIMES = (("days", 86_400, 172_800), ("h", 3600, 7200), ("min", 60, 120))  # unit, seconds, from seconds on


@dataclass(frozen=True)
class Amount:
    """A number of bytes, seconds or others; `beyond` has the largest measured value of each exceeded size."""

    value: float
    beyond: Mapping[str, float] = field(default_factory=dict)

    def __add__(self, other: "Amount") -> "Amount":
        beyond = dict(self.beyond)
        for name, most in other.beyond.items():
            beyond[name] = min(most, beyond.get(name, most))
        return Amount(self.value + other.value, beyond)

    def __mul__(self, factor: float) -> "Amount":
        return Amount(self.value * factor, self.beyond)


def largest(amounts: list[Amount]) -> Amount:
    """The largest of some amounts."""
    return max(amounts, key=lambda amount: amount.value)


def byte_text(count: float) -> str:
    """Bytes in decimal units: 340 MB, 1.2 GB, 12 TB."""
    unit, size = next(((unit, size) for unit, size in _BYTES if count >= size), _BYTES[-1])
    return f"{_digits(count / size)} {unit}"


def time_text(seconds: float) -> str:
    """Seconds in the unit that people would use: 29 s, 12 min, 3.1 h, 2.4 days."""
    unit, length = next(((unit, length) for unit, length, least in _TIMES if seconds >= least), ("s", 1))
    return f"{_digits(seconds / length)} {unit}"


def _digits(value: float) -> str:
    """Two digits of small numbers, and all of the others before the point."""
    return f"{value:.1f}" if 1 <= value < 9.95 else f"{max(value, 1):,.0f}"


def count_text(count: float) -> str:
    """A count with two leading digits: 35, 3,500, 350,000."""
    if count < 100:
        return f"{count:.0f}"
    digits = len(str(int(count))) - 2
    return f"{int(count // 10**digits) * 10**digits:,}"


def parse_count(option: str, text: str, least: float = 1) -> float:
    """Read a count such as 250000, 250,000, 250k, 2.5M or 1e8. Raises ConfigurationError for others."""
    match = _COUNT.fullmatch(text.strip())
    value = float(re.sub("[_,]", "", match[1])) * _FACTORS[match[2]] if match else -1.0
    if not least <= value <= _LARGEST_COUNT:
        raise ConfigurationError(
            f"{option} {text}: it must be a number from {least:g} to {_LARGEST_COUNT:.0e}, such as 250000, "
            "250k, 2.5M or 1e8"
        )
    return value
