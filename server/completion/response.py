"""The response to a completion request: runs its choices while it is sent."""

import asyncio
from collections.abc import Sequence

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from server.completion.choice import Choice
from server.completion.request_record import record_of
from server.completion.state import ServerState
from server.completion.streaming import StreamOptions, stream_merged, stream_one
from server.completion.writer import ChoiceWriter, ResponseFacts
from server.http.connection import connection_of
from server.http.disconnect import ClientGone, Disconnect
from server.http.errors import JSON_TYPE, ApiError, error_response


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
        record.unknown_samplers = self._facts.body.unknown_samplers
        self._state.live_completions[self._facts.completion_id] = self
        try:
            async with Disconnect(receive):
                await self._run(scope, receive, send)
        except ClientGone:
            connection = connection_of(scope)
            was_slow = connection is not None and connection.was_cut_off()
            record.aborted = "slow client" if was_slow else "disconnect"
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
        has_probs = writer.probs or self._facts.body.legacy_logprobs
        if has_probs and writer.generation.stopping_word:
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
