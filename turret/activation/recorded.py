"""Whether the metric in the manifest of a version speaks against it: the check of a plain activation."""

from contextlib import suppress
from pathlib import Path

from turret.activation.live import live_version
from turret.tower.errors import BundleError
from turret.tower.format.listing import version_folder
from turret.tower.format.manifest import Manifest, read_manifest
from turret.training.config.metric import with_slots

# Twice the accepted loss of --not-worse-than: figures of other users, without an interval, differ by more.
MOST_LOSS = 0.2
_PARTS, _METRIC, _MODEL = ("test", "validation"), "ndcg@10", "model.safetensors"
_REMEDY = "`--not-worse-than live` compares both on the same events, and --force activates it as it is"


def check_recorded(version: str, bundles: Path, url: str | None) -> str:
    """Compare the metric that `turret evaluate` left in a bundle with that of the live version.

    Returns a sentence about the figures, or the reason that there are none to compare; empty where the live
    version has the same model. Raises BundleError for a version that is not in `bundles`, or that was never
    evaluated, or whose metric is below the live one's by more than a fifth.
    """
    try:
        new, live = read_manifest(version_folder(bundles, version)), _live(bundles, url)
    except BundleError as error:
        hint = "" if url is None else "; with --url, name the folder of that service with --bundles"
        raise BundleError(f"{error}{hint}", error.reason) from None
    never = f"version {version} was never evaluated; `turret evaluate` its run, and export it again"
    if live is None:
        return "" if _figures(new) else f"Warning: {never}."
    if live.files.get(_MODEL) == new.files.get(_MODEL):
        return ""
    if not _figures(new):
        raise BundleError(f"{never}. {_REMEDY}")
    ours, others = _figures(new), _figures(live)
    names = [name for name in ours if name in others]
    if not names:
        return f"The metric of {version} is not compared: version {live.version} has none recorded like it."
    name = next((one for one in names if one[1] == _METRIC), names[0])
    data = (
        "the same data" if new.fingerprints.get("data") == live.fingerprints.get("data") else "its own data"
    )
    of_part = ({one[1]: mean for one, mean in each.items() if one[0] == name[0]} for each in (ours, others))
    shown, other = (with_slots(means, name[1]) for means in of_part)
    figures = (
        f"recorded {name[1]} is {shown} against {other} of version {live.version}, each on the {name[0]} "
        f"part of {data}"
    )
    if ours[name] < (1 - MOST_LOSS) * others[name]:
        raise BundleError(
            f"version {version} may be worse: its {figures}, which is below it by more than "
            f"{MOST_LOSS:.0%}. {_REMEDY}"
        )
    return f"Its {figures}."


def _live(bundles: Path, url: str | None) -> Manifest | None:
    """The manifest of the live version; None for none, or one that can't be read and is to be replaced."""
    with suppress(BundleError):
        live = live_version(bundles, url)
        return None if live is None else read_manifest(version_folder(bundles, live))
    return None


def _figures(manifest: Manifest) -> dict[tuple[str, str], float]:
    """The means of the model's metrics by part and name, those of the test part first."""
    return {
        (part, name): figure["mean"]
        for part in _PARTS
        for name, figure in manifest.metrics.get(part, {}).get("towers", {}).items()
        if isinstance(figure, dict) and "mean" in figure
    }
