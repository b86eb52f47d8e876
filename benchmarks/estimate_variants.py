"""Variants of the estimates that their authors name and do not measure, on trained models.

Protocol: train the shipped YouTubeDNN on two real sets in batches of 1,024 for six epochs; then compare
gradients by the user vectors of 64 training examples, with 200 draws of each, with those of the full softmax.

- Several samples from one walk of the kernel sampler (Blanc & Rendle 2018, section 3.2.2), K = 64.
- One draw of S + S' for the batch (Botev et al. 2017), beside masked positives, draws of each example, and
  half of each, on the first set; also the gradient by the item vectors of a batch of 1,024, with 40 draws.
- An unbiased 1 / Z (Booth 2007), at an equal expected number of candidates; and softmax regression with it,
  on the problem of figure 2(a) of Botev et al. 2017.
"""

import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks.partial_samples import partial_samples
from benchmarks.protocol import Options, finish, read_options
from benchmarks.reciprocal import reciprocals, regression
from benchmarks.sampler_report import QUICK, SETS, SETTINGS, trained
from benchmarks.shared_draws import shared_draws
from turret.data.prepared import PreparedData
from turret.training.report.samplers import ReportRequest, SamplerReport
from turret.training.run import Run


def variants(run: Run, data: PreparedData, request: ReportRequest, shared: bool) -> dict[str, Any]:
    """The variants on one trained model; with `shared`, also the shared draws."""
    report = SamplerReport(run, data, request)
    return {
        "items": len(data.item_ids),
        "queries": report.query_count,
        "draws": request.draws,
        "partial": partial_samples(report),
        **({"shared": shared_draws(report)} if shared else {}),
        "reciprocal": reciprocals(report),
    }


def measure(options: Options) -> dict[str, Any]:
    """Both sets and the regression; the first set, roughly, where it has to be quick."""
    names = list(SETS)[:1] if options.quick else list(SETS)
    request = ReportRequest(queries=16, draws=20) if options.quick else ReportRequest()
    sets = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            events, in_file_order = SETS[name]
            settings = QUICK if options.quick else SETTINGS
            run, data = trained(options.data / name / events, in_file_order, Path(folder) / name, settings)
            sets[name] = variants(run, data, request, shared=name == names[0])
    trainings = regression(6 if options.quick else 30)
    return {"threads": torch.get_num_threads(), "sets": sets, "regression": trainings}


def main() -> None:
    """Run the benchmark."""
    options = read_options(__doc__)
    # Processor time is that of the work alone where no thread waits for another.
    torch.set_num_threads(1)
    figures = measure(options)
    finish("estimate_variants", options, figures)


if __name__ == "__main__":
    main()
