"""`turret report run`: the page about one run."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from turret.data.prepared import PreparedData
from turret.training.baselines.registry import chosen_baselines
from turret.training.config.named_settings import experiment_toml
from turret.training.errors import TrainingError
from turret.training.evaluation.evaluation import SLICED, TOWERS, EvaluatedPart
from turret.training.evaluation.metrics import AUC
from turret.training.evaluation.table import distinct_metrics
from turret.training.page.drawings import curves_of, run_drawings, share_drawing
from turret.training.page.recommended import examples, exposure, item_namer, nearest_items, rankings_of
from turret.training.page.render import check_output, render, write_page
from turret.training.records.environment import load_environment
from turret.training.run import MODEL, PER_USER, REPORT_PAGE, Run

AGAIN = Path("var/again")


def report_run(
    folder: Path,
    data: Path | None,
    part: EvaluatedPart,
    k: int | None,
    baselines: Sequence[str],
    output: Path | None,
) -> None:
    """Write the page about one run to `output` (RUN/report.html) and print its path.

    Raises:
        TrainingError: the run can't be read or evaluated, has no metrics at `k`, or `output` can't be
            written.
    """
    run, path = Run.read(folder), output or folder / REPORT_PAGE
    check_output(path)
    write_page(path, run_page(run, run.open_data(data), part, k, baselines))
    print(path)


def run_page(
    run: Run, data: PreparedData, part: EvaluatedPart, k: int | None = None, baselines: Sequence[str] = ()
) -> str:
    """The HTML page about a run, with its stored evaluation on `part` or a new one.

    Args:
        run: a run with a model.
        data: that of the run.
        part: the part with the targets.
        k: the cut-off of the metrics; None for that of the metric of training.
        baselines: baselines that the page must have beside the evaluated ones, or "all".

    Raises:
        TrainingError: the run has no model yet, can't be evaluated, or has no metrics at `k`.
    """
    report = evaluated_report(run, data, part, baselines)
    main, seed = run.experiment.training.metric, run.experiment.training.seed
    k = cut_off(report[TOWERS], main, k)
    metric = main_metric_at(list(report[TOWERS]), main, k)
    rankers = [TOWERS, *sorted(report["differences"], key=lambda name: -report[name][metric]["mean"])]
    rankings = rankings_of(run, data, part, k)
    every = [name for name in report[TOWERS] if not name.startswith("coverage")]
    own, summaries = metrics_at_k(every, k), [report[ranker] for ranker in rankers]
    spread = exposure(rankings)
    return render(
        "run.html.j2",
        title=f"Training report: {run.folder}",
        lead=lead(data),
        run=run,
        data=data,
        report=report,
        metric=metric,
        k=k,
        progress=run.progress(),
        rankers=rankers,
        summaries=summaries,
        best=rankers[1],
        findings=[
            one
            for one in report["verdict"]
            if one["kind"] != "baseline" or one["figures"]["baseline"] == rankers[1]
        ],
        metrics=metric_titles(own, summaries),
        other_metrics=metric_titles([name for name in every if name not in own], summaries),
        drawings=run_drawings(curves_of(run)),
        sliced=[name for name in SLICED if name in report],
        slices={name: one for name, one in report["slices"].items() if metric in one[TOWERS]},
        examples=examples(rankings, seed),
        item=item_namer(data),
        spread=spread,
        shares=_shares(spread),
        neighbours=nearest_items(rankings, seed),
        toml=experiment_toml(run.experiment, f"The experiment of {run.folder.name}, every setting in full"),
        environment=load_environment(run.folder),
        commands="\n".join(shlex.join(words) for words in _commands(run, data, list(report["differences"]))),
    )


def evaluated_report(
    run: Run, data: PreparedData, part: EvaluatedPart, baselines: Sequence[str] = ()
) -> dict[str, Any]:
    """The report of `Run.evaluate`: the stored one, unless it is of an earlier model or lacks a baseline.

    Args:
        run: a run with a model.
        data: that of the run.
        part: the part with the targets.
        baselines: the names that the report must have, or "all"; popularity is always one.

    Raises:
        TrainingError: the run has no model yet, or as `Run.evaluate`.
    """
    if not (run.folder / MODEL).is_file():
        raise TrainingError(
            f"{run.folder}: no model was saved yet, so there is nothing to report; let `turret train --run "
            f"{run.folder} --resume` reach its first evaluation."
        )
    stored: dict[str, Any] = run.metrics().get(part) or {}
    if stored and (run.folder / PER_USER[part]).is_file():
        wanted, _ = chosen_baselines(baselines, data, run.experiment.evaluation.exclude_seen)
        if all(one.name in stored["differences"] for one in wanted):
            return stored
    return run.evaluate(data, part, baselines)


def cut_off(metrics: Iterable[str], main: str, k: int | None) -> int:
    """The k of a page: that of `-k`, else that of the metric of training, else the smallest.

    Raises:
        TrainingError: there are no metrics at this k.
    """
    known = [int(name.partition("@")[2]) for name in metrics if name.startswith("ndcg@")]
    if k is None:
        own = main.partition("@")[2]
        return int(own) if own and int(own) in known else min(known)
    if k not in known:
        raise TrainingError(
            f"-k {k}: the evaluation has k = {', '.join(map(str, known))} (evaluation.k); name one of these."
        )
    return k


def metrics_at_k(names: Iterable[str], k: int) -> list[str]:
    """The metrics at one cut-off, and the AUC, which has none."""
    return [name for name in names if name.endswith(f"@{k}") and not name.startswith("coverage")] + [
        name for name in names if name == AUC
    ]


def main_metric_at(names: Sequence[str], main: str, k: int) -> str:
    """The metric of training at the cut-off of the page; NDCG if that was not measured."""
    wanted = main if main == AUC else f"{main.partition('@')[0]}@{k}"
    return wanted if wanted in names else f"ndcg@{k}"


def metric_titles(names: Sequence[str], summaries: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The metrics to show, with the names of those that are equal in all summaries: `hr@10 = recall@10`."""
    shown = distinct_metrics([{name: one[name] for name in names} for one in summaries]) if names else {}
    return {name: " = ".join([name, *equal]) for name, equal in shown.items()}


def lead(data: PreparedData) -> str:
    """The size and the identity of the data, in one line."""
    counts = data.manifest.counts
    size = f"{counts.events:,} events of {counts.users:,} users and {counts.items:,} items"
    return f"{size}, data {data.fingerprint[:12]}"


def _shares(spread: Mapping[str, Mapping[str, Any]]) -> str:
    """Bars of the share of each tenth of the catalog: "top 10 %", "10 to 20 %", ..."""
    shares = {label: own["shares"] for label, own in spread.items()}
    count = len(shares["training events"])
    edges = [round(100 * number / count) for number in range(count + 1)]
    labels = [f"top {high} %" if not low else f"{low} to {high} %" for low, high in pairwise(edges)]
    return share_drawing(labels, shares)


def _commands(run: Run, data: PreparedData, baselines: Sequence[str]) -> list[list[str]]:
    """From the prepared data to this page."""
    again = str(AGAIN)
    origin = [] if run.origin is None else ["--from", str(run.origin)]
    folder = str(data.folder.resolve())
    train = ["turret", "train", "--data", folder, "--experiment", "experiment.toml", "--run", again]
    return [
        [*train, *origin],
        ["turret", "evaluate", again, "--baselines", ",".join(baselines)],
        ["turret", "report", "run", again],
        ["turret", "report", "compare", str(run.folder), again],
    ]
