"""The keys of a user, in one Redis as they always were, in a cluster in one slot."""

import pytest

from turret.service.stores.redis.key_names import KeyNames
from turret.service.stores.redis.slots import slot_of

IDS = ["", "7", "a b", "{", "}", "{}", "}{", "a}b", "{a}", "{a}b", ":", "{:7}", "é\n", "*", "user:7"]


def test_one_redis_has_the_keys_that_stored_histories_have() -> None:
    """Other names would lose them."""
    names = KeyNames("turret:")
    assert names.append_keys(["u", "v"]) == [
        *("turret:arrival", "turret:user:u", "turret:ids:u", "turret:user:v", "turret:ids:v")
    ]
    assert names.append_groups(["u", "v"]) == [["u", "v"]]
    assert names.forget_keys("u") == ["turret:user:u", "turret:ids:u"]
    assert names.shared("items:number") == "turret:items:number"


@pytest.mark.parametrize("user", IDS)
def test_all_keys_of_a_user_are_in_one_slot_of_a_cluster(user: str) -> None:
    names = KeyNames("turret:", is_cluster=True)
    keys = {*names.append_keys([user]), *names.forget_keys(user)}
    assert len(keys) == 3
    assert len({slot_of(key) for key in keys}) == 1
    assert all(key.startswith("turret:") for key in keys)


@pytest.mark.parametrize("is_cluster", [False, True])
def test_a_key_is_that_of_one_user_who_can_be_read_from_it(is_cluster: bool) -> None:
    names = KeyNames("turret:", is_cluster)
    assert len({key for user in IDS for key in names.forget_keys(user)}) == len(IDS) * (2 + is_cluster)
    assert [names.user_of(names.events(user)) for user in IDS] == IDS
    assert names.user_of(names.ids("u")) is None
    assert names.user_of(names.shared("items")) is None


def test_items_and_the_record_are_in_one_slot() -> None:
    names = KeyNames("turret:", is_cluster=True)
    keys = [names.shared(name) for name in ("items", "items:number", "replicas:default:live")]
    assert len({slot_of(key) for key in keys}) == 1
    assert all(key.startswith("turret:") for key in keys)


def test_users_are_spread_over_the_slots() -> None:
    names = KeyNames("turret:", is_cluster=True)
    assert len({slot_of(names.events(str(user))) for user in range(1_000)}) > 900
    assert names.append_groups(["u", "v"]) == [["u"], ["v"]]
