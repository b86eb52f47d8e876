"""The tiers of the tests: only tests marked `process` or `nightly` may start a process or bind a port."""

import sys

import pytest

_STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.exec", "os.system", "pty.spawn"}
_BINDS = "socket.bind"


class Guard:
    """An audit hook: Python reports each start and each bind to it, whichever library asks for them."""

    def __init__(self) -> None:
        self.test: pytest.Item | None = None
        sys.addaudithook(self._seen)

    def _seen(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.test is None or (event not in _STARTS and event != _BINDS):
            return
        if event == _BINDS and not isinstance(arguments[1], tuple):
            return  # a socket of this machine's file system
        if event == "subprocess.Popen" and arguments[0] == "git":
            return  # each run records its commit, which git says in milliseconds
        name, self.test = self.test.nodeid, None  # the failure itself may start something
        what = f"{event}{arguments[:2]}"
        raise RuntimeError(
            f"{name} may not do {what}: mark it `process` or `nightly` (CONTRIBUTING.md, Tests)"
        )

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> object:
        """Watch a test with all its fixtures, those of its module too."""
        is_free = item.get_closest_marker("process") or item.get_closest_marker("nightly")
        self.test = None if is_free else item
        try:
            return (yield)
        finally:
            self.test = None
