"""`unpaced health`: for Docker's HEALTHCHECK and for scripts; no curl needed."""

import argparse
import http.client
import json
import os
import sys
from collections.abc import Sequence
from urllib.parse import SplitResult, urlsplit


def default_url() -> str:
    """The server that the environment describes, or the default one."""
    host = os.environ.get("UNPACED_HOST") or os.environ.get("LLAMA_ARG_HOST") or "127.0.0.1"
    port = os.environ.get("UNPACED_PORT") or os.environ.get("LLAMA_ARG_PORT") or "8080"
    prefix = os.environ.get("UNPACED_API_PREFIX") or os.environ.get("LLAMA_ARG_API_PREFIX") or ""
    host = host.split(",")[0].strip()
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    tls = os.environ.get("UNPACED_SSL_CERT_FILE") or os.environ.get("LLAMA_ARG_SSL_CERT_FILE")
    scheme = "https" if tls else "http"
    return (
        f"{scheme}://[{host}]:{port}{prefix}"
        if ":" in host
        else f"{scheme}://{host}:{port}{prefix}"
    )


def health_parser() -> argparse.ArgumentParser:
    """The command's flags."""
    parser = argparse.ArgumentParser(
        prog="unpaced health",
        description="Ask a server whether it is ready for requests: exit status 0 if it is.",
    )
    parser.add_argument(
        "--url", default=default_url(), help="address of the server; default: %(default)s"
    )
    parser.add_argument(
        "--api-key",
        metavar="KEY",
        help="key for whatever stands in front of the server, which asks for none; sent by https "
        "only if the certificate is good",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=5.0,
        metavar="S",
        help="seconds to wait; default: %(default)s",
    )
    return parser


def check_health(arguments: Sequence[str]) -> int:
    """0 if the server is ready, 1 if not; says why."""
    given = health_parser().parse_args(arguments)
    url = urlsplit(given.url)
    connection = _connect(url, given.timeout, is_checked=bool(given.api_key))
    headers = {"Authorization": f"Bearer {given.api_key}"} if given.api_key else {}
    try:
        connection.request("GET", f"{url.path.rstrip('/')}/health/ready", headers=headers)
        response = connection.getresponse()
        body = response.read()
    except (OSError, http.client.HTTPException) as error:
        print(f"{given.url}: {error}", file=sys.stderr)
        return 1
    finally:
        connection.close()
    if response.status == 200:
        print("ok")
        return 0
    try:
        message = json.loads(body)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        message = "not an unpaced server?"
    print(f"{given.url}: {response.status}: {message}", file=sys.stderr)
    return 1


def _connect(url: SplitResult, timeout_s: float, *, is_checked: bool) -> http.client.HTTPConnection:
    host = url.hostname or "127.0.0.1"
    if url.scheme != "https":
        return http.client.HTTPConnection(host, url.port or 80, timeout=timeout_s)
    import ssl

    context = ssl.create_default_context()
    if not is_checked:
        # A probe asks whether the server answers, under whatever name; it sends nothing secret.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(host, url.port or 443, timeout=timeout_s, context=context)
