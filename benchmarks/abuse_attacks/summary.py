"""From what was seen of single attacks to the figures of all."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class Probe(NamedTuple):
    """One question of the watching process.

    Its kind, when it was due, how long it took (s), its status, and how long (s) a worker was ready to run
    meanwhile and had no core: what the machine adds, and not the service.
    """

    name: str
    began: float
    seconds: float
    status: int
    starved: float = 0.0


def summed(probes: Sequence[Probe]) -> dict[str, Any]:
    """The longest stall of `/livez`, and what became of the probes and of the honest client.

    `starved_in_it_ms`: how long a worker waited for a core in that stall; `own_stall_ms`: the longest stall
    without such waiting, which is comparable on a busy machine. Kinds: `livez` and `honest` on kept
    connections, `livez_new`, `honest_new` and `readyz` on new ones. Status 0 is a connection that was lost.
    """
    alive = [one for one in probes if one.name.startswith("livez")]
    honest = [one for one in probes if one.name.startswith("honest")]
    longest = max(alive, key=lambda one: one.seconds, default=Probe("livez", 0.0, 0.0, 0))
    return {
        "longest_stall_ms": _milliseconds(longest.seconds),
        "starved_in_it_ms": _milliseconds(longest.starved),
        "own_stall_ms": _milliseconds(max((one.seconds - one.starved for one in alive), default=0.0)),
        **{
            f"longest_{name}_ms": _milliseconds(
                max((one.seconds for one in alive if one.name == name), default=0.0)
            )
            for name in ("livez", "livez_new")
        },
        "stall_p99_ms": _milliseconds(_percentile([one.seconds for one in alive], 0.99)),
        "probes": {name: _by_status(probes, name) for name in ("livez", "livez_new", "readyz")},
        "honest": {
            **{name: _by_status(probes, name) for name in ("honest", "honest_new")},
            "share_200": round(sum(one.status == 200 for one in honest) / max(1, len(honest)), 4),
            "p99_ms": _milliseconds(_percentile([one.seconds for one in honest], 0.99)),
        },
    }


def summary(attacks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The claims over all attacks: the worst of each figure, and the doors that were opened in all.

    An attack that could not be carried out has an `error` and no figures; it is named, and proves nothing.
    """
    made = [one for one in attacks if "error" not in one]
    counted = [one for one in made if one["stall_counts"]]
    return {
        "peak_mb_over_idle": max((one["peak_mb_over_idle"] for one in made), default=0.0),
        "longest_stall_ms": max((one["longest_stall_ms"] for one in counted), default=0.0),
        "doors_opened": sum(one["opened"] for one in made),
        "not_held": [one["name"] for one in made if not one["held"]],
        "not_carried_out": [one["name"] for one in attacks if "error" in one],
        "attacks": list(attacks),
    }


def _by_status(probes: Sequence[Probe], name: str) -> dict[str, int]:
    return dict(Counter(str(one.status) if one.status else "lost" for one in probes if one.name == name))


def _percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def _milliseconds(seconds: float) -> float:
    return round(1000 * seconds, 1)
