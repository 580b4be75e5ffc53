"""The chat's commands: lines that begin with a slash."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from unpaced.cli.chat.conversation import Conversation
from unpaced.settings.options.suggestion import did_you_mean

_HELP: Final = """/help               this list
/system [TEXT]      set the system message; without TEXT: show it; /system - removes it
/set [NAME [VALUE]] a field of each request, such as /set temperature 0.2 or /set max_tokens 200;
                    without VALUE: the server's default again; without NAME: what is set
/clear              forget what was said; system message and settings stay
/save FILE          write the conversation as JSON, a body for /v1/chat/completions
/quit               leave, as Ctrl-D does

Enter sends; Alt-Enter, Ctrl-J or a \\ at the end of a line begin another line. Ctrl-C stops an
answer.
// at the beginning sends a text that begins with one slash."""


class Quit(Exception):
    """The user leaves."""


def run_slash(line: str, conversation: Conversation) -> str:
    """Do what a line such as `/set seed 1` says. Returns what the user is told. Raises: Quit."""
    name, _, rest = line.strip().partition(" ")
    command = COMMANDS.get(name)
    if command is None:
        return f"there is no {name}{did_you_mean(name, COMMANDS)}; /help lists the commands"
    return command(conversation, rest.strip())


def _help(_: Conversation, __: str) -> str:
    return _HELP


def _system(conversation: Conversation, text: str) -> str:
    if not text:
        return conversation.system or "there is no system message"
    conversation.system = "" if text == "-" else text
    return "the system message is set" if conversation.system else "the system message is gone"


def _set(conversation: Conversation, text: str) -> str:
    name, _, value = text.partition(" ")
    if not name:
        settings = conversation.settings.items()
        return "\n".join(f"{key} = {set_to!r}" for key, set_to in settings) or "nothing is set"
    try:
        conversation.set(name, value.strip())
    except ValueError as error:
        return str(error)
    if name not in conversation.settings:
        return f"{name} is the server's default"
    return f"{name} = {conversation.settings[name]!r}"


def _clear(conversation: Conversation, _: str) -> str:
    conversation.messages.clear()
    return "what was said is forgotten"


def _save(conversation: Conversation, text: str) -> str:
    if not text:
        return "/save FILE"
    path = Path(text).expanduser()
    try:
        conversation.save(path)
    except FileExistsError:
        return f"{path} is there already; nothing was written"
    except OSError as error:
        return f"{path}: {error.strerror}"
    return f"saved as {path}"


def _quit(_: Conversation, __: str) -> str:
    raise Quit


COMMANDS: Final[dict[str, Callable[[Conversation, str], str]]] = {
    "/help": _help,
    "/system": _system,
    "/set": _set,
    "/clear": _clear,
    "/save": _save,
    "/quit": _quit,
    "/exit": _quit,
}
