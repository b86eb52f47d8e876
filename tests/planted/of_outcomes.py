"""Faults of outcomes: their attribution, the unit of the interval, and values without exploration."""

import math
from typing import Any

from tests.planted.fault import planted


@planted("outcomes.report:_comparison", "turret/test_outcomes.py")
def answers_are_compared_and_not_users(original: Any, answers: Any, outcomes: Any, warnings: Any) -> Any:
    import polars as pl

    alone = pl.col("answer_id").alias("visitor")
    return original(answers.with_columns(alone), outcomes.with_columns(alone), warnings)


@planted("outcomes.report:distinct", "turret/test_outcomes.py")
def an_answer_that_is_in_the_log_twice_counts_twice(original: Any, answers: Any) -> Any:
    return answers


@planted("outcomes.attribution:attribute", "turret/test_outcomes.py")
def an_event_is_the_outcome_of_two_answers(original: Any, answers: Any, events: Any, within: int) -> Any:
    import polars as pl

    return pl.concat([original(answers, events, within)] * 2)


@planted("history.named_answers:NamedAnswers.of", "turret/test_history.py")
def a_loaded_event_forgets_the_answer_that_it_names(original: Any, self: Any, users: Any) -> Any:
    return {}


@planted("outcomes.value:by_user", "turret/test_outcome_values.py")
def the_interval_of_a_value_takes_answers_for_users(original: Any, terms: Any, users: Any) -> Any:
    import numpy as np

    return original(terms, np.arange(len(users)))


@planted("outcomes.value:value_of", "turret/test_outcome_values.py")
def a_log_without_exploration_gets_a_value(original: Any, logged: Any, *given: Any, **named: Any) -> Any:
    from dataclasses import replace

    import numpy as np

    almost = np.where(logged.propensities >= 1, 1 - 1e-12, logged.propensities)
    return original(replace(logged, propensities=almost), *given, **named)


@planted("data.answers.lift:radius", "data/test_lift.py")
def the_interval_holds_at_one_look_alone(original: Any, information: float, *given: Any) -> float:
    return 1.96 / math.sqrt(information)
