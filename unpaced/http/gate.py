"""Whether requests are let in: not while the model is loaded, the server stops or the engine is
lost."""

from collections.abc import Callable
from enum import Enum

from unpaced.http.errors import ApiError, loading, unavailable


class Phase(Enum):
    """Life of the server. The values are the metrics' words for a refusal."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"


class Gate:
    """Where the server is in its life; `on_refusal` gets the phase's word for each refusal."""

    def __init__(self, on_refusal: Callable[[str], None]) -> None:
        self._on_refusal = on_refusal
        self.phase = Phase.LOADING
        self.failure = ""
        """Why the engine is lost, in the last phase."""

    def refusal(self) -> ApiError | None:
        """503 with what a request is told that comes now; None: it is let in."""
        if self.phase is Phase.READY:
            return None
        self._on_refusal(self.phase.value)
        if self.phase is Phase.LOADING:
            return loading()
        if self.phase is Phase.FAILED:
            return unavailable("the engine has failed", close=True)
        return unavailable("the server is shutting down", close=True)
