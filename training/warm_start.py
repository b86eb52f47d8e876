"""Warm starts: the model of a bundle on new data, with the vectors of its known items."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter
from safetensors.torch import load_file
from torch import Tensor, nn

from turret.data.configuration import override
from turret.data.features.feature import Feature
from turret.data.kinds import read_kinds
from turret.data.prepared import PreparedData
from turret.data.vocabulary import Vocabulary
from turret.tower.format.checksums import check_files
from turret.tower.format.listing import bundle_folder
from turret.tower.format.manifest import EXPERIMENT, ITEM_FEATURES, read_manifest
from turret.tower.layers.feature_layers import FeatureLayers, VectorLayer
from turret.tower.towers.config import TowerConfig
from turret.tower.towers.model import TwoTowers
from turret.training.config.experiment import ExperimentConfig, named_settings
from turret.training.errors import TrainingError, naming_damage

_FEATURES = TypeAdapter(tuple[Feature, ...])
# Settings that may differ: features are compared separately, and dropout has no parameters.
_IGNORED = ("features", "context_features", "dropout", "pairs")


@dataclass(frozen=True)
class ParentBundle:
    """The training settings of a bundle and the meaning of its model's table rows.

    `items` are the ids of the id table; `item_features`, `user_features` and `context_features` have the
    values of the feature tables, in the order of the towers, and `kinds` the names of the kinds of events.
    `data_until` is the time of the newest event of its data, if that has times.
    """

    folder: Path
    settings: dict[str, Any]
    items: Vocabulary
    item_features: tuple[Feature, ...]
    user_features: tuple[Feature, ...]
    data_until: str | None = None
    kinds: tuple[str, ...] = ()
    context_features: tuple[Feature, ...] = ()

    @classmethod
    def open(cls, folder: Path) -> "ParentBundle":
        """Read the bundle in `folder`.

        Raises:
            BundleError: there is no bundle, or its manifest is invalid.
            TrainingError: a file that a warm start needs is missing or damaged.
        """
        manifest = read_manifest(bundle_folder(folder))
        with naming_damage(folder, "copy it again", OSError):
            features = _FEATURES.validate_json((folder / "user_features.json").read_bytes())
            return cls(
                folder,
                json.loads((folder / EXPERIMENT).read_text(encoding="utf-8")),
                Vocabulary.load(folder / "vocabulary.json"),
                _FEATURES.validate_json((folder / ITEM_FEATURES).read_bytes()),
                tuple(feature for feature in features if feature.name not in manifest.context),
                manifest.data_until,
                read_kinds(manifest.kinds),
                tuple(feature for feature in features if feature.name in manifest.context),
            )

    def experiment(self, values: Mapping[str, object] | None = None) -> ExperimentConfig:
        """The bundle's experiment, without its start time and teachers, with other values by dotted names.

        `training.since` selected the events that were new to the bundle, and `training.teacher` knows other
        data. Raises ConfigurationError for an unknown or contradictory setting.
        """
        own = {"since": None, "teacher": ()}
        settings = {**self.settings, "training": {**self.settings.get("training", {}), **own}}
        return override(ExperimentConfig, settings, values, self.folder / EXPERIMENT)

    @property
    def features(self) -> dict[str, tuple[Feature, ...]]:
        """The features of each part of the model, by the part's name in `TwoTowers`."""
        return {"item": self.item_features, "user": self.user_features, "context": self.context_features}

    def check(self, towers: TowerConfig, features: Mapping[str, Sequence[Feature]]) -> None:
        """Raise TrainingError unless the bundle's towers are `towers`, with `features` as of this bundle."""
        old, requested = named_settings(self.experiment().tower), named_settings(towers)
        for name, value in requested.items():
            # A setting of only one of the two follows from a differing kind, which comes first.
            if name in old and value != old[name] and name.rpartition(".")[2] not in _IGNORED:
                raise TrainingError(
                    f"tower.{name} = {value!r}, but the bundle {self.folder} has {old[name]!r}, and a warm "
                    "start keeps the towers; leave the setting (or --experiment) out, or train without --from"
                )
        for name, had in self.features.items():
            setting = "tower.user.context_features" if name == "context" else f"tower.{name}.features"
            if _listed(had) != _listed(features[name]):
                names = ", ".join(f'"{feature.name}"' for feature in had)
                raise TrainingError(
                    f"{setting}: the bundle {self.folder} reads {_listed(had)}, and this experiment "
                    f"{_listed(features[name])}; a warm start needs the same: prepare the data with them, "
                    f"and name them if it has others (--set '{setting}=[{names}]')."
                )


def _listed(features: Sequence[Feature]) -> str:
    return ", ".join(f"{feature.name} ({feature.kind})" for feature in features) or "none"


_ID_TABLE, _KINDS = "item.table.weight", "kinds."


@torch.no_grad()
def warm_start_weights(model: TwoTowers, data: PreparedData, parent: ParentBundle) -> str:
    """Copy the parameters of `parent` into `model`, which is initialised for `data`.

    Rows of the id table are matched by item id, those of feature tables by value, and those of kinds by name;
    other parameters are copied unchanged. New feature values and kinds start from zeros, which is the
    encoding of unknown values and kinds.

    Returns:
        Sentences with the numbers of items in both catalogs, only in the new one and only in the old one, and
        the time of the newest event of the parent.

    Raises:
        TrainingError: the towers or the features differ, or no item is in both.
        BundleError: a file of the bundle is missing or changed.
    """
    parts = {"item": model.item, "user": model.user, "context": model.context}
    layers = {name: part.rows.layers for name, part in parts.items() if part is not None and part.rows}
    features = {name: layers[name].features if name in layers else () for name in parts}
    parent.check(model.config, features)
    check_files(parent.folder, read_manifest(parent.folder))
    learnt = load_file(parent.folder / "model.safetensors")
    parent_rows = (parent.items.row(item_id) for item_id in data.item_ids.ids(range(len(data.item_ids))))
    rows = torch.tensor([-1 if row is None else row for row in parent_rows])
    # The id table has no row of an item that had no event when the parent was trained.
    trained = len(learnt[_ID_TABLE]) if _ID_TABLE in learnt else len(parent.items)
    rows[rows >= trained] = -1
    kept = int((rows >= 0).sum())
    if not kept:
        raise TrainingError(
            f"{data.folder}: none of its items, such as {data.item_ids.id(0)!r}, is in the bundle "
            f"{parent.folder}, which has {parent.items.id(0)!r}; prepare data with the same ids, or train "
            "without --from."
        )
    item = features["item"]
    codes: dict[str, Tensor] = {}
    for name, before in parent.features.items():
        codes |= _codes(name, before, features[name])
    for name, parameter in model.named_parameters():
        if name == _ID_TABLE:
            # Layers behind ids and features are trained to read the mean of all ids. Without features it
            # alone would make all new items equal. Under the cosine the short mean of many directions lets
            # the row turn quickly with its first events.
            mean = learnt[name].mean(dim=0)
            default = mean if item else mean + 0.1 * parameter.cpu()
            parameter.copy_(_select_rows(learnt[name], rows, default))
        elif name.startswith(_KINDS):  # zeros where the parent has none, as its data had no kinds
            had = {kind: code for code, kind in enumerate(parent.kinds)}
            old_rows = torch.tensor([had.get(kind, -1) for kind in read_kinds(data.manifest.kinds)])
            parameter.copy_(_select_rows(learnt.get(name, torch.zeros(1, 1)), old_rows, torch.zeros(())))
        elif name in codes:
            parameter.copy_(_select_rows(learnt[name], codes[name], torch.zeros(())))
        elif name in learnt and learnt[name].shape == parameter.shape:
            parameter.copy_(learnt[name])
        else:
            raise TrainingError(
                f"{parent.folder}: its model has no {name} of {tuple(parameter.shape)}; another version of "
                "turret made it, so train without --from."
            )
    for name, part in parts.items():
        if part is not None and name in layers:
            restandardise(*part.feature_reader(), layers[name], parent.features[name])
    count, start = len(rows) - kept, "their features" if item else "the mean"
    return _items_in_both(kept, count, trained - kept, start, parent.data_until)


def _items_in_both(kept: int, count: int, gone: int, start: str, data_until: str | None) -> str:
    new = f"{count:,} are new (they start from {start})" if count else "none is new"
    until = f" The bundle was trained on events until {data_until}." if data_until else ""
    return f"{kept:,} items keep their vectors, {new}, {gone:,} are gone.{until}"


def restandardise(reader: nn.Linear, first: int, layers: FeatureLayers, before: Sequence[Feature]) -> None:
    """Change `reader` in place so that a new mean and deviation of a number don't change its output.

    The input is z = (x - mean) / deviation. With a new mean' and deviation' it is z', and
    z = z' * deviation' / deviation + (mean' - mean) / deviation: a factor of the column's weights, and a
    share of the bias. A missing number stays the mean of its catalog.

    Args:
        reader: the layer that reads the features.
        first: the first input column of the features.
        layers: the feature layers, with the new features.
        before: the old features, in the same order.
    """
    column = first
    for index, (new, old) in enumerate(zip(layers.features, before, strict=True)):
        if isinstance(layer := layers.tables[str(index)] if new.form == "vector" else None, VectorLayer):
            layer.linear.weight.data *= new.deviation / old.deviation
        if new.form != "number":
            column += layers.widths[index]
            continue
        if (new.mean, new.deviation) != (old.mean, old.deviation):
            weights = reader.weight.data[:, column]
            reader.bias.data += weights * ((new.mean - old.mean) / old.deviation)
            weights *= new.deviation / old.deviation
        column += 1


def _select_rows(table: Tensor, rows: Tensor, default: Tensor) -> Tensor:
    """The `rows` [N] of a table [M, D]; `default`, which expands to [N, D], for rows of -1."""
    return torch.where((rows >= 0).unsqueeze(1), table[rows], default)


def _codes(tower: str, before: Sequence[Feature], now: Sequence[Feature]) -> dict[str, Tensor]:
    """The old row of each value, by the name of the feature's table: int64 [size], -1 for new values."""
    result = {}
    for index, (old, new) in enumerate(zip(before, now, strict=True)):
        old_codes = {value: code for code, value in enumerate(old.values, start=1)}
        codes = [0, *(old_codes.get(value, -1) for value in new.values)]
        result[f"{tower}.rows.layers.tables.{index}.weight"] = torch.tensor(codes)
    return result
