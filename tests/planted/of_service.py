"""Faults of the service: changed items, rankings and their pages, keys and rates, stores, limits, words."""

import asyncio
import unicodedata
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from tests.planted.fault import planted, seeing


@planted("service.overlay.fresh:apply_changes", "service/test_overlay.py")
def an_older_change_replaces_the_fields_of_the_bundle(original: Any, *given: Any) -> Any:
    return seeing(original, catalog_time=lambda bundle: 0)(*given)


@planted("service.overlay.fresh:FreshItems._main_mask", "service/test_http_items.py")
def a_replaced_item_is_filtered_by_its_old_fields(original: Any, self: Any, filtering: Any) -> Any:
    return original(replace(self, replaced={}), filtering)


@planted("service.overlay.item_writer:_Plan._present", "service/test_http_items.py")
def a_withdrawn_item_is_put_back_with_its_fields_in_the_bundle(
    original: Any, self: Any, item: Any, last: Any
) -> Any:
    return original(self, item, None if last is not None and last.is_withdrawn else last)


@planted("service.overlay.persistent:LayeredMap.changed", "service/test_overlay.py")
def a_change_copies_all_changes_before_it(original: Any, self: Any, *given: Any) -> Any:
    return seeing(original, _RATIO=1e9)(self, *given)


@planted("service.overlay.fresh:_compacted", "service/test_overlay.py")
def superseded_changes_are_kept(original: Any, fresh: Any) -> Any:
    return fresh


@planted("service.overlay.fresh:item_bytes", "service/test_overlay.py")
def an_id_counts_as_a_short_one(original: Any, item: Any, *given: Any) -> Any:
    return original(item[:8], *given)


@planted("service.overlay.item_overlay_cache:ItemOverlayCache.for_answer", "service/test_overlay.py")
async def a_stale_overlay_is_current(original: Any, self: Any, bundle: Any) -> Any:
    entry = self._entries.get(bundle)
    return await original(self, bundle) if entry is None else (entry.fresh, ())


@planted("service.overlay.item_overlay_cache:ItemOverlayCache._with_next_page", "service/test_overlay.py")
async def an_older_copy_of_the_store_is_taken_for_no_change(
    original: Any, self: Any, fresh: Any, bundle: Any
) -> Any:
    changes = await self._store.changes(fresh.number, self.PAGE)
    return original.__globals__["apply_changes"](fresh, bundle, changes), True


@planted("service.ranking.searching:merge", "service/test_overlay.py")
def an_excluded_fresh_item_is_recommended(
    original: Any, ranking: Any, scores: Any, fresh: Any, k: Any, excluded: Any, *others: Any
) -> Any:
    return original(ranking, scores, fresh, k, excluded[:0], *others)


@planted("service.ranking.searching:merge", "service/test_http_slots.py")
def fresh_items_without_a_use_come_again(original: Any, *given: Any) -> Any:
    return original(*given[:6])


@planted("service.ranking.resolving:_check_page", "service/test_http_slots.py")
def the_pages_of_one_slot_go_on_with_another(original: Any, query: Any, manifest: Any) -> Any:
    return original(replace(query, after=None), manifest)


@planted("service.ranking.query:_is_enough", "service/test_ranking.py")
def seen_items_are_masked_for_the_newest_events_alone(original: Any, requests: Any, *others: Any) -> Any:
    return original([one.model_copy(update={"exclude_seen": False}) for one in requests], *others)


@planted("service.ranking.searching:_comes_after", "service/test_ranking.py")
def items_of_the_score_of_a_withdrawn_item_are_left_out_of_the_next_page(
    original: Any, ranking: Any, after: Any
) -> Any:
    is_there = (ranking.rows == after.row).any()
    return original(ranking, after) & (is_there | (ranking.scores < np.float32(after.score)))


@planted("service.ranking.resolving:resolve", "service/test_http_recommend.py")
def the_default_of_a_version_for_used_items_is_not_read(original: Any, query: Any, view: Any) -> Any:
    request = query.request
    if request.exclude_seen is None:
        query.request = request.model_copy(update={"exclude_seen": True})
    original(query, view)


@planted("service.ranking.searching:_with_fresh", "service/test_http_recommend.py")
def an_item_put_after_the_export_gains_nothing(
    original: Any, model: Any, fresh: Any, query: Any, *given: Any
) -> Any:
    return original(model, fresh, replace(query, bonus=None), *given)


@planted("service.ranking.explaining:_pulls", "service/test_http_recommend.py")
def an_explanation_leaves_the_repeat_term_out(
    original: Any, view: Any, query: Any, ranking: Any, shorter: Any
) -> Any:
    others = {row: replace(one, bonus=None) for row, one in shorter.items()}
    return original(view, replace(query, bonus=None), ranking, others)


@planted("service.ranking.explaining:_matched", "end_to_end/test_questions.py")
def an_explanation_names_every_gram_of_the_query(original: Any, view: Any, query: Any, rows: Any) -> Any:
    return [original.__globals__["grams"](query, words=True)] * len(rows)


@planted("service.keys.keys:find_key", "service/test_keys.py")
def a_short_named_key_of_the_file_is_accepted(original: Any, *given: Any) -> Any:
    return seeing(original, MIN_LENGTH=0)(*given)


@planted("service.keys.keys:Keyring._read", "service/test_keys.py")
def a_damaged_key_file_drops_the_keys_read_before(original: Any, self: Any) -> Any:
    before, self._keys = self._keys, self._admin
    original(self)
    if self._keys is self._admin:
        self._keys = before


@planted("service.keys.keys:Keyring._read", "service/test_keys.py")
def a_deleted_key_file_opens_the_service(original: Any, self: Any) -> Any:
    self._stamp = self._stamp if self._path.exists() else None
    original(self)


@planted("service.keys.keys:_changing", "service/test_keys.py")
def the_key_file_is_open_to_other_users(original: Any, *given: Any) -> Any:
    changing = original.__wrapped__
    make = changing.__globals__["new_file"]
    return contextmanager(seeing(changing, new_file=lambda path, mode: make(path, mode=0o644)))(*given)


@planted("service.calls:find", "service/test_http_access.py")
def stored_data_of_users_may_be_read_with_the_scope_read(original: Any, method: Any, path: Any) -> Any:
    call = original(method, path)
    return call._replace(scope="read") if path.startswith("/v1/users/") else call


@planted("service.calls:find", "service/test_http_access.py")
def a_newline_ends_a_path(original: Any, method: Any, path: Any) -> Any:
    return original(method, path.removesuffix("\n"))


@planted("service.ranking.resolving:_boosts", "service/test_http_boosts.py")
def a_boost_does_not_reach_new_items(original: Any, query: Any, view: Any) -> Any:
    boosts = original(query, view)
    boosts[view.fresh.first_row :] = 0
    return boosts


@planted("service.ranking.searching:_keep_pins", "service/test_http_boosts.py")
def a_pinned_item_comes_again_by_its_score(original: Any, query: Any, fresh: Any) -> Any:
    before = query.excluded, query.left_out
    original(query, fresh)
    query.excluded, query.left_out = before


@planted("service.ranking.searching:_with_pins", "service/test_http_boosts.py")
def a_pin_counts_its_position_on_each_page(
    original: Any, others: Any, query: Any, view: Any, pins: Any, first: Any
) -> Any:
    moved = {position - first + 1: row for position, row in pins.items()}
    return original(others, query, view, moved, 1 + first % 2)


@planted("service.ranking.answers:_last_ranked", "service/test_http_boosts.py")
def the_next_page_goes_on_behind_a_pin(original: Any, query: Any, ranking: Any) -> Any:
    return float(ranking.scores[-1]), int(ranking.rows[-1])


@planted("service.ranking.query:add_rules", "service/test_http_boosts.py")
def no_rules_mean_no_default_rules(original: Any, query: Any, rules: Any) -> Any:
    return original(query, rules) if query.request.rules else None


@planted("service.versions.record:Rule.applies", "service/test_http_boosts.py")
def a_rule_has_no_end(original: Any, self: Any, name: Any, time: Any, user: Any) -> Any:
    return original(self.model_copy(update={"until": None}), name, time, user)


@planted("service.versions.record:RuleSet.fault", "service/test_http_rules.py", "service/test_http_boosts.py")
def a_rule_is_refused_when_it_is_used(original: Any, self: Any, catalog: Any) -> None:
    return None


@planted("tower.retrieval:Retriever.nearest", "service/test_http_boosts.py")
def a_boost_reaches_the_best_items_of_the_index_alone(
    original: Any, self: Any, vector: Any, k: Any, *given: Any
) -> Any:
    boosts = given[4] if len(given) > 4 else None
    if boosts is None:
        return original(self, vector, k, *given)
    best = original(self, vector, k, *given[:4])
    scores = best.scores + boosts[best.rows]
    order = (-scores).argsort(kind="stable")
    return best._replace(rows=best.rows[order], scores=scores[order])


@planted("service.popular.popular_now:PopularNow.advance", "service/test_popular.py")
async def a_worker_counts_the_events_of_its_start_alone(original: Any, self: Any) -> None:
    if self.counts is None:
        await original(self)


@planted("service.popular.popular_now:PopularNow.fallback", "service/test_popular.py")
def the_next_page_of_a_stranger_is_of_other_counts(
    original: Any, self: Any, bundle: Any, fresh: Any, time: Any, tag: Any = None
) -> Any:
    return original(self, bundle, fresh, time)


@planted("service.popular.counts:Popular.are_enough", "service/test_popular.py")
def a_trend_of_one_click(original: Any, self: Any, time: Any) -> Any:
    return self.rows >= 0


@planted("service.popular.popular_now:PopularNow._kinds_of_live", "service/test_popular.py")
def events_without_a_kind_are_of_no_kind(original: Any, self: Any) -> Any:
    return {**original(self), None: None}


@planted("service.popular.counts:DecayedCounts._move", "service/test_popular.py")
def old_counts_overflow(original: Any, self: Any) -> None:
    pass


@planted("service.popular.popular_now:PopularNow._load", "service/test_popular.py")
async def an_event_that_comes_during_a_scan_counts_twice(original: Any, self: Any) -> None:
    await seeing(original, event_digest=lambda user, event_id: "")(self)


@planted("service.popular.popular_now:PopularNow.fallback", "service/test_popular.py")
def a_few_events_are_enough(original: Any, self: Any, *given: Any) -> Any:
    return seeing(original, ENOUGH=1.0)(self, *given)


@planted("service.popular.popular_now:counted_kinds", "service/test_popular.py")
def views_count_as_purchases(original: Any, kinds: Any) -> Any:
    return (*kinds, None)


@planted("service.stores.sqlite.histories:SqliteHistory.arrivals", "service/test_popular.py")
async def another_store_is_taken_for_one_without_new_events(original: Any, self: Any, after: Any) -> Any:
    found = await original(self, after)
    return original.__globals__["Arrivals"](after) if found is None else found


@planted("service.versions.folder:kept_record", "service/test_http_rules.py")
def a_record_is_read_in_part(original: Any, root: Any) -> Any:
    return seeing(original, RECORD_BYTES=1_000_000)(root)


@planted("service.versions.record:Routes.ruled", "service/test_http_rules.py")
def a_rollback_does_not_say_which_rules_it_undid(original: Any, self: Any, rules: Any) -> Any:
    return original(self, rules.model_copy(update={"undone": ""}))


@planted("service.calls:find", "service/test_http_access.py")
def scrapers_take_places_of_operators(original: Any, method: Any, path: Any) -> Any:
    call = original(method, path)
    return call._replace(lane="operator") if path == "/metrics" else call


@planted("service.calls:find", "service/test_http_access.py")
def changes_of_items_take_places_of_recommendations(original: Any, method: Any, path: Any) -> Any:
    call = original(method, path)
    return call._replace(lane="recommend") if method in ("PUT", "DELETE") else call


@planted("service.http.access:Authentication._take", "service/test_http_access.py")
def every_worker_admits_the_whole_rate_of_a_key(original: Any, self: Any, key: Any, rate: Any) -> Any:
    return original(self, key, rate * self._share)


@planted("service.stores.guarded:Breaker._call", "service/test_stores.py")
def damage_of_one_user_opens_the_circuit(original: Any, *given: Any, **named: Any) -> Any:
    return seeing(original, HistoryDamagedError=())(*given, **named)


@planted("service.stores.contract:drop_expired", "service/test_stores.py")
def events_at_the_edge_of_the_window_are_dropped(original: Any, events: Any, oldest: Any) -> Any:
    return original(events, oldest + 1)


@planted("service.stores.sqlite.file:connect", "service/test_stores_sqlite.py")
def histories_are_not_synced_to_the_disk(original: Any, path: Any, wait: Any) -> Any:
    connection = original(path, wait)
    connection.execute("PRAGMA synchronous = OFF")
    return connection


@planted("service.stores.sqlite.histories:SqliteHistory._write", "service/test_stores_sqlite.py")
def one_failing_call_fails_its_group(original: Any, self: Any, connection: Any, calls: Any) -> Any:
    try:
        outcomes = self._insert(connection, calls)
    except Exception as error:
        outcomes = [error] * len(calls)
    for call, outcome in zip(calls, outcomes, strict=True):
        call.outcome = outcome


@planted("service.stores.sqlite.histories:SqliteHistory.append", "service/test_stores_sqlite.py")
async def an_append_that_gave_up_is_written_after_all(original: Any, *given: Any) -> Any:
    return await asyncio.shield(asyncio.ensure_future(original(*given)))


@planted("service.stores.sqlite.file:Database.write", "service/test_stores_sqlite.py")
async def a_login_that_gave_up_moves_events_after_all(original: Any, *given: Any) -> Any:
    return await asyncio.shield(asyncio.ensure_future(original(*given)))


@planted("service.stores.sqlite.histories:SqliteHistory._write_group", "service/test_stores_sqlite.py")
def a_group_of_events_has_no_bound(original: Any, *given: Any) -> Any:
    return seeing(original, _GROUP_EVENTS=1 << 30)(*given)


@planted("data.errors:TurretError.__str__", "data/test_text.py")
def the_address_of_a_store_shows_its_password(original: Any, self: Any) -> Any:
    return Exception.__str__(self)


@planted("service.http.admission:Admission.__call__", "service/test_http_connections.py")
def an_unread_answer_keeps_no_place(original: Any, *given: Any) -> Any:
    return seeing(original, SMALL_ANSWER=1 << 40)(*given)


@planted("service.http.admission:Admission._read", "service/test_http_connections.py")
async def bytes_of_bodies_are_counted_for_ever(original: Any, self: Any, request: Any, *given: Any) -> Any:
    body = await original(self, request, *given)
    request.size = 0
    return body


@planted("service.http.admission:Admission._drop_arriving", "service/test_http_connections.py")
def bodies_of_all_connections_are_not_bounded(original: Any, self: Any) -> None:
    pass


@planted("service.http.turns:Turns._next", "service/test_http_connections.py")
def connections_that_end_together_end_in_one_turn(original: Any, self: Any) -> Any:
    return seeing(original, A_TURN=10**9)(self)


@planted("service.http.guard:Guard.data_received", "service/test_http_connections.py")
def requests_behind_one_that_runs_are_parsed(original: Any, self: Any, data: Any) -> None:
    running, self._running = self._running, None
    original(self, data)
    self._running = self._running or running


@planted("service.http.guard:_Held.resume_reading", "service/test_http_connections.py")
def input_is_read_while_other_input_waits(original: Any, self: Any) -> None:
    is_held, self.is_held = self.is_held, False
    original(self)
    self.is_held = is_held


@planted("service.http.guard:Guard._count_waiting", "service/test_http_connections.py")
def input_that_waits_is_not_bounded(original: Any, self: Any) -> None:
    pass


@planted("service.http.guard:Guard.data_received", "service/test_http_connections.py")
def the_framing_of_a_body_is_not_counted(original: Any, *given: Any) -> Any:
    return seeing(original, FRAMING_BYTES=1 << 40)(*given)


@planted("service.http.guard:Guard.on_headers_complete", "service/test_http_fuzz.py")
def trailers_become_headers(original: Any, self: Any) -> Any:
    headers = self.headers
    original(self)
    self.headers = headers


@planted("service.stores.sqlite.histories:SqliteHistory.move", "contracts/test_stores.py")
async def an_event_that_comes_during_a_login_is_lost(original: Any, self: Any, user: Any, to: Any) -> Any:
    _, events = await self.events(user, 1_000_000)
    new = await self.append([event._replace(user=to) for event in events])
    await self.forget(user)
    return original.__globals__["Moved"](new, len(events) - new)


@planted("service.errors:RequestError.__str__", "service/test_http_refusals.py")
def a_refusal_is_searched_for_addresses(original: Any, self: Any) -> Any:
    base: Any = next(one for one in type(self).__mro__ if one.__name__ == "TurretError")
    return base.__str__(self)


@planted("service.schemas.bodies:_read_line", "service/test_http_bulk_items.py")
def a_line_of_any_length_is_parsed(original: Any, *given: Any) -> Any:
    return seeing(original, LINE_BYTES=10**9)(*given)


@planted("service.stores.sqlite.shared:_inode", "service/test_stores_sqlite.py", "service/test_versions.py")
def a_deleted_record_is_read_on_by_those_who_have_it_open(original: Any, path: Any) -> int:
    return 1


@planted("service.observing.metrics:_allocate", "service/test_observing.py")
def files_of_metrics_have_holes(original: Any, filename: Any, size: Any) -> None:
    with open(filename, "ab") as file:
        file.truncate(max(size, file.tell()))


@planted("service.ranking.searching:select", "service/test_ranking.py")
def a_cap_that_cannot_be_met_reads_the_whole_catalog(original: Any, *given: Any, **named: Any) -> Any:
    return seeing(original, CAPPED=10**9)(*given, **named)


@planted("service.ranking.searching:select", "service/test_ranking.py")
def a_made_up_cursor_ranks_the_whole_catalog(original: Any, *given: Any, **named: Any) -> Any:
    return seeing(original, PAGED=10**9)(*given, **named)


@planted("service.catalog_search:_without_accents", "service/test_page.py")
def accents_are_sorted_before_they_are_dropped(original: Any, text: Any) -> Any:
    return original(unicodedata.normalize("NFKD", text))


@planted("tower.bundle.golden:mean_overlap", "end_to_end/test_as_measured.py")
def the_overlap_replays_recorded_queries_without_their_kinds(
    original: Any, bundle: Any, recorded: Any
) -> Any:
    return original(bundle, [query.model_copy(update={"history_kinds": None}) for query in recorded])


@planted("service.ranking.searching:nearest", "end_to_end/test_questions.py")
def a_query_without_a_known_word_gets_popular_items(
    original: Any, model: Any, fresh: Any, query: Any, k: int
) -> Any:
    return model.retriever.popular(k) if query.vector is None else original(model, fresh, query, k)


@planted("service.overlay.item_writer:_without_markup", "service/test_http_items.py")
def texts_of_changed_items_keep_their_html(original: Any, edit: Any) -> Any:
    return edit


@planted("service.overlay.item_writer:_as_cataloged", "service/test_http_items.py")
def a_column_that_no_tower_reads_is_refused(original: Any, bundle: Any, edit: Any) -> Any:
    return edit


@planted("tower.errors:first_with_others", "service/test_http_refusals.py")
def a_refusal_names_one_field_only(original: Any, errors: Any) -> Any:
    return original([*errors][:1])


@planted("service.observing.recent:Recent.add", "service/test_observing.py")
def the_kept_hour_grows_with_every_name(original: Any, self: Any, *given: Any) -> Any:
    return seeing(original, MOST_SERIES=10**9)(self, *given)


@planted("service.http.edge:Edge._response_to", "service/test_http_refusals.py")
def a_refused_request_keeps_its_frames(original: Any, *given: Any, **named: Any) -> Any:
    return seeing(original, without_frames=lambda error: error)(*given, **named)


@planted("service.observing.metrics:Metrics._timed_export", "service/test_observing.py")
def scrapes_follow_each_other_without_a_pause(original: Any, self: Any) -> Any:
    exported = original(self)
    self._export_seconds = 0.0
    return exported


@planted("service.http.turns:Turns.wait", "service/test_http_connections.py")
async def requests_of_the_open_lane_have_no_turns(original: Any, self: Any) -> None:
    return None


# ---- Outcomes


@planted("service.answer_log.log:AnswerLog._lose", "service/test_answer_log.py")
def an_answer_that_the_log_lacks_is_not_counted(original: Any, self: Any, *given: Any) -> None:
    return None


@planted("service.http.routes.histories:_count_outcomes", "service/test_http_events.py")
def a_label_of_the_metrics_is_a_text_of_clients(
    original: Any, events: Any, manifest: Any, metrics: Any
) -> None:
    for event in events:
        metrics.outcome_events.labels(str(event.kind)).inc()


@planted("service.answer_log.files:AnswerFiles._without", "service/test_answer_log.py")
def a_forgotten_user_stays_in_the_log(original: Any, self: Any, *given: Any) -> bool:
    return False


@planted("service.stores.sqlite.histories:SqliteHistory.append", "contracts/test_stores.py")
async def an_event_that_names_another_answer_is_another_event(original: Any, self: Any, events: Any) -> Any:
    named = [event._replace(event_id=f"{event.event_id}{event.answer_id or ''}") for event in events]
    return await original(self, named)


@planted("data.answers.form:answer_id_of", "service/test_http_recommend.py")
def a_repeated_request_has_the_id_of_the_first(original: Any, time: int, rest: bytes) -> str:
    return f"{time // 1_000_000:012x}{0:020x}"


@planted("service.ranking.exploration:place_chances", "service/test_exploration.py")
def a_propensity_forgets_the_items_drawn_before(original: Any, weights: Any, order: Any) -> Any:
    chances = np.exp(weights - weights.max())
    return (chances / chances.sum())[order]


@planted("service.ranking.exploration:propensities", "service/test_exploration.py")
def the_share_of_answers_without_a_draw_is_forgotten(original: Any, *given: Any) -> Any:
    return original(*given[:4], 1.0)


@planted("service.ranking.exploration:Explorer.may_show", "service/test_exploration.py")
def a_new_item_is_drawn_for_ever(original: Any, *given: Any) -> bool:
    return True
