"""The commands of training, from `train` to `export`; heavy imports wait until one runs."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from turret.tower.cli import BUNDLES, AsJson, Bundles
from turret.training.process import set_up_process

RUN, STUDY = Path("var/run"), Path("var/study")

app = typer.Typer(rich_markup_mode="markdown")
report_app = typer.Typer(
    help="Pages about trained runs, and a comparison of training methods.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)
app.add_typer(report_app, name="report")

RunData = Annotated[
    Path | None,
    typer.Option("--data", metavar="DIR", help="The prepared data, if it was moved since training."),
]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run of `turret train`.")]
Prepared = Annotated[
    Path | None, typer.Option("--data", metavar="DIR", help="The prepared data (var/prepared).")
]
Part = Annotated[Literal["test", "validation"], typer.Option(help="The part of the data with the targets.")]
CutOff = Annotated[
    int | None,
    typer.Option(
        "-k", metavar="K", min=1, help="The cut-off of the metrics, of evaluation.k (training.metric's)."
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one setting of the experiment; repeatable."),
]


@app.command()
def train(
    data: Prepared = None,
    experiment: Annotated[
        str | None,
        typer.Option(
            "--experiment",
            "-e",
            metavar="NAME|FILE|auto",
            help="A shipped experiment (youtubednn), a TOML file, or auto: chosen by the data.",
        ),
    ] = None,
    run: Annotated[Path, typer.Option("--run", metavar="DIR", help="The folder of the run.")] = RUN,
    settings: Settings = None,
    origin: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="BUNDLE", help="Warm start from a bundle, or from a folder's current one."
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Resume the run in --run with its data and settings.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing run.")] = False,
    seeds: Annotated[
        str | None,
        typer.Option(metavar="SEEDS", help="Train a run for each seed, such as 0-4 or 0,1,5, in RUN/seed-N."),
    ] = None,
    loggers: Annotated[
        list[str] | None,
        typer.Option(
            "--logger", metavar="NAME", help="tensorboard (the default), mlflow or wandb; repeatable."
        ),
    ] = None,
) -> None:
    """Train both towers on prepared data, in one process or, started by torchrun, in several.

    `--experiment auto` looks at the data (features, order, repeats, size), begins to train the experiments
    that fit, stops those that are worse on the validation part, and prints its reasons; where used items are
    ranked, it compares them by used items and by new ones. The reasons are stored in RUN/run.json, and the
    chosen experiment in RUN/experiment.toml.

    Example: `turret train --data var/prepared --run var/run --experiment auto`
    """
    set_up_process()
    from turret.training.commands import train_command

    train_command(
        run,
        data,
        experiment,
        settings or [],
        resume=resume,
        overwrite=overwrite,
        origin=origin,
        loggers=loggers or [],
        seeds=seeds,
    )


@app.command()
def tune(
    experiment: Annotated[
        str | None,
        typer.Argument(
            metavar="[EXPERIMENT]",
            help="A shipped experiment, or a TOML file (that of the study, or youtubednn).",
        ),
    ] = None,
    trials: Annotated[int, typer.Option(metavar="N", min=1, help="The total number of trials.")] = 30,
    data: Prepared = None,
    study: Annotated[Path, typer.Option("--study", metavar="DIR", help="The folder of the study.")] = STUDY,
    space: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A TOML file with the settings to search, instead of the usual ones."
        ),
    ] = None,
    settings: Settings = None,
) -> None:
    """Search for the settings of an experiment with the best validation metric.

    Trials are trained one after the other, and unpromising ones are stopped early. The best experiment is
    written to best.toml in the study's folder. The same command resumes an interrupted study; a larger number
    of trials extends a finished one. The test part is never read.

    Example: `turret tune youtubednn --data var/prepared --study var/study --trials 30`
    """
    set_up_process()
    from turret.training.tuning.study import StudyRequest
    from turret.training.tuning.study import tune as tune_experiment

    tune_experiment(StudyRequest(study, data, experiment, tuple(settings or ()), space), trials)


@app.command()
def evaluate(
    run: RunFolder = RUN,
    data: RunData = None,
    part: Part = "test",
    baselines: Annotated[
        str,
        typer.Option(
            metavar="NAME,...",
            help="More baselines: recent_popularity, co_occurrence, item_knn, lift, ease, als, or all.",
        ),
    ] = "popularity",
    as_json: AsJson = False,
) -> None:
    """Evaluate a run by rankings of the whole catalog, beside baselines, and give a verdict.

    The figures of each user are written to RUN/users-test.parquet, for `turret compare`. A folder of
    `turret train --seeds` is evaluated seed by seed, with mean and deviation.

    Example: `turret evaluate var/run --baselines all`
    """
    set_up_process()
    from turret.training.commands import evaluate_command

    evaluate_command(run, data, part, as_json, [name.strip() for name in baselines.split(",")])


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN RUN...", help="Folders of evaluated runs.")],
    part: Part = "test",
    metric: Annotated[str, typer.Option(help="The metric of the table; --json has all.")] = "ndcg@10",
    as_json: AsJson = False,
) -> None:
    """Compare runs: paired differences over users from the first run, settings, cost and size.

    A folder of `turret train --seeds` counts as one run: the figures of each user are averaged over seeds.
    `turret report compare` draws the comparison.

    Example: `turret compare var/run var/other`
    """
    set_up_process()
    from turret.training.commands import compare_command

    compare_command(runs, part, metric, as_json)


@report_app.command()
def samplers(
    run: Annotated[
        Path, typer.Option("--run", metavar="DIR", help="The folder of a run of `turret train`.")
    ] = RUN,
    data: RunData = None,
    negatives: Annotated[
        list[int] | None,
        typer.Option(metavar="K", min=1, help="The number of candidates; repeatable (4, 16, 64 and 256)."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The file of the plot: .png, .svg or .pdf (RUN/samplers.png)."),
    ] = None,
    show_all: Annotated[bool, typer.Option("--all", help="Print all samplers, not only the best.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compare the bias, variance and cost of all samplers on a trained model, and recommend one.

    The sampled softmax with each sampler is compared with the full softmax. The results are also written to
    RUN/samplers.json; docs/estimators.md explains them.

    Example: `turret report samplers --run var/run --negatives 16 --negatives 256`
    """
    set_up_process()
    from turret.training.sampler_report.samplers import ReportRequest, report_samplers

    request = ReportRequest(tuple(negatives)) if negatives else ReportRequest()
    report_samplers(run, data, request, output, as_json, show_all)


@report_app.command("run")
def report_run(
    run: RunFolder = RUN,
    data: RunData = None,
    part: Part = "test",
    k: CutOff = None,
    baselines: Annotated[
        str | None,
        typer.Option(
            metavar="NAME,...",
            help="Baselines that the page must have, as for evaluate (those evaluated before).",
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="The page (RUN/report.html).")] = None,
) -> None:
    """Write a page about a run: metrics beside baselines, curves, slices, examples, coverage, settings.

    The page is one HTML file that loads nothing, so it can be sent and kept. A run that is not evaluated on
    the part is evaluated first. The last line is the path of the page.

    Example: `turret report run var/run --baselines all`
    """
    set_up_process()
    from turret.training.page.pages import run_page, write_page
    from turret.training.run import REPORT_PAGE, Run

    named = [name.strip() for name in baselines.split(",")] if baselines else []
    read = Run.read(run)
    write_page(output or run / REPORT_PAGE, lambda: run_page(read, read.open_data(data), part, k, named))


@report_app.command("compare")
def report_compare(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN RUN...", help="Folders of runs on the same data.")
    ],
    data: RunData = None,
    part: Part = "test",
    k: CutOff = None,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="The page (var/report.html).")] = None,
) -> None:
    """Write a page that compares runs: paired differences from the first run, curves, slices, settings.

    Runs that are not evaluated on the part are evaluated first. A folder of `turret train --seeds` counts as
    one run. The last line is the path of the page.

    Example: `turret report compare var/run var/other`
    """
    set_up_process()
    from turret.training.page.pages import compare_page, write_page

    write_page(output or Path("var/report.html"), lambda: compare_page(runs, data, part, k))


@app.command()
def export(
    run: RunFolder = RUN,
    data: RunData = None,
    bundles: Bundles = BUNDLES,
    version: Annotated[
        str | None, typer.Option(help="The bundle's name (the time and a fingerprint).")
    ] = None,
) -> None:
    """Publish the model of a run as a bundle; the first bundle of a folder becomes current.

    A model that was never evaluated, that is worse than a baseline, or that a warm start did not improve is
    published too, with a sentence that says so. The last line is the bundle's folder.

    Example: `turret export var/run --bundles var/bundles --version spring`
    """
    set_up_process()
    from turret.training.commands import export_run

    print(export_run(run, data, bundles, version))
