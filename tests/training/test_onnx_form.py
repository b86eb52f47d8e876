import numpy as np
import onnxruntime
import pytest
import torch

from tests.tower.towers import ITEMS, config, item_features, user_features
from tower.model import TwoTowers
from training.onnx_form import user_tower_onnx


@pytest.mark.parametrize("features", [(), "all"], ids=["ids", "features"])
@pytest.mark.parametrize(("batch", "steps"), [(1, 1), (5, 3), (2, 40)])
def test_onnx_equals_torch_at_any_size(features: object, batch: int, steps: int) -> None:
    """The exported tower answers as the model for sizes that the export never saw."""
    model = TwoTowers(
        config(features=features, example_age=True), ITEMS, item_features(), user_features()
    ).eval()
    generator = torch.manual_seed(batch)
    history = torch.randn(batch, steps, 6, generator=generator)
    length = torch.randint(1, steps + 1, (batch,), generator=generator)
    for b in range(batch):
        history[b, length[b] :] = 0.0
    named = {
        "country": torch.randint(0, 3, (batch,), generator=generator),
        "age": torch.randn(batch, generator=generator),
        "likes": torch.randint(0, 3, (batch, 4), generator=generator),
    }
    session = onnxruntime.InferenceSession(user_tower_onnx(model))
    inputs = {"history": history.numpy(), "length": length.numpy()}
    if features:
        inputs |= {f"feature_{name}": given.numpy() for name, given in named.items()}
    (ours,) = session.run(["user_vector"], inputs)
    expected = torch.nn.functional.normalize(model.user.served(history, length, named), dim=1)
    np.testing.assert_allclose(ours, expected.detach().numpy(), atol=1e-6)
