"""Faults of outcomes: attribution, the unit of the interval, values without exploration, and places."""

import math
from typing import Any

import numpy as np

from tests.planted.fault import planted


@planted("data.answers.outcomes:_add_compared", "turret/test_outcomes.py")
def answers_are_compared_and_not_users(original: Any, *given: Any) -> Any:
    *others, table, numbers = given
    alone = table.set_column(table.column_names.index("visitor"), "visitor", table["answer_id"])
    return original(*others, alone, numbers)


@planted("data.answers.files:Distinct.of", "turret/test_outcomes.py")
def an_answer_that_is_in_the_log_twice_counts_twice(original: Any, self: Any, table: Any) -> Any:
    return table


@planted("data.answers.attribution:Attribution._newest", "turret/test_outcomes.py")
def an_event_belongs_to_the_last_answer_that_was_read(original: Any, self: Any, *given: Any) -> Any:
    return np.arange(len(given[0]))


@planted("service.outcomes.reports:OutcomeReports._start", "service/test_outcomes.py")
def any_number_of_reports_are_counted_at_a_time(original: Any, self: Any, request: Any) -> None:
    self._task = None
    original(self, request)


@planted("service.outcomes.request:read_report", "service/test_outcomes.py")
def a_report_is_counted_whenever_it_is_read(original: Any, path: Any) -> Any:
    report = original(path)
    return report and report.model_copy(update={"time": 0})


@planted("history.named_answers:NamedAnswers.of", "turret/test_history.py")
def a_loaded_event_forgets_the_answer_that_it_names(original: Any, self: Any, users: Any) -> Any:
    return {}


@planted("outcomes.value:by_user", "turret/test_outcome_values.py")
def the_interval_of_a_value_takes_answers_for_users(original: Any, terms: Any, users: Any) -> Any:
    return original(terms, np.arange(len(users)))


@planted("outcomes.value:value_of", "turret/test_outcome_values.py")
def a_log_without_exploration_gets_a_value(original: Any, logged: Any, *given: Any, **named: Any) -> Any:
    from dataclasses import replace

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
