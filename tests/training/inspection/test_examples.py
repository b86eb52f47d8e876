from turret.training.inspection.examples import EXAMPLES, NEWEST, examples
from turret.training.inspection.rankings import Rankings


def test_half_of_the_examples_have_a_hit(rankings: Rankings) -> None:
    drawn = examples(rankings, seed=0)
    assert len(drawn) == EXAMPLES
    assert sum(any(one.hits) for one in drawn) == EXAMPLES // 2
    assert len({one.user for one in drawn}) == EXAMPLES
    assert [one.user for one in drawn] == [one.user for one in examples(rankings, seed=0)]
    assert [one.user for one in drawn] != [one.user for one in examples(rankings, seed=1)]


def test_an_example_is_what_the_data_and_the_model_say(rankings: Rankings) -> None:
    """The rank of a target is at most k exactly where it is a hit."""
    data = rankings.data
    for one in examples(rankings, seed=0):
        user = data.users.row(one.user)
        assert user is not None
        history = data.history(user, "test").tolist()
        assert one.history == history[-NEWEST:]
        assert one.history_length == len(history)
        assert one.targets == data.targets(user, "test").tolist()
        assert one.hits == [row in one.targets for row in one.recommended]
        for row, rank in zip(one.targets, one.target_ranks, strict=True):
            assert (rank is None) == (row in history)
            assert (rank is not None and rank <= 10) == (row in one.recommended)


def test_more_examples_than_users_are_all_users(rankings: Rankings) -> None:
    count = len(rankings.relevant.users)
    assert len(examples(rankings, seed=0, most=2 * count)) == count
