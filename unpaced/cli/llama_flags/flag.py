"""One flag of llama-server that is no setting here."""

from collections.abc import Callable
from dataclasses import dataclass


def _never(_: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class LlamaFlag:
    """A flag that is accepted with a notice, or refused because answers would be others.

    `flags`: all spellings. `n_values`: how many values follow. `reason`: what is said, after the
    flag's name. `envs`: llama-server's environment variables, in full. `is_refused`: the server
    does not start with it, unless `is_harmless` says that the value asks for nothing. `is_quiet`:
    it asks for what is so anyway; nothing is said.
    """

    flags: tuple[str, ...]
    reason: str
    n_values: int = 0
    envs: tuple[str, ...] = ()
    is_refused: bool = False
    is_quiet: bool = False
    is_harmless: Callable[[str], bool] = _never

    @property
    def name(self) -> str:
        """The spelling that messages use: the longest."""
        return max(self.flags, key=len)


def make_flags(
    text: str, reason: str, *, is_refused: bool = False, is_quiet: bool = False
) -> list[LlamaFlag]:
    """Flags that share a reason, one a line: spellings, N for a value, variables in capitals.

    "-tbd --threads-batch-draft N" or "--perf LLAMA_ARG_PERF".
    """
    made = []
    for line in text.strip().splitlines():
        words = line.split()
        made.append(
            LlamaFlag(
                flags=tuple(word for word in words if word.startswith("-")),
                reason=reason,
                n_values=words.count("N"),
                envs=tuple(word for word in words if word.isupper() and word != "N"),
                is_refused=is_refused,
                is_quiet=is_quiet,
            )
        )
    return made
