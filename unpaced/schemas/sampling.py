"""The sampling fields that all completion endpoints share, and their translation."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict

from engine_ext import SamplingParams
from unpaced.http.errors import invalid_field
from unpaced.values.json_values import INT32_MAX, Only, Real, Strings, Switch, Text, Whole
from unpaced.values.samplers import Chain

# Fields whose value goes to the engine as it is.
_SAME_NAME: Final = tuple(
    name for name in SamplingParams.__slots__ if name not in ("seed", "logit_bias", "dry_base")
)


class SamplingFields(BaseModel):
    """A field that is None has the server's default.

    Ranges: llama.cpp 0c1e57098, tools/server/server-schema.cpp.

    Unknown keys are ignored, as llama-server does; known ones that we cannot honour are refused.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    seed: Annotated[int | None, Whole(-(2**63), 2**64 - 1)] = None
    temperature: Annotated[float | None, Real(0.0)] = None
    dynatemp_range: Annotated[float | None, Real()] = None
    dynatemp_exponent: Annotated[float | None, Real()] = None
    top_k: Annotated[int | None, Whole(0, INT32_MAX, soft=True)] = None
    top_p: Annotated[float | None, Real(0.0, 1.0)] = None
    min_p: Annotated[float | None, Real(0.0, 1.0)] = None
    top_n_sigma: Annotated[float | None, Real()] = None
    xtc_probability: Annotated[float | None, Real(0.0, 1.0)] = None
    xtc_threshold: Annotated[float | None, Real(0.0, 1.0)] = None
    typical_p: Annotated[float | None, Real()] = None
    repeat_last_n: Annotated[int | None, Whole(0, INT32_MAX)] = None
    repeat_penalty: Annotated[float | None, Real()] = None
    frequency_penalty: Annotated[float | None, Real()] = None
    presence_penalty: Annotated[float | None, Real()] = None
    dry_multiplier: Annotated[float | None, Real()] = None
    dry_base: Annotated[float | None, Real()] = None
    dry_allowed_length: Annotated[int | None, Whole(0, INT32_MAX)] = None
    dry_penalty_last_n: Annotated[int | None, Whole(0, INT32_MAX)] = None
    dry_sequence_breakers: Annotated[tuple[str, ...] | None, Strings()] = None
    mirostat: Annotated[int | None, Whole(0, 2, soft=True)] = None
    mirostat_tau: Annotated[float | None, Real()] = None
    mirostat_eta: Annotated[float | None, Real()] = None
    min_keep: Annotated[int | None, Whole(0, INT32_MAX)] = None
    adaptive_target: Annotated[float | None, Real(high=1.0)] = None  # below 0: off
    adaptive_decay: Annotated[float | None, Real(0.0, 0.99, soft=False)] = None
    samplers: Annotated[tuple[str, ...] | None, Chain()] = None
    ignore_eos: Annotated[bool | None, Switch()] = None
    logit_bias: Any = None
    grammar: Annotated[str | None, Text()] = None
    json_schema: Any = None
    grammar_lazy: Annotated[bool | None, Switch()] = None
    grammar_triggers: Any = None
    preserved_tokens: Annotated[tuple[str, ...] | None, Strings()] = None
    # The device samples whatever it can without being asked, with the same tokens.
    backend_sampling: Annotated[bool | None, Switch()] = None

    # Known, and a 400 where they ask for something.
    repetition_penalty: Annotated[Any, Only((1, 1.0), "not supported; use repeat_penalty")] = None

    def to_sampling_params(
        self, defaults: SamplingParams, logit_bias: Sequence[tuple[int, float]] | None
    ) -> SamplingParams:
        """`defaults` with this request's values in place. `logit_bias` None: the defaults' own.

        Raises: ApiError naming the field for what the engine refuses.
        """
        given = self.model_fields_set  # mostly few
        changes: dict[str, Any] = {
            name: value
            for name in _SAME_NAME
            if name in given and (value := getattr(self, name)) is not None
        }
        if self.dry_base is not None and self.dry_base >= 1.0:
            changes["dry_base"] = self.dry_base
        if self.dry_sequence_breakers == ():
            raise invalid_field(
                "dry_sequence_breakers",
                "Error: dry_sequence_breakers must be a non-empty array of strings",
            )
        if logit_bias is not None:
            changes["logit_bias"] = tuple(logit_bias)
        try:
            if logit_bias is None and self.dry_sequence_breakers is None:
                made = _with_changes(defaults, tuple(changes.items()))
            else:
                made = replace(defaults, **changes)
            return made if self.seed is None else made.with_seed(self.seed & 0xFFFFFFFF)
        except ValueError as error:
            name, _, text = str(error).partition(": ")
            raise invalid_field(name, text) from None


@lru_cache(maxsize=64)
def _with_changes(defaults: SamplingParams, changes: tuple[tuple[str, Any], ...]) -> SamplingParams:
    """Kept, since a client mostly asks for the same; without what may be long, and the seed."""
    return replace(defaults, **dict(changes))
