"""The template process is killed, stopped, silent or never there: chats go on, or are told why."""

import os
import signal
import sys
import time
from collections.abc import AsyncIterator

import pytest

from tests.support.scripted.asgi_client import get, post
from tests.support.scripted.fake_engine import FakeEngine
from tests.support.scripted.server_app import make_app
from tests.support.supervision.child_processes import child_processes
from unpaced.chat import renderer as renderer_module
from unpaced.chat import template_process
from unpaced.chat.renderer import Renderer, RendererFault, TemplateError

pytestmark = pytest.mark.anyio

# Says hello to the first question, and does to itself at the next one what it is told.
_SCRIPT = """
import os, signal, sys
from unpaced.rendering.frames import read_frame, write_frame
read_frame(sys.stdin.buffer)
write_frame(sys.stdout.buffer, b'{"result":null}')
read_frame(sys.stdin.buffer)
exec(sys.argv[1])
"""


@pytest.fixture
async def renderer() -> AsyncIterator[Renderer]:
    made = Renderer()
    yield made
    made.close()


def use_script(monkeypatch: pytest.MonkeyPatch, does: str) -> None:
    command = (sys.executable, "-c", _SCRIPT, does)
    monkeypatch.setattr(template_process, "_COMMAND", command)


async def process_of(renderer: Renderer) -> int:
    before = child_processes(os.getpid())
    await renderer.start()
    (pid,) = child_processes(os.getpid()) - before
    return pid


@pytest.mark.parametrize("kind", [signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV])
@pytest.mark.parametrize("n_chars", [1, 1_000_000])  # more than a pipe holds
async def test_another_process_answers(
    renderer: Renderer, kind: signal.Signals, n_chars: int
) -> None:
    pid = await process_of(renderer)
    await renderer.compile("echo", "{{ text }}")
    os.kill(pid, kind)
    text = "a" * n_chars
    assert await renderer.render("echo", {"text": text}) == text
    assert pid not in child_processes(os.getpid())


async def test_one_that_is_stopped_at_work_is_replaced(
    renderer: Renderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_script(monkeypatch, "os.kill(os.getpid(), signal.SIGSTOP)")
    started = time.monotonic()
    with pytest.raises(RendererFault, match="was ended from outside") as caught:
        await renderer.compile("echo", "{{ text }}")
    assert caught.value.is_passing
    assert time.monotonic() - started < 10  # not the 20 s of one that may still answer
    monkeypatch.undo()
    await renderer.compile("echo", "{{ text }}")
    assert await renderer.render("echo", {"text": "a"}) == "a"


async def test_one_that_is_killed_each_time_is_no_fault_of_the_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = make_app(FakeEngine())
    use_script(monkeypatch, "os.kill(os.getpid(), signal.SIGKILL)")
    body = {"messages": [{"role": "user", "content": "Hello"}]}
    request = await post(app, "/apply-template", body).done()
    assert request.status == 503
    assert "was ended from outside" in request.json["error"]["message"]
    assert request.headers["retry-after"] == "1"
    monkeypatch.undo()
    assert (await post(app, "/apply-template", body).done()).status == 200
    app.state.templates.close()


async def test_one_that_breaks_down_each_time_is_the_templates_fault(
    renderer: Renderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_script(monkeypatch, "os.abort()")
    with pytest.raises(TemplateError, match="rendering it ended the process"):
        await renderer.compile("echo", "{{ text }}")


async def test_a_silent_one_is_no_fault_of_the_messages(
    renderer: Renderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_script(monkeypatch, "import time; time.sleep(60)")
    await renderer.start()
    monkeypatch.setattr(renderer_module, "_WALL_LIMIT_S", 0.2)
    with pytest.raises(RendererFault, match=r"gave no answer within 0\.2 s"):
        await renderer.compile("echo", "{{ text }}")


@pytest.mark.parametrize("command", [("/bin/false",), ("/nowhere/python",)])
async def test_one_that_cannot_start_is_said_to(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    app = make_app(FakeEngine())
    monkeypatch.setattr(template_process, "_COMMAND", command)
    body = {"messages": [{"role": "user", "content": "Hello"}]}
    for path in ("/apply-template", "/v1/chat/completions"):
        request = await post(app, path, body).done()
        assert request.status == 500
        assert "chat templates cannot be started" in request.json["error"]["message"]
    props = await get(app, "/props").done()  # what does not need it is told all the same
    assert (props.status, bool(props.json["chat_template"])) == (200, True)
    monkeypatch.undo()
    assert (await post(app, "/apply-template", body).done()).status == 200
    app.state.templates.close()


async def test_what_nests_too_deeply_for_it_is_the_clients_fault(renderer: Renderer) -> None:
    await renderer.compile("echo", "{{ text }}")
    deep: list[object] = []
    for _ in range(2000):
        deep = [deep]
    with pytest.raises(TemplateError, match="the messages cannot be given to it"):
        await renderer.render("echo", {"text": deep})
    assert await renderer.render("echo", {"text": "a"}) == "a"
