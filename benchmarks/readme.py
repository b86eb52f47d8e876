"""Write the figures of `results/*.json` into the README and the pages, between their two markers.

The plots of the pages are drawn as well.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.capacity_page import PAGE as DEPLOY
from benchmarks.capacity_page import capacity_section
from benchmarks.distributed_training.page import PAGE as DISTRIBUTED
from benchmarks.distributed_training.page import distributed_section
from benchmarks.engines_page import PAGE as ENGINES
from benchmarks.engines_page import engines_section
from benchmarks.estimators_page import PAGE as ESTIMATORS
from benchmarks.estimators_page import estimators_section
from benchmarks.first_week_page import PAGE as EVALUATION
from benchmarks.first_week_page import first_week_section
from benchmarks.index_page import PAGE as INDEX
from benchmarks.index_page import index_section
from benchmarks.index_plot import plot as plot_index
from benchmarks.page_section import PAGE, page_section
from benchmarks.papers_page import PAGE as PAPERS
from benchmarks.papers_page import papers_section
from benchmarks.preparation_page import PAGE as DATA
from benchmarks.preparation_page import preparation_section
from benchmarks.protocol import RESULTS
from benchmarks.quality_plot import plot
from benchmarks.quality_sets import SETS
from benchmarks.results_page import PAGE as RESULTS_PAGE
from benchmarks.results_page import results_section
from benchmarks.scale_page import NAMES as SCALE_RESULTS
from benchmarks.scale_page import PAGE as SCALE
from benchmarks.scale_page import scale_section
from benchmarks.scale_plot import plot as plot_scale
from benchmarks.serving_page import PAGE as SERVING
from benchmarks.serving_page import serving_section
from benchmarks.spark_page import PAGE as SPARK
from benchmarks.spark_page import spark_section
from benchmarks.timed_sets import TIMED
from benchmarks.warm_start_page import PAGE as TRAINING
from benchmarks.warm_start_page import warm_start_section
from turret.planning.figures import load_figures

README = Path(__file__).parent.parent / "README.md"
BEGIN = "<!-- figures: written by `python -m benchmarks.readme` from benchmarks/results -->\n"
END = "<!-- end of figures -->\n"


def section(movielens: dict[str, Any]) -> str:
    """The README's section on quality, in Markdown."""
    rows = [
        f"| {name.upper()} "
        f"| {movielens[name]:.4f} ± {movielens[f'{name}_deviation']:.4f} "
        f"| {movielens[f'popularity_{name}']:.4f} |"
        for name in ("hr@10", "hr@50", "ndcg@10")
    ]
    machine = movielens["machine"]
    return "\n".join(
        [
            "MovieLens 1M as SASRec splits it: the last item of each user is the test, the whole catalog",
            f"is ranked, mean and standard deviation of {len(movielens['seeds'])} seeds "
            "(`python -m benchmarks.movielens --json`):",
            "",
            "| | YouTubeDNN | popularity |",
            "|---|---|---|",
            *rows,
            "",
            f"{movielens['seconds']:.0f} s a model from the raw file to these figures on {machine['cores']} "
            f"cores, {movielens['peak_memory_mb']:.0f} MB at the peak ({machine['date'][:10]}).",
            "",
        ]
    )


# Which page shows which results, and how.
PAGES: dict[Path, tuple[tuple[str, ...], Callable[..., str]]] = {
    README: (("movielens",), section),
    DATA: (("preparation",), preparation_section),
    DEPLOY: (("proxy", "replicas"), capacity_section),
    ENGINES: (("engines",), engines_section),
    DISTRIBUTED: (("distributed",), distributed_section),
    ESTIMATORS: (
        (
            "sampler_report",
            "sampler_bias",
            "complementary_sum",
            "kernel_cost",
            "kernel_alpha",
            "frequency_estimates",
            "ngram_adaptation",
            "spherical_update",
            "labelled_pairs",
            "in_batch_quality",
            "absolute_softmax",
            "estimate_variants",
        ),
        estimators_section,
    ),
    EVALUATION: (("first_week",), first_week_section),
    INDEX: (("index",), index_section),
    PAGE: (("page",), page_section),
    PAPERS: (("papers",), papers_section),
    RESULTS_PAGE: ((), results_section),
    SCALE: (SCALE_RESULTS, scale_section),
    SERVING: (("serving", "soak"), serving_section),
    SPARK: (("spark_preparation",), spark_section),
    TRAINING: (("warm_start",), warm_start_section),
}


def filled(page: Path) -> str:
    """The page's text with the section between the markers made anew from the results."""
    names, section_of = PAGES[page]
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{section_of(*map(_result, names))}\n{END}{after}"


def _result(name: str) -> dict[str, Any]:
    result: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return result


def main() -> None:
    """Draw the plots, and rewrite the pages in place."""
    for name in (*SETS, *TIMED):
        plot(name)
    plot_index(_result("index"))
    plot_scale(load_figures(), _result("scale_training"), _result("scale_service"))
    for page in PAGES:
        page.write_text(filled(page), encoding="utf-8")


if __name__ == "__main__":
    main()
