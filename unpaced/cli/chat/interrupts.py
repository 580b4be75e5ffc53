"""Ctrl-C, where it ends what is awaited and nothing else."""

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, TypeVar

_Result = TypeVar("_Result")


class Interrupted(Exception):
    """Ctrl-C came."""


class Interrupts:
    """Takes SIGINT from `__enter__` to `__exit__`, in the main thread's event loop.

    Python's own handler raises wherever the program happens to be: between the acquisition of a
    lock and the `with` that releases it, or where an HTTP library has a response that nobody will
    close. Here the loop hears of the signal, and cancels what is awaited at its next step. One
    that comes when nothing is, or when that has just ended, is for what is awaited next.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[Any] | None = None
        self._has_come = False

    def __enter__(self) -> "Interrupts":
        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)

    async def ending(self, work: Coroutine[Any, Any, _Result]) -> _Result:
        """What `work` returns. Raises: Interrupted, once Ctrl-C has ended it."""
        task = asyncio.create_task(work)
        self._task = task
        if self._has_come:
            task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            if not self._has_come:  # somebody else ends the whole program
                raise
            self._has_come = False
            raise Interrupted from None
        finally:
            self._task = None

    def _interrupt(self) -> None:
        self._has_come = True
        if self._task is not None:
            self._task.cancel()
