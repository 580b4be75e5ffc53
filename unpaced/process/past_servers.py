"""What a supervisor hands to the next server about those before it."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Self

VARIABLE: Final = "UNPACED_PAST_SERVERS"
REASONS: Final = ("signal", "engine_lost", "hang", "exit")
"""Why a server came to its end: by a signal, with status 70, by the supervisor, with another."""


@dataclass(slots=True)
class PastServers:
    """`restarts`: how many ended for which of REASONS. `last_cause`: of the latest, in words; empty
    before the first. `n_refused`: requests that the supervisor itself answered with 503."""

    restarts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(REASONS, 0))
    last_cause: str = ""
    n_refused: int = 0

    @classmethod
    def of_environment(cls, environment: Mapping[str, str] | None = None) -> Self | None:
        """What the supervisor has handed over; None: this process has none."""
        given = (os.environ if environment is None else environment).get(VARIABLE)
        return cls(**json.loads(given)) if given else None

    def to_environment(self) -> dict[str, str]:
        """The variable for the next server."""
        return {
            VARIABLE: json.dumps(
                {
                    "restarts": self.restarts,
                    "last_cause": self.last_cause,
                    "n_refused": self.n_refused,
                }
            )
        }
