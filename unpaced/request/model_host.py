"""The model that is served: its engine, what it is called, and what requests get by default."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from unpaced.request.visible_tokens import VisibleTokens
from unpaced.settings import Settings

if TYPE_CHECKING:
    from engine_ext import Engine


@dataclass(frozen=True, slots=True)
class ModelNames:
    """What the API calls the model. `tags` say something to people only."""

    aliases: tuple[str, ...]
    """Every name of the model, at least one."""
    tags: tuple[str, ...]

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """--alias; else the repository's name, else the path as it was given; of the built-in model
        the file's name."""
        aliases = _split(settings.alias)
        if not aliases and settings.hf_repo:
            aliases = (settings.hf_repo,)
        elif not aliases:
            given = "model" in settings.model_fields_set
            aliases = (str(settings.model) if given else settings.model.name,)
        return cls(aliases, _split(settings.tags))

    def of_request(self, asked: object) -> str:
        """The one that a request's `model` asks for; the first, if it is none of them."""
        return asked if isinstance(asked, str) and asked in self.aliases else self.first

    @property
    def first(self) -> str:
        """The one that answers bear: the first by the alphabet."""
        return self.aliases[0]


def _split(names: str) -> tuple[str, ...]:
    """Comma-separated names, in the alphabet's order, each once."""
    return tuple(sorted({name.strip() for name in names.split(",")} - {""}))


class ModelHost:
    """What requests need of the model. `fingerprint`: `system_fingerprint` and `build_info`, in
    llama-server's form, with llama.cpp's commit."""

    def __init__(self, engine: "Engine", settings: Settings, fingerprint: str) -> None:
        self.engine = engine
        """While the model is asleep the stopped engine, which still knows it."""
        self.settings = settings
        self.fingerprint = fingerprint
        self.names = ModelNames.of(settings)
        self.sampling_defaults = settings.sampling_defaults()
        """What a request gets that asks for nothing."""
        self.lora_scales = tuple(scale for _, scale in settings.loras())
        """Of each LoRA adapter, in requests that say nothing of them."""
        self.visible_tokens = VisibleTokens(engine, special=settings.special)
        self.is_asleep = False
        """Whether the model is not in memory until a request needs it."""

    def take_defaults(self, settings: Settings) -> None:
        """The settings with what the model's file has for those that nobody set."""
        self.settings = settings
        self.sampling_defaults = settings.sampling_defaults()

    def wake_with(self, engine: "Engine") -> None:
        """The model is in memory again, in another engine."""
        self.engine = engine
        self.visible_tokens = VisibleTokens(engine, special=self.settings.special)
        self.is_asleep = False
