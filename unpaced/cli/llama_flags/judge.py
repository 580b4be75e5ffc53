"""What is said about llama-server's flags that set nothing here, and which end the start."""

import argparse
import os
from collections.abc import Container, Iterator
from typing import Any, Final

from unpaced.cli.llama_flags.flag import LlamaFlag
from unpaced.cli.llama_flags.noticed import NOTICED
from unpaced.cli.llama_flags.refused import REFUSED
from unpaced.settings import SettingsError

_PREFIX: Final = "llama_flag:"
_OFF: Final = frozenset({"", "0", "false", "off", "disabled", "no"})


def llama_flags(claimed: Container[str]) -> Iterator[LlamaFlag]:
    """Every flag that is no setting; `claimed` are the spellings of settings."""
    for flag in (*NOTICED, *REFUSED):
        if flag.name not in claimed:
            yield flag


def add_llama_flags(parser: argparse.ArgumentParser, claimed: Container[str]) -> None:
    """Let the parser take them; they are in no help text."""
    for flag in llama_flags(claimed):
        arity: dict[str, Any] = {"action": "store_const", "const": ""}
        if flag.n_values:
            arity = {"nargs": flag.n_values}
        dest = _PREFIX + flag.name
        parser.add_argument(*flag.flags, dest=dest, help=argparse.SUPPRESS, **arity)


def judge_llama_flags(given: dict[str, Any], claimed: Container[str]) -> list[str]:
    """Take llama-server's flags out of the parsed command line, and look at the environment.

    Returns: one line for each that does nothing. Raises: SettingsError for one that is refused.
    """
    notices = []
    for flag in llama_flags(claimed):
        on_command_line = given.pop(_PREFIX + flag.name, None)
        if on_command_line is not None:
            name, value = flag.name, " ".join(on_command_line)
        else:
            found = [v for v in flag.envs if os.environ.get(v, "").lower() not in _OFF]
            if not found:
                continue
            name, value = found[0], os.environ[found[0]]
        if flag.is_quiet or (flag.is_refused and flag.is_harmless(value)):
            continue
        if flag.is_refused:
            raise SettingsError(f"{name}: {flag.reason}")
        notices.append(f"{name} has no effect: {flag.reason}")
    return notices
