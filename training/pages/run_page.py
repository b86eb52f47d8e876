"""The page about one run."""

from collections.abc import Sequence

from turret.data.prepared import PreparedData
from turret.training.evaluation.evaluation import EvaluatedPart
from turret.training.inspection.curves import curves_of
from turret.training.inspection.evaluations import cut_off, evaluated_report
from turret.training.inspection.examples import examples
from turret.training.inspection.exposure import exposure
from turret.training.inspection.item_names import ItemNames
from turret.training.inspection.nearest import nearest_items
from turret.training.inspection.rankings import rankings_of
from turret.training.markup.document import Section, page
from turret.training.markup.elements import element
from turret.training.pages.curve_charts import curve_charts
from turret.training.pages.example_cards import example_cards
from turret.training.pages.exposure_section import exposure_section
from turret.training.pages.metric_tables import metric_tables
from turret.training.pages.nearest_tables import nearest_tables
from turret.training.pages.settings_section import again_section, settings_section
from turret.training.pages.shown import main_metric_at
from turret.training.pages.slice_tables import slice_table
from turret.training.pages.summary import lead, summary
from turret.training.run import Run


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
    k = cut_off(report["towers"], main, k)
    metric = main_metric_at(list(report["towers"]), main, k)
    names, rankings = ItemNames(data), rankings_of(run, data, part, k)
    hit_rate = report["towers"][f"hr@{k}"]["mean"]
    cards = example_cards(examples(rankings, seed), names, k, hit_rate)
    sections = [
        Section("summary", "Summary", summary(report, metric, k, run.progress())),
        Section("metrics", "Metrics and baselines", metric_tables(report, metric, k)),
        Section("training", "Training", curve_charts(curves_of(run))),
        Section("slices", "Slices", slice_table(report, metric)),
        Section("examples", "Examples", cards),
        Section("coverage", "Coverage and popularity", exposure_section(exposure(rankings), k)),
        Section("nearest", "Nearest items", nearest_tables(*nearest_items(rankings, seed), names)),
        Section("configuration", "Configuration", settings_section(run, data)),
        Section("again", "Run it again", again_section(run, data, list(report["differences"]))),
    ]
    heading = [element("h1", f"Training report: {run.folder}"), element("p", lead(data, data.fingerprint))]
    return page(f"Training report: {run.folder}", heading, sections)
