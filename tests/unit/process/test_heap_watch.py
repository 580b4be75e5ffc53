"""Memory is given back once it has grown and grows no more."""

import asyncio

import pytest

from server.process.heap_watch import HeapWatch

MIB = 1 << 20


@pytest.mark.anyio
async def test_it_waits_until_memory_has_grown_and_is_steady() -> None:
    sizes = iter([100, 110, 110, 400, 500, 500, 150, 160, 172, 173, 170])
    calls: list[int] = []
    given = asyncio.Event()
    loop = asyncio.get_running_loop()

    def give_back() -> None:
        calls.append(0)
        loop.call_soon_threadsafe(given.set)

    watch = HeapWatch(give_back, lambda: next(sizes) * MIB)
    for _ in range(5):  # to 500, which it has only just reached
        watch.look()
    assert not calls
    watch.look()
    await given.wait()
    await asyncio.sleep(0.05)  # 150 are left
    for _ in range(2):  # 160, 172: in use by then, and still growing
        watch.look()
    assert len(calls) == 1
    given.clear()
    watch.look()  # 173
    await given.wait()
    assert len(calls) == 2
