"""`turret train --seeds`, and `turret evaluate` of the folder that it writes."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any

from turret.data.prepared import PreparedData
from turret.data.text import WIDTH, figure, text_table
from turret.training.commands import REPORT, TrainRequest, checked_part, evaluate_run, resolve_run, train_run
from turret.training.comparison.seeds import (
    SeedRuns,
    evaluation_summary,
    parse_seeds,
    training_summary,
    with_seed,
)
from turret.training.distributed.world import process_count
from turret.training.errors import TrainingError
from turret.training.evaluation.evaluation import TOWERS
from turret.training.evaluation.table import distinct_metrics
from turret.training.run import RUN, SEEDS, Run, remove_run
from turret.training.trainer import train
from turret.training.verdict.findings import paragraphs


def train_command(request: TrainRequest, seeds: str | None) -> None:
    """Train one run, or one for each seed of `seeds`; a folder of several seeds is resumed without them."""
    known = SeedRuns.read(request.folder)
    if seeds is None and known is None:
        train_run(**vars(request))
    elif seeds is None and not request.resume:
        raise TrainingError(
            f"{request.folder} holds the runs of several seeds; continue them with --resume, replace them "
            "with --seeds and --overwrite, or name another folder with --run."
        )
    else:
        train_seeds(request, parse_seeds(seeds) if seeds else (), known)


def train_seeds(request: TrainRequest, seeds: Sequence[int], known: SeedRuns | None) -> None:
    """Train one run a seed, except for those that are finished, and report mean and deviation.

    Raises:
        TrainingError: the folder has runs and neither `resume` nor `overwrite` is set, there is nothing to
            resume, or the settings differ from those of the runs there.
    """
    _check(request, known)
    if process_count() > 1:
        raise TrainingError(
            "--seeds trains one run after the other in one process; with torchrun, train each seed by "
            "itself (--set training.seed=1)."
        )
    begun = known.begun() if known and request.resume else []
    if known and begun:
        template, prepared = resolve_run(replace(request, folder=known.run_folder(begun[0])), begun[0])
    else:
        template, prepared = resolve_run(replace(request, resume=False))
    if known and request.overwrite:
        for seed in known.seeds:
            remove_run(known.run_folder(seed))
        (known.folder / SEEDS).unlink()
    runs = SeedRuns(request.folder, known.seeds if known and request.resume else ()).with_seeds(seeds)
    if runs != known or request.overwrite:
        runs.write(training_summary(runs))
    for number, seed in enumerate(runs.seeds, start=1):
        _train_seed(runs, seed, f"seed {seed} ({number} of {len(runs.seeds)})", template, prepared, request)
    print(training_table(training_summary(runs)))
    print(f"the runs are in {runs.folder}")
    first = quote(str(runs.run_folder(runs.seeds[0])))
    print(f"next: `turret report run {first}` writes a page about the first one")


def _check(request: TrainRequest, known: SeedRuns | None) -> None:
    folder = request.folder
    if request.resume and request.overwrite:
        raise TrainingError("--resume continues the runs that --overwrite removes; give one of the two.")
    if (folder / RUN).is_file():
        raise TrainingError(f"{folder} holds a run of one seed; name another folder with --run.")
    if request.resume and known is None:
        raise TrainingError(f"{folder}: there are no runs of several seeds here; leave out --resume.")
    if known is not None and not (request.resume or request.overwrite):
        raise TrainingError(
            f"{folder} holds the runs of several seeds already; continue them with --resume, replace them "
            "with --overwrite, or name another folder with --run."
        )
    if any(setting.partition("=")[0].strip() == "training.seed" for setting in request.overrides):
        raise TrainingError("--seeds sets training.seed; leave out --set training.seed.")


def _train_seed(
    runs: SeedRuns, seed: int, title: str, template: Run, prepared: PreparedData, request: TrainRequest
) -> None:
    if seed in runs.finished():
        print(f"{title}: trained already", flush=True)
        return
    print(title, flush=True)
    run = replace(template, folder=runs.run_folder(seed), experiment=with_seed(template.experiment, seed))
    train(run, prepared, request.resume, request.overwrite, REPORT, loggers=request.loggers)
    runs.write(training_summary(runs))


def evaluate_command(
    folder: Path, data: Path | None, part: str, as_json: bool, baselines: Sequence[str] = ()
) -> None:
    """Evaluate a run, or the finished runs of several seeds, store the reports and print them."""
    runs = SeedRuns.read(folder)
    if runs is None:
        evaluate_run(folder, data, part, as_json, baselines)
        return
    checked = checked_part(part)
    finished = runs.finished_runs()
    prepared = finished[0].open_data(data)
    for run in finished:
        run.evaluate(run.open_data(prepared.folder), checked, baselines)
    report = evaluation_summary(finished, checked)
    runs.write({**training_summary(runs), "evaluation": {**runs.evaluations(), checked: report}})
    print(json.dumps(report, indent=2) if as_json else f"{evaluation_table(report)}\n\n{paragraphs(report)}")


def training_table(summary: dict[str, Any]) -> str:
    """A row a seed with the figures of its training, then mean and deviation."""
    return _by_seed(summary["finished"], summary["training"], "training")


def evaluation_table(report: dict[str, Any]) -> str:
    """Mean and deviation of each metric, then a row a seed with the main metric of the towers."""
    rankers = [TOWERS, *report["differences"]]
    metric = report["metric"]
    by_metric = text_table(
        ("metric", *rankers),
        (
            (" = ".join([name, *equal]), *(_with_deviation(report[ranker][name]) for ranker in rankers))
            for name, equal in distinct_metrics([report[ranker] for ranker in rankers]).items()
        ),
        f"{report['part']} part: {report['users']:,} users, {len(report['seeds'])} seeds",
        "mean over users and seeds ± standard deviation of seeds",
        width=max(WIDTH, 20 * len(rankers)),
    )
    return f"{by_metric}\n{_by_seed(report['seeds'], {metric: report[TOWERS][metric]}, TOWERS)}"


def _by_seed(seeds: list[int], figures: dict[str, Any], title: str) -> str:
    rows: list[list[str] | None] = [
        [str(seed), *(_number(one["values"][index]) for one in figures.values())]
        for index, seed in enumerate(seeds)
    ]
    rows += [None, ["mean", *(_number(one["mean"]) for one in figures.values())]]
    if len(seeds) > 1:
        rows.append(["deviation", *(_number(one["deviation"]) for one in figures.values())])
    return text_table(("seed", *figures), rows, title)


def _with_deviation(value: dict[str, Any]) -> str:
    deviation = value["deviation"]
    return figure(value) + (f" ± {figure(deviation)}" if deviation else "")


def _number(value: float) -> str:
    return figure(value) if abs(value) < 1 else f"{value:,.1f}"
