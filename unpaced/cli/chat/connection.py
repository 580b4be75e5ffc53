"""What the chat asks of a server: its model's name, and answers as they come."""

import json
from collections.abc import AsyncGenerator
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
        self._url = url
        self._client = httpx.AsyncClient(
            timeout=_TIMEOUT,
            transport=None if socket is None else httpx.AsyncHTTPTransport(uds=str(socket)),
            headers={"authorization": f"Bearer {key}"} if key else {},
            trust_env=False,
        )
        self.aclose = self._client.aclose

    async def model_name(self) -> str:
        """The model's first name."""
        try:
            response = await self._client.get(f"{self._url}/v1/models")
        except httpx.ConnectError as error:
            raise Refused(
                f"no server at {self._url} ({error}); "
                "`unpaced chat MODEL` starts one, --url names another"
            ) from None
        if response.status_code != 200:
            raise self._refused(response)
        try:
            return str(response.json()["data"][0]["id"])
        except (ValueError, LookupError, TypeError):
            raise Refused(f"{self._url}: not an unpaced server?") from None

    async def answer(self, body: dict[str, Any]) -> AsyncGenerator[Piece, None]:
        """Stream one chat completion; closing the iterator stops it on the server, too."""
        url = f"{self._url}/v1/chat/completions"
        async with self._client.stream("POST", url, json=body | {"stream": True}) as response:
            if response.status_code != 200:
                await response.aread()
                raise self._refused(response)
            async for line in response.aiter_lines():
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
