"""Runs the sub-command that is named; it alone loads the heavy modules that it needs."""

import os
import sys
from collections.abc import Sequence

from engine_ext import EngineBuildError

_HELP = """usage: unpaced COMMAND [FLAG ...]

An HTTP inference server for GGUF models: llama-server's and OpenAI's API, tokens from a pinned
native thread.

commands:
  serve     serve a model; without -m the built-in demo model       unpaced serve --help
  complete  send a prompt to a running server, print as it comes    unpaced complete --help
  health    exit status 0 if a server answers that it is healthy    unpaced health --help
  version   version, llama.cpp commit and build profile             unpaced --version

examples:
  unpaced serve
  unpaced serve -m model.gguf -c 4096 -np 4 --port 9000
  unpaced complete "Once upon a time" -n 64

Flags without a command are serve's: `unpaced -m model.gguf` works as `llama-server -m model.gguf`.
"""


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
    if command == "health":
        from unpaced.cli.health import check_health

        return check_health(rest)
    if command == "complete":
        from unpaced.cli.complete import complete

        return complete(rest)
    if command == "serve" or command.startswith("-"):
        from unpaced.cli.serve import serve

        return serve(rest if command == "serve" else given)
    from unpaced.settings.options.suggestion import did_you_mean

    hint = did_you_mean(command, ("serve", "complete", "health", "version", "help"))
    print(f"unpaced: unknown command '{command}'{hint}", file=sys.stderr)
    print("unpaced --help lists the commands", file=sys.stderr)
    return 1
