"""`unpaced completion`: a script with which a shell completes commands and flags."""

import argparse
from collections.abc import Callable, Sequence
from typing import Final

_HOW: Final = """how:
  bash  unpaced completion bash > ~/.local/share/bash-completion/completions/unpaced
  zsh   unpaced completion zsh > ~/.zfunc/_unpaced      with ~/.zfunc in fpath
  fish  unpaced completion fish > ~/.config/fish/completions/unpaced.fish
"""
_FILES: Final = ("FILE", "FILES", "MODEL")
_FOLDERS: Final = ("FOLDER",)


def completion_parser() -> argparse.ArgumentParser:
    """The command's flags."""
    parser = argparse.ArgumentParser(
        prog="unpaced completion",
        description="Print a script that completes unpaced's commands and flags.",
        epilog=_HOW,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish"), help="for which shell")
    return parser


def completion(arguments: Sequence[str]) -> int:
    """Print the script; no shell waits for Python when a key is pressed."""
    import shtab

    given = completion_parser().parse_args(arguments)
    print(shtab.complete(_all_commands(), shell=given.shell))
    return 0


def _all_commands() -> argparse.ArgumentParser:
    """One parser of all commands, for completing alone."""
    from unpaced.cli.chat.command import chat_parser
    from unpaced.cli.complete import complete_parser
    from unpaced.cli.flags import serve_parser
    from unpaced.cli.health import health_parser
    from unpaced.cli.models.list import list_parser
    from unpaced.cli.models.pull import pull_parser
    from unpaced.cli.models.show import show_parser
    from unpaced.cli.rpc_worker import rpc_worker_parser

    commands: dict[str, tuple[str, Callable[[], argparse.ArgumentParser] | None]] = {
        "serve": ("serve a model", serve_parser),
        "chat": ("talk to a model in the terminal", chat_parser),
        "complete": ("send a prompt to a running server", complete_parser),
        "pull": ("download a model into the cache", pull_parser),
        "list": ("list the models in the cache", list_parser),
        "show": ("show what a model's file says", show_parser),
        "rpc-worker": ("compute a part of another machine's model", rpc_worker_parser),
        "health": ("ask whether a server is healthy", health_parser),
        "completion": ("print a script for a shell", completion_parser),
        "version": ("say which build this is", None),
        "help": ("list the commands", None),
    }
    parser = argparse.ArgumentParser(prog="unpaced")
    parsers = parser.add_subparsers(title="commands")
    for name, (text, make) in commands.items():
        parents = [] if make is None else [make()]
        command = parsers.add_parser(
            name, help=text, parents=parents, add_help=False, conflict_handler="resolve"
        )
        if name == "serve":
            command.add_argument("model_word", nargs="?", metavar="MODEL", help="GGUF file")
        for action in command._actions:
            _complete_paths(action)
    return parser


def _complete_paths(action: argparse.Action) -> None:
    import shtab

    kinds = {name: shtab.FILE for name in _FILES} | {name: shtab.DIRECTORY for name in _FOLDERS}
    if isinstance(action.metavar, str) and action.metavar in kinds:
        action.complete = kinds[action.metavar]  # type: ignore[attr-defined]
