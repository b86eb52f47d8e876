"""The two towers of TensorFlow Recommenders: its `Model` and `Retrieval` task, trained by Keras.

As its tutorials do, batches are shuffled and made once, and cached.
"""

import os
import time
from collections.abc import Callable
from typing import Any

# What TensorFlow Recommenders is written for; read when TensorFlow is loaded.
os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import numpy as np
import tensorflow as tf
import tensorflow_recommenders as tfrs

TEMPERATURE = 0.07


class Towers(tfrs.models.Model):
    """The mean of the history through an MLP, the item's own vector, and cosines between them.

    With `negatives` the loss is over the positive and as many uniform draws for each example; with none it is
    that of the `Retrieval` task: over all positives of the batch.
    """

    def __init__(self, item_count: int, settings: dict[str, Any]) -> None:
        super().__init__()
        width = settings["dimension"]
        self.item_count, self.negatives = item_count, settings["negatives"]
        self.table = tf.keras.layers.Embedding(item_count + 1, width, mask_zero=True)
        self.mean = tf.keras.layers.GlobalAveragePooling1D()
        hidden = [tf.keras.layers.Dense(size, activation="relu") for size in settings["hidden"]]
        self.tower = tf.keras.Sequential([*hidden, tf.keras.layers.Dense(width)])
        self.task = tfrs.tasks.Retrieval(temperature=TEMPERATURE)

    def compute_loss(self, inputs: dict[str, Any], training: bool = False) -> Any:
        """The loss of a batch, for Keras."""
        user = tf.math.l2_normalize(self.tower(self.mean(self.table(inputs["history"]))), axis=-1)
        item = tf.math.l2_normalize(self.table(inputs["item"]), axis=-1)
        if not self.negatives:
            return self.task(user, item, compute_metrics=False)
        size = tf.shape(inputs["item"])[0]
        drawn = tf.random.uniform((size, self.negatives), 1, self.item_count + 1, tf.int32)
        others = tf.math.l2_normalize(self.table(drawn), axis=-1)
        items = tf.concat([item[:, None], others], axis=1)
        scores = tf.einsum("bd,bkd->bk", user, items) / TEMPERATURE
        labels = tf.zeros(size, tf.int32)
        return tf.reduce_sum(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, scores))


def prepare(data: str, settings: dict[str, Any]) -> Callable[[int], dict[str, Any]]:
    """Settings: threads, batch_size, dimension, hidden (widths), negatives (0: those of the batch)."""
    tf.config.threading.set_intra_op_parallelism_threads(settings["threads"])
    tf.config.threading.set_inter_op_parallelism_threads(settings["threads"])
    arrays = dict(np.load(data))
    # Row 0 is the padding.
    columns = {"history": arrays["histories"] + 1, "item": arrays["targets"] + 1}
    size = settings["batch_size"]
    batches = tf.data.Dataset.from_tensor_slices(columns).shuffle(len(columns["item"]), seed=0)
    batches = batches.batch(size, drop_remainder=True).cache().repeat().prefetch(tf.data.AUTOTUNE)
    model = Towers(int(arrays["item_count"]), settings)
    model.compile(optimizer=tf.keras.optimizers.Adagrad(0.1))
    # Fills the cache.
    model.fit(batches, epochs=1, steps_per_epoch=len(columns["item"]) // size, verbose=0)

    def run(steps: int) -> dict[str, Any]:
        start = time.perf_counter()
        model.fit(batches, epochs=1, steps_per_epoch=steps, verbose=0)
        return {"examples": steps * size, "seconds": time.perf_counter() - start}

    return run
