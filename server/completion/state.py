"""What the routes share; hangs on `app.state.server`."""

import time
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

from starlette.requests import Request

from server.chat.templates import ChatTemplates
from server.completion.admission import Admission
from server.completion.slot_table import SlotTable
from server.completion.visible_tokens import VisibleTokens
from server.metrics.llamacpp_metrics import LlamacppMetrics
from server.metrics.metrics import Metrics
from server.process.sleep import Sleep
from server.settings import Settings

if TYPE_CHECKING:
    from engine_ext import Engine, SamplingParams
    from server.completion.response import CompletionResponse


class Phase(Enum):
    """Life of the server."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    FAILED = "failed"


@dataclass(slots=True)
class ServerState:
    """Engine, settings, queue, metrics, and where the server is in its life."""

    engine: "Engine"
    settings: Settings
    admission: Admission
    metrics: Metrics
    llamacpp: LlamacppMetrics
    slots: SlotTable
    chat: ChatTemplates
    visible_tokens: VisibleTokens
    fingerprint: str
    """`system_fingerprint` and `build_info`: llama-server's form, with llama.cpp's commit."""
    phase: Phase = Phase.LOADING
    failure: str = ""
    """Why the engine is lost, in the last phase."""
    sleep: Sleep | None = None
    """Who frees the model when nobody needs it; None: nobody does."""
    started_at: float = field(default_factory=time.time)
    live_completions: "dict[str, CompletionResponse]" = field(default_factory=dict)
    """By id; one that still waits for its slot is among them."""

    _lora_scales: tuple[float, ...] | None = None
    _defaults: "tuple[Settings, SamplingParams] | None" = None

    @property
    def lora_scales(self) -> tuple[float, ...]:
        """Of each LoRA adapter, in requests that say nothing of them."""
        if self._lora_scales is None:
            self._lora_scales = tuple(scale for _, scale in self.settings.loras())
        return self._lora_scales

    @lora_scales.setter
    def lora_scales(self, scales: tuple[float, ...]) -> None:
        self._lora_scales = scales

    @property
    def sampling_defaults(self) -> "SamplingParams":
        """What a request gets that asks for nothing; made once for each `settings`."""
        if self._defaults is None or self._defaults[0] is not self.settings:
            self._defaults = self.settings, self.settings.sampling_defaults()
        return self._defaults[1]

    @property
    def is_asleep(self) -> bool:
        """Whether the model is not in memory until a request needs it."""
        return self.sleep is not None and self.sleep.is_asleep

    @property
    def model_name(self) -> str:
        """The model's name in the API: the first alias by the alphabet, else the repository's,
        else the path as it was given; of the built-in model the file's name."""
        return self.aliases[0]

    @property
    def aliases(self) -> list[str]:
        """Every name of the model."""
        settings = self.settings
        names = _split(settings.alias)
        if names:
            return names
        if settings.hf_repo:
            return [settings.hf_repo]
        given = "model" in settings.model_fields_set
        return [str(settings.model) if given else settings.model.name]

    @property
    def tags(self) -> list[str]:
        """The model's tags; they say something to people only."""
        return _split(self.settings.tags)


def _split(names: str) -> list[str]:
    """Comma-separated names, in the alphabet's order, each once."""
    return sorted({name.strip() for name in names.split(",")} - {""})


def state_of(request: Request) -> ServerState:
    """The server's state, in a route."""
    state: ServerState = request.app.state.server
    return state
