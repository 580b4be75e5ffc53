"""`unpaced chat`: finds or starts the server, then talks to it until the user leaves."""

import argparse
import asyncio
import contextlib
import sys
from collections.abc import Sequence

import httpx

from unpaced.cli.chat.connection import Connection, Refused
from unpaced.cli.chat.conversation import Conversation
from unpaced.cli.health import default_url
from unpaced.cli.key import default_key
from unpaced.cli.models.model_word import DEMO, MODEL_HELP, fetch_model, source_flags

_EPILOG = """examples:
  unpaced chat                                    with the server on 127.0.0.1:8080
  unpaced chat --url https://host/llm --api-key K
  unpaced chat model.gguf -c 8192                 starts a server for this chat; flags are serve's
  unpaced chat demo                               the built-in model
  git diff | unpaced chat --system "Review this"  one question, one answer

Enter sends; Alt-Enter, Ctrl-J or a \\ at the end of a line begin another line, and pasted lines
stay together. Ctrl-C stops an answer, Ctrl-D leaves. /help lists the commands inside.
"""


def chat_parser() -> argparse.ArgumentParser:
    """The command's flags."""
    parser = argparse.ArgumentParser(
        prog="unpaced chat",
        usage="unpaced chat [MODEL [FLAG OF serve ...]] [--url URL] [--api-key KEY] "
        "[--system TEXT] [--no-history]",
        description="Talk to a model in the terminal.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "model", nargs="?", metavar="MODEL", help=f"start a server for it: {MODEL_HELP}"
    )
    parser.add_argument("--url", help=f"address of a running server; default: {default_url()}")
    parser.add_argument(
        "--api-key",
        metavar="KEY",
        help="key for a server that asks for one; default: UNPACED_API_KEY or LLAMA_API_KEY",
    )
    parser.add_argument("--system", default="", metavar="TEXT", help="the system message")
    parser.add_argument(
        "--no-history", action="store_true", help="neither read nor write the file of past inputs"
    )
    return parser


def chat(arguments: Sequence[str]) -> int:
    """0 when the user leaves; 1 where there is no server to talk to, or one question failed."""
    given, serve_flags = chat_parser().parse_known_args(arguments)
    reason = _why_not(given, serve_flags)
    if reason:
        return _fail(reason)
    try:
        with contextlib.ExitStack() as stack:
            connection = _connect(given, serve_flags, stack)
            question = None if sys.stdin.isatty() else sys.stdin.read()
            talk = _talk(
                connection,
                Conversation(given.system),
                question,
                keeps_history=not given.no_history,
            )
            return asyncio.run(talk)
    except (Refused, httpx.HTTPError) as error:
        return _fail(str(error) or type(error).__name__)


def _why_not(given: argparse.Namespace, serve_flags: Sequence[str]) -> str:
    if given.model is None:
        return f"unexpected argument {serve_flags[0]!r}" if serve_flags else ""
    if given.url is not None:
        return "MODEL starts a server and --url names one"
    if given.model != DEMO and not source_flags(given.model):
        return f"{given.model} is no GGUF file, no USER/REPO[:QUANT] and no URL"
    return ""


def _connect(
    given: argparse.Namespace, serve_flags: Sequence[str], stack: contextlib.ExitStack
) -> Connection:
    """Raises: Refused."""
    if given.model is not None:
        from unpaced.cli.chat.own_server import own_server
        from unpaced.download.transfer import DownloadError

        try:
            path = fetch_model(given.model)
        except DownloadError as error:
            raise Refused(str(error)) from None
        socket = stack.enter_context(own_server(path, serve_flags))
        return Connection("http://unpaced", "", socket=socket)
    url = (given.url or default_url()).rstrip("/")
    return Connection(url, default_key() if given.api_key is None else given.api_key)


async def _talk(
    connection: Connection,
    conversation: Conversation,
    question: str | None,
    *,
    keeps_history: bool,
) -> int:
    """Answer the one question, or else those that are typed. Raises: Refused, httpx.HTTPError."""
    from unpaced.cli.chat.interrupts import Interrupts
    from unpaced.cli.chat.session import Session

    async with contextlib.aclosing(connection):
        model = await connection.model_name()  # it is there, and takes the key
        with Interrupts() as interrupts:
            session = Session(connection, conversation, interrupts)
            if question is not None:
                return 0 if await session.answer(question) else 1
            from unpaced.cli.chat.keyboard import Keyboard

            await session.run(Keyboard(keeps_history=keeps_history), model)
    return 0


def _fail(message: str) -> int:
    print(f"unpaced chat: error: {message}", file=sys.stderr)
    return 1
