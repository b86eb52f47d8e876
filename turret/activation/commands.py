"""`turret activate`: check the metrics if requested, activate and print."""

from dataclasses import dataclass
from pathlib import Path

from turret.activation.not_worse import MARGIN, METRIC, compare_versions
from turret.data.errors import TurretError
from turret.data.prepared import PreparedData
from turret.service.client import activate_version, live_version

_DATA = Path("var/prepared")
LIVE = "live"


@dataclass(frozen=True)
class FigureOptions:
    """The options of `--not-worse-than`: the other version (or "live"), metric, margin and prepared data."""

    other: str
    metric: str
    margin: float
    data: Path

    @classmethod
    def of(
        cls, other: str | None, metric: str | None, margin: float | None, data: Path | None
    ) -> "FigureOptions | None":
        """Fill in the defaults; None without `other`. Raises TurretError for the others without it."""
        if other is None:
            for name, value in (("metric", metric), ("margin", margin), ("data", data)):
                if value is not None:
                    raise TurretError(
                        f"--{name} {value} belongs to --not-worse-than; add --not-worse-than live"
                    )
            return None
        return cls(other, metric or METRIC, MARGIN if margin is None else margin, data or _DATA)


def activate_checked(
    version: str, bundles: Path, url: str | None, force: bool, options: FigureOptions | None
) -> None:
    """Activate a version, if `options` are None or its metric is not worse; print the comparison.

    Raises:
        WorseError, UnclearError: its metric is not good enough.
        BundleError, AnswerError: it does not pass the gate.
    """
    if options is not None:
        print(_compared(version, bundles, url, options), flush=True)
    print(activate_version(version, bundles, url, force))


def _compared(version: str, bundles: Path, url: str | None, options: FigureOptions) -> str:
    other = live_version(bundles, url) if options.other == LIVE else options.other
    if other is None:
        return f"No version is live, so {version} is compared with none."
    if other == version:
        return f"{version} is live already, so it is compared with none."
    data = PreparedData.open(options.data)
    return compare_versions(bundles, version, other, data, options.metric, options.margin).check()
