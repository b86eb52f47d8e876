"""Faults of queries in words and of ready vectors."""

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from tests.planted.fault import Function, planted


@planted("turret.data.reading.queries:_part_of", "data/test_queries.py")
def queries_are_divided_by_their_length(original: Function) -> Function:
    return lambda text: int(len(text or "") > 16)


@planted("turret.data.reading.queries:id_of_text", "data/test_queries.py")
def a_long_text_is_cut_to_an_id(original: Function) -> Function:
    return lambda text: text[:512]


@planted("turret.data.preparing.catalogs:_shared_grams", "data/test_queries.py")
def each_tower_has_grams_of_its_own(original: Function) -> Function:
    return lambda items, queries, words: None


@planted("turret.data.prepared:PreparedData.history_ends", "data/test_queries.py")
def the_answers_of_a_query_are_its_history(original: Function) -> Function:
    def history_ends(self: Any, until: str) -> Any:
        return {"validation": self.splits[:, 0], "test": self.splits[:, 1], "end": self.offsets[1:]}[until]

    return history_ends


@planted("turret.data.prepared:PreparedData.query_groups", "training/test_batches.py")
def questions_of_one_answer_are_negatives_of_each_other(original: Function) -> Function:
    return lambda self: None


@planted("turret.tower.towers.alike:inverse_frequencies", "end_to_end/test_questions.py")
def towers_begin_without_inverse_frequencies(original: Function) -> Function:
    return lambda items, values: np.append(0.0, np.ones(len(values)))


@planted("turret.tower.inference.encoder:Encoder.can_encode", "end_to_end/test_questions.py")
def a_text_without_a_known_gram_is_encoded(original: Function) -> Function:
    return lambda self, rows, features: True


@planted("turret.service.ranking.explaining:_matched", "end_to_end/test_questions.py")
def an_explanation_names_every_gram_of_the_query(original: Function) -> Function:
    grams = original.__globals__["grams"]
    return lambda view, query, row: grams(query, words=True)


@planted("turret.training.baselines.registry:terms", "training/test_baselines.py")
def terms_keep_their_case(original: Function) -> Function:
    return str.split


@planted("turret.training.evaluation.metrics:metrics_at", "training/test_evaluation.py")
def average_precision_is_not_normalised(original: Function) -> Function:
    def metrics_at(hits: Any, relevant: Any, ks: Any) -> Any:
        found = original(hits, relevant, ks)
        return {
            name: value * np.minimum(relevant, int(name.partition("@")[2]))
            if name.startswith("map")
            else value
            for name, value in found.items()
        }

    return metrics_at


@planted("turret.data.features:VectorRows.blocks", "data/test_vectors.py")
def a_missing_vector_is_that_of_the_first_row(original: Function) -> Function:
    return lambda self: original(replace(self, rows=np.maximum(self.rows, 0)))


@planted("turret.data.preparing.vectors:_checked", "data/test_vectors.py")
def vectors_are_not_checked(original: Function) -> Function:
    return lambda vectors, where: vectors


@planted("turret.tower.layers.feature_layers:VectorLayer.forward", "end_to_end/test_ready_vectors.py")
def a_missing_vector_is_zeros(original: Function) -> Function:
    return lambda self, vectors: self.linear(torch.nan_to_num(vectors))


@planted("turret.training.warm_start:restandardise", "end_to_end/test_ready_vectors.py")
def a_new_deviation_scales_all_vectors(original: Function) -> Function:
    return lambda reader, first, layers, before: None
