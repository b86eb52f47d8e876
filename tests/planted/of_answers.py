"""Faults of answers: changed items, rankings, pages of them, and their monitoring."""

from dataclasses import replace
from typing import Any

import numpy as np

from tests.planted.fault import Function, planted, seeing


@planted("turret.service.overlay.fresh:apply_changes", "service/test_overlay.py")
def an_older_change_replaces_the_fields_of_the_bundle(original: Function) -> Function:
    return seeing(original, catalog_time=lambda bundle: 0)


@planted("turret.service.overlay.fresh:FreshItems._main_mask", "service/test_http_items.py")
def a_replaced_item_is_filtered_by_its_old_fields(original: Function) -> Function:
    return lambda self, filtering: original(replace(self, replaced={}), filtering)


@planted("turret.service.overlay.item_overlay_cache:ItemOverlayCache.current", "service/test_overlay.py")
def a_stale_overlay_is_current(original: Function) -> Function:
    def current(self: Any, bundle: Any) -> Any:
        entry = self._entries.get(bundle)
        return None if entry is None else entry.fresh

    return current


@planted(
    "turret.service.overlay.item_overlay_cache:ItemOverlayCache._with_next_page", "service/test_overlay.py"
)
def an_older_copy_of_the_store_is_taken_for_no_change(original: Function) -> Function:
    async def with_next_page(self: Any, fresh: Any, bundle: Any) -> Any:
        changes = await self._store.changes(fresh.number, self.PAGE)
        return original.__globals__["apply_changes"](fresh, bundle, changes), True

    return with_next_page


@planted("turret.service.ranking.searching:merge", "service/test_overlay.py")
def an_excluded_fresh_item_is_recommended(original: Function) -> Function:
    def merge(ranking: Any, scores: Any, fresh: Any, k: int, excluded: Any, filtering: Any = None) -> Any:
        return original(ranking, scores, fresh, k, excluded[:0], filtering)

    return merge


@planted("turret.service.ranking.query:_is_enough", "service/test_ranking.py")
def seen_items_are_masked_for_the_newest_events_alone(original: Function) -> Function:
    def is_enough(requests: Any, *others: Any) -> Any:
        return original([one.model_copy(update={"exclude_seen": False}) for one in requests], *others)

    return is_enough


@planted("turret.service.ranking.searching:_comes_after", "service/test_ranking.py")
def items_of_the_score_of_a_withdrawn_item_are_left_out_of_the_next_page(original: Function) -> Function:
    def comes_after(ranking: Any, after: Any) -> Any:
        is_there = (ranking.rows == after.row).any()
        return original(ranking, after) & (is_there | (ranking.scores < np.float32(after.score)))

    return comes_after


@planted("turret.service.schemas.requests:RecommendRequest.seen", "service/test_http_recommend.py")
def the_default_of_a_version_for_used_items_is_not_read(original: Function) -> Function:
    return lambda self, default: original(self, True)


@planted("turret.tower.kinds:CountedKinds.count", "service/test_kinds.py")
def an_item_that_was_consumed_for_some_days_never_comes_back(original: Function) -> Function:
    return lambda self, kinds, ages: original(self, kinds, 0 * ages)


@planted("turret.tower.retrieval:Retriever._scored", "tower/test_repeats.py", "service/test_repeats.py")
def used_items_are_ranked_though_a_filter_refuses_them(original: Function) -> Function:
    def scored(self: Any, found: Any, vector: Any, k: int, out: Any, allowed: Any, bonus: Any) -> Any:
        return original(self, found, vector, k, out, None, bonus)

    return scored


@planted("turret.service.ranking.searching:_with_fresh", "service/test_repeats.py")
def an_item_put_after_the_export_gains_nothing(original: Function) -> Function:
    return lambda model, fresh, query, *given: original(model, fresh, replace(query, bonus=None), *given)


@planted("turret.tower.repeats:used_items", "tower/test_repeats.py")
def the_first_use_of_an_item_counts_as_its_last(original: Function) -> Function:
    def used_items(events: Any, *others: Any) -> Any:
        times = None if events.times is None else events.times[::-1]
        return original(events._replace(times=times), *others)

    return used_items


@planted("turret.training.evaluation.repeats:events_of", "training/test_evaluation.py")
def the_evaluation_of_repeats_reads_no_times(original: Function) -> Function:
    return lambda *given: original(*given)._replace(times=None, asked=None)
