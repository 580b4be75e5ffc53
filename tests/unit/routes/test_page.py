"""GET /: the page, a folder in its place, or neither."""

import base64
import hashlib
import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.support.scripted.asgi_client import get, post
from tests.support.scripted.fake_engine import FakeEngine
from tests.support.scripted.server_app import make_app
from unpaced.settings import Settings

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("path", ["/", "/index.html", "/docs"])
async def test_the_page_needs_no_key_and_loads_nothing_else(path: str) -> None:
    app = make_app(FakeEngine(), api_key=("secret",))
    response = await get(app, path).done()
    assert response.status == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    text = response.body.decode()
    assert text.startswith("<!doctype html>")
    assert not re.search(r"""(src|href)=|https?://|@import|url\(""", text)
    script = text.split("<script>")[1].split("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"'sha256-{digest}'" in response.headers["content-security-policy"]
    again = await get(app, path, if_none_match=response.headers["etag"]).done()
    assert (again.status, again.body) == (304, b"")
    assert (await get(app, "/props").done()).status == 401


async def test_a_prefix_stands_in_front_and_addresses_are_relative() -> None:
    app = make_app(FakeEngine(), api_prefix="/llm")
    assert (await get(app, "/llm/docs").done()).status == 200
    response = await get(app, "/llm/").done()
    assert response.status == 200
    assert not re.search(r"""fetch\(\s*["'`]/""", response.body.decode())
    assert (await get(app, "/").done()).status == 404


async def test_without_a_page_the_path_is_unknown() -> None:
    assert (await get(make_app(FakeEngine(), ui=False), "/docs").done()).status == 404
    response = await get(make_app(FakeEngine(), ui=False), "/").done()
    assert response.status == 404
    assert response.json["error"]["message"] == "File Not Found: there is no GET /"


async def test_a_folder_takes_the_pages_place(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("mine")
    (tmp_path / "a.txt").write_text("text")
    app = make_app(FakeEngine(), path=tmp_path, api_prefix="/llm")
    assert (await get(app, "/llm/").done()).body == b"mine"
    assert (await get(app, "/llm/a.txt").done()).body == b"text"
    assert (await get(app, "/llm/health").done()).json == {"status": "ok"}
    for path in ("/llm/b.txt", "/llm/../a.txt", "/llm/%2e%2e/a.txt"):
        response = await get(app, path).done()
        assert response.status == 404
        assert response.json["error"]["type"] == "not_found_error"
    assert (await post(app, "/llm/a.txt", {}).done()).status == 404


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="must be a folder"):
        Settings(path=tmp_path / "none")


async def test_the_tokeniser_is_described() -> None:
    app = make_app(FakeEngine())
    body = (await get(app, "/tokenizer_info").done()).json
    assert (body["bos_token"], body["eos_token"]) == ("<s>", "</s>")
    assert (body["bos_token_id"], body["eos_token_id"], body["vocab_size"]) == (257, 256, 258)
    assert (await post(app, "/tokenizer_info", {}).done()).json == body


async def test_vllms_names_work_for_tokens() -> None:
    app = make_app(FakeEngine())
    body = {"prompt": "ab", "add_special_tokens": False}
    assert (await post(app, "/tokenize", body).done()).json["tokens"] == [97, 98]
    assert (await post(app, "/tokenize", {"prompt": "ab"}).done()).json["tokens"] == [257, 97, 98]
