"""Requests in the form that the decode thread takes."""

from __future__ import annotations

import asyncio
import contextlib
import random
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeVar

from engine_ext.base.native import load_native
from engine_ext.loading.config import EngineConfig
from engine_ext.loading.model_info import ModelInfo
from engine_ext.sequence.reasoning_budget import ReasoningBudget
from engine_ext.sequence.request import SequenceRequest
from engine_ext.sequence.sampling_params import (
    ADAPTIVE_P,
    INFILL,
    LINKS,
    RANDOM_SEED,
    SamplingParams,
)

if TYPE_CHECKING:
    from engine_ext import _native
else:
    _native = load_native()

# Fields that the native SamplingParams has under the same name, besides the seed.
_PLAIN_FIELDS: Final = tuple(
    name
    for name in SamplingParams.__slots__
    if name not in ("seed", "samplers", "logit_bias", "ignore_eos", "dry_sequence_breakers")
)
_all_but_seed: Final = attrgetter(*_PLAIN_FIELDS, "samplers")

StopKey = tuple[tuple[bytes, ...], bool, tuple[int, ...]]
"""Stop strings, whether control tokens are spelled out for them, and tokens that always are."""
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


def _keep(cache: dict[_Key, _Value], key: _Key, value: _Value) -> None:
    if len(cache) >= 64:
        # A client cannot make this grow: any entry can be made again.
        with contextlib.suppress(StopIteration, KeyError):
            del cache[next(iter(cache))]
    cache[key] = value


class NativeRequests:
    """Makes them, and keeps what many of them share: it is compiled once."""

    def __init__(self, native: _native.Engine, config: EngineConfig) -> None:
        self._native = native
        self._config = config
        # By all values but the seed, which may be another one for each request.
        self._sampling: dict[tuple[object, ...], _native.SamplingParams] = {}
        self._breakers: dict[tuple[str, ...], _native.DryBreakers] = {}
        self._infill: _native.InfillVocabulary | None = None
        self._stops: dict[StopKey, _native.StopStrings] = {}

    async def compile_sampling(self, sampling: SamplingParams) -> None:
        """Engine.compile_sampling."""
        if sampling.dry_multiplier != 0 and sampling.dry_sequence_breakers not in self._breakers:
            await asyncio.to_thread(self._dry_breakers, sampling.dry_sequence_breakers)
        if INFILL in sampling.samplers and self._infill is None:
            await asyncio.to_thread(self._infill_vocabulary)

    async def compile_stop(self, key: StopKey) -> None:
        """Engine.compile_stop."""
        if key[0] and key not in self._stops:
            await asyncio.to_thread(self._stop_strings, key)

    def spec(
        self, request: SequenceRequest, request_id: int, model: ModelInfo
    ) -> _native.RequestSpec:
        """The native form of `request`.

        Raises: ValueError, its text beginning with the field's name.
        """
        sampling = request.sampling
        spec = _native.RequestSpec()
        spec.id = request_id
        spec.prompt = request.prompt
        spec.sampling = self._native_sampling(sampling)
        is_drawn = sampling.seed == RANDOM_SEED
        spec.sampling.seed = random.getrandbits(32) if is_drawn else sampling.seed
        for token, bias in sampling.logit_bias:
            spec.add_logit_bias(token, bias)
        for token in model.suppress_tokens:
            spec.add_logit_bias(token, float("-inf"))
        if sampling.ignore_eos:
            for token in sorted(model.eog_tokens):
                spec.add_logit_bias(token, float("-inf"))
        if sampling.dry_multiplier != 0:
            spec.dry_breakers = self._dry_breakers(sampling.dry_sequence_breakers)
        if INFILL in sampling.samplers:
            spec.set_infill(self._infill_vocabulary())
        spec.max_tokens = request.max_tokens
        spec.n_probs = request.n_probs
        spec.want_logprob = request.n_probs > 0 or request.prompt_logprobs
        spec.post_sampling_probs = request.post_sampling_probs
        spec.prompt_logprobs = request.prompt_logprobs
        if request.stop:
            key = (request.stop, request.special, request.preserved_tokens)
            spec.set_stop(self._stop_strings(key))
        if request.n_indent > 0 or request.t_max_ms > 0:
            spec.limits = self._native.make_text_limits(
                request.n_indent, request.t_max_ms, request.special, request.preserved_tokens
            )
        for name in (
            "cache_prompt",
            "cache_domain",
            "id_slot",
            "n_cache_reuse",
            "n_keep",
            "n_discard",
        ):
            setattr(spec, name, getattr(request, name))
        scales = request.lora_scales
        spec.lora_scales = list(self._start_scales() if scales is None else scales)
        if request.grammar is not None:
            spec.mask = request.grammar.start()
            if request.grammar.triggers is not None:
                spec.add_pause_tokens(request.grammar.triggers)
        if request.reasoning_budget is not None:
            spec.reasoning_budget = self._reasoning_budget(request.reasoning_budget)
        return spec

    def _native_sampling(self, sampling: SamplingParams) -> _native.SamplingParams:
        values = _all_but_seed(sampling)
        kept = self._sampling.get(values)
        if kept is not None:
            return kept
        native = _native.SamplingParams()
        for name in _PLAIN_FIELDS:
            setattr(native, name, getattr(sampling, name))
        links = [name for name in sampling.samplers if name != ADAPTIVE_P]
        native.set_chain([LINKS.index(name) for name in links])
        native.adaptive_p = len(links) < len(sampling.samplers)
        _keep(self._sampling, values, native)
        return native

    def _reasoning_budget(self, budget: ReasoningBudget) -> _native.ReasoningBudget:
        return self._native.make_reasoning_budget(
            budget.start,
            budget.ends,
            budget.forced,
            budget.n_tokens,
            budget.suspends_grammar,
            budget.prompt,
        )

    def _dry_breakers(self, breakers: tuple[str, ...]) -> _native.DryBreakers:
        made = self._breakers.get(breakers)
        if made is None:
            made = self._native.make_dry_breakers(list(breakers))
            _keep(self._breakers, breakers, made)
        return made

    def _start_scales(self) -> tuple[float, ...]:
        return tuple(scale for _, scale in self._config.options.loras)

    def _infill_vocabulary(self) -> _native.InfillVocabulary:
        if self._infill is None:
            self._infill = self._native.make_infill_vocabulary()
        return self._infill

    def _stop_strings(self, key: StopKey) -> _native.StopStrings:
        made = self._stops.get(key)
        if made is None:
            stop, special, preserved = key
            made = self._native.make_stop_strings(list(stop), special, preserved)
            _keep(self._stops, key, made)
        return made
