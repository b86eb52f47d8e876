"""`turret report samplers` on models of two real catalogs: which sampler comes how near the full softmax.

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
from turret.training.report.plot import plot_report
from turret.training.report.samplers import ReportRequest, SamplerReport
from turret.training.report.table import report_table
from turret.training.run import Run
from turret.training.trainer import train

# The events of each set, and whether their order is that of the file.
SETS = {"sasrec_ml-1m": ("interactions.parquet", False), "gowalla": ("train.parquet", True)}
SETTINGS = ("training.epochs=6", "training.batch_size=1024")
QUICK = ("training.epochs=1", "training.batch_size=1024")
ASKED, ASKED_QUICKLY = (
    ReportRequest(),
    ReportRequest(negatives=(16,), queries=16, draws=20, refresh_every=(1, 10)),
)


def trained(
    source: Path, in_file_order: bool, work: Path, settings: tuple[str, ...]
) -> tuple[Run, PreparedData]:
    """A run of the shipped experiment on one file of events."""
    columns = {"in_file_order": True} if in_file_order else {}
    prepare(PrepareConfig.model_validate({"source": source, "columns": columns}), work / "prepared")
    data = PreparedData.open(work / "prepared")
    run = Run(work / "run", load_experiment("youtubednn", settings), data.folder, data.fingerprint)
    train(run, data)
    return run, data


def one_set(name: str, options: Options, work: Path) -> dict[str, Any]:
    """The report on one set, with what it was made from."""
    events, in_file_order = SETS[name]
    source = options.data / name / events
    settings = QUICK if options.quick else SETTINGS
    sizes = ASKED_QUICKLY if options.quick else ASKED
    run, data = trained(source, in_file_order, work / name, settings)
    report = SamplerReport(run, data, sizes).measure()
    report["run"] = name
    print(report_table(report, show_all=True))
    if not options.quick:
        plot_report(report, RESULTS / f"sampler_report_{name}.svg")
    return {
        **report,
        "asked": asdict(sizes),
        "source_sha256": hash_file(source).sha256,
        "experiment": run.experiment.model_dump(mode="json"),
    }


def measure(options: Options) -> dict[str, Any]:
    """Every set, or the first where it has to be quick."""
    names = list(SETS)[:1] if options.quick else list(SETS)
    with tempfile.TemporaryDirectory() as folder:
        return {"sets": {name: one_set(name, options, Path(folder)) for name in names}}


if __name__ == "__main__":
    run(measure)
