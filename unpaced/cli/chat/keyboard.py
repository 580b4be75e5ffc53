"""What the user types: several lines, completed commands, and inputs of earlier chats."""

import contextlib
import os
from pathlib import Path
from typing import Final

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

from unpaced.cli.chat.interrupts import Interrupted
from unpaced.cli.chat.slash import COMMANDS

_PROMPT: Final = "> "
_NEXT_LINE: Final = ". "


def history_file() -> Path:
    """Inputs of earlier chats, in the user's state folder."""
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(home) / "unpaced" / "chat_history"


class Keyboard:
    """A prompt on the terminal."""

    def __init__(self, *, keeps_history: bool) -> None:
        self._session: PromptSession[str] = PromptSession(
            history=_history() if keeps_history else InMemoryHistory(),
            key_bindings=_keys(),
            multiline=True,
            prompt_continuation=_NEXT_LINE,
            completer=WordCompleter(list(COMMANDS), sentence=True),
            complete_while_typing=False,
            interrupt_exception=Interrupted,
        )

    async def read(self) -> str:
        """One input. Raises: EOFError for Ctrl-D, Interrupted for the key Ctrl-C."""
        # The signal is the caller's: prompt_toolkit would lose one that comes right behind Enter.
        return await self._session.prompt_async(_PROMPT, handle_sigint=False)


def _history() -> History:
    path = history_file()
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # For nobody else: what people ask is theirs.
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
        return FileHistory(path)
    return InMemoryHistory()


def _keys() -> KeyBindings:
    keys = KeyBindings()
    keys.add("enter")(_send)
    keys.add("escape", "enter")(_new_line)
    keys.add("c-j")(_new_line)
    return keys


def _send(event: KeyPressEvent) -> None:
    """Unless a backslash says that another line follows."""
    buffer = event.current_buffer
    if buffer.document.char_before_cursor == "\\":
        buffer.delete_before_cursor()
        buffer.newline(copy_margin=False)
    else:
        buffer.validate_and_handle()


def _new_line(event: KeyPressEvent) -> None:
    event.current_buffer.newline(copy_margin=False)
