"""Training of a run and its publication as a bundle; each function continues the work of a killed run."""

from pathlib import Path

from turret.data.prepared import PreparedData
from turret.retraining.record import Retraining, report
from turret.retraining.settings import RetrainSettings
from turret.tower.bundle.publish import reindex
from turret.tower.errors import BundleError
from turret.tower.format.listing import version_folder
from turret.tower.format.manifest import read_manifest
from turret.tower.tuning.choice import IndexRequest
from turret.training.commands import new_run
from turret.training.config.named_settings import with_settings
from turret.training.export.export import export, export_warnings
from turret.training.run import CHECKPOINT, Run
from turret.training.trainer import train
from turret.training.warm_start import ParentBundle

FLAT = "flat"


def train_run(settings: RetrainSettings, state: Retraining) -> Retraining:
    """Train the run of `state`, or continue it from its checkpoint. Raises TrainingError, BundleError."""
    folder = settings.runs / state.run
    if (folder / CHECKPOINT).is_file():
        run = Run.read(folder)
        train(run, run.open_data(settings.data), resume=True, report=report)
    else:
        data = PreparedData.open(settings.data)
        train(_new_run(settings, state, folder, data), data, overwrite=True, report=report)
    return state


def _new_run(settings: RetrainSettings, state: Retraining, folder: Path, data: PreparedData) -> Run:
    if state.origin is not None:
        parent = ParentBundle.open(version_folder(settings.bundles, state.origin).resolve())
        experiment = parent.experiment(settings.overrides)
        if parent.data_until is not None and experiment.training.since is None:
            experiment = with_settings(experiment, {"training.since": parent.data_until})
        return Run(folder, experiment, data.folder, data.fingerprint, parent.folder)
    if settings.experiment is None and state.live is not None:
        folder_of_live = version_folder(settings.bundles, state.live)
        experiment = ParentBundle.open(folder_of_live).experiment(settings.overrides)
        return Run(folder, experiment, data.folder, data.fingerprint)
    return new_run(folder, data, settings.experiment, settings.overrides, report, overwrite=True)


def evaluate_run(settings: RetrainSettings, state: Retraining) -> Retraining:
    """Evaluate the run on the test part; the report goes into its folder and its bundle."""
    run = Run.read(settings.runs / state.run)
    run.evaluate(run.open_data(settings.data), "test")
    return state


def publish_run(settings: RetrainSettings, state: Retraining) -> Retraining:
    """Publish the run as a bundle, with an index as the live version has it, and set the version.

    A version that exists was published before a kill. Where the index misses its recall, the version keeps
    exact search.
    """
    folder = settings.bundles / state.run
    if not folder.is_dir():
        run = Run.read(settings.runs / state.run)
        data = run.open_data(settings.data)
        export(run, data, settings.bundles, state.run)
        for warning in export_warnings(run, data):
            report(warning)
    plain = state.model_copy(update={"version": state.run})
    request = _index_request(settings, state.live)
    if request.kind == FLAT:
        return plain
    indexed = f"{state.run}-{request.kind}"
    if not (settings.bundles / indexed).is_dir():
        try:
            reindex(folder, request, indexed, report)
        except BundleError as error:
            report(f"{error}; {state.run} keeps exact search")
            return plain
    return state.model_copy(update={"version": indexed})


def _index_request(settings: RetrainSettings, live: str | None) -> IndexRequest:
    """The request for the index of the live version, which applies to the next one too."""
    if live is None:
        return IndexRequest(FLAT)
    manifest = read_manifest(version_folder(settings.bundles, live))
    choice = manifest.index_choice
    if choice is None:
        return IndexRequest(FLAT if manifest.index.is_exact else manifest.index.kind)
    return IndexRequest(choice.asked, choice.recall, choice.milliseconds)
