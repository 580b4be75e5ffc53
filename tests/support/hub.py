"""A small Hugging Face hub on 127.0.0.1, whose connections can be cut."""

import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(ThreadingHTTPServer):
    """Serves `files` in each of its repositories. `cut_after`: bytes until a download breaks off,
    `n_cuts` times; `n_busy`: how often it will answer 503; `ranges`: what was asked for."""

    daemon_threads = True

    def __init__(self, files: dict[str, bytes], repositories: Sequence[str]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories = repositories
        self.files = files
        self.cut_after: int | None = None
        self.n_cuts = 1
        self.n_busy = 0
        self.ranges: list[str | None] = []
        self.wrong_sha256 = False
        self.keys: set[str | None] = set()

    @property
    def url(self) -> str:
        """For HF_ENDPOINT."""
        return f"http://127.0.0.1:{self.server_port}"

    def sha256(self, name: str) -> str:
        """What the hub says of a file."""
        return "0" * 64 if self.wrong_sha256 else hashlib.sha256(self.files[name]).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, with_body: bool) -> None:
        self.server.keys.add(self.headers.get("authorization"))
        path = urlsplit(self.path).path
        hub = self.server
        listed = path.removeprefix("/api/models/")
        if listed in hub.repositories:
            self._list(listed)
            return
        found = re.fullmatch(r"/([^/]+/[^/]+)/resolve/(?:main|" + COMMIT + r")/(.+)", path)
        if found is None or found[1] not in hub.repositories or found[2] not in hub.files:
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self._file(found[2], with_body)

    def _list(self, repository: str) -> None:
        hub = self.server
        if hub.n_busy > 0:
            hub.n_busy -= 1
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        files = [
            {
                "rfilename": name,
                "size": len(data),
                "blobId": "a" * 40,
                "lfs": {"sha256": hub.sha256(name), "size": len(data), "pointerSize": 134},
            }
            for name, data in hub.files.items()
        ]
        self._json({"id": repository, "sha": COMMIT, "siblings": files})

    def _json(self, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _file(self, name: str, with_body: bool) -> None:
        hub, data = self.server, self.server.files[name]
        asked = self.headers.get("range")
        start = int(asked.removeprefix("bytes=").partition("-")[0]) if asked else 0
        self.send_response(206 if asked else 200)
        self.send_header("ETag", f'"{hub.sha256(name)}"')
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(data) - start))
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.end_headers()
        if not with_body:
            return
        hub.ranges.append(asked)
        if hub.cut_after is not None and hub.n_cuts > 0:
            hub.n_cuts -= 1
            self.wfile.write(data[start : start + hub.cut_after])
            self.close_connection = True
            return
        self.wfile.write(data[start:])


@contextlib.contextmanager
def serving_hub(
    files: dict[str, bytes], repositories: Sequence[str] = ("user/repo",)
) -> Iterator[Hub]:
    """A hub in a thread of its own."""
    hub = Hub(files, repositories)
    thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield hub
    finally:
        hub.shutdown()
        thread.join()
        hub.server_close()
