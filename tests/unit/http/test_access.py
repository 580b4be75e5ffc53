"""API keys and CORS: llama-server's rules, and their order around the gate."""

from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response

from tests.support.scripted.asgi_client import AsgiRequest, get, post
from tests.support.scripted.fake_engine import FakeEngine
from tests.support.scripted.server_app import make_app
from tests.support.settings import read_settings
from unpaced.http.api_keys import ApiKeys
from unpaced.http.cors import CorsPolicy
from unpaced.http.gate import Gate, Phase
from unpaced.settings import Settings, SettingsError

pytestmark = pytest.mark.anyio


def options(app: Starlette, path: str, **headers: str) -> AsgiRequest:
    pairs = [(name.replace("_", "-").encode(), v.encode()) for name, v in headers.items()]
    return AsgiRequest(app, "OPTIONS", path, b"", pairs)


@pytest.fixture
def app() -> Starlette:
    return make_app(FakeEngine(), api_key=("one,two", "three"))


@pytest.mark.parametrize(
    ("headers", "index"),
    [
        ({"authorization": "Bearer one"}, 0),
        ({"authorization": "two"}, 1),
        ({"authorization": "Bearer one \t"}, 0),
        ({"x_api_key": "three"}, 2),
        ({"x_api_key": "Bearer three"}, 2),
        ({"authorization": "", "x_api_key": "two"}, 1),
        ({"authorization": "Bearer nope", "x_api_key": "two"}, None),
        ({"authorization": "bearer one"}, None),
        ({"authorization": "Bearer "}, None),
        ({"authorization": "Bearer one,two"}, None),
        ({}, None),
    ],
)
async def test_which_headers_carry_a_key(
    app: Starlette, headers: dict[str, str], index: int | None
) -> None:
    request = await get(app, "/props", **headers).done()
    if index is None:
        assert request.status == 401
        assert request.json["error"] == {
            "code": 401,
            "message": "Invalid API Key",
            "type": "authentication_error",
        }
    else:
        assert request.status == 200
        keys = ApiKeys(("one", "two", "three"))
        assert keys.find(
            (k.replace("_", "-").encode(), v.encode()) for k, v in headers.items()
        ) == (index)


@pytest.mark.parametrize("prefix", ["", "/llm"])
async def test_public_paths_need_no_key_with_or_without_a_prefix(prefix: str) -> None:
    app = make_app(FakeEngine(), api_key=("k",), api_prefix=prefix)
    for path in ("/health", "/v1/health", "/health/live", "/health/ready"):
        assert (await get(app, prefix + path).done()).status == 200
    for path in ("/models", "/v1/models", "/metrics", "/props", "/nope", "/health/x"):
        assert (await get(app, prefix + path).done()).status == 401
    assert (await post(app, prefix + "/completion", {"prompt": "x"}).done()).status == 401


async def test_the_keys_position_is_in_the_scope_for_fair_sharing(app: Starlette) -> None:
    seen: list[int] = []

    async def who(request: Request) -> Response:
        seen.append(request.scope["state"]["api_key_index"])
        return Response()

    app.add_route("/who", who)
    await get(app, "/who", authorization="Bearer three").done()
    assert seen == [2]


async def test_preflights_come_before_the_gate_and_the_key(app: Starlette) -> None:
    gate: Gate = app.state.gate
    gate.phase = Phase.LOADING
    request = await options(app, "/completion", origin="http://a.example").done()
    assert (request.status, request.body) == (200, b"")
    assert request.headers["content-type"].startswith("text/html")
    assert request.headers["access-control-allow-origin"] == "http://a.example"
    assert request.headers["access-control-allow-credentials"] == "true"
    assert request.headers["access-control-allow-methods"] == "GET, POST, DELETE, OPTIONS"
    assert request.headers["access-control-allow-headers"] == "*"


async def test_loading_is_said_before_the_key_is_asked_for(app: Starlette) -> None:
    gate: Gate = app.state.gate
    gate.phase = Phase.LOADING
    assert (await get(app, "/props").done()).status == 503
    assert (await get(app, "/health").done()).status == 503


async def test_errors_carry_cors_headers_too(app: Starlette) -> None:
    request = await get(app, "/props", origin="http://a.example").done()
    assert request.status == 401
    assert request.headers["access-control-allow-origin"] == "http://a.example"


@pytest.mark.parametrize(
    ("origins", "credentials", "origin", "answer"),
    [
        ("*", True, "http://a.example", "http://a.example"),
        ("*", True, None, None),
        ("*", False, "http://a.example", "*"),
        ("*", False, None, "*"),
        ("localhost", True, "http://localhost:3000", "http://localhost:3000"),
        ("localhost", True, "https://127.0.0.1", "https://127.0.0.1"),
        ("localhost", True, "http://[::1]:8080", "http://[::1]:8080"),
        ("localhost", True, "http://localhost.evil.com", None),
        ("localhost", True, "http://notlocalhost", None),
        ("localhost", True, "http://evil.com#@localhost", None),
        ("localhost", True, "http://[::1", None),
        ("localhost", True, "null", None),
        ("https://a.example", True, "https://b.example", "https://a.example"),
        ("https://a.example, https://b.example", True, "https://b.example", "https://b.example"),
        ("https://a.example,https://b.example", True, "https://c.example", None),
    ],
)
def test_which_origins_are_allowed(
    origins: str, credentials: bool, origin: str | None, answer: str | None
) -> None:
    policy = CorsPolicy(Settings(cors_origins=origins, cors_credentials=credentials))
    sent = [] if origin is None else [(b"origin", origin.encode())]
    headers = dict(policy.headers(sent, preflight=False))
    allowed = headers.get(b"Access-Control-Allow-Origin")
    assert (None if allowed is None else allowed.decode()) == answer
    # What depends on the origin must say so, or a cache would hand it to another one.
    if allowed != origins.encode():
        assert headers[b"vary"] == b"Origin"


def test_keys_come_from_flag_environment_and_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "keys"
    file.write_text("# comment\nfrom-file\n\nsecond\n")
    settings = read_settings(["--api-key", "a,,b", "--api-key-file", str(file)])
    assert settings.read_api_keys() == ("a", "b", "from-file", "second")
    monkeypatch.setenv("LLAMA_API_KEY", "c,d")
    assert read_settings([]).read_api_keys() == ("c", "d")


def test_a_key_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--api-key-file: cannot read"):
        read_settings(["--api-key-file", str(tmp_path / "none")])


def test_a_server_meant_to_be_closed_is_not_open(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--api-key: holds no key"):
        read_settings(["--api-key", ""])
    (tmp_path / "keys").write_text("# none\n")
    with pytest.raises(SettingsError, match=r"--api-key-file: .* holds no key"):
        read_settings(["--api-key-file", str(tmp_path / "keys")])


def test_half_of_tls_is_an_error() -> None:
    with pytest.raises(SettingsError, match="--ssl-key-file: TLS needs --ssl-cert-file too"):
        read_settings(["--ssl-key-file", "k.pem"])


def test_white_space_around_keys_is_none_of_them(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_bytes(b"\xef\xbb\xbffirst \r\n \t\n  second\t\n  # comment\nlast")
    settings = Settings(api_key=(" a, b ",), api_key_file=file)
    assert settings.read_api_keys() == ("a", "b", "first", "second", "last")
    file.write_text(" \n\t\n")
    with pytest.raises(ValueError, match="holds no key"):
        Settings(api_key_file=file).read_api_keys()
    with pytest.raises(ValueError, match="holds no key"):
        Settings(api_key=(" , ",)).read_api_keys()
