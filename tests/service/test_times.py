from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from service.times import check_time, show_time

MOMENTS = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(UTC))


@given(MOMENTS)
def test_a_time_is_shown_as_it_was_sent_to_the_millisecond(moment: datetime) -> None:
    stored = check_time(moment.isoformat())
    assert stored is not None
    cut = moment.replace(microsecond=moment.microsecond // 1000 * 1000)
    assert datetime.fromisoformat(show_time(stored)) == cut


@given(st.integers(-62_135_596_800, 253_402_300_799))
def test_seconds_and_text_mean_the_same_time(seconds: int) -> None:
    stored = check_time(seconds)
    assert stored == seconds * 1000
    assert check_time(show_time(stored)) == stored
