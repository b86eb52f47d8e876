"""Whether the metric in the manifest of a version speaks against it."""

from turret.tower.errors import BundleError
from turret.tower.format.manifest import Manifest
from turret.tower.slots import SLOTS, with_slots

# Twice the accepted loss of --not-worse-than: figures of other users, without an interval, differ by more.
MOST_LOSS = 0.2
_PARTS, _METRIC = ("test", "validation"), "ndcg@10"
# With a refit, the same weights for warm starts may stand beside the vectors of another model.
_OF_MODEL = ("model.safetensors", "item_vectors.npy")
_REMEDY = (
    "`turret activate --not-worse-than live` compares both on the same events; activate it with force if "
    "that is intended"
)


def compare_recorded(new: Manifest, live: Manifest | None) -> str:
    """Compare the metric that `turret evaluate` left in a bundle with that of the live version.

    Returns a sentence about the figures, or the reason that there are none to compare. Raises BundleError for
    a version that was never evaluated or whose metric is below the live one's by more than a fifth, or in a
    half of the answers even the upper end of its interval.
    """
    never = f"version {new.version} was never evaluated; `turret evaluate` its run, and export it again"
    if live is None:
        return "there is no other version to compare it with" if _figures(new) else never
    if all(live.files.get(name) == new.files.get(name) for name in _OF_MODEL):
        return f"it has the same model as version {live.version}"
    if not _figures(new):
        raise BundleError(f"{never}. {_REMEDY}")
    ours, others = _figures(new), _figures(live)
    names = [name for name in ours if name in others]
    if not names:
        return f"its metric is not compared: version {live.version} has none recorded like it"
    name = next((key for key in names if key[1] == _METRIC), names[0])
    data = (
        "the same data" if new.fingerprints.get("data") == live.fingerprints.get("data") else "its own data"
    )
    of_part = ({key[1]: mean for key, mean in each.items() if key[0] == name[0]} for each in (ours, others))
    shown, other = (with_slots(means, name[1]) for means in of_part)
    figures = (
        f"recorded {name[1]} is {shown} against {other} of version {live.version}, each on the {name[0]} "
        f"part of {data}"
    )
    part, metric = name
    of_halves = _figures(new, "high")
    halves = [(part, f"{slot} {metric}") for slot in SLOTS]
    below = [name] * (ours[name] < _least(others[name]))
    below += [half for half in halves if half in others and of_halves.get(half, 1) < _least(others[half])]
    if below:
        of = "" if below[0] == name else f" in {below[0][1]}"
        raise BundleError(
            f"version {new.version} may be worse: its {figures}, which is below it{of} by more than "
            f"{MOST_LOSS:.0%}. {_REMEDY}"
        )
    return f"its {figures}"


def _least(other: float) -> float:
    """The least that a version needs beside another one's metric."""
    return (1 - MOST_LOSS) * other


def _figures(manifest: Manifest, of: str = "mean") -> dict[tuple[str, str], float]:
    """The model's metrics by part and name, those of the test part first: means, or ends of intervals."""
    return {
        (part, name): figure[of]
        for part in _PARTS
        for name, figure in manifest.metrics.get(part, {}).get("towers", {}).items()
        if isinstance(figure, dict) and of in figure
    }
