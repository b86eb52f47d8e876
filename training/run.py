"""A run: the folder that training writes and evaluation and export read."""

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from turret.data.configuration import override
from turret.data.errors import ConfigurationError
from turret.data.files import remove_abandoned, replace_json
from turret.data.kinds import read_kinds
from turret.data.manifest import hash_file
from turret.data.prepared import HistoryEnd, PreparedData
from turret.tower.config import Settings
from turret.tower.repeats import RepeatTerm
from turret.tower.towers.alike import begin_alike
from turret.tower.towers.model import TwoTowers
from turret.tower.towers.query import QueryConfig
from turret.tower.towers.user import SETS
from turret.training.baselines.registry import chosen_baselines
from turret.training.batches.baskets import examples_of
from turret.training.checkpoint import (
    ChosenPairs,
    Progress,
    load_pairs,
    load_parameters,
    load_progress,
    save_tensors,
)
from turret.training.config.experiment import ExperimentConfig, write_experiment
from turret.training.distributed import WORLD, process_count
from turret.training.errors import TrainingError, naming_damage
from turret.training.evaluation.complements import similar_in_basket
from turret.training.evaluation.evaluation import TOWERS, EvaluatedPart, evaluate_rankers
from turret.training.evaluation.ranking import CatalogScores, ScoresOf, tower_scores
from turret.training.evaluation.repeats import with_repeats
from turret.training.model_loss import build_objective
from turret.training.pairs_start import begin_as_pairs
from turret.training.randomness import seed_torch
from turret.training.records import ENVIRONMENT, HISTORY, LOGGERS_FILE, TENSORBOARD, WANDB
from turret.training.used_items import item_weights, wants_repeats
from turret.training.verdict.verdict import Finding, finding, verdict

# Commands that name no data or no experiment take these.
DATA, EXPERIMENT = Path("var/prepared"), "youtubednn"
RUN, MODEL, CHECKPOINT = "run.json", "model.safetensors", "checkpoint.safetensors"
# The folder of a refit that has not ended, the model that it has made, and the seconds that it took.
REFIT, REFITTED, REFIT_COST = "refit", "refit.safetensors", "refit.json"
PAIRS, REFITTED_PAIRS = "pairs.safetensors", "refit-pairs.safetensors"
# The folder of the trials of `--experiment auto`, until the training of the picked one goes on. A folder of
# this name is deleted, so no folder of a user may have it.
AUTO_TRIALS = ".auto-trials"
METRICS, CHOSEN, REPEATS = "metrics.json", "experiment.toml", "repeats.json"
PER_USER = {"validation": "users-validation.parquet", "test": "users-test.parquet"}
SAMPLERS, SAMPLERS_PICTURE = "samplers.json", "samplers.png"
REPORT_PAGE = "report.html"


@dataclass(frozen=True)
class Run:
    """The experiment of a run and its data.

    `fingerprint` identifies the prepared data: a run is resumed and exported only with the same data.
    `origin` is the folder of the parent bundle of a warm start. `choice` has the reasons for the experiment
    if the data chose it (`--experiment auto`), and `trial` the folder in which this training has begun.
    """

    folder: Path
    experiment: ExperimentConfig
    data_folder: Path
    fingerprint: str
    origin: Path | None = None
    choice: dict[str, Any] | None = None
    trial: Path | None = field(default=None, compare=False)

    def write(self) -> None:
        """Write `run.json`, and a chosen experiment as a file; the folder is created if it is missing."""
        self.folder.mkdir(parents=True, exist_ok=True)
        stored = {
            "experiment": self.experiment.model_dump(mode="json"),
            "data": str(self.data_folder.resolve()),
            "fingerprint": self.fingerprint,
            "origin": None if self.origin is None else str(self.origin.resolve()),
            **({} if self.choice is None else {"auto": self.choice}),
        }
        replace_json(self.folder / RUN, stored)
        if self.choice is not None:
            comment = f"Chosen by `turret train --experiment auto`: {self.choice['picked']}"
            write_experiment(self.folder / CHOSEN, self.experiment, comment)

    def take_trial(self) -> None:
        """Move the files of the trial, if there was one, into the folder, and delete all trials."""
        if self.trial is not None and self.trial.is_dir():
            for path in self.trial.iterdir():
                path.replace(self.folder / path.name)
        shutil.rmtree(self.folder / AUTO_TRIALS, ignore_errors=True)

    @classmethod
    def read(cls, folder: Path) -> "Run":
        """Read `run.json`. Raises TrainingError when the folder holds no run."""
        path = folder / RUN
        try:
            with naming_damage(path, "train again"):
                stored = json.loads(path.read_text(encoding="utf-8"))
                if not isinstance(stored["experiment"], dict):
                    raise TypeError("its experiment is no object")
                experiment = override(ExperimentConfig, stored["experiment"], path=path)
                origin = None if stored["origin"] is None else Path(stored["origin"])
                data, fingerprint = Path(stored["data"]), str(stored["fingerprint"])
                return cls(folder, experiment, data, fingerprint, origin, stored.get("auto"))
        except FileNotFoundError:
            if first := min(folder.glob(f"seed-*/{RUN}"), default=None):
                raise TrainingError(
                    f"{folder} holds the runs of several seeds; name one of them, such as {first.parent}."
                ) from None
            raise TrainingError(f"{folder}: there is no run here; `turret train` makes one.") from None
        except ConfigurationError as error:
            raise TrainingError(f"{error}; install the package that adds it, or train again.") from None

    def open_data(self, folder: Path | None = None) -> PreparedData:
        """Open the data of the run, at the stored path or in `folder`.

        Raises TrainingError for a folder that was moved, and for another fingerprint.
        """
        if folder is None and not self.data_folder.exists():
            raise TrainingError(
                f"{self.folder}: its data is no longer in {self.data_folder}; name the folder with --data."
            )
        data = PreparedData.open(folder or self.data_folder)
        if data.fingerprint != self.fingerprint:
            raise TrainingError(
                f"{data.folder}: this is not the data that {self.folder} was trained on (another "
                "fingerprint); name the right one with --data, or train again."
            )
        return examples_of(self.experiment, data)

    def model_file(self, part: HistoryEnd = "end") -> Path:
        """The file of the served model; for the validation part, of the model that was not trained on it."""
        return self.folder / (REFITTED if self.is_refitted() and part != "validation" else MODEL)

    def open_model(self, data: PreparedData, part: HistoryEnd = "end") -> TwoTowers:
        """The trained towers for reading alone, mapped from their `model_file`.

        Raises TrainingError before the first evaluation of a run.
        """
        path = self.model_file(part)
        if not path.is_file():
            raise TrainingError(
                f"{self.folder}: no model was saved yet; let `turret train` reach its first evaluation."
            )
        model = build_model(self.experiment, data, table_device="meta")
        load_parameters(path, model)
        if (chosen := self.chosen_pairs()) and chosen.weight:
            model.pairs = load_pairs(self._pairs_file(path.name == REFITTED))[0]
        return model.eval()

    def open_ranker(self, data: PreparedData, part: HistoryEnd, repeats: bool = True) -> ScoresOf:
        """The scores of the model of a part: with the repeat term, if the run has one."""
        scores: CatalogScores | None = None
        if not self.experiment.objective.loss.servable:
            objective = build_objective(self.experiment, data, torch.device("cpu"))
            load_parameters(self.model_file(part), objective, is_objective=True)
            scores = objective.eval().scores
        scores_of = tower_scores(
            self.open_model(data, part), data, part, self.item_weights(data, part), scores
        )
        term = self.repeats() if repeats else None
        return scores_of if term is None else with_repeats(scores_of, term, data, part)

    def chosen_pairs(self) -> ChosenPairs | None:
        """The choice of factors of pairs beside the towers; None before it, and for a run without them."""
        path = self._pairs_file(is_refitted=False)
        return load_pairs(path)[1] if path.is_file() else None

    def save_pairs(self, chosen: ChosenPairs, table: Tensor, is_refitted: bool = False) -> None:
        """Store the factors of pairs [N, K] that go beside the towers, or beside those of the refit."""
        save_tensors(self._pairs_file(is_refitted), {"pairs": table}, {"chosen": chosen.model_dump_json()})

    def lacks_pairs(self) -> bool:
        """Whether factors of pairs are still to be chosen."""
        return bool(self.experiment.tower.scoring.pairs) and self.chosen_pairs() is None

    def _pairs_file(self, is_refitted: bool) -> Path:
        return self.folder / (REFITTED_PAIRS if is_refitted else PAIRS)

    def trained_on(self, data: PreparedData, part: HistoryEnd = "end") -> PreparedData:
        """The data whose training part is that of the `model_file` of a part."""
        return with_validation(data) if part != "validation" and self.is_refitted() else data

    def item_weights(self, data: PreparedData, part: HistoryEnd = "end") -> NDArray[np.float64]:
        """The weights of the items, float64 [N], by which users without a history are answered."""
        return item_weights(self.experiment, self.trained_on(data, part))

    def is_refitted(self) -> bool:
        """Whether the model that is served was trained on the validation part too."""
        return (self.folder / REFITTED).is_file()

    def lacks_refit(self) -> bool:
        """Whether a refit was begun or is to follow."""
        return (self.folder / REFIT).is_dir()

    def repeats(self) -> RepeatTerm | None:
        """The repeat term; None for a run without one."""
        stored = self._stored_repeats()
        return None if stored is None else stored.term

    def best(self) -> dict[str, float]:
        """The best validation metric, with factors of pairs and a repeat term if there are, by its name.

        A run with a repeat term has those of the slots too, such as "new ndcg@10". Empty where none is known.
        """
        stored, progress = self._stored_repeats(), self.progress()
        if stored is not None and stored.validation:
            return stored.validation
        if (pairs := self.chosen_pairs()) and pairs.validation:
            return pairs.validation
        known = None if progress is None else progress.best
        return {} if known is None else {self.experiment.training.metric: known}

    def _stored_repeats(self) -> "StoredRepeats | None":
        path = self.folder / REPEATS
        if not path.is_file():
            return None
        with naming_damage(path, "train again"):
            return StoredRepeats.model_validate_json(path.read_bytes())

    def evaluate(
        self, data: PreparedData, part: EvaluatedPart, baselines: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Evaluate the model on a part of its data beside baselines, store the results, return the report.

        Baselines are fitted on the same events as the model.

        Args:
            data: the data of the run.
            part: the part with the targets.
            baselines: the names of baselines, or "all"; popularity is always one.

        Raises:
            TrainingError: there is no model yet, the part is empty, or a baseline can't be fitted.
        """
        chosen, left_out = chosen_baselines(baselines, data, self.experiment.evaluation.exclude_seen)
        limits = {baseline.name: limit for baseline in chosen if (limit := baseline.limits(data))}
        known = self.trained_on(data, part)
        evaluated, per_user = evaluate_rankers(
            {
                TOWERS: lambda: self.open_ranker(data, part),
                **{baseline.name: partial(baseline.fit, known, part) for baseline in chosen},
            },
            data,
            part,
            self.experiment.evaluation,
        )
        report = {**evaluated, "baseline_limits": limits, "baselines_left_out": left_out}
        if data.holds_baskets and self.experiment.objective.loss.servable:
            k = min(self.experiment.evaluation.k)
            report["similar_in_basket"] = similar_in_basket(self.open_model(data, part), k)
        report["verdict"] = [
            *refit_findings(self),
            *verdict(report, self.experiment, data, self.progress(), self.choice),
        ]
        per_user.write(self.folder / PER_USER[part])
        self.save_metrics(part, report)
        return report

    def progress(self) -> Progress | None:
        """The progress that the checkpoint records, with a refit's seconds; None without a checkpoint."""
        path, cost = self.folder / CHECKPOINT, self.folder / REFIT_COST
        if not path.is_file():
            return None
        progress = load_progress(path)
        if self.is_refitted() and cost.is_file():
            with naming_damage(cost, "delete it"):
                seconds = float(json.loads(cost.read_text(encoding="utf-8"))["seconds"])
            progress = replace(progress, seconds=progress.seconds + seconds)
        return progress

    def save_metrics(self, part: str, report: dict[str, Any]) -> None:
        """Store the evaluation report of one part, with the hash of its model, for the bundle's manifest."""
        model = {
            "sha256": hash_file(self.model_file()).sha256,
            "state": self._model_state(),
            "pairs": self._pairs_hash(),
        }
        stored = {"model": model, "reports": {**self.metrics(), part: report}}
        replace_json(self.folder / METRICS, stored)

    def metrics(self) -> dict[str, Any]:
        """The evaluation reports by part; empty if they are about an earlier model."""
        path, file = self.folder / METRICS, self.model_file()
        if not (path.is_file() and file.is_file()):
            return {}
        with naming_damage(path, "delete it and evaluate again"):
            stored = json.loads(path.read_text(encoding="utf-8"))
            reports: dict[str, Any] = stored["reports"]
            model = stored["model"]
            # A model of gigabytes is read again only where its file is another one, such as a copy.
            is_same = model["state"] == self._model_state() or model["sha256"] == hash_file(file).sha256
        return reports if is_same and model.get("pairs") == self._pairs_hash() else {}

    def _pairs_hash(self) -> str | None:
        """The hash of the served factors of pairs; None without any. A choice on resuming may add them."""
        if not ((chosen := self.chosen_pairs()) and chosen.weight):
            return None
        return hash_file(self._pairs_file(self.is_refitted())).sha256

    def _model_state(self) -> list[int]:
        status = self.model_file().stat()
        return [status.st_size, status.st_mtime_ns, status.st_ino]


class StoredRepeats(Settings):
    """The repeat term, None where it is left out, and the metric of validation users it was not fitted on.

    `validation` has the metric by its name, over used items too, unlike the metric of an epoch, and beside it
    the metrics of the slots. It is empty where none is measured.
    """

    term: RepeatTerm | None
    validation: dict[str, float]


def with_validation(data: PreparedData) -> PreparedData:
    """The data with its validation part in the training part."""
    splits, ends = data.splits.copy(), data.train_ends
    if ends is not None:
        ends = np.where(splits[:, 0] < splits[:, 1], splits[:, 1], ends)
    splits[:, 0] = splits[:, 1]
    return replace(data, splits=splits, train_ends=ends)


def refit_findings(run: Run) -> Iterator[Finding]:
    """The finding that the choice of factors of pairs or a refit was interrupted, if it was."""
    progress = run.progress()
    if progress is None or not progress.finished:
        return
    if run.lacks_pairs() or run.lacks_refit():
        what = "refit was interrupted, so this is the model of the first training"
        if run.lacks_pairs():
            what = "choice of factors of pairs was interrupted, so this model has none"
        yield finding(
            "unfinished", f"The {what}; `turret train --resume` continues it.", refit=run.lacks_refit()
        )


def check_same_run(run: Run) -> None:
    """Raise TrainingError unless all processes of torchrun train `run`, with one release, data and settings.

    Each machine may have its own copy: where only the order of the items differs, training would go on, and
    make one vector of two items. A script that does not join the others would train the run once in each
    process.
    """
    world = WORLD.get()
    if world.size < process_count():
        raise TrainingError(
            f"torchrun has started {process_count()} processes, and each would train {run.folder} alone; "
            "several processes are for `turret train` (docs/distributed.md), so start this without torchrun."
        )
    release = ""
    with suppress(PackageNotFoundError):
        release = version("turret")
    parts = {
        "release of turret": release,
        "copy of the prepared data": run.fingerprint,
        "experiment": run.experiment.model_dump_json(),
    }
    # 63 bits of a hash, as an int64 has.
    digests = [int.from_bytes(sha256(text.encode()).digest()[:8], "big") >> 1 for text in parts.values()]
    every = world.gathered(torch.tensor([digests]))
    for name, column in zip(parts, every.T, strict=True):
        others = (column != column[0]).nonzero().flatten().tolist()
        if others:
            raise TrainingError(
                f"process {others[0]} of {world.size} has another {name} than process 0; give all machines "
                "the same release, settings and prepared data (a shared folder, or copies of one)."
            )


def check_no_run(folder: Path) -> None:
    """Raise TrainingError where the folder has a run with a checkpoint."""
    if (folder / CHECKPOINT).is_file():
        raise TrainingError(
            f"{folder}: there is a run here already; continue it with --resume, replace it with --overwrite, "
            "or name another folder with --run."
        )


def remove_run(folder: Path) -> None:
    """Delete the files of a run, and no other files in its folder."""
    evaluated = (METRICS, *PER_USER.values(), SAMPLERS, SAMPLERS_PICTURE, REPORT_PAGE)
    records = (HISTORY, ENVIRONMENT, LOGGERS_FILE)
    for name in (
        RUN,
        CHOSEN,
        MODEL,
        REFITTED,
        REFIT_COST,
        CHECKPOINT,
        REPEATS,
        PAIRS,
        REFITTED_PAIRS,
        *evaluated,
        *records,
    ):
        (folder / name).unlink(missing_ok=True)
        remove_abandoned(folder / name)
    for name in (TENSORBOARD, WANDB, REFIT):
        shutil.rmtree(folder / name, ignore_errors=True)


def build_model(
    experiment: ExperimentConfig, data: PreparedData, table_device: str | None = None
) -> TwoTowers:
    """Towers for this data, initialised from the experiment's seed; `table_device` as for `TwoTowers`."""
    setting = experiment.tower.user.needs_timestamps
    if setting and data.manifest.time.kind != "timestamp":
        raise TrainingError(
            f"tower.user.{setting} = true needs times, and {data.folder} has only an order "
            f"({data.manifest.time.kind}); prepare the data with a column of times (--time), or set it "
            "to false."
        )
    seed_torch(experiment.training.seed, "initialisation", 0)
    features = data.item_features, data.user_features
    # This raises for an unknown kind of exclude_seen, whatever the tower reads.
    is_repeated, kinds = wants_repeats(experiment, data), len(read_kinds(data.manifest.kinds))
    sets = is_repeated and experiment.tower.user.context in SETS
    contexts = data.context_features
    model = TwoTowers(experiment.tower, len(data.item_ids), *features, table_device, kinds, sets, contexts)
    if isinstance(user := experiment.tower.user, QueryConfig) and user.start == "alike":
        begin_alike(model, data.item_features)
    if experiment.training.start == "pairs" and table_device is None:
        begin_as_pairs(model, data)
    return model
