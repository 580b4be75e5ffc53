"""Text to token ids and back without holding the event loop."""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from engine_ext.base.errors import TextError
from engine_ext.threads.fair_threads import FairThreads

if TYPE_CHECKING:
    from engine_ext import _native

T = TypeVar("T")

# Bytes: csrc's Vocabulary::kAnyStackBytes and Engine::kLongBytes. Up to the first, tokenising takes
# less than handing it to a thread; texts over the second have threads of their own, so that others
# never wait for them.
_INLINE_BYTES: Final = 2048
_LONG_BYTES: Final = 16384
_BATCH_TEXTS: Final = 256
# Of an array that becomes a list between two looks at the event loop: about a millisecond.
_SLICE: Final = 65536


class Tokenizer:
    """The model's tokeniser. `n_threads` for long texts, and one for the others, which never wait
    for a long one; of each client `n_waiting_max` texts may wait for either. Threads go to clients
    in turn.

    Every method that takes text raises TextError for one that cannot be tokenised, EngineBusy where
    too many wait. Event loop's thread only.
    """

    def __init__(self, native: _native.Engine, n_threads: int, n_waiting_max: int) -> None:
        self._native = native
        self._short = FairThreads("tokenise", 1, n_waiting_max)
        self._long = FairThreads("tokenise long texts", n_threads, n_waiting_max)

    def stop(self) -> None:
        """Begin nothing new."""
        self._short.stop()
        self._long.stop()

    async def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Token ids of `text`."""
        data = _bytes_of(text)
        if len(data) <= _INLINE_BYTES:
            return _checked(partial(self._native.tokenize, data, add_special, parse_special))
        return await to_list(await self._array(data, add_special, parse_special))

    async def tokenize_array(
        self, text: str, *, add_special: bool, parse_special: bool
    ) -> array[int]:
        """Do as `tokenize` does, for texts of which millions of tokens may come."""
        data = _bytes_of(text)
        if len(data) > _INLINE_BYTES:
            return await self._array(data, add_special, parse_special)
        work = partial(self._native.tokenize, data, add_special, parse_special)
        return array("i", _checked(work))

    async def tokenize_all(
        self, texts: Sequence[str], *, add_special: bool, parse_special: bool
    ) -> list[list[int]]:
        """Token ids of each of them; takes less than one after the other."""
        found: list[list[int]] = []
        for batch in _batches(texts):
            if len(batch[0]) > _LONG_BYTES:
                long = await self._array(batch[0], add_special, parse_special)
                found.append(await to_list(long))
                continue
            work = partial(self._native.tokenize_each, batch, add_special, parse_special)
            if len(texts) == len(batch) and sum(map(len, batch)) <= _INLINE_BYTES:
                found += _checked(work)
            else:
                found += await self._short.run(partial(_checked, work))
        return found

    async def detokenize(self, tokens: Sequence[int], n_vocab: int, *, special: bool) -> bytes:
        """The tokens' text. Raises: ValueError for an id outside the vocabulary."""
        for token in tokens:
            if not 0 <= token < n_vocab:
                raise ValueError(f"tokens: token {token} is not in [0, {n_vocab})")
        return await asyncio.to_thread(self._native.detokenize, list(tokens), special)

    async def _array(self, data: bytes, add_special: bool, parse_special: bool) -> array[int]:
        threads = self._long if len(data) > _LONG_BYTES else self._short
        work = partial(self._native.tokenize_array, data, add_special, parse_special)
        ids = array("i")
        ids.frombytes(await threads.run(partial(_checked, work)))
        return ids


async def to_list(ids: array[int]) -> list[int]:
    """The same as a list; others get their turn meanwhile."""
    found = ids[:_SLICE].tolist()
    for at in range(_SLICE, len(ids), _SLICE):
        await asyncio.sleep(0)
        found += ids[at : at + _SLICE].tolist()
    return found


def _batches(texts: Sequence[str]) -> Iterator[list[bytes]]:
    """Texts that are tokenised at once; a long one is alone."""
    batch: list[bytes] = []
    n_bytes = 0
    for text in texts:
        data = _bytes_of(text)
        if batch and (n_bytes + len(data) > _LONG_BYTES or len(batch) == _BATCH_TEXTS):
            yield batch
            batch, n_bytes = [], 0
        batch.append(data)
        n_bytes += len(data)
    if batch:
        yield batch


def _bytes_of(text: str) -> bytes:
    return text.encode("utf-8", errors="replace")


def _checked(tokenize: Callable[[], T]) -> T:
    try:
        return tokenize()
    except ValueError as error:
        raise TextError(str(error)) from None
