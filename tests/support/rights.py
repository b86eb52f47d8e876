"""Commands that the rights of files bind, also where the tests run as root."""

import os

import pytest

# Root without capabilities is bound by the rights of files, as every other user is.
BOUND = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="dropping the rights of root needs root")
