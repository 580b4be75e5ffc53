#!/usr/bin/env python3
"""The hops of a request and of a token: which of our Python functions run, on objects of how many
classes.

The demo model answers streamed completions over a socket, warm. A hop is a call of a function of
unpaced/ or engine_ext/ on the event loop's thread; a coroutine counts once. A stream's tokens
take hops until the engine's thread sends them by itself.

    python scripts/count_hops.py [--path /v1/chat/completions] [--walk]
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path

from hops import Hops, counted

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
N_TOKENS = 65


async def serve_and_count(path: str, *, walk: bool) -> None:
    """Start the application on the demo model and look at its second request."""
    import uvicorn

    from engine_ext import Engine, SequenceRequest, TokenStream
    from unpaced.http.wire.header_deadlines import HeaderDeadlines
    from unpaced.http.wire.protocol import LimitedHttpProtocol
    from unpaced.http.wire.send_deadlines import SendDeadlines
    from unpaced.process.app import create_app
    from unpaced.settings import Settings

    settings = Settings(parallel=1, ctx_size=512)
    protocol = type(
        "Protocol",
        (LimitedHttpProtocol,),
        {
            "max_header_bytes": settings.max_header_bytes,
            "header_deadlines": HeaderDeadlines(settings.header_timeout),
            "send_deadlines": SendDeadlines(settings.send_timeout),
        },
    )
    engine = Engine(settings.engine_config())
    app = create_app(engine, settings)
    config = uvicorn.Config(app, port=0, http=protocol, ws="none", log_config=None)
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    await app.state.loaded
    port = server.servers[0].sockets[0].getsockname()[1]
    await answer(port, path, 1)
    await asyncio.sleep(1.5)  # chat's modules are imported a second after the start

    to_submit, stream = Hops(), Hops()
    rest = Hops(frames=to_submit.frames)
    submit = Engine.submit

    def noted_submit(self: Engine, request: SequenceRequest) -> TokenStream:
        sys.setprofile(rest.note)
        return submit(self, request)

    Engine.submit = noted_submit  # type: ignore[method-assign]
    with counted(to_submit):
        await answer(port, path, 1)
    Engine.submit = submit  # type: ignore[method-assign]
    to_submit.tell("request, from the socket to Engine.submit")
    rest.tell("request, from Engine.submit to its end, of one token")
    with counted(stream):
        await answer(port, path, N_TOKENS)
    n_more = len(stream.calls) - len(to_submit.calls) - len(rest.calls)
    print(f"{N_TOKENS - 1} further tokens that are streamed, together: {n_more} calls")
    if walk:
        print("\nto Engine.submit:", *to_submit.calls, sep="\n  ")
        print("\nto the end:", *rest.calls, sep="\n  ")
    server.should_exit = True
    await running


async def answer(port: int, path: str, n_tokens: int) -> None:
    """One streamed completion, read to its end."""
    body: dict[str, object] = {"stream": True, "n_predict": n_tokens, "ignore_eos": True, "seed": 1}
    body["cache_prompt"] = False
    if "chat" in path:
        body["messages"] = [{"role": "user", "content": "Hello"}]
    else:
        body["prompt"] = "Once upon a time there was"
    data = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    text = await reader.read()
    if not text.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(text.decode())
    writer.close()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--path", default="/completion")
    parser.add_argument("--walk", action="store_true", help="print the functions in their order")
    arguments = parser.parse_args()
    asyncio.run(serve_and_count(arguments.path, walk=arguments.walk))


if __name__ == "__main__":
    main()
