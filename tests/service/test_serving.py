import socket

import pytest

from service.errors import ServiceError
from service.serving import listen, url_of


def test_a_free_port_is_found_and_named() -> None:
    with listen("127.0.0.1", 0) as listening:
        assert url_of(listening) == f"http://127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_an_address_of_version_six_is_written_in_brackets() -> None:
    with listen("::1", 0) as listening:
        assert url_of(listening).startswith("http://[::1]:")


@pytest.mark.parametrize("host", ["127.0.0.1", "256.256.256.256", "no.such.host.invalid"])
def test_what_can_not_be_listened_on_is_named(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServiceError, match=f"{host}:{port}"):
            listen(host, port)
