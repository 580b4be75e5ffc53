"""What each slot does, or did last, for GET /slots. Event loop's thread only."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import structlog

if TYPE_CHECKING:
    from engine_ext import TokenEvent
    from unpaced.completion.choice import Choice

_log: Final = structlog.stdlib.get_logger("unpaced")


@dataclass(frozen=True, slots=True)
class _Task:
    id: int
    choice: "Choice"


class SlotTable:
    """Knows the last sequence of every slot."""

    def __init__(self, n_slots: int) -> None:
        self._tasks: list[_Task | None] = [None] * n_slots

    def started(self, choice: "Choice", event: "TokenEvent") -> None:
        """A choice has its slot: `event` is STARTED."""
        if event.slot < len(self._tasks):
            self._tasks[event.slot] = _Task(event.request_id, choice)
        if event.updated_cache:
            _log.debug("updating prompt cache", slot=event.slot, n_cached=event.n_cached)
        for _ in range(event.n_idle_saved):
            # llama-server's tests look for its mark in the log.
            _log.debug("idle slot saved to the prompt cache: __TEST_TAG_CACHE_IDLE_SLOT__")

    def running(self) -> list[bool]:
        """Whether a slot has a sequence, for each slot."""
        return [task is not None and task.choice.ticket.is_granted for task in self._tasks]

    @property
    def n_idle(self) -> int:
        """Slots without a sequence."""
        return self.running().count(False)

    def to_json(
        self, n_ctx: int, n_cells: list[int], n_cells_shared: list[int]
    ) -> list[dict[str, Any]]:
        """llama-server's array. `n_ctx`: tokens a slot may hold; `n_cells`: what each one holds;
        `n_cells_shared`, which is ours: those of them that others hold in the same cells.

        Source: llama.cpp 0c1e57098, tools/server/server-context.cpp:657-695.
        """
        return [
            _item(slot, task, n_ctx, n_cells[slot], n_cells_shared[slot])
            for slot, task in enumerate(self._tasks)
        ]


def _item(
    slot: int, task: _Task | None, n_ctx: int, n_cells: int, n_cells_shared: int
) -> dict[str, Any]:
    is_processing = task is not None and task.choice.ticket.is_granted
    item: dict[str, Any] = {
        "id": slot,
        "n_ctx": n_ctx,
        "speculative": False,
        "is_processing": is_processing,
    }
    if task is None:
        return item
    sequence_text, params = task.choice.sequence_text, task.choice.writer.facts.settings
    timings, n_predict = sequence_text.timings, params.n_predict
    n_decoded = timings.n_decoded if is_processing else 0
    item |= {
        "id_task": task.id,
        "n_prompt_tokens": n_cells,
        "n_prompt_tokens_processed": timings.n_processed - timings.n_cached if is_processing else 0,
        "n_prompt_tokens_cache": timings.n_cached if is_processing else 0,
        "n_cells_shared": n_cells_shared,
        "params": params.to_defaults_json(),
        "next_token": [
            {
                "has_next_token": is_processing,
                "has_new_line": is_processing and sequence_text.has_new_line,
                "n_remain": n_predict - n_decoded if is_processing and n_predict >= 0 else -1,
                "n_decoded": n_decoded,
            }
        ],
    }
    return item
