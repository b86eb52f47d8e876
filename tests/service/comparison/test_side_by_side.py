from turret.service.comparison.side_by_side import moves


def test_items_move_enter_and_leave() -> None:
    assert moves([7, 8, 9], [9, 7, 5]) == [
        {"id": 7, "live_rank": 1, "other_rank": 2},
        {"id": 8, "live_rank": 2, "other_rank": None},
        {"id": 9, "live_rank": 3, "other_rank": 1},
        {"id": 5, "live_rank": None, "other_rank": 3},
    ]


def test_ids_of_another_type_are_the_same_items() -> None:
    assert moves([7], ["7"]) == [{"id": 7, "live_rank": 1, "other_rank": 1}]


def test_nothing_moves_between_empty_answers() -> None:
    assert moves([], []) == []
