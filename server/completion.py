"""A completion request as a whole: from its checked body to the last byte of the response."""

import asyncio
import secrets
import string
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from engine_ext import Grammar, ReasoningBudget, Request, SamplingParams
from server.admission import client_key
from server.choice import Choice
from server.disconnect import ClientGone, Disconnect, abort_connection
from server.errors import JSON_TYPE, ApiError, error_response, invalid, invalid_field
from server.generation import Generation
from server.grammar.compile import compile_grammar
from server.grammar.fields import read_grammar, read_preserved_tokens
from server.grammar.spec import GrammarSpec
from server.prompt import Prompt, read_logit_bias, read_prompts
from server.request_record import record_of
from server.responses.generation_settings import GenerationSettings
from server.responses.writer import ChoiceWriter, ResponseFacts
from server.schemas.completion import CompletionBody
from server.schemas.lora import scales_of_all
from server.state import ServerState
from server.streaming import SlowClient, StreamOptions, stream_merged, stream_one
from server.text_stream import engine_stops
from server.thoughts import Thoughts, reasoning_budget

if TYPE_CHECKING:
    from engine_ext import TokenEvent

_ALPHABET: Final = (string.ascii_letters + string.digits).encode()
_LETTERS: Final = bytes(_ALPHABET[byte % len(_ALPHABET)] for byte in range(256))
_SENTENCEPIECE: Final = 1  # LLAMA_VOCAB_TYPE_SPM
Writers = Callable[[ResponseFacts, Prompt, Generation], ChoiceWriter]
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
) -> "CompletionResponse":
    """Tokenise, check against the model, and take places in the queue. Raises: ApiError.

    `grammar`: wins over what the body asks for. `thoughts`: when the model's must end. `marks`:
    control tokens in these texts are written out in the answer.
    """
    state.admission.check_room()
    if body.verbose is None and state.settings.verbose:
        body = body.model_copy(update={"verbose": True})
    engine = state.engine
    lora_scales = _lora_scales(state, body)
    biases = await read_logit_bias(engine, body.logit_bias)
    sampling = body.to_sampling_params(state.sampling_defaults, biases)
    try:
        await engine.prepare(sampling)
    except ValueError as error:
        raise invalid(str(error)) from None
    prompts = await read_prompts(engine, body.prompt)
    if grammar is None:
        grammar = await read_grammar(engine, body) or state.settings.grammar_default
    compiled = None if grammar is None else await compile_grammar(state, grammar)
    texts = await state.visible_tokens.texts(marks, await read_preserved_tokens(engine, body))
    budget = await reasoning_budget(
        engine,
        thoughts,
        has_lazy_grammar=bool(body.grammar_lazy and compiled and compiled.plan),
    )
    settings = replace(
        _generation_settings(state, body, sampling),
        grammar=grammar,
        preserved_tokens=texts.preserved,
    )
    await engine.prepare_stop(
        engine_stops(settings.stop),
        special=state.settings.special,
        preserved_tokens=texts.preserved,
    )
    facts = ResponseFacts(
        body=body,
        settings=settings,
        model=state.model_name,
        fingerprint=state.fingerprint,
        completion_id="chatcmpl-" + _random_name(),
        created=int(time.time()),
        pieces=texts.pieces,
        pieces_special=engine.token_pieces_special,
        eog_tokens=sorted(engine.model.eog_tokens),
        is_sentencepiece=engine.model.vocab_type == _SENTENCEPIECE,
    )
    n = body.n_choices
    tickets = state.admission.enter(
        [len(prompt.tokens) for prompt in prompts for _ in range(n)],
        key=client_key.get(),
        wanted=-1 if body.id_slot is None else body.id_slot,
    )
    choices = []
    for index, ticket in enumerate(tickets):
        prompt, child = prompts[index // n], facts.of_child(index % n)
        generation = Generation(
            index,
            facts.pieces,
            settings.stop,
            state.metrics.inter_token,
            is_limited=bool(body.n_indent) or (body.t_max_predict_ms or 0) > 0,
        )
        choices.append(
            Choice(
                engine,
                ticket,
                _engine_request(state, child, prompt, compiled, budget, lora_scales),
                writer(child, prompt, generation),
                on_start=partial(_note_start, state),
                on_end=state.metrics.observe_choice,
                arrived_us=arrived_us,
            )
        )
    return CompletionResponse(state, facts, choices)


def _random_name() -> str:
    """32 letters and digits, from one reading of the system's random bytes."""
    return secrets.token_bytes(32).translate(_LETTERS).decode()


def _note_start(state: ServerState, choice: Choice, event: "TokenEvent") -> None:
    facts = choice.writer.facts
    state.slots.started(event, choice.ticket, choice.generation, facts.settings)


def _generation_settings(
    state: ServerState, body: CompletionBody, sampling: SamplingParams
) -> GenerationSettings:
    return GenerationSettings(
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
        reasoning_format=body.reasoning_format or state.settings.reasoning_format,
        generation_prompt=body.generation_prompt or "",
        lora=body.lora or (),
    )


def _engine_request(
    state: ServerState,
    facts: ResponseFacts,
    prompt: Prompt,
    grammar: Grammar | None,
    budget: ReasoningBudget | None,
    lora_scales: tuple[float, ...],
) -> Request:
    body, settings = facts.body, facts.settings
    max_tokens = state.settings.n_predict if settings.n_predict == -1 else settings.n_predict
    if max_tokens == 0 and not body.echo:
        max_tokens = 1  # llama-server's answer to 0; with `echo` the prompt alone is wanted
    cache_prompt = state.settings.cache_prompt if body.cache_prompt is None else body.cache_prompt
    return Request(
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


class CompletionResponse(Response):
    """Runs the request when it is sent, so that a client that leaves ends it in any state."""

    def __init__(self, state: ServerState, facts: ResponseFacts, choices: Sequence[Choice]) -> None:
        super().__init__()
        self._state = state
        self._facts = facts
        self._choices = choices

    @property
    def is_running(self) -> bool:
        """True while a choice has a slot."""
        return any(choice.phase in ("prefill", "decode") for choice in self._choices)

    @property
    def allows_control(self) -> bool:
        """Whether its request has asked for `reasoning_control`."""
        return bool(self._facts.body.reasoning_control)

    def end_thoughts(self) -> None:
        """Have every choice that is thinking stop with it."""
        for choice in self._choices:
            choice.end_thoughts()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        record = record_of(scope)
        record.choices = self._choices
        self._state.live_completions[self._facts.completion_id] = self
        try:
            async with Disconnect(receive):
                await self._run(scope, receive, send)
        except ClientGone:
            record.aborted = "disconnect"
        except SlowClient:
            record.aborted = "slow client"
            await abort_connection(scope)
        except ApiError as error:
            await error_response(error, scope["path"])(scope, receive, send)
        finally:
            self._state.live_completions.pop(self._facts.completion_id, None)
            for choice in self._choices:
                choice.close()

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._facts.body.stream:
            response = Response(await self._whole(), media_type=JSON_TYPE)
            await response(scope, receive, send)
            return
        interval = self._facts.body.sse_ping_interval
        settings = self._state.settings
        options = StreamOptions(
            progress=bool(self._facts.body.return_progress),
            ping_s=settings.sse_ping_interval if interval is None else interval,
            send_timeout_s=settings.send_timeout,
        )
        if len(self._choices) == 1:
            await stream_one(self._choices[0], scope, send, options)
        else:
            await stream_merged(self._choices, scope, send, options)

    async def _whole(self) -> bytes:
        if len(self._choices) == 1:
            await self._choices[0].run()
        else:
            await _run_all(self._choices)
        writers = [choice.writer for choice in self._choices]
        for writer in writers:
            await self._drop_stop_probs(writer)
        return orjson.dumps(writers[0].respond(writers))

    async def _drop_stop_probs(self, writer: ChoiceWriter) -> None:
        """llama-server leaves out as many entries as the stop string has tokens."""
        if writer.probs and writer.generation.stopping_word:
            word = writer.generation.stopping_word
            tokens = await self._state.engine.tokenize(word, add_special=False, parse_special=False)
            writer.drop_probs(len(tokens))


async def _run_all(choices: Sequence[Choice]) -> None:
    tasks = [asyncio.create_task(choice.run()) for choice in choices]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
