"""Object stores: an S3 server on the loopback, and fsspec's store in memory."""

from collections.abc import Iterator
from uuid import uuid4

import fsspec
import pytest
from moto.server import ThreadedMotoServer


@pytest.fixture(scope="package")
def s3_endpoint() -> Iterator[str]:
    """The address of an S3 server."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a new bucket."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    bucket = uuid4().hex
    fsspec.filesystem("s3").mkdir(bucket)
    return f"s3://{bucket}"


@pytest.fixture(params=["memory", "s3"])
def store(request: pytest.FixtureRequest) -> str:
    """The URL of an empty place in each of the stores."""
    if request.param == "memory":
        return f"memory://{uuid4().hex}"
    url: str = request.getfixturevalue("s3")
    return url
