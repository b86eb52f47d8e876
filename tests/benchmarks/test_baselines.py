import polars as pl

from benchmarks.baselines import co_occurring, most_recent, popular


def clicks(*rows: tuple[int, int, int]) -> pl.DataFrame:
    """Clicks of (session, item, time)."""
    columns = {"session_id": pl.Int64, "item_id": pl.Int32, "timestamp_ms": pl.Int64}
    return pl.DataFrame(list(rows), schema=columns, orient="row")


LOG = clicks(
    (1, 10, 1), (1, 11, 2), (1, 12, 6),
    (2, 11, 3), (2, 10, 10),
    (3, 13, 7), (3, 14, 8), (3, 10, 9),
)  # fmt: skip


def test_baselines_leave_out_the_history() -> None:
    """10 was clicked three times, 11 twice and the rest once; 10 last of all, then 14."""
    assert popular(LOG)([[], [10, 13]]) == [[10, 11, 12, 13, 14], [11, 12, 14]]
    assert most_recent(LOG)([[10]]) == [[14, 13, 12, 11]]
    assert co_occurring(LOG, newest=1)([[10]])[0] == [11, 12, 13, 14]


def test_repeats_in_a_history_cost_no_places() -> None:
    log = clicks(*((item, item, 0) for item in range(30)))
    assert popular(log)([[0] * 50]) == [list(range(1, 21))]
    assert co_occurring(log, newest=1)([[0] * 50]) == [list(range(1, 21))]


def test_what_shares_the_most_sessions_comes_first() -> None:
    """With 13, 14 and 10 occur once each; the others never, and stand by their clicks."""
    assert co_occurring(LOG, newest=1)([[13]]) == [[10, 14, 11, 12]]
    assert co_occurring(LOG, newest=1)([[12]]) == [[10, 11, 13, 14]]


def test_only_the_newest_items_count() -> None:
    """Of 11 and then 13: 13 alone leads to 14 before 12; both together have them tie."""
    assert co_occurring(LOG, newest=1)([[11, 13]]) == [[10, 14, 12]]
    assert co_occurring(LOG, newest=2)([[11, 13]]) == [[10, 12, 14]]


def test_an_item_that_nobody_clicked_leads_to_what_is_popular() -> None:
    assert co_occurring(LOG, newest=1)([[99], []]) == [[10, 11, 12, 13, 14]] * 2


def test_a_click_again_in_a_session_counts_once() -> None:
    """10 and 12 share one session, however often; 10 and 11 two."""
    log = clicks(
        (1, 10, 1), (1, 12, 2), (1, 12, 3), (1, 12, 4), (2, 10, 1), (2, 11, 2), (3, 10, 1), (3, 11, 2)
    )
    assert co_occurring(log, newest=1)([[10]]) == [[11, 12]]


def test_sessions_can_be_told_by_another_column() -> None:
    """All in one basket: whatever is clicked goes with everything else."""
    log = LOG.with_columns(basket=pl.lit(1))
    assert co_occurring(log, newest=1, together="basket")([[14]]) == [[10, 11, 12, 13]]
    assert co_occurring(LOG, newest=1)([[14]]) == [[10, 13, 11, 12]]
