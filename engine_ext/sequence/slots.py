"""The slots' contents outside any request: how much each holds; save, restore and erase them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from engine_ext.base.errors import EngineBusy, EngineError, SlotFileError, SlotNameError
from engine_ext.base.native import load_native
from engine_ext.sequence.events import FinishReason
from engine_ext.sequence.token_stream import TokenStream

if TYPE_CHECKING:
    from engine_ext import _native
else:
    _native = load_native()

# Numbers mirror csrc/slots/slot_action.h.
_COPY: Final = 0
_RESTORE: Final = 1
_ERASE: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotTransfer:
    """What a save or a restore moved. `elapsed_ms`: all of it, waiting for the slot excluded."""

    n_tokens: int
    n_bytes: int
    elapsed_ms: float


class Slots:
    """`Engine.slots`. An action waits until its slot is idle, and no request comes between.

    The decode thread copies states between two steps; files are read and written on other threads.
    """

    def __init__(
        self,
        native: _native.Engine,
        n_slots: int,
        streams: dict[int, TokenStream],
        new_id: Callable[[], int],
    ) -> None:
        self._native = native
        self._streams = streams
        self._new_id = new_id
        self.n_slots = n_slots

    def n_cells(self) -> list[int]:
        """Tokens in each slot's KV after the last step."""
        return [self._native.n_cells(slot) for slot in range(self.n_slots)]

    def n_cells_shared(self) -> list[int]:
        """Those of them that other slots, or prompts without one, hold in the same cells."""
        return [self._native.n_cells_shared(slot) for slot in range(self.n_slots)]

    async def save(self, slot: int, directory: Path, name: str) -> SlotTransfer:
        """Write the slot's state to `directory`/`name`, in llama-server's format.

        Raises: SlotFileError, SlotNameError; ValueError for a slot there is not; EngineBusy;
        EngineError.
        """
        action = await self._act(_COPY, slot)
        if not action.succeeded:
            raise EngineError("the slot's state cannot be copied")
        begin = time.perf_counter()
        n_bytes = await self._in_thread(self._native.write_slot_file, action, directory, name)
        elapsed_ms = (time.perf_counter() - begin) * 1e3
        return SlotTransfer(n_tokens=action.n_tokens, n_bytes=n_bytes, elapsed_ms=elapsed_ms)

    async def restore(
        self,
        slot: int,
        directory: Path,
        name: str,
        lora_scales: Sequence[float] = (),
        cache_domain: int = 0,
    ) -> SlotTransfer:
        """Put a saved state in the place of what the slot holds; a failure leaves it empty.

        `lora_scales`: those of each adapter that the state must have been computed with.
        `cache_domain`: whose requests may reuse it.
        Raises: as `save`; SlotFileError also where the state does not fit model or context.
        """
        begin = time.perf_counter()
        action = self._make_action(_RESTORE, slot)
        action.cache_domain = cache_domain
        read = partial(self._native.read_slot_file, lora_scales=list(lora_scales))
        n_bytes = await self._in_thread(read, action, directory, name)
        await self._run(action)
        # Giving 256 MiB back takes 25 ms, in which no stream would be sent.
        await asyncio.to_thread(action.drop_state)
        if not action.succeeded:
            raise SlotFileError("no room in the KV cache, or the state is of another kind of it")
        elapsed_ms = (time.perf_counter() - begin) * 1e3
        return SlotTransfer(n_tokens=action.n_tokens, n_bytes=n_bytes, elapsed_ms=elapsed_ms)

    async def erase(self, slot: int) -> int:
        """Forget what the slot holds; the number of tokens. Raises: as `save`."""
        return (await self._act(_ERASE, slot)).n_tokens

    async def _act(self, kind: int, slot: int) -> _native.SlotAction:
        action = self._make_action(kind, slot)
        await self._run(action)
        return action

    def _make_action(self, kind: int, slot: int) -> _native.SlotAction:
        if not 0 <= slot < self.n_slots:
            raise ValueError(f"slot: must be from 0 to {self.n_slots - 1}, but got {slot}")
        return _native.SlotAction(self._new_id(), kind, slot)

    async def _run(self, action: _native.SlotAction) -> None:
        if not self._native.act(action):
            raise EngineBusy("too many actions wait for a slot")
        # Once handed over it is done, even if the client leaves meanwhile.
        stream = self._streams[action.id] = TokenStream(action.id, lambda _: None, self._native)
        (event,) = await stream.read()
        if event.finish_reason != FinishReason.NONE:
            raise EngineError("the engine stopped, or failed, before the slot was free")

    async def _in_thread(
        self,
        function: Callable[[_native.SlotAction, str, str], int],
        action: _native.SlotAction,
        directory: Path,
        name: str,
    ) -> int:
        try:
            return await asyncio.to_thread(function, action, str(directory), name)
        except ValueError as error:
            raise SlotNameError(str(error)) from None
        except RuntimeError as error:
            raise SlotFileError(str(error)) from None
