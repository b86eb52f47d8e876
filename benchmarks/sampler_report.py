"""How near samplers come to the full softmax: `turret report samplers` on models of two real catalogs.

Protocol: train the shipped YouTubeDNN in batches of 1,024 for six epochs, then compare every sampler on 64
training examples with 200 draws of each: the gradient of the sampled softmax against that of the full one.
"""

import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.harness import RESULTS, Options, run
from turret.data.manifest import hash_file
from turret.data.prepared import PreparedData
from turret.data.preparing.prepare import prepare
from turret.data.reading.schema import PrepareConfig
from turret.training.config.experiment import load_experiment
from turret.training.loop.train import train
from turret.training.run import Run
from turret.training.sampler_report.samplers import ReportRequest, SamplerReport
from turret.training.sampler_report.shown import plot_report, report_table

# The events of each set, and whether their order is that of the file.
SETS = {"sasrec_ml-1m": ("interactions.parquet", False), "gowalla": ("train.parquet", True)}
ASKED, ASKED_QUICKLY = (ReportRequest(), ReportRequest(negatives=(16,), queries=16, draws=20))


def report_of(name: str, options: Options, work: Path) -> dict[str, Any]:
    """Train on one set; return the report, with its sources."""
    events, in_file_order = SETS[name]
    config = {"source": options.data / name / events}
    columns = {"columns": {"in_file_order": True}} if in_file_order else {}
    prepare(PrepareConfig.model_validate(config | columns), work / "prepared")
    data = PreparedData.open(work / "prepared")
    settings = (f"training.epochs={1 if options.quick else 6}", "training.batch_size=1024")
    run = Run(work / "run", load_experiment("youtubednn", settings), data.folder, data.fingerprint)
    train(run, data)
    request = ASKED_QUICKLY if options.quick else ASKED
    report = SamplerReport(run, data, request).measure() | {"run": name}
    print(report_table(report, show_all=True))
    if not options.quick:
        plot_report(report, RESULTS / f"sampler_report_{name}.svg")
    return {
        **report,
        "asked": asdict(request),
        "source_sha256": hash_file(config["source"]).sha256,
        "experiment": run.experiment.model_dump(mode="json"),
    }


def measure(options: Options) -> dict[str, Any]:
    """Measure every set; a quick run the first one alone."""
    names = list(SETS)[:1] if options.quick else list(SETS)
    with tempfile.TemporaryDirectory() as folder:
        return {"sets": {name: report_of(name, options, Path(folder) / name) for name in names}}


if __name__ == "__main__":
    run(measure)
