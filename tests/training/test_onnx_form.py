"""Item towers as ONNX: the same vectors, also for items that were never trained on."""

from copy import deepcopy
from functools import cache
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray

from tests.tower.small_towers import ITEMS, item_features, no_features
from turret.data.features import Bag
from turret.tower.towers.config import TowerConfig
from turret.tower.towers.model import TwoTowers
from turret.training.export.onnx_form import item_tower_onnx


def model(**changes: object) -> TwoTowers:
    """Towers over nine items, none of whose parameters is as it began."""
    item = {"features": "all", "feature_width": 4, "hidden": [7], **changes}
    scoring = item.pop("scoring", {})
    config = TowerConfig.model_validate(
        {"dimension": 6, "item": item, "scoring": scoring, "user": {"hidden": [7], "dropout": 0.0}}
    )
    made = TwoTowers(config, ITEMS, item_features(), no_features(4)).eval()
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in made.item.parameters():
            parameter.add_(0.3 * torch.randn(parameter.shape))
        for name, parameter in made.item.rows.named_parameters() if made.item.rows else ():
            assert name.endswith("weight")
            parameter[0] = 0.0  # code 0 stands for nothing
    return made


def catalog_with_ids(made: TwoTowers, ids: torch.Tensor) -> torch.Tensor:
    """The catalog's vectors if every item had this row of the id table."""
    assert made.item.table is not None
    with torch.no_grad():
        made.item.table.weight.copy_(ids.expand_as(made.item.table.weight))
        return made.catalog_vectors()


def inputs() -> dict[str, NDArray[Any]]:
    """The nine items' features as the exported tower reads them, written out from the prepared columns."""
    prepared = item_features().columns
    found: dict[str, NDArray[Any]] = {
        "feature_brand": np.asarray(prepared["brand"], dtype=np.int64),
        "feature_price": np.asarray(prepared["price"], dtype=np.float32),
    }
    for name in ("title", "genres"):
        bag = prepared[name]
        assert isinstance(bag, Bag)
        codes = np.zeros((ITEMS, 5), dtype=np.int64)
        for row in range(ITEMS):
            codes[row, : len(bag.row(row))] = bag.row(row)
        found[f"feature_{name}"] = codes
    return found


CASES: dict[str, dict[str, Any]] = {
    "dropped ids": {"id_dropout": 0.3},
    "kept ids": {},
    "no id": {"id": False},
    "one layer": {"hidden": []},
    "dot": {"scoring": {"kind": "dot", "temperature": 1.0}},
    "bias": {"scoring": {"item_bias": True}},
}


@cache
def exported_items(case: str) -> tuple[TwoTowers, bytes]:
    """Towers of a case and the exported item tower; each takes seconds."""
    made = model(**CASES[case])
    exported = item_tower_onnx(made)
    assert exported is not None
    return made, exported


@pytest.mark.parametrize(
    "case", [*list(CASES)[:2], *(pytest.param(one, marks=pytest.mark.nightly) for one in list(CASES)[2:])]
)
def test_onnx_gives_what_torch_gives_items_that_were_never_trained_on(case: str) -> None:
    """Features as they are; for the id zeros where ids were dropped in training, and the mean elsewhere."""
    kept, exported = exported_items(case)
    made = deepcopy(kept)
    (ours,) = onnxruntime.InferenceSession(exported).run(["item_vector"], inputs())
    if made.item.table is None:
        expected = made.catalog_vectors()
    else:
        mean = made.item.table.weight.mean(dim=0)
        expected = catalog_with_ids(made, torch.zeros(6) if case == "dropped ids" else mean)
    np.testing.assert_allclose(ours, expected.detach().numpy(), atol=1e-6)
