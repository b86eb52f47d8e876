"""An experiment: the settings of a training run, in one TOML file, and the rules for combining them."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from turret.data.configuration import load_configuration, parse_overrides
from turret.data.files import new_file
from turret.data.kinds import Seen
from turret.data.reading.schema import EventTime
from turret.tower.config import ScoringConfig, Settings
from turret.tower.towers.config import TowerConfig
from turret.tower.towers.user import SETS
from turret.training.config.metric import AUC, RANKING_METRIC
from turret.training.errors import TrainingError
from turret.training.losses.catalog import SmoothedSettings
from turret.training.losses.registry import LOSSES, LossConfig
from turret.training.objectives.contract import LossSettings
from turret.training.samplers.core.settings import SamplerSettings
from turret.training.samplers.fixed.popularity import UniformConfig
from turret.training.samplers.registry import SamplerConfig

EXPERIMENTS = Path(__file__).parents[1] / "experiments"
_LISTED = 4  # further differences are only counted
# These samplers fit any loss over a draw.
_ANY_DRAW = "'uniform', 'unigram' or 'quadratic'"
# _JUDGING names the losses that fit labelled pairs, _COMPARING some of those that fit given negatives.
_JUDGING = "'binary_cross_entropy' or 'cosine_embedding'"
_COMPARING = "'cosine_hinge', 'ranking' or 'sampled_softmax'"

Positive = Annotated[int, Field(strict=True, ge=1, le=2**31 - 1)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


def refusal(loss: LossSettings, sampler: SamplerSettings | None) -> str | None:
    """The reason why this loss can't use the draws of this sampler, with a remedy; None if it can."""
    name = f"objective.loss = {loss.kind!r}"
    if sampler is None:
        return (
            f"{name} needs a sampler; add [objective.sampler] with kind = {_ANY_DRAW}, "
            "or set loss = 'full_softmax'"
            if loss.draws
            else None
        )
    drawn = f"objective.sampler.kind = {sampler.kind!r}"
    because = " with exclude_positive = true" if getattr(sampler, "exclude_positive", False) else ""
    remedy = f"use 'sampled_softmax' with it, or kind = {_ANY_DRAW}"
    if not loss.draws:
        return (
            f"{name} scores the whole catalog, so {drawn} contradicts it; replace the whole section "
            f"(objective={{loss=\"{loss.kind}\"}}), or use 'sampled_softmax'"
        )
    if not sampler.alone:
        return f"{drawn} never draws most items; make it a part of kind = 'mixed', beside 'uniform'"
    if loss.needs_probabilities and not sampler.counts_positives:
        return f"{name} needs the expected count of the positive, which {drawn} can't give{because}; {remedy}"
    # A queue counts positives even in the step in which it is empty.
    if loss.needs_probabilities and not sampler.covers_catalog and not sampler.remembered_batches:
        return (
            f"{name} needs the expected count of the positive, and {drawn} never draws some items; use "
            "'sampled_softmax' with it, or make it a part of kind = 'mixed', beside 'uniform'"
        )
    if loss.needs_fixed_size and not sampler.fixed_size:
        return (
            f"{name} is a mean over a fixed number of candidates, and {drawn} draws more or fewer; {remedy}"
        )
    if loss.keeps_hits and not sampler.counts_positives:
        return f"{name} counts drawn positives, and {drawn} can't draw the positive{because}; {remedy}"
    return None


def candidates_refusal(
    loss: LossSettings, sampler: SamplerSettings | None, candidates: Literal["given", "labelled"]
) -> str | None:
    """The reason why this loss can't use the negatives of the data, with a remedy; None if it can."""
    name, taken = f"objective.loss = {loss.kind!r}", f"objective.candidates = {candidates!r}"
    if sampler is not None:
        return (
            f"{taken} takes the negatives of the data, so objective.sampler.kind = {sampler.kind!r} "
            "contradicts it; replace the whole section "
            f'(objective={{loss="{loss.kind}", candidates="{candidates}"}}), or set candidates = \'drawn\''
        )
    if not loss.draws:
        others = _COMPARING if candidates == "given" else _JUDGING
        return f"{name} scores the whole catalog, so {taken} contradicts it; use {others} with it"
    if candidates == "labelled" and loss.pair_loss() is None:
        return (
            f"{name} compares a positive with candidates, so a pair and its label have no loss, as {taken} "
            f"needs; use {_JUDGING} with it, or candidates = 'given'"
        )
    if candidates == "given" and (loss.needs_probabilities or loss.keeps_hits):
        return (
            f"{name} corrects scores by the probabilities of a draw, and with {taken} nothing is drawn; use "
            f"{_COMPARING} with it"
        )
    return None


def scoring_refusal(
    loss: LossSettings, sampler: SamplerSettings | None, scoring: ScoringConfig
) -> str | None:
    """The reason why this loss and sampler can't use such scores, with a remedy; None if they can."""
    name = f"objective.loss = {loss.kind!r}"
    if loss.needs_cosine and (scoring.kind != "cosine" or scoring.temperature != 1.0 or scoring.item_bias):
        return (
            f"{name} has its margin in cosines, so tower.scoring must be kind = 'cosine' with "
            f"temperature = 1.0 and no item_bias, not kind = {scoring.kind!r} with temperature = "
            f"{scoring.temperature}{' and item_bias = true' if scoring.item_bias else ''}"
        )
    if loss.needs_absolute and not scoring.absolute:
        return (
            f"{name} ignores the sign of a score, so items must be ranked by absolute scores; "
            "set tower.scoring.absolute = true, or loss = 'full_softmax'"
        )
    if scoring.absolute and isinstance(loss, SmoothedSettings) and loss.smoothing:
        return (
            f"{name} with smoothing = {loss.smoothing:g} reads the mean of signed scores; set "
            "tower.scoring.absolute = false, or smoothing = 0"
        )
    if scoring.absolute and sampler is not None and not sampler.symmetric:
        return (
            "tower.scoring.absolute = true gives h and -h the same scores, and objective.sampler.kind = "
            f"{sampler.kind!r} other probabilities; use kind = 'quadratic', 'uniform' or 'unigram', "
            "or set absolute = false"
        )
    return None


class ObjectiveConfig(Settings):
    """The loss, and the sampler whose draws it scores (none for a loss over the whole catalog).

    `candidates` are "drawn" by the sampler, or are the negatives of the data: "given" compares them with
    their positive, "labelled" makes each of them a pair with a label.
    """

    loss: LossConfig = LOSSES["sampled_softmax"](kind="sampled_softmax")
    sampler: SamplerConfig | None = None
    candidates: Literal["drawn", "given", "labelled"] = "drawn"
    mask_known: bool = False

    @model_validator(mode="after")
    def _fits(self) -> "ObjectiveConfig":
        if self.candidates == "drawn":
            reason = refusal(self.loss, self.sampler)
        else:
            reason = candidates_refusal(self.loss, self.sampler, self.candidates)
        if reason:
            raise ValueError(reason)
        if self.mask_known and self.candidates == "labelled":
            raise ValueError(
                "mask_known = true masks candidates, and candidates = 'labelled' has pairs with a label "
                "instead; set mask_known = false"
            )
        if self.mask_known and not self.loss.masks_seen:
            raise ValueError(
                f"objective.loss = {self.loss.kind!r} counts every item of a cluster in the cluster's own "
                "score, so mask_known = true can't mask single items; set mask_known = false, or loss = "
                "'full_softmax'"
            )
        return self


class TrainingConfig(Settings):
    """The optimiser, its schedule, and when to stop; docs/training.md describes each setting."""

    seed: Annotated[int, Field(strict=True, ge=0, lt=2**32)] = 0
    epochs: Positive = 20
    batch_size: Positive = 4096
    chunk_size: Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)] = 0
    span_length: Positive = 64
    learning_rate: Annotated[float, Field(gt=0.0, le=10.0)] = 2e-3
    weight_decay: Annotated[float, Field(ge=0.0, le=1e6)] = 0.0
    tables: Literal["auto", "dense", "lazy"] = "auto"
    warmup: Share = 0.05
    decay: Share = 0.1
    gradient_clip: Annotated[float, Field(ge=0.0, le=1e9)] = 1.0
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    validation_users: Positive = 20_000
    metric: Annotated[str, Field(pattern=rf"^({RANKING_METRIC}|{AUC})$")] = "ndcg@10"
    patience: Positive = 3
    checkpoint_every: Annotated[int, Field(strict=True, ge=0, le=2**31 - 1)] = 0
    since: EventTime = None
    examples: Literal["histories", "sessions"] = "histories"
    start: Literal["random", "pairs"] = "random"
    repeats: bool = True
    signal_weight: Share = 1.0
    half_life: Annotated[float, Field(ge=0.0, le=1e6)] = 0.0
    teacher: Annotated[
        tuple[Annotated[str, AfterValidator(os.path.abspath)], ...],
        BeforeValidator(lambda runs: (runs,) if isinstance(runs, str) else runs),
    ] = ()
    teacher_weight: Share = 0.5
    examination_clip: Annotated[float, Field(ge=0.0, le=1e6)] = 0.0
    refit: bool = False
    # A setting of 0.2.0, which its runs and bundles name: read where it had no effect, and not written.
    average: Annotated[float, Field(ge=0.0, le=0.0, exclude=True)] = 0.0


class EvaluationConfig(Settings):
    """The ranking of an evaluation, and its metrics; docs/training.md describes each setting."""

    k: Annotated[tuple[Annotated[int, Field(strict=True, ge=1, le=10_000)], ...], Field(min_length=1)] = (
        10,
        20,
        50,
    )
    exclude_seen: Seen = None
    candidates: Literal["catalog", "labelled"] = "catalog"


class ExperimentConfig(Settings):
    """All settings of a run; together with the data, they determine the run."""

    tower: TowerConfig = TowerConfig()
    objective: ObjectiveConfig = ObjectiveConfig(sampler=UniformConfig())
    training: TrainingConfig = TrainingConfig()
    evaluation: EvaluationConfig = EvaluationConfig()

    @model_validator(mode="after")
    def _fits(self) -> "ExperimentConfig":
        objective = self.objective
        if reason := scoring_refusal(objective.loss, objective.sampler, self.tower.scoring):
            raise ValueError(reason)
        sampler = objective.sampler
        if sampler is not None and sampler.needs_other_examples and self.training.batch_size == 1:
            raise ValueError(
                "training.batch_size = 1 leaves in-batch sampling without a candidate; "
                "raise it, or set sampler.kind = 'uniform' (alone, or as a part of 'mixed')"
            )
        if self.training.examples == "sessions" and (reason := baskets_refusal(self)):
            raise ValueError(f"training.examples = 'sessions' {reason}")
        if self.training.teacher and (reason := teacher_refusal(self)):
            raise ValueError(f"training.teacher {reason}")
        if self.training.start == "pairs" and (reason := pairs_refusal(self)):
            raise ValueError(f"training.start = 'pairs' {reason}")
        if (pairs := self.tower.scoring.pairs) and not self.objective.loss.servable:
            raise ValueError(
                f"tower.scoring.pairs = {pairs} adds to inner products, and objective.loss = "
                f"{self.objective.loss.kind!r} does not rank by them; set tower.scoring.pairs = 0"
            )
        if pairs and self.training.examples == "sessions":
            raise ValueError(
                f"tower.scoring.pairs = {pairs} adds pairs of histories, and training.examples = 'sessions' "
                "has baskets; set training.start = 'pairs' and tower.scoring.pairs = 0"
            )
        return self


def baskets_refusal(experiment: ExperimentConfig) -> str | None:
    """The reason why these settings can't learn from baskets, as a clause with a remedy; None if they can."""
    user, objective = experiment.tower.user, experiment.objective
    if user.context not in SETS:
        return (
            f"has baskets without an order, and tower.user.kind = {user.kind!r} reads one; set "
            "tower.user.kind = 'pooled', ordered = false and last_item = false"
        )
    if user.context != "leave_one_out":
        return (
            "predicts an item from the other items of its basket, and with tower.user.leave_out = false the "
            "tower reads the item itself; set tower.user.leave_out = true"
        )
    if user.features:
        return (
            "predicts from the other items of a basket alone, and tower.user.features reads features of its "
            "user; set tower.user.features = []"
        )
    if objective.candidates != "drawn":
        return (
            f"draws its negatives, and objective.candidates = {objective.candidates!r} takes those of users; "
            "set objective.candidates = 'drawn'"
        )
    if experiment.evaluation.exclude_seen is not True:
        return "has each item of a basket once; set evaluation.exclude_seen = true"
    return None


def teacher_refusal(experiment: ExperimentConfig) -> str | None:
    """The reason why these settings can't imitate teachers, as a clause with a remedy; None if they can."""
    tower, objective = experiment.tower, experiment.objective
    if not isinstance(objective.loss, SmoothedSettings) or objective.mask_known or tower.scoring.absolute:
        return (
            "is a label over the whole catalog; set objective.loss = 'full_softmax', objective.mask_known = "
            "false and tower.scoring.absolute = false"
        )
    if tower.user.interests > 1:
        return "is a label of one vector for a history; set tower.user.interests = 1"
    return None


def pairs_refusal(experiment: ExperimentConfig) -> str | None:
    """The reason why item vectors can't begin as factors of pairs, with a remedy; None if they can."""
    user, item, scoring = experiment.tower.user, experiment.tower.item, experiment.tower.scoring
    is_sum = user.kind == "pooled" and user.interests == 1 and not getattr(user, "hidden", ())
    if experiment.training.examples == "sessions" and is_sum and scoring.kind == "dot" and item.is_table:
        return None
    return (
        "begins with the products of item vectors, which have to be the scores of baskets; set "
        "training.examples = 'sessions', tower.user.hidden = [], tower.scoring.kind = 'dot', "
        "tower.user.interests = 1, and tower.item without features and hidden layers, or training.start = "
        "'random'"
    )


def named_settings(settings: Settings | dict[str, Any]) -> dict[str, Any]:
    """Every single setting by its dotted name, in the order of the configuration; a list is one setting."""
    table = settings if isinstance(settings, dict) else settings.model_dump(mode="json")
    named: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, dict):
            named |= {f"{key}.{name}": leaf for name, leaf in named_settings(value).items()}
        else:
            named[key] = value
    return named


def shipped_experiments() -> dict[str, Path]:
    """The experiments that come with Turret, by name."""
    return {path.stem: path for path in sorted(EXPERIMENTS.glob("*.toml"))}


def load_experiment(
    name_or_path: str, overrides: Sequence[str] | Mapping[str, object] = ()
) -> ExperimentConfig:
    """Read an experiment by the name of a shipped experiment or by its path.

    `overrides` are values by dotted names, or `section.key=value` texts. The value of a text is TOML, so
    `objective={loss="full_softmax"}` replaces a whole section.

    Raises:
        TrainingError: there is no such experiment.
        ConfigurationError: an unknown or contradictory setting, with the value and a remedy.
    """
    shipped = (path for path in EXPERIMENTS.glob("*.toml") if path.stem == name_or_path)
    path = next(shipped, Path(name_or_path))
    if not path.is_file():
        raise TrainingError(
            f"experiment {name_or_path!r}: no such file; the shipped ones are "
            f"{', '.join(shipped_experiments())}, or give the path of a TOML file."
        )
    values = overrides if isinstance(overrides, Mapping) else parse_overrides(overrides)
    return load_configuration(ExperimentConfig, path, values)


def with_settings(experiment: ExperimentConfig, settings: Mapping[str, object]) -> ExperimentConfig:
    """The experiment with other settings or sections. Raises ConfigurationError where they don't fit."""
    return load_configuration(ExperimentConfig, overrides={**experiment.model_dump(mode="json"), **settings})


def differences(before: ExperimentConfig, after: ExperimentConfig) -> str:
    """List the changed settings, such as `training.epochs was 10 and is 20`; of many, only the first few."""
    old, new = named_settings(before), named_settings(after)
    names = [name for name in {**old, **new} if old.get(name) != new.get(name)]
    listed = [f"{name} was {_shown(old, name)} and is {_shown(new, name)}" for name in names[:_LISTED]]
    return ", ".join(listed + [f"{len(names) - _LISTED} more"] * (len(names) > _LISTED))


def _shown(settings: Mapping[str, object], name: str) -> str:
    return repr(settings[name]) if name in settings else "not set"


def write_experiment(path: Path, experiment: ExperimentConfig, comment: str) -> None:
    """Replace `path` by a TOML file for `turret train --experiment`: a comment line, then every setting."""
    with new_file(path) as draft:
        draft.write_text(experiment_toml(experiment, comment), encoding="utf-8")


def experiment_toml(experiment: ExperimentConfig, comment: str) -> str:
    """The content of a TOML file for `turret train --experiment`: a comment line, then every setting."""
    sections = experiment.model_dump(mode="json", exclude_none=True)
    lines = [f"# {comment}", *(line for name, table in sections.items() for line in _section(name, table))]
    return "\n".join(lines) + "\n"


def _section(name: str, table: dict[str, Any]) -> Iterator[str]:
    yield from ("", f"[{name}]")
    yield from (f"{key} = {_toml(value)}" for key, value in table.items() if not isinstance(value, dict))
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _section(f"{name}.{key}", value)


def _toml(value: Any) -> str:
    """A value as TOML, which differs from JSON only in tables and in one control character."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_toml(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
