"""Numbers as the tables of `turret evaluate` write them."""

from collections.abc import Mapping


def metric(value: Mapping[str, float] | float) -> str:
    """The mean of a metric: four decimals."""
    return f"{value if isinstance(value, int | float) else value['mean']:.4f}"


def interval(value: Mapping[str, float]) -> str:
    """The 95 % interval of a metric: `[low, high]`."""
    return f"[{value['low']:.4f}, {value['high']:.4f}]"


def difference(value: Mapping[str, float]) -> str:
    """The mean of a paired difference, with its sign."""
    return _minus(f"{value['mean']:+.4f}")


def difference_interval(value: Mapping[str, float]) -> str:
    """The 95 % interval of a paired difference, with signs."""
    return _minus(f"[{value['low']:+.4f}, {value['high']:+.4f}]")


def share(value: float) -> str:
    """A share in per cent; small ones keep a digit."""
    return f"{100 * value:.1f} %" if abs(value) < 0.1 else f"{100 * value:.0f} %"


def gain(value: float) -> str:
    """A relative difference in per cent, with its sign."""
    return _minus(f"{100 * value:+.0f} %")


def count(value: float | None) -> str:
    """A whole number with thousands; nothing for None."""
    return "" if value is None else f"{value:,.0f}"


def duration(seconds: float) -> str:
    """Seconds, minutes or hours."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _minus(text: str) -> str:
    """A minus as wide as a plus, so that numbers align, and without a line break behind it."""
    return text.replace("-", "\N{MINUS SIGN}")
