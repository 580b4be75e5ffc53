"""Completions, from a request's checked body to its response: read, compile, enter, start."""

import secrets
import string
import time
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from engine_ext import Histogram, turn_taker
from unpaced.completion.admission import Admission
from unpaced.completion.choice import Choice
from unpaced.completion.response import CompletionResponse
from unpaced.completion.sequence_text import SequenceText
from unpaced.completion.slot_table import SlotTable
from unpaced.completion.writer import ChoiceWriter, ResponseFacts
from unpaced.grammar.spec import GrammarSpec
from unpaced.request.compiled_request import CompiledRequest, compile_request
from unpaced.request.model_host import ModelHost
from unpaced.request.prompt import Prompt, count_prompts
from unpaced.request.read_request import read_request
from unpaced.request.reasoning import Reasoning
from unpaced.schemas.completion import CompletionBody

_ALPHABET: Final = (string.ascii_letters + string.digits).encode()
_LETTERS: Final = bytes(_ALPHABET[byte % len(_ALPHABET)] for byte in range(256))
_SENTENCEPIECE: Final = 1  # LLAMA_VOCAB_TYPE_SPM
Writers = Callable[[ResponseFacts, Prompt, SequenceText], ChoiceWriter]
"""Makes the writer of one choice."""


class Observer(Protocol):
    """Counts what completions come to."""

    def inter_token(self, model: str) -> Histogram:
        """Gets the seconds between any two tokens of a sequence."""

    def observe_choice(self, choice: Choice) -> None:
        """A choice is over, by itself or not."""


class Completions:
    """Makes completions on one model. `live`: those that run or wait, by id."""

    def __init__(self, host: ModelHost, admission: Admission, observer: Observer) -> None:
        self._host = host
        self._observer = observer
        self.admission = admission
        self.slots = SlotTable(host.settings.n_slots)
        self.live: dict[str, CompletionResponse] = {}

    async def make(
        self,
        body: CompletionBody,
        writers: Writers,
        *,
        arrived_us: int,
        grammar: GrammarSpec | None = None,
        reasoning: Reasoning | None = None,
        marks: tuple[str, ...] = (),
    ) -> CompletionResponse:
        """Everything up to the engine's work and the response to send. Raises: ApiError.

        `grammar`: wins over what the body asks for. `reasoning`: when the model's must end.
        `marks`: control tokens in these texts are written out in the answer.
        """
        self.check_room(count_prompts(body.prompt) * body.n_choices)
        read = await read_request(self._host, body)
        compiled = await compile_request(
            self._host, read, grammar=grammar, reasoning=reasoning, marks=marks
        )
        choices = self._enter(compiled, arrived_us)
        return self._start(compiled, choices, writers)

    def check_room(self, n_sequences: int = 1) -> None:
        """Before any work on a request of so many sequences of the client at hand.

        Raises: ApiError, as `Admission.check_room`.
        """
        self.admission.check_room(n_sequences, client=turn_taker.get())

    def _enter(self, compiled: CompiledRequest, arrived_us: int) -> list[Choice]:
        """Take places in the queue: `n_choices` for each prompt. Raises: ApiError."""
        body, host = compiled.body, self._host
        model = host.names.of_request(body.model)
        sequences = [
            compiled.sequence(host, compiled.params.of_child(child), prompt)
            for prompt in compiled.prompts
            for child in range(body.n_choices)
        ]
        tickets = self.admission.enter(
            [len(sequence.prompt) for sequence in sequences],
            client=turn_taker.get(),
            priority=body.priority or 0,
            wanted=-1 if body.id_slot is None else body.id_slot,
        )
        return [
            Choice(
                host.engine,
                ticket,
                sequence,
                on_start=self.slots.started,
                on_end=self._observer.observe_choice,
                arrived_us=arrived_us,
                model=model,
                counts_prompt=index % body.n_choices == 0,
            )
            for index, (ticket, sequence) in enumerate(zip(tickets, sequences, strict=True))
        ]

    def _start(
        self, compiled: CompiledRequest, choices: Sequence[Choice], writers: Writers
    ) -> CompletionResponse:
        """Have the engine begin where slots are free, and prepare the answer meanwhile.

        Raises: ApiError.
        """
        try:
            for choice in choices:
                choice.start()
            facts = self._facts(compiled)
            n = compiled.body.n_choices
            for index, choice in enumerate(choices):
                text = SequenceText(
                    index,
                    facts.pieces,
                    facts.settings.stop,
                    self._observer.inter_token(choice.model),
                    ends_by_engine=compiled.ends_by_engine,
                )
                choice.write_by(
                    writers(facts.of_child(index % n), compiled.prompts[index // n], text)
                )
            return CompletionResponse(self._host, self.live, facts, choices)
        except BaseException:
            for choice in choices:
                choice.withdraw()
            raise

    def _facts(self, compiled: CompiledRequest) -> ResponseFacts:
        host, engine = self._host, self._host.engine
        return ResponseFacts(
            body=compiled.body,
            settings=compiled.params,
            model=host.names.first,
            fingerprint=host.fingerprint,
            completion_id="chatcmpl-" + _random_name(),
            created=int(time.time()),
            pieces=compiled.pieces,
            pieces_special=engine.token_pieces_special,
            eog_tokens=sorted(engine.model.eog_tokens),
            is_sentencepiece=engine.model.vocab_type == _SENTENCEPIECE,
        )


def _random_name() -> str:
    """32 letters and digits, from one reading of the system's random bytes."""
    return secrets.token_bytes(32).translate(_LETTERS).decode()
