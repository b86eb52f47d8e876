"""How many items may come: in the real process."""

import threading
from contextlib import closing
from pathlib import Path

import pytest

from tests.conftest import contents
from tests.faults.test_items import FEATURES, WORKERS, answer, fresh_connections
from tests.support.item_towers import with_item_tower
from tests.support.service_process import Process
from turret.tower.bundle.publish import publish


@pytest.mark.fault(60)
def test_the_limit_of_new_items_holds_whoever_puts_them_at_once(tmp_path: Path) -> None:
    limit = 20
    publish(tmp_path / "bundles", with_item_tower(contents()))
    with closing(Process(tmp_path / "bundles", workers=WORKERS, fresh_items_limit=limit)) as service:
        check_limit(service, limit)


def check_limit(service: Process, limit: int) -> None:
    statuses: list[int] = []

    def put(first: int) -> None:
        for number, client in enumerate(fresh_connections(service, 6)):
            statuses.append(client.put(f"/v1/items/{first + number}", json=FEATURES).status_code)

    threads = [threading.Thread(target=put, args=(900 + 10 * number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200] * limit + [409] * (48 - limit)
    assert len([item for item in answer(service.client, history=[101], k=200) if item >= 900]) == limit
