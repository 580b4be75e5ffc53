"""A chat from its first input to its last."""

import contextlib
import sys
from typing import Any, Final, Protocol

import httpx

from unpaced.cli.chat.connection import Connection, Refused
from unpaced.cli.chat.conversation import Conversation
from unpaced.cli.chat.interrupts import Interrupted, Interrupts
from unpaced.cli.chat.slash import Quit, run_slash
from unpaced.cli.terminal_text import printable, printable_line

_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"
_LEAVE: Final = "Ctrl-D or /quit leaves"


class Input(Protocol):
    """Where inputs come from."""

    async def read(self) -> str:
        """One input. Raises: EOFError at the end, Interrupted for Ctrl-C."""


class Session:
    """Reads inputs, prints answers, keeps the conversation."""

    def __init__(
        self, connection: Connection, conversation: Conversation, interrupts: Interrupts
    ) -> None:
        self._connection = connection
        self._conversation = conversation
        self._interrupts = interrupts
        self._is_dim = False

    async def run(self, keyboard: Input, model: str) -> None:
        """Until the user leaves. `model`: its name."""
        self._note(f"{printable_line(model)}; /help lists the commands")
        while True:
            try:
                text = await self._interrupts.ending(keyboard.read())
            except Interrupted:
                self._note(_LEAVE)
                continue
            except EOFError:
                return
            if not text.strip():
                continue
            if text.startswith("/") and not text.startswith("//"):
                try:
                    self._note(printable(run_slash(text, self._conversation)))
                except Quit:
                    return
                continue
            await self.answer(text.removeprefix("/") if text.startswith("//") else text)

    async def answer(self, text: str) -> bool:
        """Print the answer to `text` as it comes. False: it failed, which is said.

        What was printed before Ctrl-C is kept as the answer.
        """
        said: list[str] = []
        note = ""
        try:
            note = await self._interrupts.ending(
                self._print_answer(self._conversation.body(text), said)
            )
        except Interrupted:
            note = "stopped"
        except (Refused, httpx.HTTPError) as error:
            self._end_line()
            print(printable(str(error)) or type(error).__name__, file=sys.stderr)
            return False
        self._end_line()
        self._conversation.add(text, "".join(said))
        if note and sys.stdout.isatty():
            self._note(note)
        return True

    async def _print_answer(self, body: dict[str, Any], said: list[str]) -> str:
        figures: dict[str, Any] = {}
        async with contextlib.aclosing(self._connection.answer(body)) as pieces:
            async for piece in pieces:
                self._print(piece.reasoning, dim=True)
                self._print(piece.text, dim=False)
                if piece.text:
                    said.append(piece.text)
                figures = piece.timings or figures
        n, rate = figures.get("predicted_n", 0), figures.get("predicted_per_second", 0.0)
        return f"{n} tokens, {rate:.1f} tokens/s" if n else ""

    def _print(self, text: str, *, dim: bool) -> None:
        if not text or (dim and not sys.stdout.isatty()):  # a pipe gets the answer alone
            return
        if self._is_dim != dim and sys.stdout.isatty():
            # The answer begins on a line of its own.
            print(_DIM if dim else f"{_PLAIN}\n\n", end="")
        self._is_dim = dim
        print(printable(text), end="", flush=True)

    def _end_line(self) -> None:
        if self._is_dim:
            print(_PLAIN, end="")
            self._is_dim = False
        print(flush=True)

    def _note(self, text: str) -> None:
        print(f"{_DIM}{text}{_PLAIN}" if sys.stdout.isatty() else text, flush=True)
