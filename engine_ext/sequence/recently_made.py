"""What was made recently, kept for whoever asks for the same again."""

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, TypeVar

K = TypeVar("K")
T = TypeVar("T")

_N_KEPT: Final = 16


class RecentlyMade(Generic[K, T]):
    """The last 16, by what they were made from. Any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: OrderedDict[K, T] = OrderedDict()

    def get(self, key: K) -> T | None:
        """What was made; None if it was not, or is forgotten."""
        with self._lock:
            if key in self._made:
                self._made.move_to_end(key)
            return self._made.get(key)

    def get_or_make(self, key: K, make: Callable[[], T]) -> T:
        """The same, made where it is missing: kept also if nobody waits for it any more."""
        found = self.get(key)
        if found is not None:
            return found
        made = make()
        with self._lock:
            self._made[key] = made
            if len(self._made) > _N_KEPT:
                self._made.popitem(last=False)
        return made
