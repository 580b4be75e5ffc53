"""`unpaced complete`: a prompt from the command line to a running server."""

import argparse
import contextlib
import json
import signal
import sys
from collections.abc import Iterator, Sequence
from typing import Any

import httpx

from unpaced.cli.health import default_url
from unpaced.cli.key import default_key


def complete_parser() -> argparse.ArgumentParser:
    """The command's flags."""
    parser = argparse.ArgumentParser(
        prog="unpaced complete",
        description="Send a prompt to a running server and print the completion as it comes.",
    )
    parser.add_argument("prompt", help="text to continue; - reads standard input")
    parser.add_argument(
        "-n",
        "--max-tokens",
        type=int,
        default=-1,
        metavar="N",
        help="tokens to generate; -1, the default: until the text ends",
    )
    parser.add_argument("--temperature", type=float, metavar="T", help="default: the server's")
    parser.add_argument("--seed", type=int, metavar="N", help="default: the server's")
    parser.add_argument(
        "--stop",
        action="append",
        metavar="TEXT",
        help="text that ends the completion; may be given several times",
    )
    parser.add_argument(
        "--url", default=default_url(), help="address of the server; default: %(default)s"
    )
    parser.add_argument(
        "--api-key",
        metavar="KEY",
        help="key for a server that asks for one; default: UNPACED_API_KEY or LLAMA_API_KEY",
    )
    return parser


def complete(arguments: Sequence[str]) -> int:
    """Print the completion as it comes. Returns 1 if the server refuses or cannot be reached.

    Ctrl-C ends the process by the signal, as if Python had no handler for it.
    """
    given = complete_parser().parse_args(arguments)
    body = {
        "prompt": sys.stdin.read() if given.prompt == "-" else given.prompt,
        "max_tokens": given.max_tokens,
        "temperature": given.temperature,
        "seed": given.seed,
        "stop": given.stop,
        "stream": True,
    }
    key = default_key() if given.api_key is None else given.api_key
    try:
        with _ended_by_ctrl_c():
            return _print_stream(given.url.rstrip("/"), body, key)
    except httpx.HTTPError as error:
        print(f"{given.url}: {error}", file=sys.stderr)
        return 1


@contextlib.contextmanager
def _ended_by_ctrl_c() -> Iterator[None]:
    """Leaves SIGINT to the kernel, which closes the connection: the server stops.

    Python's own handler raises wherever the program happens to be, also between the acquisition of
    a lock of httpcore and the block that releases it, which the end of the connection waits for.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # not where somebody ignores it, as nohup's jobs do
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _print_stream(url: str, body: dict[str, Any], key: str) -> int:
    timeout = httpx.Timeout(10.0, read=None)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    with (
        httpx.Client(timeout=timeout, trust_env=False) as client,
        client.stream("POST", f"{url}/v1/completions", json=body, headers=headers) as response,
    ):
        if response.status_code != 200:
            response.read()
            hint = " (--api-key)" if response.status_code == 401 else ""
            print(f"{url}: {response.status_code}: {_refusal(response)}{hint}", file=sys.stderr)
            return 1
        for event in _events(response.iter_lines()):
            if "error" in event:
                print(f"\n{_message(event)}", file=sys.stderr)
                return 1
            print(event["choices"][0]["text"], end="", flush=True)
    print()
    return 0


def _events(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        if line.startswith("data: ") and line != "data: [DONE]":
            yield json.loads(line.removeprefix("data: "))


def _refusal(response: httpx.Response) -> str:
    try:
        return _message(response.json())
    except ValueError:
        return "not an unpaced server?"


def _message(body: Any) -> str:
    try:
        return str(body["error"]["message"])
    except (KeyError, TypeError):
        return str(body)
