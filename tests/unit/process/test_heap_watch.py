"""Memory is given back once it has grown and grows no more, and again while it may yet be freed."""

import asyncio

import pytest

from unpaced.process.heap_watch import HeapWatch

MIB = 1 << 20


class Heap:
    """A process's memory in MiB, and the sizes at which it was to be given back."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.tries: list[int] = []
        self.watch = HeapWatch(lambda: self.tries.append(self.size), lambda: self.size * MIB)

    async def looks(self, *sizes: int) -> None:
        """One look at each size."""
        for self.size in sizes:
            self.watch.look()
            for _ in range(3):  # a try is another thread's
                await asyncio.sleep(0.01)


@pytest.mark.anyio
async def test_it_waits_until_memory_has_grown_and_is_steady() -> None:
    heap = Heap(100)
    await heap.looks(110, 110, 400, 500)
    assert heap.tries == []
    await heap.looks(500)
    assert heap.tries == [500]


@pytest.mark.anyio
async def test_what_was_in_use_at_first_is_given_back_later() -> None:
    heap = Heap(100)
    await heap.looks(300, 300, *[200] * 63)
    # After 1, 2, 4, 8, 16 and 32 more looks; then it counts as in use.
    assert heap.tries == [300, *[200] * 5]
    await heap.looks(*[200] * 40, 210, 210)
    assert len(heap.tries) == 6
    await heap.looks(230, 230)
    assert heap.tries[6:] == [230]


@pytest.mark.anyio
async def test_memory_that_came_back_is_looked_at_as_anew() -> None:
    heap = Heap(100)
    await heap.looks(300, 300, 105, 105, 300, 300)
    assert heap.tries == [300, 300]
