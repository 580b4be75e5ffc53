"""A request in the engine's form: grammar, stop strings, reasoning budget, the texts of tokens."""

from dataclasses import dataclass

from engine_ext import Grammar, ReasoningBudget, SequenceRequest, client_key
from unpaced.grammar.spec import GrammarSpec
from unpaced.request.cache_domain import cache_domain
from unpaced.request.compiled_grammar import compile_grammar
from unpaced.request.effective_params import EffectiveParams
from unpaced.request.engine_stops import engine_stops
from unpaced.request.grammar_fields import read_grammar, read_preserved_tokens
from unpaced.request.model_host import ModelHost
from unpaced.request.prompt import Prompt
from unpaced.request.read_request import ReadRequest
from unpaced.request.reasoning import Reasoning, reasoning_budget
from unpaced.schemas.completion import CompletionBody
from unpaced.settings import Settings


@dataclass(frozen=True, slots=True)
class CompiledRequest:
    """What the sequences of a request share. `pieces`: every token's bytes in the answer's text;
    `stops`: the stop strings that the engine finds."""

    body: CompletionBody
    prompts: list[Prompt]
    params: EffectiveParams
    lora_scales: tuple[float, ...]
    grammar: Grammar | None
    budget: ReasoningBudget | None
    stops: tuple[bytes, ...]
    pieces: list[bytes]

    @property
    def ends_by_engine(self) -> bool:
        """Whether the engine's word counts for what ends a text: it is limited in other ways than
        by stop strings, and the engine finds all of these."""
        body = self.body
        is_limited = bool(body.n_indent) or (body.t_max_predict_ms or 0) > 0
        return is_limited and len(self.stops) == len(set(self.params.stop) - {""})

    def sequence(self, host: ModelHost, params: EffectiveParams, prompt: Prompt) -> SequenceRequest:
        """One of its sequences, for the engine."""
        body, settings = self.body, host.settings
        max_tokens = settings.n_predict if params.n_predict == -1 else params.n_predict
        if max_tokens == 0 and not body.echo:
            max_tokens = 1  # llama-server's answer to 0; with `echo` the prompt alone is wanted
        return SequenceRequest(
            prompt=prompt.tokens,
            sampling=params.sampling,
            max_tokens=max_tokens,
            n_probs=min(params.n_probs, host.engine.model.n_vocab),
            post_sampling_probs=params.post_sampling_probs,
            prompt_logprobs=bool(body.echo) and bool(body.n_probs or body.legacy_logprobs),
            cache_prompt=settings.cache_prompt if body.cache_prompt is None else body.cache_prompt,
            n_cache_reuse=(
                settings.cache_reuse if body.n_cache_reuse is None else body.n_cache_reuse
            ),
            cache_domain=cache_domain(client_key.get(), body.cache_salt),
            id_slot=-1 if body.id_slot is None else body.id_slot,
            n_keep=params.n_keep,
            n_discard=params.n_discard,
            stop=self.stops,
            special=settings.special,
            preserved_tokens=params.preserved_tokens,
            n_indent=body.n_indent or 0,
            t_max_ms=body.t_max_predict_ms or 0,
            grammar=self.grammar,
            reasoning_budget=self.budget,
            lora_scales=self.lora_scales,
        )


async def compile_request(
    host: ModelHost,
    read: ReadRequest,
    *,
    grammar: GrammarSpec | None,
    reasoning: Reasoning | None,
    marks: tuple[str, ...],
) -> CompiledRequest:
    """Compile what the engine must not wait for. Raises: ApiError.

    `grammar`, `reasoning`, `marks`: as of `Completions.make`.
    """
    body, engine, settings = read.body, host.engine, host.settings
    if grammar is None:
        grammar = await read_grammar(engine, body) or settings.grammar_default
    compiled = None if grammar is None else await compile_grammar(engine, grammar)
    texts = await host.visible_tokens.texts(marks, await read_preserved_tokens(engine, body))
    budget = await reasoning_budget(
        engine,
        reasoning,
        has_lazy_grammar=bool(body.grammar_lazy and compiled and compiled.triggers),
    )
    params = _effective_params(settings, read, grammar, texts.preserved)
    stops = engine_stops(params.stop)
    await engine.compile_stop(stops, special=settings.special, preserved_tokens=texts.preserved)
    return CompiledRequest(
        body=body,
        prompts=read.prompts,
        params=params,
        lora_scales=read.lora_scales,
        grammar=compiled,
        budget=budget,
        stops=stops,
        pieces=texts.pieces,
    )


def _effective_params(
    settings: Settings,
    read: ReadRequest,
    grammar: GrammarSpec | None,
    preserved_tokens: tuple[int, ...],
) -> EffectiveParams:
    body = read.body
    return EffectiveParams(
        sampling=read.sampling,
        n_predict=settings.n_predict if body.n_predict is None else body.n_predict,
        stop=body.stop or settings.reverse_prompt,
        n_keep=settings.keep if body.n_keep is None else body.n_keep,
        n_discard=body.n_discard or 0,
        stream=bool(body.stream),
        n_probs=body.n_probs or 0,
        timings_per_token=bool(body.timings_per_token),
        post_sampling_probs=bool(body.post_sampling_probs),
        backend_sampling=bool(body.backend_sampling),
        grammar=grammar,
        preserved_tokens=preserved_tokens,
        reasoning_format=body.reasoning_format or settings.reasoning_format,
        generation_prompt=body.generation_prompt or "",
        lora=body.lora or (),
    )
