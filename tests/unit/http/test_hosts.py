"""Names that a rebound page would send are refused; those of this machine and its tools are not."""

import pytest

from tests.support.scripted.asgi_client import get
from tests.support.scripted.fake_engine import FakeEngine
from tests.support.scripted.server_app import make_app
from unpaced.http.hosts import HostPolicy
from unpaced.settings import Settings

pytestmark = pytest.mark.anyio


def refuses(
    header: str | None,
    *,
    host: str = "127.0.0.1",
    allowed_hosts: str = "",
    has_keys: bool = False,
) -> bool:
    policy = HostPolicy(Settings(host=host, allowed_hosts=allowed_hosts), has_keys=has_keys)
    headers = [] if header is None else [(b"accept", b"*/*"), (b"host", header.encode())]
    return policy.is_active and policy.refusal(headers) is not None


@pytest.mark.parametrize(
    "host",
    ["localhost", "localhost:8080", "LOCALHOST:8080", "127.0.0.1:8080", "127.1.2.3", "[::1]:8080",
     "192.168.1.5:80", "llm", "llm:8080", "a.localhost", "host.docker.internal:8080", None, ""],
)  # fmt: skip
def test_these_are_served(host: str | None) -> None:
    assert not refuses(host)


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "EVIL.example.", "127.0.0.1.nip.io:8080", "a.b"]
)
def test_these_are_not(host: str) -> None:
    assert refuses(host)
    assert refuses(host, host="localhost,::1")
    assert refuses(host, host="127.0.0.1,/tmp/x.sock")


def test_elsewhere_any_name_is_served() -> None:
    assert not refuses("evil.example", host="0.0.0.0")
    assert not refuses("evil.example", host="/tmp/x.sock")
    assert not refuses("evil.example", has_keys=True)


async def test_every_route_refuses_them_and_says_how_to_get_in() -> None:
    for app, status in (
        (make_app(FakeEngine()), 403),
        (make_app(FakeEngine(), allowed_hosts="*"), 200),
        (make_app(FakeEngine(), api_key=("k",)), 200),
    ):
        for path in ("/health", "/props", "/", "/v1/models"):
            request = await get(app, path, host="evil.example", authorization="Bearer k").done()
            assert request.status == status, path
            assert status == 200 or "--allowed-hosts" in request.json["error"]["message"]


def test_the_way_out() -> None:
    assert not refuses("llm.example.org:443", allowed_hosts="llm.example.org, other.example")
    assert refuses("evil.example", allowed_hosts="llm.example.org")
    assert not refuses("evil.example", allowed_hosts="*")
    assert refuses("evil.example", allowed_hosts="llm.example.org", host="0.0.0.0")
    assert not refuses("my.host.example", host="my.host.example", allowed_hosts="x")
