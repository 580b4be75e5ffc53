"""GET /: the page, a folder in its place, or neither."""

import base64
import hashlib
import re
from pathlib import Path
from urllib.parse import urljoin

import pytest
from pydantic import ValidationError

import unpaced
from tests.support.scripted.asgi_client import get, post
from tests.support.scripted.fake_engine import FakeEngine
from tests.support.scripted.server_app import make_app
from unpaced.http.gate import Phase
from unpaced.settings import Settings

pytestmark = pytest.mark.anyio


PAGE = Path(unpaced.__file__).parent / "page"
OWN = sorted(path.relative_to(PAGE).as_posix() for path in PAGE.rglob("*.*"))
PARTS = [name for name in OWN if name.endswith((".js", ".mjs", ".css", ".svg"))]
ADDRESS = r"""(?:src|href)="([^"#]+)"|(?:import|from|import\()\s*"([^"]+)"|url\(([^)]+)\)"""


@pytest.mark.parametrize("path", ["/", "/index.html", "/docs"])
async def test_the_page_needs_no_key_and_tells_who_has_it(path: str) -> None:
    app = make_app(FakeEngine(), api_key=("secret",))
    response = await get(app, path).done()
    assert response.status == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    assert response.body.decode().startswith("<!doctype html>")
    again = await get(app, path, if_none_match=response.headers["etag"]).done()
    assert (again.status, again.body) == (304, b"")
    assert (await get(app, "/props").done()).status == 401


async def test_the_policy_lets_in_this_servers_files_alone() -> None:
    app = make_app(FakeEngine())
    for path in ("/", "/page/main.js", "/page/icon.svg"):
        policy = (await get(app, path).done()).headers["content-security-policy"]
        parts = dict(part.strip().split(" ", 1) for part in policy.split(";"))
        assert parts["default-src"] == "'none'"
        assert parts["require-trusted-types-for"] == "'script'"
        assert parts["trusted-types"] == "'none'"
        assert parts["script-src"] == parts["style-src"] == parts["connect-src"] == "'self'"
    docs = await get(app, "/docs").done()
    script = docs.body.decode().split("<script>")[1].split("</script>")[0]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in docs.headers["content-security-policy"]
    assert not re.search(ADDRESS, docs.body.decode())


@pytest.mark.parametrize("prefix", ["", "/llm"])
async def test_every_address_is_relative_and_leads_to_a_part(prefix: str) -> None:
    app = make_app(FakeEngine(), api_prefix=prefix, api_key=("secret",))
    for name in ["index.html", *(part for part in PARTS if not part.startswith("vendor"))]:
        base = "/" if name == "index.html" else f"/page/{name}"
        for found in re.finditer(ADDRESS, (PAGE / name).read_text()):
            address = next(group for group in found.groups() if group)
            path = urljoin(base, address)
            response = await get(app, prefix + path).done()
            assert response.status == 200, f"{name}: {address}"
            kind = {"js": "text/javascript", "mjs": "text/javascript", "css": "text/css"}
            wanted = kind.get(path.rpartition(".")[2], "image/svg+xml")
            assert response.headers["content-type"].split(";")[0] == wanted
            assert response.headers["x-content-type-options"] == "nosniff"


async def test_only_parts_of_the_page_are_there() -> None:
    app = make_app(FakeEngine(), api_key=("secret",))
    names = ("x", "index.html", "docs.html", "../routes/page.py", "%2e%2e/main.js", "vendor", "")
    for name in (*names, "vendor/SHA256SUMS", "main.js/", "//main.js", "main.js%00"):
        assert (await get(app, f"/page/{name}").done()).status == 404, name
    for settings in ({"ui": False}, {"path": PAGE}):
        closed = make_app(FakeEngine(), api_key=("secret",), **settings)
        assert (await get(closed, "/page/main.js").done()).status == 401


async def test_the_page_is_there_while_the_model_is_loaded() -> None:
    app = make_app(FakeEngine())
    app.state.gate.phase = Phase.LOADING
    assert (await get(app, "/page/main.js").done()).status == 200
    assert (await get(app, "/props").done()).status == 503


def test_no_text_becomes_html() -> None:
    for name in PARTS:
        text = "" if name.startswith("vendor") else (PAGE / name).read_text()
        risky = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function"
        assert not re.search(risky, text), name


def test_the_libraries_are_those_of_their_packages() -> None:
    folder = PAGE / "vendor"
    sums = {}
    for line in (folder / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split("  ")
        sums[name] = digest
    found = {name.removeprefix("vendor/") for name in OWN if name.startswith("vendor/")}
    found |= {path.relative_to(folder).as_posix() for path in folder.rglob("*LICENSE")}
    assert found == set(sums)
    for name, digest in sums.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == digest
    for library in {name.split("/")[0] for name in sums}:
        assert "copyright" in (folder / library / "LICENSE").read_text().lower()


async def test_a_prefix_stands_in_front() -> None:
    app = make_app(FakeEngine(), api_prefix="/llm")
    assert (await get(app, "/llm/docs").done()).status == 200
    assert (await get(app, "/llm/").done()).status == 200
    for path in ("/", "/page/main.js"):
        assert (await get(app, path).done()).status == 404


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
