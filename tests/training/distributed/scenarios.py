"""The experiments of the tests, whose candidates no process draws: those of the batch, or all items."""

from typing import Any

from tests.training.distributed.jobs import Scenario

POOLED = {"user": {"kind": "pooled", "dropout": 0.0}, "dimension": 16}
FEATURES = {**POOLED, "item": {"features": "all"}}
TRANSFORMER = {"user": {"kind": "transformer", "dropout": 0.0, "history_length": 20}, "dimension": 16}
ATTENTIVE = {"user": {"kind": "attentive", "dropout": 0.0}, "dimension": 16}
IN_BATCH = {"kind": "in_batch"}
UNIQUE = {"kind": "in_batch", "unique": True, "frequencies": "streaming"}
MIXED = {"kind": "mixed", "parts": [{"kind": "cross_batch"}, {"kind": "in_batch"}]}
CORRECTED = "sampled_softmax_corrected"


def experiment(
    tower: dict[str, Any],
    loss: str,
    sampler: dict[str, Any] | None = None,
    training: dict[str, Any] | None = None,
    **objective: Any,
) -> dict[str, Any]:
    fixed = {"batch_size": 700, "device": "cpu", "precision": "float32", "gradient_clip": 0.05}
    return {
        "tower": tower,
        "objective": {"loss": {"kind": loss}, "sampler": sampler, **objective},
        "training": {**fixed, **(training or {})},
    }


SPLIT = Scenario(experiment(FEATURES, CORRECTED, IN_BATCH), split_from=3)
# A batch of few rows: where it reads most of the catalog, one process computes the whole catalog, and a row
# whose gradient is zero still moves on by its moments.
FEW = {"batch_size": 100}
BY_ROW = Scenario(experiment(TRANSFORMER, CORRECTED, IN_BATCH, FEW), split_from=3, lazy_from=100)
STEPS = {
    "in-batch, transformer": Scenario(experiment(TRANSFORMER, CORRECTED, IN_BATCH)),
    "in-batch, attentive": Scenario(experiment(ATTENTIVE, "refined_logq", IN_BATCH)),
    "unique and streaming": Scenario(experiment(POOLED, CORRECTED, UNIQUE)),
    "known items masked": Scenario(experiment(POOLED, CORRECTED, IN_BATCH, mask_known=True)),
    "full softmax": Scenario(experiment(TRANSFORMER, "full_softmax")),
    "split tables": SPLIT,
    "split tables, updated by row": BY_ROW,
    "split tables, full softmax": Scenario(experiment(POOLED, "full_softmax"), split_from=3),
    "split tables, cross-batch": Scenario(experiment(POOLED, CORRECTED, MIXED), split_from=3),
    "fewer spans than processes": Scenario(experiment(POOLED, CORRECTED, IN_BATCH, {"batch_size": 2})),
}
REFUSED = {
    "loss": Scenario(experiment(POOLED, "scalable_cross_entropy")),
    "sampler": Scenario(experiment(POOLED, "sampled_softmax", {"kind": "adaptive_ngram"})),
    "chunks": Scenario(experiment(POOLED, "full_softmax", training={"chunk_size": 64}), split_from=3),
}
LONG = {"epochs": 6, "learning_rate": 0.01, "batch_size": 500, "gradient_clip": 1.0}
TRAINED = experiment(POOLED, "sampled_softmax", {"kind": "uniform", "negatives": 64}, LONG)
