"""Faults of outcomes: attribution, the unit of the interval, values without exploration, and places."""

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


@planted("data.answers.places:shown_items", "data/test_places.py")
def the_items_of_an_answer_have_the_propensity_of_its_first_place(original: Any, answers: Any) -> Any:
    import polars as pl

    first = pl.col("propensities").list.eval(pl.element().first().repeat_by(pl.len()).explode())
    return original(answers.with_columns(first))


@planted("data.answers.places:shown_items", "data/test_places.py")
def an_answer_that_is_in_the_log_twice_makes_its_events_twice(original: Any, answers: Any) -> Any:
    class Every:
        """Answers whose ids may repeat."""

        def unique(self, *given: Any, **named: Any) -> Any:
            return answers

    return original(Every())


@planted("data.answers.examination:weights_of_shown", "data/test_examination.py")
def items_that_are_shown_for_their_relevance_count_for_the_examination(original: Any, answers: Any) -> Any:
    import polars as pl

    return original(answers).with_columns(weight=pl.lit(1.0))
