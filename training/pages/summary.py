"""The first section of a page about a run: its figures at a glance, and the verdict."""

from typing import Any

from turret.data.prepared import PreparedData
from turret.training.checkpoint import Progress
from turret.training.inspection.evaluations import best_baseline
from turret.training.markup import numbers
from turret.training.markup.elements import Child, Html, element, joined
from turret.training.pages.shown import ranker_title, sentences


def summary(report: dict[str, Any], metric: str, k: int, progress: Progress | None) -> Html:
    """Tiles with the main figures, and the sentences of `turret evaluate`."""
    own = report["towers"]
    tiles = [
        tile(
            f"{metric}, {report['part']} part",
            numbers.metric(own[metric]),
            joined("95 % interval ", whole(numbers.interval(own[metric]))),
            is_main=True,
        ),
        _gain(report, metric),
        tile(
            f"coverage@{k}", numbers.share(own[f"coverage@{k}"]), f"of {report['items']:,} items recommended"
        ),
        tile("users evaluated", numbers.count(report["users"]), f"{report['relevant_items']:,} targets"),
        *_training(progress),
    ]
    return joined(
        element("div", tiles, class_="tiles"), element("h3", "Verdict"), sentences(_findings(report, metric))
    )


def _findings(report: dict[str, Any], metric: str) -> list[dict[str, Any]]:
    """The verdict; of the baselines only the best one, as the next table has all."""
    best = best_baseline(report, metric)
    return [
        one for one in report["verdict"] if one["kind"] != "baseline" or one["figures"]["baseline"] == best
    ]


def tile(label: str, value: str, note: Child, is_main: bool = False) -> Html:
    """One figure with its label above and a note below."""
    content = (element("p", label, element("strong", value)), element("p", note))
    return element("div", *content, class_="tile main" if is_main else "tile")


def whole(text: str) -> Html:
    """Text without a line break."""
    return element("span", text, class_="whole")


def lead(data: PreparedData, fingerprint: str) -> str:
    """The size and the identity of the data, in one line."""
    counts = data.manifest.counts
    size = f"{counts.events:,} events of {counts.users:,} users and {counts.items:,} items"
    return f"{size}, data {fingerprint[:12]}"


def _gain(report: dict[str, Any], metric: str) -> Html:
    best = best_baseline(report, metric)
    gain, mean = report["differences"][best][metric], report[best][metric]["mean"]
    share = f"{numbers.gain(gain['mean'] / mean)}, " if mean else ""
    return tile(
        "over the best baseline",
        numbers.difference(gain),
        joined(
            f"{ranker_title(best)}, {share}paired 95 % interval ", whole(numbers.difference_interval(gain))
        ),
    )


def _training(progress: Progress | None) -> list[Html]:
    if progress is None:
        return []
    best = "" if progress.best is None else f", best after epoch {progress.best_epoch}"
    state = "" if progress.finished else ", interrupted"
    note = f"{numbers.duration(progress.seconds)}, {numbers.count(progress.step)} steps{best}{state}"
    epochs = f"{progress.epoch} epoch{'' if progress.epoch == 1 else 's'}"
    return [tile("training", epochs, note)]
