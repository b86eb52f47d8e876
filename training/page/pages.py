"""`turret report run` and `turret report compare`: pages about one run, and about several on the same data.

A page is one file without scripts that loads nothing, in which every value is text.
"""

import base64
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from shlex import quote
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from turret.data import text
from turret.data.files import new_file
from turret.data.prepared import PreparedData
from turret.training.baselines.registry import BASELINES, chosen_baselines
from turret.training.comparison.compare import compare, open_sides
from turret.training.config.experiment import experiment_toml
from turret.training.config.metric import AUC
from turret.training.errors import TrainingError
from turret.training.evaluation.evaluation import (
    SLICED,
    TOWERS,
    EvaluatedPart,
    relevant_items,
    user_groups,
)
from turret.training.evaluation.table import distinct_metrics
from turret.training.page.figures import share_figure, training_figures
from turret.training.page.recommended import item_namer, recommendations
from turret.training.records import load_environment
from turret.training.run import PER_USER, Run

AGAIN = "var/again"
_FORMATS = ("figure", "percent", "count", "duration")
_INTERVALS = {
    "interval": "[{low:.4f}, {high:.4f}]",
    "signed": "{mean:+.4f}",
    "signed_interval": "[{low:+.4f}, {high:+.4f}]",
}


def run_page(
    run: Run, data: PreparedData, part: EvaluatedPart, k: int | None = None, baselines: Sequence[str] = ()
) -> str:
    """The HTML page about a run, with its stored evaluation on `part` or a new one.

    Args:
        run: a run with a model.
        data: the data of the run.
        part: the part with the targets.
        k: the cut-off of the metrics; None for the cut-off of the metric of training.
        baselines: baselines that the page must have beside the evaluated ones, or "all".

    Raises:
        TrainingError: the run has no model yet, can't be evaluated, or has no metrics at `k`.
    """
    report = evaluated_report(run, data, part, baselines)
    names = [name for name in report[TOWERS] if "coverage" not in name]
    k, metric, metrics_at_k = _metrics_at_k(names, run.experiment.training.metric, k)
    rankers = [TOWERS, *sorted(report["differences"], key=lambda name: -report[name][metric]["mean"])]
    recommended, summaries = recommendations(run, data, part, k), [report[ranker] for ranker in rankers]
    return render(
        "run.html.j2",
        title=f"Training report: {run.folder}",
        run=run,
        data=data,
        report=report,
        metric=metric,
        k=k,
        progress=run.progress(),
        rankers=rankers,
        best=rankers[1],
        metrics=_titles(metrics_at_k, summaries),
        other_metrics=_titles([name for name in names if name not in metrics_at_k], summaries),
        figures=training_figures({"": [run]}),
        sliced=[name for name in SLICED if name in report],
        item=item_namer(data),
        shares=share_figure({label: items["shares"] for label, items in recommended["spread"].items()}),
        **recommended,
        toml=experiment_toml(run.experiment, f"The experiment of {run.folder.name}, every setting in full"),
        environment=load_environment(run.folder),
        commands=_commands(run, data, list(report["differences"])),
    )


def compare_page(
    folders: Sequence[Path], data: Path | None, part: EvaluatedPart, k: int | None = None
) -> str:
    """The HTML page about several runs; those without an evaluation of their model are evaluated.

    Args:
        folders: the folders of at least two runs; the first one is the reference of all differences.
        data: the folder of their data, if it was moved.
        part: the part with the targets.
        k: the cut-off of the metrics; None for the cut-off of the first run's metric of training.

    Raises:
        TrainingError: there are fewer than two runs, they have different data, one has no model yet, or they
            have no metrics at `k` in common.
    """
    sides = open_sides(folders)
    first = sides[0][0]
    for folder, runs in zip(folders, sides, strict=True):
        if runs[0].fingerprint != first.fingerprint:
            raise TrainingError(
                f"{folders[0]} and {folder} were trained on different data (another fingerprint); "
                "name runs on the same data. `turret compare` compares these over their common users."
            )
    prepared = first.open_data(data)
    for run in (run for runs in sides for run in runs):
        evaluated_report(run, run.open_data(prepared.folder), part)
    report = compare(folders, part, user_groups(prepared, part, relevant_items(prepared, part)))
    k, metric, metrics_at_k = _metrics_at_k(report["runs"][0]["metrics"], first.experiment.training.metric, k)
    labels = [f"{number}: {folder.name or folder}" for number, folder in enumerate(folders, start=1)]
    return render(
        "compare.html.j2",
        title=f"Comparison of {len(labels)} runs",
        data=prepared,
        report=report,
        runs=list(zip(labels, report["runs"], strict=True)),
        metric=metric,
        k=k,
        metrics=_titles(metrics_at_k, [run["metrics"] for run in report["runs"]]),
        figures=training_figures(dict(zip(labels, sides, strict=True))),
    )


def evaluated_report(
    run: Run, data: PreparedData, part: EvaluatedPart, baselines: Sequence[str] = ()
) -> dict[str, Any]:
    """The report of `Run.evaluate`: the stored one, unless it is about an earlier model or lacks a baseline.

    Raises TrainingError as `Run.evaluate`.
    """
    stored: dict[str, Any] = run.metrics().get(part) or {}
    if stored and (run.folder / PER_USER[part]).is_file():
        wanted, _ = chosen_baselines(baselines, data, run.experiment.evaluation.exclude_seen)
        if all(baseline.name in stored["differences"] for baseline in wanted):
            return stored
    return run.evaluate(data, part, baselines)


def _metrics_at_k(metrics: Iterable[str], main: str, k: int | None) -> tuple[int, str, list[str]]:
    """The cut-off of a page, its main metric, and all metrics at it with the AUC, which has none.

    The cut-off is `k`, else the one of the metric of training `main`, else the smallest. The main metric is
    the metric of training at the cut-off, or NDCG. Raises TrainingError where there are no metrics at `k`.
    """
    names = list(metrics)
    known = [int(name.partition("@")[2]) for name in names if name.startswith("ndcg@")]
    kind, _, main_k = main.partition("@")
    if k is None:
        k = int(main_k) if main_k and int(main_k) in known else min(known)
    if k not in known:
        raise TrainingError(
            f"-k {k}: the evaluation has k = {', '.join(map(str, known))} (evaluation.k); name one of these."
        )
    wanted = main if main == AUC else f"{kind}@{k}"
    chosen = [name for name in names if name.endswith(f"@{k}")] + [name for name in names if name == AUC]
    return k, wanted if wanted in names else f"ndcg@{k}", chosen


def _titles(names: Sequence[str], summaries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The metrics to show, with the names of those that are equal in all summaries: `hr@10 = recall@10`."""
    shown = distinct_metrics([{name: row[name] for name in names} for row in summaries]) if names else {}
    return {name: " = ".join([name, *equal]) for name, equal in shown.items()}


def _commands(run: Run, data: PreparedData, baselines: Sequence[str]) -> str:
    """The commands from the prepared data to this page."""
    folder, run_folder = quote(str(data.folder.resolve())), quote(str(run.folder))
    origin = "" if run.origin is None else f" --from {quote(str(run.origin))}"
    return (
        f"turret train --data {folder} --experiment experiment.toml --run {AGAIN}{origin}\n"
        f"turret evaluate {AGAIN} --baselines {','.join(baselines)}\n"
        f"turret report run {AGAIN}\n"
        f"turret report compare {run_folder} {AGAIN}"
    )


def write_page(path: Path, make: Callable[[], str]) -> None:
    """Write the page that `make` returns to `path` in one step, in a folder that is made, and print the path.

    Raises:
        TrainingError: the path has another suffix than .html, or it can't be written.
    """
    if path.suffix.lower() not in (".html", ".htm"):
        raise TrainingError(f"--output {path}: the report is a page; the name must end in .html.")
    page = make()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with new_file(path) as draft:
            draft.write_text(page, encoding="utf-8")
    except OSError as error:
        raise TrainingError(f"--output {path}: it can't be written ({error}).") from None
    print(path)


def render(template: str, **values: Any) -> str:
    """A page from a template of this package."""
    environment = Environment(
        loader=PackageLoader("turret.training.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_printable,
    )
    style = files("turret.training.page").joinpath("style.css").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    environment.filters |= {name: getattr(text, name) for name in _FORMATS}
    environment.filters |= {name: form.format_map for name, form in _INTERVALS.items()}
    titles = {name: baseline.title for name, baseline in BASELINES.items()} | {TOWERS: "this run"}
    environment.filters |= {
        "ranker": lambda name: titles.get(name, name),
        # Words between backquotes are code.
        "code": lambda sentence: Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(sentence)))),
    }
    environment.globals |= {
        "style": Markup(style),
        # Nothing may be loaded or run but this stylesheet and the figures within the page.
        "policy": f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; "
        "form-action 'none'",
    }
    return environment.get_template(template).render(values)


def _printable(value: Any) -> Any:
    """Text with a mark in place of characters that HTML or UTF-8 do not allow."""
    if not isinstance(value, str):
        return value
    plain = value.encode("utf-8", "replace").decode("utf-8")
    kept = "".join(letter if letter >= " " or letter in "\n\t" else "\ufffd" for letter in plain)
    return Markup(kept) if isinstance(value, Markup) else kept
