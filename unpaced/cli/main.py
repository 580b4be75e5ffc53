"""Runs the sub-command that is named; it alone loads the heavy modules that it needs."""

import os
import sys
from collections.abc import Callable, Sequence
from typing import Final

from engine_ext import EngineBuildError
from unpaced.cli.models.model_word import is_model_word

_HELP = """usage: unpaced COMMAND [FLAG ...]
       unpaced MODEL [FLAG ...]      the same as: unpaced serve MODEL [FLAG ...]

An HTTP inference server for GGUF models: llama-server's and OpenAI's API, tokens from a pinned
native thread.

commands:
  serve       serve a model; without one the built-in demo model      unpaced serve --help
  chat        talk to a model in the terminal                         unpaced chat --help
  complete    send a prompt to a running server, print as it comes    unpaced complete --help
  pull        download a model into the cache                         unpaced pull --help
  list        list the models in the cache                            unpaced list --help
  show        show what a model's file says, without loading it       unpaced show --help
  rpc-worker  compute a part of another machine's model               unpaced rpc-worker --help
  health      exit status 0 if a server answers that it is healthy    unpaced health --help
  completion  print a script that completes commands and flags        unpaced completion --help
  version     version, llama.cpp commit and build profile             unpaced --version

examples:
  unpaced serve
  unpaced model.gguf -c 4096 -np 4 --port 9000
  unpaced pull Qwen/Qwen3-0.6B-GGUF:Q8_0
  unpaced chat Qwen/Qwen3-0.6B-GGUF:Q8_0
  unpaced complete "Once upon a time" -n 64

MODEL is a GGUF file, USER/REPO[:QUANT] on Hugging Face, or a URL. Flags without a command are
serve's: `unpaced -m model.gguf` works as `llama-server -m model.gguf`.
"""

_COMMANDS: Final = (
    *("serve", "chat", "complete", "pull", "list", "show", "rpc-worker", "health", "completion"),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line. Returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    command, rest = (given[0], given[1:]) if given else ("--help", [])
    try:
        return _dispatch(command, rest, given)
    except EngineBuildError as error:  # whichever module was the first to need the engine
        print(f"unpaced: error: {error}", file=sys.stderr)
        return 1
    except (MemoryError, ImportError) as error:
        if not _is_out_of_memory(error):
            raise
        print(f"unpaced: error: there is not enough memory to start ({error})", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _is_out_of_memory(error: Exception) -> bool:
    """A limit (ulimit -v) ends an import wherever it happens to be, with the loader's words."""
    words = ("failed to map segment", "cannot allocate memory", "Cannot allocate memory")
    return isinstance(error, MemoryError) or any(word in str(error) for word in words)


def _dispatch(command: str, rest: Sequence[str], given: Sequence[str]) -> int:
    if command in ("-h", "--help", "help"):
        print(_HELP, end="")
        return 0
    if command in ("version", "--version"):
        from unpaced.cli.version import show_version

        return show_version()
    if command not in _COMMANDS and (command.startswith("-") or is_model_word(command)):
        command, rest = "serve", given
    if command in _COMMANDS:
        return _command(command)(rest)
    from unpaced.settings.options.suggestion import did_you_mean

    hint = did_you_mean(command, (*_COMMANDS, "version", "help"))
    print(f"unpaced: unknown command '{command}'{hint}", file=sys.stderr)
    print("unpaced --help lists the commands", file=sys.stderr)
    return 1


def _command(name: str) -> Callable[[Sequence[str]], int]:
    """What takes the arguments of a command and returns the exit status."""
    if name == "chat":
        from unpaced.cli.chat.command import chat as run
    elif name == "complete":
        from unpaced.cli.complete import complete as run
    elif name == "completion":
        from unpaced.cli.completion import completion as run
    elif name == "health":
        from unpaced.cli.health import check_health as run
    elif name == "list":
        from unpaced.cli.models.list import list_models as run
    elif name == "pull":
        from unpaced.cli.models.pull import pull as run
    elif name == "rpc-worker":
        from unpaced.cli.rpc_worker import rpc_worker as run
    elif name == "show":
        from unpaced.cli.models.show import show as run
    else:
        from unpaced.cli.serve import serve as run
    return run
