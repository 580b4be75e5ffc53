"""What chat needs, imported when it is first needed."""

import asyncio
import importlib
import threading
from typing import Final

_NAMES: Final = (
    "unpaced.chat.completion",
    "unpaced.schemas.messages",
    "unpaced.schemas.responses",
    "unpaced.writers.anthropic",
    "unpaced.writers.responses_api",
)
_imported: Final = threading.Event()


async def import_chat() -> None:
    """Import it on another thread: it takes a fifth of a second, in which streams go on.

    Where it is there already, nothing is waited for.
    """
    if not _imported.is_set():
        await asyncio.to_thread(_import)


def _import() -> None:
    for name in _NAMES:
        importlib.import_module(name)  # several threads wait for one another
    _imported.set()
