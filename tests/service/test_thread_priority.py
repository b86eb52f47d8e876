import os
import sys
import threading

import pytest

from turret.service.thread_priority import lower_priority


@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities of their own on Linux alone")
def test_the_priority_of_one_thread_is_lowered() -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    lowered: list[int] = []

    def run() -> None:
        lower_priority()
        lowered.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert lowered == [max(before, 10)]
    assert os.getpriority(os.PRIO_PROCESS, 0) == before
