"""Values that remember whether a template looked at them."""

from collections.abc import Iterator
from typing import Any, SupportsIndex


class Usage:
    """What a template did, by path such as "messages/0/content"."""

    def __init__(self) -> None:
        self.used: set[str] = set()
        self.iterated: set[str] = set()
        self.tested_as_string: set[str] = set()


class TrackedString(str):
    """A string with a path."""

    usage: Usage
    path: str

    def __iter__(self) -> Iterator[str]:
        self.usage.iterated.add(self.path)
        return super().__iter__()

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        if not isinstance(key, slice):
            self.usage.iterated.add(self.path)
        return super().__getitem__(key)


class TrackedList(list[Any]):
    """A list with a path; its items count as used one by one."""

    usage: Usage
    path: str

    def __iter__(self) -> Iterator[Any]:
        self.usage.iterated.add(self.path)
        for i, value in enumerate(super().__iter__()):
            self.usage.used.add(f"{self.path}/{i}")
            yield value

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, int):
            self.usage.iterated.add(self.path)
            self.usage.used.add(f"{self.path}/{key % len(self) if len(self) else key}")
        return super().__getitem__(key)


class TrackedDict(dict[str, Any]):
    """An object with a path."""

    usage: Usage
    path: str

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        self.usage.used.add(f"{self.path}/{key}")
        return value

    def get(self, key: str, default: Any = None) -> Any:
        """As a dict's."""
        if key not in self:
            return default
        return self[key]

    def items(self) -> Any:
        """As a dict's; uses all of it."""
        self._use_all()
        return super().items()

    def values(self) -> Any:
        """As a dict's; uses all of it."""
        self._use_all()
        return super().values()

    def __repr__(self) -> str:
        self._use_all()
        return "{" + ", ".join(f"{key!r}: {self[key]!r}" for key in self) + "}"

    def _use_all(self) -> None:
        self.usage.used.update(f"{self.path}/{key}" for key in self)


def track(value: Any, usage: Usage, path: str) -> Any:
    """A copy of a JSON value whose parts tell `usage` when they are looked at."""
    tracked: Any
    if isinstance(value, str):
        tracked = TrackedString(value)
    elif isinstance(value, list):
        tracked = TrackedList(track(item, usage, f"{path}/{i}") for i, item in enumerate(value))
    elif isinstance(value, dict):
        tracked = TrackedDict({k: track(v, usage, f"{path}/{k}") for k, v in value.items()})
    else:
        return value
    tracked.usage = usage
    tracked.path = path
    return tracked


def untrack(value: Any) -> Any:
    """A plain copy; everything in it counts as used."""
    if isinstance(value, TrackedDict):
        return {key: untrack(item) for key, item in value.items()}
    if isinstance(value, TrackedList):
        value.usage.used.update(f"{value.path}/{i}" for i in range(len(value)))
        return [untrack(item) for item in list.__iter__(value)]
    if isinstance(value, dict):
        return {key: untrack(item) for key, item in value.items()}
    if isinstance(value, list):
        return [untrack(item) for item in value]
    return str(value) if isinstance(value, TrackedString) else value
