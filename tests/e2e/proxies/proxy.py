"""nginx and Caddy with the configurations of deploy/, in front of a real server."""

import contextlib
import os
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import httpx

from tests.bench.rig.server_process import ServerProcess, free_port

DEPLOY: Final = Path(__file__).resolve().parents[3] / "deploy"
NAME: Final = "llm.example.org"


class Proxy:
    """A proxy that runs, and clients of it that know its certificate."""

    def __init__(self, name: str, port: int, certificate: Path, log: Path) -> None:
        self.name = name
        self.port = port
        self.certificate = certificate
        self.log = log
        self.url = f"https://{NAME}:{port}"

    def client(self, *, local_address: str = "127.0.0.1") -> httpx.Client:
        """An HTTP/1.1 client; close it. `local_address`: where the proxy sees it come from."""
        context = ssl.create_default_context(cafile=str(self.certificate))
        return httpx.Client(
            base_url=f"https://127.0.0.1:{self.port}",
            headers={"host": NAME},
            transport=_Named(httpx.HTTPTransport(verify=context, local_address=local_address)),
            timeout=60,
        )

    def curl(self, path: str, *arguments: str) -> list[str]:
        """curl's command for this path; it speaks HTTP/2 where the proxy does."""
        resolve = ["--resolve", f"{NAME}:{self.port}:127.0.0.1"]
        known = ["--cacert", str(self.certificate)]
        return ["curl", "-sS", "-N", *resolve, *known, *arguments, self.url + path]


class _Named(httpx.BaseTransport):
    """Asks the address for the certificate of the name."""

    def __init__(self, transport: httpx.HTTPTransport) -> None:
        self._transport = transport

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.extensions["sni_hostname"] = NAME
        return self._transport.handle_request(request)

    def close(self) -> None:
        self._transport.close()


def changed(path: Path, replacements: Mapping[str, str]) -> str:
    """A deployed file with these texts replaced; each must be in it."""
    text = path.read_text()
    for old, new in replacements.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


@contextlib.contextmanager
def nginx(
    server_port: int, folder: Path, replacements: Mapping[str, str] | None = None
) -> Iterator[Proxy]:
    """nginx with the deployed site, but for port, certificate and `replacements`."""
    certificate, key = make_certificate(folder)
    port = free_port()
    site = {
        "listen 443 ssl http2;": f"listen 127.0.0.1:{port} ssl http2;",
        "server 127.0.0.1:8080 ": f"server 127.0.0.1:{server_port} ",
        "/etc/ssl/unpaced/fullchain.pem": str(certificate),
        "/etc/ssl/unpaced/privkey.pem": str(key),
    }
    paths = "\n".join(
        f"{kind}_temp_path {folder / kind};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    deployed = changed(DEPLOY / "nginx" / "unpaced.conf", site | dict(replacements or {}))
    user = "user root; " if os.geteuid() == 0 else ""  # else its workers may not write to `folder`
    (folder / "nginx.conf").write_text(
        f"{user}daemon off; worker_processes 1; pid {folder / 'pid'}; error_log stderr;\n"
        f"events {{}}\nhttp {{\naccess_log off;\n{paths}\n"
        # Instead of a minute, for a site that forgets to say it.
        f"proxy_read_timeout 1s;\n{deployed}\n}}\n"
    )
    command = ["nginx", "-p", str(folder), "-e", "stderr", "-c", str(folder / "nginx.conf")]
    with _running(command, port, certificate, folder, {}) as proxy:
        yield proxy


@contextlib.contextmanager
def caddy(server_port: int, folder: Path) -> Iterator[Proxy]:
    """Caddy with the deployed site, but for ports and a certificate that nobody has to issue."""
    certificate, key = make_certificate(folder)
    port = free_port()
    site = {
        f"{NAME} {{": f"https://{NAME}:{port} {{\n\tbind 127.0.0.1\n\ttls {certificate} {key}",
        "reverse_proxy 127.0.0.1:8080 ": f"reverse_proxy 127.0.0.1:{server_port} ",
    }
    options = "{\n\tadmin off\n\tauto_https disable_redirects\n}\n"
    (folder / "Caddyfile").write_text(options + changed(DEPLOY / "caddy" / "Caddyfile", site))
    command = ["caddy", "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]
    homes = {name: str(folder) for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")}
    with _running(command, port, certificate, folder, homes) as proxy:
        yield proxy


@contextlib.contextmanager
def _running(
    command: list[str], port: int, certificate: Path, folder: Path, env: dict[str, str]
) -> Iterator[Proxy]:
    proxy = Proxy(command[0], port, certificate, folder / "log")
    process = _ProxyProcess(command, env, port, proxy.log)
    process.proxy = proxy
    try:
        process.wait_healthy(30)
        yield proxy
    finally:
        process.stop()


class _ProxyProcess(ServerProcess):
    proxy: Proxy

    def _is_healthy(self) -> bool:
        with contextlib.suppress(httpx.HTTPError), self.proxy.client() as client:
            return client.get("/health").status_code == 200
        return False


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """A self-signed certificate for NAME, and its key."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "2", "-subj", f"/CN={NAME}", "-addext"]
    command += [f"subjectAltName=DNS:{NAME}", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key
