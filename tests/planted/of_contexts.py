"""Faults of the contexts of events and requests."""

from dataclasses import replace
from typing import Any

import numpy as np

from tests.planted.fault import planted


@planted("data.preparing.contexts:_bits", "data/test_contexts.py")
def a_column_that_tells_the_item_is_like_any_other(original: Any, *given: Any) -> tuple[float, float]:
    _, alone = original(*given)
    return alone, alone


@planted("data.preparing.append:_context_keys", "data/test_contexts.py")
def appended_contexts_are_numbered_as_those_of_the_first_log(original: Any, old: Any, ingested: Any) -> Any:
    return original(replace(old, contexts=None), ingested)


@planted("data.prepared:PreparedData.request_contexts", "end_to_end/test_context.py")
def a_request_has_the_context_of_the_event_before_it(original: Any, self: Any, users: Any, ends: Any) -> Any:
    return original(self, users, np.maximum(ends - 1, self.offsets[users]))


@planted("tower.layers.packed:PackedHistories.distinct", "tower/test_context.py")
def examples_of_two_contexts_share_a_vector(original: Any, self: Any) -> Any:
    return original(replace(self, contexts=None))


@planted("tower.layers.packed:PackedHistories.take", "tower/test_context.py")
def chosen_examples_have_the_contexts_of_the_first(original: Any, self: Any, examples: Any) -> Any:
    taken = original(self, examples)
    kept = None if self.contexts is None else self.contexts[: len(taken.starts)]
    return replace(taken, contexts=kept)


@planted("tower.towers.context:ContextLayer.served", "tower/test_context.py")
def the_exported_tower_reads_no_context(original: Any, self: Any, vectors: Any, features: Any) -> Any:
    return original(self, vectors, {name: values * 0 for name, values in features.items()})


@planted("tower.inference.feature_inputs:FeatureInputs.check_fields", "end_to_end/test_context.py")
def a_context_that_no_tower_reads_is_ignored(original: Any, *given: Any) -> None:
    return None


@planted("service.schemas.requests:RecommendRequest.inputs", "end_to_end/test_context.py")
def a_request_is_answered_without_its_context(original: Any, self: Any) -> Any:
    return self.features
