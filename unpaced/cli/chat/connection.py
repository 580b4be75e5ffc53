"""What the chat asks of a server: its model's name, and answers as they come."""

import json
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

_TIMEOUT: Final = httpx.Timeout(10.0, read=None)


class Refused(Exception):
    """There is no answer; the text says why."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What comes of an answer: some text, some of the model's reasoning, or the figures at its
    end (llama-server's `timings`)."""

    text: str = ""
    reasoning: str = ""
    timings: dict[str, Any] | None = None


class Connection:
    """A server at `url`, or behind a Unix socket. Methods raise httpx.HTTPError and Refused."""

    def __init__(self, url: str, key: str, *, socket: Path | None = None) -> None:
        self._url, self._key, self._socket = url, key, socket
        self._client = self._new_client()

    def close(self) -> None:
        """Close what is open."""
        self._client.close()

    def _new_client(self) -> httpx.Client:
        return httpx.Client(
            timeout=_TIMEOUT,
            transport=None if self._socket is None else httpx.HTTPTransport(uds=str(self._socket)),
            headers={"authorization": f"Bearer {self._key}"} if self._key else {},
            trust_env=False,
        )

    def model_name(self) -> str:
        """The model's first name."""
        response = self._client.get(f"{self._url}/v1/models")
        if response.status_code != 200:
            raise self._refused(response)
        try:
            return str(response.json()["data"][0]["id"])
        except (ValueError, LookupError, TypeError):
            raise Refused(f"{self._url}: not an unpaced server?") from None

    def answer(self, body: dict[str, Any]) -> Generator[Piece, None, None]:
        """Stream one chat completion; closing the iterator stops it on the server, too."""
        try:
            yield from self._answer(body)
        except KeyboardInterrupt:
            # It may come where httpx has a response that nobody will close: the server would go on.
            self._client.close()
            self._client = self._new_client()
            raise

    def _answer(self, body: dict[str, Any]) -> Generator[Piece, None, None]:
        url = f"{self._url}/v1/chat/completions"
        with self._client.stream("POST", url, json=body | {"stream": True}) as response:
            if response.status_code != 200:
                response.read()
                raise self._refused(response)
            for line in response.iter_lines():
                if line.startswith("data: ") and line != "data: [DONE]":
                    yield _piece(json.loads(line.removeprefix("data: ")))

    def _refused(self, response: httpx.Response) -> Refused:
        try:
            message = str(response.json()["error"]["message"])
        except (ValueError, LookupError, TypeError):
            message = f"{self._url}: not an unpaced server?"
        hint = " (--api-key)" if response.status_code == 401 else ""
        return Refused(f"{response.status_code}: {message}{hint}")


def _piece(event: dict[str, Any]) -> Piece:
    if "error" in event:
        error = event["error"]
        raise Refused(str(error.get("message", error)) if isinstance(error, dict) else str(error))
    delta = event["choices"][0]["delta"] if event.get("choices") else {}
    return Piece(
        delta.get("content") or "", delta.get("reasoning_content") or "", event.get("timings")
    )
