"""Faults of the file of all users: its candidates, its parts, changed items, and the users of an item."""

from typing import Any

from tests.planted.fault import planted


@planted("tower.index.blocked:BlockedIndex.nearest_of_each", "tower/test_index.py")
def a_tie_at_the_cut_of_a_product_is_cut_anyhow(original: Any, self: Any, *given: Any) -> Any:
    self._error = float("-inf")
    return original(self, *given)


@planted("scoring.parts:Parts.is_complete", "turret/test_scoring.py")
def a_run_that_goes_on_begins_anew(original: Any, self: Any, number: int) -> bool:
    return False


@planted("scoring.parts:_check_same", "turret/test_scoring.py")
def a_run_goes_on_with_parts_of_other_settings(original: Any, *given: Any) -> None:
    return None


@planted("scoring.run:OpenSource.with_rules", "turret/test_scoring.py")
def rules_are_left_out_of_lists_from_prepared_data(original: Any, self: Any, block: Any) -> Any:
    return block


@planted("scoring.stored_users:OpenStore.fresh", "turret/test_scoring.py")
def withdrawn_items_are_in_the_lists(original: Any, self: Any, bundle: Any) -> Any:
    from turret.service.overlay.fresh import empty_overlay

    return empty_overlay(bundle)


@planted("scoring.by_item:BestUsers.add", "turret/test_scoring.py")
def users_who_had_an_item_are_listed_for_it(
    original: Any, self: Any, users: Any, vectors: Any, had: Any
) -> None:
    original(self, users, vectors, had[:0])


@planted("scoring.shared_search:SharedSearch.answers", "turret/test_scoring.py")
def items_of_the_history_are_in_lists_of_one_product(
    original: Any, self: Any, count: int, encoded: Any
) -> Any:
    nothing = encoded.out._replace(owners=encoded.out.owners[:0], rows=encoded.out.rows[:0])
    return original(self, count, encoded._replace(out=nothing))


@planted("scoring.parts:Parts.has_any", "turret/test_scoring.py")
def a_refused_run_binds_the_next_one(original: Any, self: Any) -> bool:
    return bool((self.folder / "run.json").exists())


@planted("scoring.users:refuse_repeated", "turret/test_scoring.py")
def a_user_of_two_rows_is_listed_twice(original: Any, path: Any) -> None:
    return None


@planted("scoring.shared_search:are_shared", "turret/test_scoring.py")
def conditions_of_some_users_are_those_of_all(original: Any, query: Any, rules: Any, view: Any) -> bool:
    return True
