"""From a completion request's checked body to its response."""

import secrets
import string
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from engine_ext import Grammar, ReasoningBudget, SamplingParams, SequenceRequest, client_key
from server.completion.choice import Choice
from server.completion.effective_params import EffectiveParams
from server.completion.prompt import Prompt, count_prompts, read_logit_bias, read_prompts
from server.completion.reasoning import Thoughts, reasoning_budget
from server.completion.response import CompletionResponse
from server.completion.sequence_text import SequenceText
from server.completion.state import ServerState
from server.completion.submission import Submission
from server.completion.text_stream import engine_stops
from server.completion.writer import ChoiceWriter, ResponseFacts
from server.grammar.compile import compile_grammar
from server.grammar.fields import read_grammar, read_preserved_tokens
from server.grammar.spec import GrammarSpec
from server.http.errors import invalid, invalid_field
from server.schemas.completion import CompletionBody
from server.schemas.lora import scales_of_all

if TYPE_CHECKING:
    from engine_ext import TokenEvent

_ALPHABET: Final = (string.ascii_letters + string.digits).encode()
_LETTERS: Final = bytes(_ALPHABET[byte % len(_ALPHABET)] for byte in range(256))
_SENTENCEPIECE: Final = 1  # LLAMA_VOCAB_TYPE_SPM
Writers = Callable[[ResponseFacts, Prompt, SequenceText], ChoiceWriter]
"""Makes the writer of one choice."""


async def make_completion(
    state: ServerState,
    body: CompletionBody,
    writer: Writers,
    *,
    arrived_us: int,
    grammar: GrammarSpec | None = None,
    thoughts: Thoughts | None = None,
    marks: tuple[str, ...] = (),
) -> CompletionResponse:
    """Tokenise, check against the model, and take places in the queue. Raises: ApiError.

    `grammar`: wins over what the body asks for. `thoughts`: when the model's must end. `marks`:
    control tokens in these texts are written out in the answer.
    """
    state.admission.check_room(count_prompts(body.prompt) * body.n_choices)
    if body.verbose is None and state.settings.verbose:
        body = body.model_copy(update={"verbose": True})
    engine = state.engine
    lora_scales = _lora_scales(state, body)
    biases = await read_logit_bias(engine, body.logit_bias, state.settings.max_logit_bias)
    sampling = body.to_sampling_params(state.sampling_defaults, biases)
    try:
        await engine.prepare(sampling)
    except ValueError as error:
        raise invalid(str(error)) from None
    prompts = await read_prompts(engine, body.prompt)
    engine.expect()
    if grammar is None:
        grammar = await read_grammar(engine, body) or state.settings.grammar_default
    compiled = None if grammar is None else await compile_grammar(state, grammar)
    texts = await state.visible_tokens.texts(marks, await read_preserved_tokens(engine, body))
    budget = await reasoning_budget(
        engine,
        thoughts,
        has_lazy_grammar=bool(body.grammar_lazy and compiled and compiled.plan),
    )
    settings = _generation_settings(state, body, sampling, grammar, texts.preserved)
    await engine.prepare_stop(
        engine_stops(settings.stop),
        special=state.settings.special,
        preserved_tokens=texts.preserved,
    )
    n = body.n_choices
    tickets = state.admission.enter(
        [len(prompt.tokens) for prompt in prompts for _ in range(n)],
        key=client_key.get(),
        wanted=-1 if body.id_slot is None else body.id_slot,
    )
    submissions = []
    for index, ticket in enumerate(tickets):
        child = settings.of_child(index % n)
        request = _engine_request(
            state, body, child, prompts[index // n], compiled, budget, lora_scales
        )
        submissions.append(Submission(engine, ticket, request))
    try:
        for submission in submissions:
            submission.start()  # the engine computes while the rest of the answer is prepared
        facts = _response_facts(state, body, settings, texts.pieces)
        choices = []
        for index, submission in enumerate(submissions):
            child_facts, prompt = facts.of_child(index % n), prompts[index // n]
            choices.append(
                _choice(state, submission, child_facts, prompt, index, writer, arrived_us)
            )
        return CompletionResponse(state, facts, choices)
    except BaseException:
        for submission in submissions:
            submission.close()
        raise


def _response_facts(
    state: ServerState, body: CompletionBody, settings: EffectiveParams, pieces: list[bytes]
) -> ResponseFacts:
    engine = state.engine
    return ResponseFacts(
        body=body,
        settings=settings,
        model=state.model_name,
        fingerprint=state.fingerprint,
        completion_id="chatcmpl-" + _random_name(),
        created=int(time.time()),
        pieces=pieces,
        pieces_special=engine.token_pieces_special,
        eog_tokens=sorted(engine.model.eog_tokens),
        is_sentencepiece=engine.model.vocab_type == _SENTENCEPIECE,
    )


def _choice(
    state: ServerState,
    submission: Submission,
    facts: ResponseFacts,
    prompt: Prompt,
    index: int,
    writer: Writers,
    arrived_us: int,
) -> Choice:
    body = facts.body
    generation = SequenceText(
        index,
        facts.pieces,
        facts.settings.stop,
        state.metrics.inter_token,
        is_limited=bool(body.n_indent) or (body.t_max_predict_ms or 0) > 0,
    )
    return Choice(
        submission,
        writer(facts, prompt, generation),
        on_start=partial(_note_start, state),
        on_end=state.metrics.observe_choice,
        arrived_us=arrived_us,
    )


def _random_name() -> str:
    """32 letters and digits, from one reading of the system's random bytes."""
    return secrets.token_bytes(32).translate(_LETTERS).decode()


def _note_start(state: ServerState, choice: Choice, event: "TokenEvent") -> None:
    facts = choice.writer.facts
    state.slots.started(event, choice.ticket, choice.generation, facts.settings)


def _generation_settings(
    state: ServerState,
    body: CompletionBody,
    sampling: SamplingParams,
    grammar: GrammarSpec | None,
    preserved_tokens: tuple[int, ...],
) -> EffectiveParams:
    return EffectiveParams(
        sampling=sampling,
        n_predict=state.settings.n_predict if body.n_predict is None else body.n_predict,
        stop=body.stop or state.settings.reverse_prompt,
        n_keep=state.settings.keep if body.n_keep is None else body.n_keep,
        n_discard=body.n_discard or 0,
        stream=bool(body.stream),
        n_probs=body.n_probs or 0,
        timings_per_token=bool(body.timings_per_token),
        post_sampling_probs=bool(body.post_sampling_probs),
        backend_sampling=bool(body.backend_sampling),
        grammar=grammar,
        preserved_tokens=preserved_tokens,
        reasoning_format=body.reasoning_format or state.settings.reasoning_format,
        generation_prompt=body.generation_prompt or "",
        lora=body.lora or (),
    )


def _engine_request(
    state: ServerState,
    body: CompletionBody,
    settings: EffectiveParams,
    prompt: Prompt,
    grammar: Grammar | None,
    budget: ReasoningBudget | None,
    lora_scales: tuple[float, ...],
) -> SequenceRequest:
    max_tokens = state.settings.n_predict if settings.n_predict == -1 else settings.n_predict
    if max_tokens == 0 and not body.echo:
        max_tokens = 1  # llama-server's answer to 0; with `echo` the prompt alone is wanted
    cache_prompt = state.settings.cache_prompt if body.cache_prompt is None else body.cache_prompt
    return SequenceRequest(
        prompt=prompt.tokens,
        sampling=settings.sampling,
        max_tokens=max_tokens,
        n_probs=min(settings.n_probs, state.engine.model.n_vocab),
        post_sampling_probs=settings.post_sampling_probs,
        prompt_logprobs=bool(body.echo) and bool(body.n_probs or body.legacy_logprobs),
        cache_prompt=cache_prompt,
        n_cache_reuse=(
            state.settings.cache_reuse if body.n_cache_reuse is None else body.n_cache_reuse
        ),
        id_slot=-1 if body.id_slot is None else body.id_slot,
        n_keep=settings.n_keep,
        n_discard=settings.n_discard,
        stop=engine_stops(settings.stop),
        special=state.settings.special,
        preserved_tokens=settings.preserved_tokens,
        n_indent=body.n_indent or 0,
        t_max_ms=body.t_max_predict_ms or 0,
        grammar=grammar,
        reasoning_budget=budget,
        lora_scales=lora_scales,
    )


def _lora_scales(state: ServerState, body: CompletionBody) -> tuple[float, ...]:
    if not body.lora:
        return state.lora_scales
    try:
        return scales_of_all(body.lora, len(state.lora_scales))
    except ValueError as error:
        raise invalid_field("lora", str(error)) from None
