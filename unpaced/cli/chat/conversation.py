"""What was said in a chat, and what requests ask for beside it."""

import json
from pathlib import Path
from typing import Any, Final

_OURS: Final = frozenset({"messages", "stream"})


class Conversation:
    """`settings`: fields of the request's body that the user has set."""

    def __init__(self, system: str = "") -> None:
        self.system = system
        self.settings: dict[str, Any] = {}
        self.messages: list[dict[str, str]] = []
        self._saved: Path | None = None

    def body(self, text: str) -> dict[str, Any]:
        """The request for an answer to `text`."""
        return self.settings | {
            "messages": [*self._system(), *self.messages, {"role": "user", "content": text}]
        }

    def add(self, text: str, answer: str) -> None:
        """Both were said."""
        self.messages += (
            {"role": "user", "content": text},
            {"role": "assistant", "content": answer},
        )

    def set(self, name: str, value: str) -> None:
        """Have requests ask for a field; "" takes it back. Raises: ValueError for ours."""
        if name in _OURS:
            raise ValueError(f"{name} is the chat's own")
        if not value:
            self.settings.pop(name, None)
            return
        try:
            self.settings[name] = json.loads(value)
        except ValueError:
            self.settings[name] = value  # a word without quotes

    def save(self, path: Path) -> None:
        """Write it as JSON, which /v1/chat/completions takes as a body. Raises: OSError, as where
        the file is there already, unless it was saved there before."""
        messages = [*self._system(), *self.messages]
        text = json.dumps(self.settings | {"messages": messages}, indent=2, ensure_ascii=False)
        with path.open("w" if path == self._saved else "x", encoding="utf-8") as file:
            file.write(text + "\n")
        self._saved = path

    def _system(self) -> list[dict[str, str]]:
        return [{"role": "system", "content": self.system}] if self.system else []
