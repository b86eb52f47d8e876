"""Warm starts: what a served model has learnt, put where it belongs in towers for new data."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from data.features import Feature
from data.sequences import PreparedData
from data.vocabulary import Vocabulary
from tower.feature_layers import FeatureRows
from tower.model import TwoTowers
from training.errors import TrainingError
from training.origin import Origin
from training.standardisation import read_as_before

_ID_TABLE = "item.table.weight"
# The layer that reads what is known of users, by the kind of the user tower.
_USER_READERS = {"pooled": "mlp.0", "attentive": "mlp.0", "recurrent": "output", "transformer": "output"}


@dataclass(frozen=True)
class Carried:
    """How many items keep what was learnt of them, are new, and are gone; what new ones start from."""

    kept: int
    new: int
    gone: int
    new_from: str

    def __str__(self) -> str:
        """A sentence for people."""
        new = f"{self.new:,} are new (they start from {self.new_from})" if self.new else "none is new"
        return f"{self.kept:,} items keep their vectors, {new}, {self.gone:,} are gone."


@torch.no_grad()
def carry_over(model: TwoTowers, data: PreparedData, origin: Origin) -> Carried:
    """Put what `origin` has learnt into `model`, which is freshly made for `data`.

    Items keep their row of the id table by their id; categories, list entries and letter trigrams theirs by
    their value. All other parameters are taken over as they are. A value that is new starts from zeros, which
    is how an unknown one is read.

    Raises:
        TrainingError: the towers or the features differ, or no item is in both.
    """
    item, user = _features(model.item.rows), _features(model.user.rows)
    origin.check(model.config, item, user)
    rows = _rows(origin.items, data.catalogue)
    kept = int((rows >= 0).sum())
    if not kept:
        raise TrainingError(
            f"{data.folder}: none of its items, such as {data.catalogue.id(0)!r}, is in the bundle "
            f"{origin.folder}, which has {origin.items.id(0)!r}; prepare data with the same ids, or train "
            "without --from."
        )
    codes = _codes("item", origin.item_features, item) | _codes("user", origin.user_features, user)
    parameters = origin.parameters()
    for name, parameter in model.named_parameters():
        learnt = parameters[name].to(parameter)
        if name == _ID_TABLE:
            parameter.copy_(
                torch.where((rows >= 0).unsqueeze(1), learnt[rows], new_rows(learnt, parameter, bool(item)))
            )
        elif name in codes:
            known = codes[name].unsqueeze(1)
            parameter.copy_(torch.where(known >= 0, learnt[codes[name]], 0.0))
        else:
            parameter.copy_(learnt)
    _read_numbers_as_before(model, origin)
    start = "their features" if item else "the mean"
    return Carried(kept, len(rows) - kept, len(origin.items) - kept, start)


def new_rows(learnt: Tensor, fresh: Tensor, has_features: bool) -> Tensor:
    """Rows of the id table for items that nothing was learnt of."""
    mean = learnt.mean(dim=0)
    if has_features:
        return mean.expand_as(fresh)
    return mean + 0.1 * fresh


def _rows(before: Vocabulary, now: Vocabulary) -> Tensor:
    """The row that each item had: int64 [N], -1 for a new one."""
    rows = (before.row(outside_id) for outside_id in now.ids(range(len(now))))
    return torch.tensor([-1 if row is None else row for row in rows])


def _features(rows: FeatureRows | None) -> tuple[Feature, ...]:
    return rows.layers.features if rows else ()


def _codes(tower: str, before: Sequence[Feature], now: Sequence[Feature]) -> dict[str, Tensor]:
    """For each feature's table, the row that each value had: int64 [size], -1 for a new one."""
    found = {}
    for place, (old, new) in enumerate(zip(before, now, strict=True)):
        known = {value: code for code, value in enumerate(old.values, start=1)}
        codes = [0, *(known.get(value, -1) for value in new.values)]
        found[f"{tower}.rows.layers.tables.{place}.weight"] = torch.tensor(codes)
    return found


def _read_numbers_as_before(model: TwoTowers, origin: Origin) -> None:
    if model.item.rows:
        reader = cast(nn.Linear, model.item.get_submodule("mlp.0"))
        first = reader.in_features - model.item.rows.layers.width
        read_as_before(reader, first, model.item.rows.layers, origin.item_features)
    if model.user.rows:
        reader = cast(nn.Linear, model.user.get_submodule(_USER_READERS[model.config.user.kind]))
        after = 1 if getattr(model.config.user, "example_age", False) else 0
        first = reader.in_features - after - model.user.rows.layers.width
        read_as_before(reader, first, model.user.rows.layers, origin.user_features)
