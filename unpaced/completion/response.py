"""The response to a completion request: runs its choices while it is sent."""

import asyncio
from collections.abc import Sequence
from typing import Any

import orjson
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from unpaced.completion.choice import Choice
from unpaced.completion.streaming import StreamOptions, stream
from unpaced.completion.writer import ChoiceWriter, ResponseFacts
from unpaced.http.disconnect import ClientGone, Disconnect
from unpaced.http.errors import JSON_TYPE, ApiError, error_response
from unpaced.http.request_record import record_of
from unpaced.http.wire.connection import connection_of
from unpaced.request.model_host import ModelHost


class CompletionResponse(Response):
    """Runs the request when it is sent, so that a client that leaves ends it in any state.

    `live`: where it is found by its id meanwhile.
    """

    def __init__(
        self,
        host: ModelHost,
        live: "dict[str, CompletionResponse]",
        facts: ResponseFacts,
        choices: Sequence[Choice],
    ) -> None:
        super().__init__()
        self._host = host
        self._live = live
        self.facts = facts
        self.choices = choices

    @property
    def is_running(self) -> bool:
        """Whether a choice has a slot."""
        return any(choice.phase in ("prefill", "decode") for choice in self.choices)

    @property
    def allows_control(self) -> bool:
        """Whether its request has asked for `reasoning_control`."""
        return bool(self.facts.body.reasoning_control)

    def end_reasoning(self) -> None:
        """Have every choice that is thinking stop with it."""
        for choice in self.choices:
            choice.end_reasoning()

    def to_log(self) -> dict[str, Any]:
        """Figures of the log line: those of all choices, and the first one's."""
        first = self.choices[0]
        timings = [choice.sequence_text.timings for choice in self.choices]
        entry = {
            "n_prompt": sum(t.n_prompt for t in timings),
            "n_cached": sum(t.n_cached for t in timings),
            "n_decoded": sum(t.n_decoded for t in timings),
            "stop": first.sequence_text.stop_type,
            # What it waited for: of several choices the one that waited longest.
            "queue_ms": _ms(max(choice.ticket.waited_us for choice in self.choices)),
            "copy_ms": _ms(max(t.copy_us for t in timings)),
            "cells_ms": _ms(max(t.cells_us for t in timings)),
        }
        # Of what host memory had of a prompt, if it had any.
        for name, n in (
            ("n_kept_copied", sum(t.n_kept_copied for t in timings)),
            ("n_kept_computed", sum(t.n_kept_computed for t in timings)),
        ):
            if n:
                entry[name] = n
        if timings[0].first_token_us:
            entry["ttft_ms"] = _ms(timings[0].first_token_us - first.arrived_us)
        return entry

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        record = record_of(scope)
        record.work = self
        record.unknown_samplers = self.facts.body.unknown_samplers
        self._live[self.facts.completion_id] = self
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
            self._live.pop(self.facts.completion_id, None)
            for choice in self.choices:
                choice.close()

    async def _run(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self.facts.body.stream:
            response = Response(await self._whole(), media_type=JSON_TYPE)
            await response(scope, receive, send)
            return
        interval = self.facts.body.sse_ping_interval
        options = StreamOptions(
            progress=bool(self.facts.body.return_progress),
            ping_s=self._host.settings.sse_ping_interval if interval is None else interval,
        )
        await stream(self.choices, scope, send, options)

    async def _whole(self) -> bytes:
        if len(self.choices) == 1:
            await self.choices[0].run()
        else:
            await _run_all(self.choices)
        writers = [choice.writer for choice in self.choices]
        for writer in writers:
            await self._drop_stop_probs(writer)
        return orjson.dumps(writers[0].respond(writers))

    async def _drop_stop_probs(self, writer: ChoiceWriter) -> None:
        """llama-server leaves out as many entries as the stop string has tokens."""
        has_probs = writer.probs or self.facts.body.legacy_logprobs
        if has_probs and writer.sequence_text.stopping_word:
            word = writer.sequence_text.stopping_word
            tokens = await self._host.engine.tokenize(word, add_special=False, parse_special=False)
            writer.drop_probs(len(tokens))


def _ms(us: int) -> float:
    return round(us / 1e3, 1)


async def _run_all(choices: Sequence[Choice]) -> None:
    tasks = [asyncio.create_task(choice.run()) for choice in choices]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
