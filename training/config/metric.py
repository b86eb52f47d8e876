"""The names of the metrics that training, evaluation and activation know."""

AUC = "auc"
METRICS = ("hr", "recall", "ndcg", "mrr", "map")
"""The metrics of a ranking, whose names go on with a cut-off: ndcg@10."""
RANKING_METRIC = rf"(?:{'|'.join(METRICS)})@([1-9][0-9]{{0,3}})"
